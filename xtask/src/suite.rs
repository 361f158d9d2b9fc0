//! The tests of the workspace, run by cargo-nextest in the groups of `.config/nextest.toml`.

use std::{env, fs, path::Path, process::Command};

use crate::{
    Outcome,
    built::{EVERYTHING, PROFILE, built},
    run::Runner,
    tools::NEXTEST,
};

/// Tests run at their full scale where this variable is set.
pub(crate) const FULL_SCALE: &str = "FARHAUL_SOAK";
/// Prefix of the line that a test prints if it cannot be run here; the reason follows.
const SKIPPED: &str = "skipped: ";

/// Runs tests of the gate's build by a profile of `.config/nextest.toml`, as `change` has it, and repeats at the end which
/// were skipped, and why.
pub(crate) fn run(
    run: &mut Runner<'_>,
    profile: &str,
    change: impl FnOnce(&mut Command),
) -> Outcome {
    built(run)?;
    let mut tests = runner(run, profile)?;
    // Settings of the user who runs this are not those of the tests, but for their scale.
    for (name, _) in env::vars_os() {
        if name != FULL_SCALE && name.to_string_lossy().starts_with("FARHAUL_") {
            tests.env_remove(name);
        }
    }
    change(tests.args(EVERYTHING));
    let report = run
        .root
        .join("target/nextest")
        .join(profile)
        .join("junit.xml");
    // Of an earlier run, if this one does not get so far.
    let _absent = fs::remove_file(&report);
    let outcome = run.run(&mut tests);
    for line in skipped(&report) {
        run.keep(&line);
    }
    outcome
}

/// The test runner, without a choice of packages.
pub(crate) fn runner(run: &mut Runner<'_>, profile: &str) -> Result<Command, Vec<String>> {
    let mut tests = Command::new(NEXTEST.path(run).map_err(|e| vec![e])?);
    tests
        .args([
            "nextest",
            "run",
            "--cargo-profile",
            PROFILE,
            "--profile",
            profile,
        ])
        .current_dir(run.root);
    Ok(tests)
}

/// Tests of a report that were skipped, and why.
fn skipped(report: &Path) -> Vec<String> {
    fs::read_to_string(report).map_or_else(|_| Vec::new(), |text| skipped_in(&text))
}

fn skipped_in(report: &str) -> Vec<String> {
    let mut test = "";
    let mut skipped = Vec::new();
    for line in report.lines() {
        if let Some((_, rest)) = line.split_once("<testcase name=\"") {
            test = rest.split('"').next().unwrap_or_default();
        }
        // The first line of the output follows the mark of its beginning.
        let output = line.rsplit('>').next().unwrap_or(line);
        if let Some(why) = output.strip_prefix(SKIPPED) {
            skipped.push(format!("{SKIPPED}{test}: {why}"));
        }
    }
    skipped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_tests_are_named_with_their_reason() {
        let report = "<testcase name=\"a::b\" classname=\"c\">\n<system-out>\nrunning 1 test\nskipped: needs root\n\
                      <testcase name=\"a::c\">\n<system-err>skipped: no disk</system-err>\nwas skipped: no\n";
        assert_eq!(
            skipped_in(&report.replace("no disk<", "no disk\n<")),
            ["skipped: a::b: needs root", "skipped: a::c: no disk"]
        );
    }
}
