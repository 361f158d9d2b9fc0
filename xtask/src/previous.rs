//! Copies between today's program and the previous version's. That is built from the history once for each commit, and the
//! ignored tests of `crates/cli/tests/cp/versions.rs` copy with it both ways.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    Outcome,
    run::{Runner, cargo},
    suite,
    tools::cache,
};

/// A version: its name and its commit.
struct Version {
    name: &'static str,
    commit: &'static str,
}

/// The previous version. 0.1.0 is the first release: a state of the tree some days older stands in. The release checklist of
/// CONTRIBUTING.md puts the released version and its commit here.
const PREVIOUS: Version = Version {
    name: "before 0.1.0",
    commit: "552527e",
};

/// Builds the previous version and copies with it.
pub(crate) fn stage(run: &mut Runner<'_>) -> Outcome {
    if !is_known(run.root) {
        run.not_checked(&format!(
            "copies with the previous version, {}: this clone has no commit {} (git fetch --unshallow)",
            PREVIOUS.name, PREVIOUS.commit
        ));
        return Ok(());
    }
    let previous = program(run)?;
    run.keep(&format!(
        "previous version: {}, {}",
        PREVIOUS.name, PREVIOUS.commit
    ));
    suite::run(run, "versions", |tests| {
        tests
            .args(["--run-ignored", "only"])
            .env("PREVIOUS_FARHAUL", previous);
    })
}

fn is_known(root: &Path) -> bool {
    let mut ask = Command::new("git");
    ask.args(["cat-file", "-e"])
        .arg(format!("{}^{{commit}}", PREVIOUS.commit))
        .current_dir(root)
        .stderr(Stdio::null());
    ask.status().is_ok_and(|status| status.success())
}

/// The program of the previous version, if it was built.
pub(crate) fn known() -> Option<PathBuf> {
    let program = place().ok()?.join("farhaul");
    program.exists().then_some(program)
}

fn place() -> Result<PathBuf, String> {
    Ok(cache()?.join(format!("farhaul-{}", PREVIOUS.commit)))
}

/// The program of the previous version, built if it is not there. It has a folder of its own: cargo
/// does not distinguish crates of the same name that lie in two copies of a workspace.
fn program(run: &mut Runner<'_>) -> Result<PathBuf, Vec<String>> {
    if let Some(program) = known() {
        return Ok(program);
    }
    let folder = place().map_err(|e| vec![e])?;
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
        .arg(PREVIOUS.commit);
    run.run(archive.current_dir(run.root))?;
    let mut unpack = Command::new("tar");
    run.run(unpack.arg("-xf").arg(&tree).arg("-C").arg(&source))?;
    let mut build = cargo(&source);
    build
        .args(["build", "-p", "farhaul", "--locked"])
        .env("CARGO_TARGET_DIR", folder.join("target"))
        // Nobody debugs it.
        .env("CARGO_PROFILE_DEV_DEBUG", "0");
    run.run(&mut build)?;
    let made = folder.join("target/debug/farhaul");
    // Under its name it exists whole or not at all.
    let copy = folder.join("farhaul.new");
    fs::copy(&made, &copy).map_err(failed(&made))?;
    fs::rename(&copy, &program).map_err(failed(&program))?;
    for rest in [folder.join("target"), source] {
        fs::remove_dir_all(&rest).map_err(failed(&rest))?;
    }
    fs::remove_file(&tree).map_err(failed(&tree))?;
    Ok(program)
}
