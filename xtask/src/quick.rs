//! The inner loop: style, lints of everything, the tests of the changed crates, and simulations that end in seconds.

use std::{
    collections::BTreeSet,
    process::{Command, Stdio},
};

use crate::{Outcome, ci, layers, run::Runner, suite, tidy};

/// Simulations that every change has to pass, whatever it changes.
const SMOKE: &str =
    "test(/^scenarios::(tail|liveness|stalls|queue|xcp|udt)::|^scenarios::cells::rtt_100_loss_1$/)";

const USAGE: &str = "usage: cargo xtask quick [--since REV]";

/// Checks the changes since `--since`, or since the commit before the last where nothing is
/// uncommitted.
pub(crate) fn run(run: &mut Runner<'_>, args: &[&str]) -> Outcome {
    let since = match args {
        [] => None,
        ["--since", revision] => Some(*revision),
        _ => return Err(vec![USAGE.into()]),
    };
    let changed = changed(run, since)?;
    ci::fmt(run)?;
    tidy::check(run.root)?;
    layers::check(run.root)?;
    let packages = packages(&changed);
    if packages.is_empty() {
        run.say("no crate has changed");
        return Ok(());
    }
    ci::clippy(run)?;
    let mut tests = suite::runner(run, "gate")?;
    tests.arg("--locked");
    for package in &packages {
        tests.args(["-p", package]);
    }
    // Those of the program wait for minutes; its unit tests do not.
    run.run(tests.args(["-E", "not (package(farhaul) & kind(test))"]))?;
    let mut smoke = suite::runner(run, "gate")?;
    run.run(smoke.args([
        "--locked",
        "-p",
        "farhaul-lab",
        "--test",
        "scenarios",
        "-E",
        SMOKE,
    ]))
}

/// Paths below the root that have changed.
fn changed(run: &Runner<'_>, since: Option<&str>) -> Result<Vec<String>, Vec<String>> {
    let git = |args: &[&str]| -> Result<Vec<String>, Vec<String>> {
        let mut git = Command::new("git");
        let out = git
            .args(args)
            .current_dir(run.root)
            .stdin(Stdio::null())
            .output();
        let out = out.map_err(|e| vec![format!("git: {e}")])?;
        if !out.status.success() {
            let said = String::from_utf8_lossy(&out.stderr).trim().to_owned();
            return Err(vec![format!("git {}: {said}", args.join(" "))]);
        }
        Ok(String::from_utf8_lossy(&out.stdout)
            .lines()
            .map(str::to_owned)
            .collect())
    };
    let mut files = git(&["ls-files", "--others", "--exclude-standard"])?;
    files.extend(git(&["diff", "--name-only", since.unwrap_or("HEAD")])?);
    if files.is_empty() && since.is_none() {
        files = git(&["diff", "--name-only", "HEAD~1"])?;
    }
    Ok(files)
}

/// The packages that have these files.
fn packages(files: &[String]) -> BTreeSet<String> {
    let package = |file: &String| {
        let mut parts = file.split('/');
        match (parts.next()?, parts.next().unwrap_or_default()) {
            ("crates", "cli") => Some("farhaul".to_owned()),
            ("crates", folder) => Some(format!("farhaul-{folder}")),
            ("examples", folder) => Some(folder.to_owned()),
            ("xtask", _) => Some("xtask".to_owned()),
            ("python", "Cargo.toml" | "src") => Some("farhaul-python".to_owned()),
            // Scenarios, inputs of decoders, and what every crate is built by.
            ("lab" | "fuzz" | "Cargo.toml" | "Cargo.lock", _) => Some("farhaul-lab".to_owned()),
            _ => None,
        }
    };
    files.iter().filter_map(package).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_belong_to_packages() {
        let files = [
            "crates/cli/src/lib.rs",
            "crates/core/Cargo.toml",
            "docs/lab.md",
            "examples/my-law/src/lib.rs",
            "lab/scenarios/a.toml",
            "Cargo.lock",
            "README.md",
            "python/tests/a.py",
        ];
        let found = packages(&files.map(str::to_owned));
        assert_eq!(
            found.into_iter().collect::<Vec<_>>(),
            ["farhaul", "farhaul-core", "farhaul-lab", "my-law"]
        );
    }
}
