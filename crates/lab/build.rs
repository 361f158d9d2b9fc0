//! Which studies does the program carry? Every file of `lab/scenarios` and `lab/reference`, so that a binary
//! without the repository can run them.

use std::{
    env,
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
};

fn main() -> io::Result<()> {
    // Of the checkout that is built now, which need not be the one in which this script was compiled.
    let root = env::var_os("CARGO_MANIFEST_DIR").ok_or_else(|| io::Error::other("no package"))?;
    let lab = Path::new(&root).join("../../lab");
    let mut files = Vec::new();
    for folder in ["scenarios", "reference"] {
        collect(&lab.join(folder), &mut files)?;
    }
    files.sort();
    let mut text = String::from("[\n");
    for file in &files {
        let name = file.strip_prefix(&lab).map_err(io::Error::other)?;
        let file = file.display().to_string();
        let _ = writeln!(
            text,
            "({:?}, include_str!({file:?})),",
            name.display().to_string()
        );
    }
    text.push(']');
    let out = env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("no OUT_DIR"))?;
    fs::write(Path::new(&out).join("lab.rs"), text)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    println!("cargo::rerun-if-changed={}", folder.display());
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "toml" || e == "csv") {
            files.push(path);
        }
    }
    Ok(())
}
