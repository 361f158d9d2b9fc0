//! What does the fuzzer find? Every target of `fuzz/` is built with nightly and runs for a while, two at a
//! time, from its committed seeds and what earlier runs on this machine have found.
//!
//! - Built without a sanitizer: what the targets reach has no `unsafe`. What counts is that nothing panics,
//!   overflows, hangs, or takes memory without bound.
//! - An input that fails is kept in `fuzz/artifacts/TARGET` and shown.

use std::{
    collections::VecDeque,
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
    thread,
};

use crate::{
    Outcome,
    ci::{pass_through, print_line},
};

/// How long each target runs in the gate.
const SECONDS: u32 = 10;
/// What the gate's inputs are drawn from, so that the same tree gets the same answer; longer runs draw anew.
const SEED: &str = "-seed=1";
/// Targets that run at the same time.
const AT_ONCE: usize = 2;
/// What one input may take: seconds, and mebibytes of the whole process; and any length from the start.
const LIMITS: [&str; 3] = ["-timeout=60", "-rss_limit_mb=1024", "-len_control=0"];
/// Coverage as libFuzzer wants it, and the checks of a debug build.
const FLAGS: [&str; 7] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cdebug-assertions",
    "-Coverflow-checks",
];

/// The stage of the gate.
pub(crate) fn stage(root: &Path, kept: &mut Vec<String>) -> Outcome {
    run_for(root, SECONDS, None, &[SEED], kept)
}

/// `cargo xtask fuzz [--seconds N] [TARGET]`.
pub(crate) fn run(root: &Path, args: &[&str]) -> Outcome {
    let number = |text: &str| {
        text.parse()
            .map_err(|_| vec![format!("--seconds {text}: not a whole number of seconds")])
    };
    let (seconds, target) = match args {
        [] => (SECONDS, None),
        ["--seconds", n] => (number(n)?, None),
        ["--seconds", n, target] | [target, "--seconds", n] => (number(n)?, Some(*target)),
        [target] => (SECONDS, Some(*target)),
        _ => {
            return Err(vec![
                "usage: cargo xtask fuzz [--seconds N] [TARGET]".into(),
            ]);
        }
    };
    run_for(root, seconds, target, &[], &mut Vec::new())
}

fn run_for(
    root: &Path,
    seconds: u32,
    only: Option<&str>,
    options: &[&str],
    kept: &mut Vec<String>,
) -> Outcome {
    let mut targets = targets(root)?;
    targets.retain(|target| only.is_none_or(|only| only == target));
    if targets.is_empty() {
        let only = only.unwrap_or("at all");
        return Err(vec![format!(
            "no fuzz target {only}; they are in fuzz/fuzz_targets"
        )]);
    }
    let Some(host) = nightly_host() else {
        print_line(
            "skipped: the fuzzer needs nightly (rustup toolchain install nightly); the targets are only checked",
        );
        return check(root, kept);
    };
    let built = build(root, &host, only, kept)?;
    let (queue, outcomes) = (Mutex::new(VecDeque::from(targets)), Mutex::default());
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
                    let outcome = run_one(root, &built, &target, seconds, options);
                    if let Ok(line) = &outcome {
                        print_line(line);
                    }
                    let mut all = Mutex::lock(&outcomes).unwrap_or_else(PoisonError::into_inner);
                    Vec::push(&mut all, outcome);
                }
            });
        }
    });
    let outcomes = outcomes
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    kept.push(format!("{} targets, {seconds} s each", outcomes.len()));
    let complaints: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
    if complaints.is_empty() {
        Ok(())
    } else {
        Err(complaints)
    }
}

/// The names of all targets.
fn targets(root: &Path) -> Result<Vec<String>, Vec<String>> {
    let folder = root.join("fuzz/fuzz_targets");
    let failed = |e: std::io::Error| vec![format!("{}: {e}", folder.display())];
    let mut names = Vec::new();
    for file in fs::read_dir(&folder).map_err(failed)? {
        let path = file.map_err(failed)?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        names.extend(stem.map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

/// What nightly builds for here, if it is installed.
fn nightly_host() -> Option<String> {
    let mut command = Command::new("rustup");
    command
        .args(["run", "nightly", "rustc", "-vV"])
        .stdin(Stdio::null());
    let said = command.output().ok().filter(|out| out.status.success())?;
    let said = String::from_utf8_lossy(&said.stdout);
    said.lines()
        .find_map(|l| l.strip_prefix("host: "))
        .map(str::to_owned)
}

/// The targets compile with whatever toolchain there is.
fn check(root: &Path, kept: &mut Vec<String>) -> Outcome {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.arg("check").current_dir(root.join("fuzz"));
    pass_through(&mut command, "cargo check (fuzz)", kept)
}

/// Builds one target or all; where they are.
fn build(
    root: &Path,
    host: &str,
    only: Option<&str>,
    kept: &mut Vec<String>,
) -> Result<PathBuf, Vec<String>> {
    let into = match env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root.join(dir).join("fuzz"),
        None => root.join("fuzz/target"),
    };
    let mut command = Command::new("rustup");
    command
        .args([
            "run",
            "nightly",
            "cargo",
            "build",
            "--release",
            "--target",
            host,
        ])
        .arg("--target-dir")
        .arg(&into)
        .env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\u{1f}"))
        .env_remove("RUSTC")
        .env_remove("RUSTDOC")
        .current_dir(root.join("fuzz"));
    match only {
        Some(target) => command.args(["--bin", target]),
        None => command.arg("--bins"),
    };
    pass_through(&mut command, "cargo +nightly build --release (fuzz)", kept)?;
    Ok(into.join(host).join("release"))
}

/// Runs `target`; what it did in one line, or what failed.
fn run_one(
    root: &Path,
    built: &Path,
    target: &str,
    seconds: u32,
    options: &[&str],
) -> Result<String, String> {
    let fuzz = root.join("fuzz");
    let [corpus, seeds, artifacts] =
        ["corpus", "seeds", "artifacts"].map(|folder| fuzz.join(folder).join(target));
    for folder in [&corpus, &artifacts] {
        fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let mut command = Command::new(built.join(target));
    command
        .args(LIMITS)
        .args(options)
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg("-print_final_stats=1")
        .arg(&corpus)
        .args(seeds.is_dir().then_some(&seeds))
        .stdin(Stdio::null())
        .current_dir(&fuzz);
    let out = command.output().map_err(|e| format!("{target}: {e}"))?;
    let said = String::from_utf8_lossy(&out.stderr);
    if !out.status.success() {
        let lines: Vec<_> = said.lines().collect();
        let last = lines[lines.len().saturating_sub(40)..].join("\n");
        return Err(format!(
            "fuzz target {target} failed ({}); the input is in {}\n{last}",
            out.status,
            artifacts.display()
        ));
    }
    let runs = said
        .lines()
        .find_map(|l| l.strip_prefix("stat::number_of_executed_units:"));
    let runs = runs.map_or("no", str::trim);
    let done = said
        .lines()
        .rev()
        .find(|l| l.contains("DONE"))
        .unwrap_or_default();
    let word = |name| {
        done.split_whitespace()
            .skip_while(|w| *w != name)
            .nth(1)
            .unwrap_or("0")
    };
    Ok(format!(
        "{target}: {runs} executions in {seconds} s, {} of the program's branches, {} features, {} MiB",
        word("cov:"),
        word("ft:"),
        word("rss:").trim_end_matches("Mb")
    ))
}
