//! Does today's program still copy with the previous version? That is built from the history, once for a folder of
//! builds, and the ignored tests of `crates/cli/tests/cp/versions.rs` copy with it both ways.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    Outcome,
    ci::{pass_through, print_line},
};

/// The commit of the previous version; the next release puts its own here.
const PREVIOUS: &str = "552527e";

/// Runs it.
pub(crate) fn stage(root: &Path, kept: &mut Vec<String>) -> Outcome {
    if !is_known(root) {
        let line = format!("skipped: this clone has no commit {PREVIOUS} (git fetch --unshallow)");
        print_line(&line);
        kept.push(line);
        return Ok(());
    }
    let previous = built(root, kept)?;
    let mut test = cargo(root);
    test.args(["test", "-p", "farhaul", "--test", "cp", "--", "--ignored"])
        .arg("versions::")
        .env("PREVIOUS_FARHAUL", previous);
    pass_through(
        &mut test,
        "cargo test -p farhaul --test cp -- --ignored versions::",
        kept,
    )
}

fn is_known(root: &Path) -> bool {
    let mut ask = Command::new("git");
    ask.args(["cat-file", "-e"])
        .arg(format!("{PREVIOUS}^{{commit}}"))
        .current_dir(root)
        .stderr(Stdio::null());
    ask.status().is_ok_and(|status| status.success())
}

/// Where the program of the previous version is, once it was built.
fn place(root: &Path) -> std::io::Result<PathBuf> {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    std::path::absolute(target.join("previous").join(PREVIOUS))
}

/// The program of the previous version, if it was built.
pub(crate) fn program(root: &Path) -> Option<PathBuf> {
    let program = place(root).ok()?.join("farhaul");
    program.exists().then_some(program)
}

/// The same, made in a folder of its own: Cargo does not tell apart crates of the same name that lie in two copies of a
/// workspace.
fn built(root: &Path, kept: &mut Vec<String>) -> Result<PathBuf, Vec<String>> {
    if let Some(program) = program(root) {
        return Ok(program);
    }
    let folder = place(root).map_err(|e| vec![e.to_string()])?;
    let (source, program) = (folder.join("source"), folder.join("farhaul"));
    let failed = |what: &Path| {
        let what = what.display().to_string();
        move |e: std::io::Error| vec![format!("{what}: {e}")]
    };
    fs::create_dir_all(&source).map_err(failed(&source))?;
    let tree = folder.join("source.tar");
    let mut archive = Command::new("git");
    archive
        .args(["archive", "--output"])
        .arg(&tree)
        .arg(PREVIOUS);
    pass_through(archive.current_dir(root), "git archive", kept)?;
    let mut unpack = Command::new("tar");
    unpack.arg("-xf").arg(&tree).arg("-C").arg(&source);
    pass_through(&mut unpack, "tar -xf", kept)?;
    let mut build = cargo(&source);
    build
        .args(["build", "-p", "farhaul", "--locked"])
        .env("CARGO_TARGET_DIR", folder.join("target"))
        // Nobody debugs it.
        .env("CARGO_PROFILE_DEV_DEBUG", "0");
    pass_through(
        &mut build,
        &format!("cargo build -p farhaul ({PREVIOUS})"),
        kept,
    )?;
    let made = folder.join("target/debug/farhaul");
    // Under its name it exists whole or not at all.
    let copy = folder.join("farhaul.new");
    fs::copy(&made, &copy).map_err(failed(&made))?;
    fs::rename(&copy, &program).map_err(failed(&program))?;
    let rest = folder.join("target");
    fs::remove_dir_all(&rest).map_err(failed(&rest))?;
    Ok(program)
}

fn cargo(root: &Path) -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    cargo.current_dir(root);
    cargo
}
