//! The fuzz targets of `fuzz/`: the kept inputs of each are replayed, then new ones are drawn for a while.
//!
//! - Built without a sanitizer: what the targets reach has no `unsafe`. What counts is that nothing panics, overflows,
//!   hangs, or takes memory without bound.
//! - An input that fails is kept in `fuzz/artifacts/TARGET` and shown.

use std::{
    collections::VecDeque,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
    thread,
};

use crate::{
    Outcome,
    built::PROFILE,
    run::{Runner, cargo, print_line, target},
};

/// Time for which each target draws new inputs in the gate, s.
const SECONDS: u32 = 2;
/// Targets that run at the same time.
const AT_ONCE: usize = 2;
/// Limits of one input: seconds, and mebibytes of the whole process; and any length from the start.
const LIMITS: [&str; 3] = ["-timeout=60", "-rss_limit_mb=1024", "-len_control=0"];
/// Names the target that the program runs.
const TARGET: &str = "FARHAUL_FUZZ_TARGET";
/// Kept inputs of a target, at most.
const MOST_KEPT: usize = 32;

const USAGE: &str = "usage: cargo xtask fuzz [--seconds N] [TARGET [INPUT]] | fuzz --keep [TARGET]";

/// The stage of the gate.
pub(crate) fn stage(run: &mut Runner<'_>) -> Outcome {
    run_for(run, SECONDS, None)
}

/// `cargo xtask fuzz`.
pub(crate) fn run(run: &mut Runner<'_>, args: &[&str]) -> Outcome {
    let number = |text: &str| {
        let wrong = || {
            vec![format!(
                "--seconds {text}: not a whole number of seconds; {USAGE}"
            )]
        };
        text.parse().map_err(|_| wrong())
    };
    match args {
        [] => run_for(run, SECONDS, None),
        ["--keep"] => keep(run, None),
        ["--keep", target] => keep(run, Some(target)),
        ["--seconds", n] => run_for(run, number(n)?, None),
        ["--seconds", n, target] | [target, "--seconds", n] => {
            run_for(run, number(n)?, Some(target))
        }
        [target, input] if !target.starts_with('-') && !input.starts_with('-') => {
            let built = build(run)?;
            let chosen = chosen(run.root, Some(target))?;
            run.run(program(&built, &chosen[0]).arg(input))
        }
        [target] if !target.starts_with('-') => run_for(run, SECONDS, Some(target)),
        _ => Err(vec![USAGE.into()]),
    }
}

fn run_for(run: &mut Runner<'_>, seconds: u32, only: Option<&str>) -> Outcome {
    let targets = chosen(run.root, only)?;
    let built = build(run)?;
    let count = targets.len();
    let root = run.root;
    let outcomes = each(targets, |target| {
        let line = fuzz_one(root, &built, target, seconds)?;
        print_line(&line);
        Ok(())
    });
    run.keep(&format!(
        "{count} targets replayed, {seconds} s of new inputs each"
    ));
    outcomes
}

/// Runs `job` for all targets, some at the same time, and returns what failed.
fn each(targets: Vec<String>, job: impl Fn(&str) -> Result<(), String> + Sync) -> Outcome {
    let (queue, failed) = (Mutex::new(VecDeque::from(targets)), Mutex::new(Vec::new()));
    let next = || {
        queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop_front()
    };
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(target) = next() {
                    let outcome = job(&target);
                    let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                    failed.extend(outcome.err());
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    if failed.is_empty() {
        Ok(())
    } else {
        Err(failed)
    }
}

/// The target called `only`, or all.
fn chosen(root: &Path, only: Option<&str>) -> Result<Vec<String>, Vec<String>> {
    let mut targets = targets(root)?;
    targets.retain(|target| only.is_none_or(|only| only == target));
    if targets.is_empty() {
        let only = only.unwrap_or("at all");
        return Err(vec![format!(
            "no fuzz target {only}; they are in fuzz/targets"
        )]);
    }
    Ok(targets)
}

/// The names of all targets.
pub(crate) fn targets(root: &Path) -> Result<Vec<String>, Vec<String>> {
    let folder = root.join("fuzz/targets");
    let failed = |e: std::io::Error| vec![format!("{}: {e}", folder.display())];
    let mut names = Vec::new();
    for file in fs::read_dir(&folder).map_err(failed)? {
        let path = file.map_err(failed)?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        names.extend(stem.filter(|stem| *stem != "main").map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

/// Builds the targets with coverage, beside the gate's build, whose other crates it shares; the program.
fn build(run: &mut Runner<'_>) -> Result<PathBuf, Vec<String>> {
    let mut build = cargo(run.root);
    build
        .args([
            "build",
            "--locked",
            "--profile",
            PROFILE,
            "-p",
            "farhaul-fuzz",
        ])
        .env("RUSTC_WORKSPACE_WRAPPER", run.root.join("fuzz/instrument"));
    run.run(&mut build)?;
    Ok(target(run.root)?.join(PROFILE).join("fuzz"))
}

fn program(built: &Path, target: &str) -> Command {
    let mut command = Command::new(built);
    command
        .args(LIMITS)
        .env(TARGET, target)
        .stdin(Stdio::null());
    command
}

/// Folders of a target: inputs that this machine found, kept ones, failures.
fn folders(root: &Path, target: &str) -> Result<[PathBuf; 3], String> {
    let folders =
        ["corpus", "seeds", "artifacts"].map(|name| root.join("fuzz").join(name).join(target));
    for folder in &folders {
        fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    Ok(folders)
}

/// Replays the kept inputs and draws new ones; returns the result in one line, or what failed.
fn fuzz_one(root: &Path, built: &Path, target: &str, seconds: u32) -> Result<String, String> {
    let [corpus, seeds, artifacts] = folders(root, target)?;
    let mut command = program(built, target);
    // Without a seed of its own each run draws other inputs.
    command
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg("-print_final_stats=1")
        .args([&corpus, &seeds])
        .current_dir(root.join("fuzz"));
    let said = said(&mut command, target, &artifacts)?;
    let runs = said
        .lines()
        .find_map(|l| l.strip_prefix("stat::number_of_executed_units:"));
    let runs = runs.map_or("no", str::trim);
    let done = said.lines().rev().find(|l| l.contains("DONE"));
    let word = |name| {
        let mut words = done.unwrap_or_default().split_whitespace();
        words.find(|w| *w == name).and(words.next()).unwrap_or("0")
    };
    if word("cov:") == "0" {
        return Err(format!(
            "{target}: the fuzzer sees no branch of the program: fuzz/instrument was not used"
        ));
    }
    Ok(format!(
        "{target}: {runs} executions in {seconds} s, {} of the program's branches, {} features, {} MiB",
        word("cov:"),
        word("ft:"),
        word("rss:").trim_end_matches("Mb")
    ))
}

/// Output of the fuzzer; its last lines if it failed.
fn said(command: &mut Command, target: &str, artifacts: &Path) -> Result<String, String> {
    let out = command.output().map_err(|e| format!("{target}: {e}"))?;
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    if out.status.success() {
        return Ok(said);
    }
    let lines: Vec<_> = said.lines().collect();
    let last = lines[lines.len().saturating_sub(40)..].join("\n");
    Err(format!(
        "fuzz target {target} failed ({}); the input is in {}; run it again by `cargo xtask fuzz {target} INPUT`\n{last}",
        out.status,
        artifacts.display()
    ))
}

/// Replaces the kept inputs by the fewest and smallest of kept and found ones that reach as much.
fn keep(run: &mut Runner<'_>, only: Option<&str>) -> Outcome {
    let targets = chosen(run.root, only)?;
    let built = build(run)?;
    let root = run.root;
    each(targets, |target| {
        let [corpus, seeds, artifacts] = folders(root, target)?;
        let failed = |e: std::io::Error| format!("{}: {e}", seeds.display());
        let least = tempfile::tempdir().map_err(failed)?;
        let mut merge = program(&built, target);
        merge
            .arg("-merge=1")
            .arg(least.path())
            .args([&seeds, &corpus]);
        said(&mut merge, target, &artifacts)?;
        let mut inputs: Vec<_> = fs::read_dir(least.path())
            .map_err(failed)?
            .filter_map(|file| file.ok().map(|file| file.path()))
            .filter_map(|path| Some((fs::metadata(&path).ok()?.len(), path)))
            .collect();
        inputs.sort();
        fs::remove_dir_all(&seeds).map_err(failed)?;
        fs::create_dir_all(&seeds).map_err(failed)?;
        // Of many, some of every length.
        let step = inputs.len().div_ceil(MOST_KEPT).max(1);
        for (_, input) in inputs.iter().rev().step_by(step) {
            let name = input.file_name().unwrap_or_default();
            fs::copy(input, seeds.join(name)).map_err(failed)?;
        }
        print_line(&format!(
            "{target}: {} of {} inputs kept",
            inputs.len().div_ceil(step),
            inputs.len()
        ));
        Ok(())
    })
}
