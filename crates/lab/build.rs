//! Texts of every study: each file of `lab/scenarios` and `lab/reference`, so that a binary without the repository can run
//! them. This package has both folders by symbolic links, which cargo follows when it packs the crate.

use std::{
    env,
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
};

fn main() -> io::Result<()> {
    let mut files = Vec::new();
    for folder in ["scenarios", "reference"] {
        // From this package's folder, in which cargo runs this. No path of the checkout is built in: another one may use
        // the result.
        collect(Path::new(folder), &mut files)?;
    }
    files.sort();
    let mut studies = String::from("[\n");
    for file in &files {
        let text = fs::read_to_string(file)?;
        let _ = writeln!(studies, "({:?}, {text:?}),", file.display().to_string());
    }
    studies.push(']');
    let out = env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("no OUT_DIR"))?;
    fs::write(Path::new(&out).join("lab.rs"), studies)
}

/// Texts in `folder`. Cargo runs this again if anything in there changes.
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
