//! The one build of the gate: every target of the workspace by the profile `gate`. Stages run the executables that cargo
//! names; none compiles a crate of the workspace again.

use std::{
    fs::File,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use serde_json::Value;

use crate::{
    Outcome,
    run::{Runner, cargo},
};

/// All that is built; the fuzz targets are instrumented and have a build of their own.
pub(crate) const EVERYTHING: [&str; 5] = [
    "--locked",
    "--workspace",
    "--exclude",
    "farhaul-fuzz",
    "--all-targets",
];
pub(crate) const PROFILE: &str = "gate";

/// Paths of the executables.
#[derive(Clone, Debug)]
pub(crate) struct Built {
    pub(crate) program: PathBuf,
    pub(crate) campaign: PathBuf,
}

/// The stage: builds.
pub(crate) fn stage(run: &mut Runner<'_>) -> Outcome {
    built(run).map(drop)
}

/// Builds, once in this process.
pub(crate) fn built(run: &mut Runner<'_>) -> Result<Built, Vec<String>> {
    static BUILT: OnceLock<Built> = OnceLock::new();
    if let Some(built) = BUILT.get() {
        return Ok(built.clone());
    }
    let messages = tempfile::NamedTempFile::new().map_err(|e| vec![format!("a file: {e}")])?;
    let into = messages
        .reopen()
        .map_err(|e| vec![format!("a file: {e}")])?;
    run.run_into(&mut build(run.root), into)?;
    let built = read(messages.path()).map_err(|e| vec![e])?;
    Ok(BUILT.get_or_init(|| built).clone())
}

fn build(root: &Path) -> Command {
    let mut build = cargo(root);
    build.arg("build").args(EVERYTHING).args([
        "--profile",
        PROFILE,
        "--message-format",
        "json-render-diagnostics",
    ]);
    build
}

/// The programs among what cargo made.
fn read(messages: &Path) -> Result<Built, String> {
    let file = File::open(messages).map_err(|e| format!("what cargo built: {e}"))?;
    let (mut program, mut campaign) = (None, None);
    for line in BufReader::new(file).lines() {
        let line = line.map_err(|e| format!("what cargo built: {e}"))?;
        let Ok(message) = serde_json::from_str::<Value>(&line) else {
            continue;
        };
        let is_test = message["profile"]["test"] == true;
        if let (Some(path), false) = (message["executable"].as_str(), is_test) {
            match message["target"]["name"].as_str() {
                Some("farhaul") => program = Some(path.into()),
                Some("campaign") => campaign = Some(path.into()),
                _ => {}
            }
        }
    }
    let missing = |name| format!("cargo built no program {name}");
    Ok(Built {
        program: program.ok_or_else(|| missing("farhaul"))?,
        campaign: campaign.ok_or_else(|| missing("campaign"))?,
    })
}
