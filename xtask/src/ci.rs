//! The gate: its stages, in which order and beside which others they run, and its end: summaries, seconds, verdict.

use std::{
    env,
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
    time::Duration,
};

use rustix::{fs::statvfs, process::setpriority_process};

use crate::{
    Outcome, all, built, campaign, deny, dist, fuzz, lab, layers, platforms, previous, python,
    record::{self, Work},
    run::{Runner, cargo, now, print_line, target},
    soak, sources, suite, tidy,
};

/// Turn in which a stage runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// One after the other, before all others.
    First,
    /// One after the other, in real time: it may wait but not be delayed.
    Foreground,
    /// One after the other beside the foreground, with the processors that the foreground leaves.
    /// Nothing in them waits for real time, or only when the tests are over.
    Background,
    /// One after the other with nothing beside it.
    Alone,
}

/// A part of the gate.
pub(crate) struct Stage {
    name: &'static str,
    turn: Turn,
    /// Minutes after which the stage is ended.
    limit: u64,
    run: fn(&mut Runner<'_>) -> Outcome,
}

const fn stage(
    name: &'static str,
    turn: Turn,
    limit: u64,
    run: fn(&mut Runner<'_>) -> Outcome,
) -> Stage {
    Stage {
        name,
        turn,
        limit,
        run,
    }
}

const STAGES: [Stage; 17] = [
    stage("fmt", Turn::First, 5, fmt),
    stage("tidy", Turn::First, 5, |run| tidy::check(run.root)),
    stage("layers", Turn::First, 5, |run| layers::check(run.root)),
    stage("build", Turn::First, 25, built::stage),
    stage("test", Turn::Foreground, 20, |run| {
        suite::run(run, "gate", |_| {})
    }),
    stage("versions", Turn::Foreground, 15, previous::stage),
    stage("python", Turn::Foreground, 15, python::stage),
    stage("clippy", Turn::Background, 25, clippy),
    stage("platforms", Turn::Background, 15, platforms::stage),
    stage("doc", Turn::Background, 15, doc),
    stage("lab", Turn::Background, 20, lab::stage),
    stage("fuzz", Turn::Background, 20, fuzz::stage),
    stage("packages", Turn::Background, 20, dist::stage),
    stage("deny", Turn::Background, 15, deny::stage),
    stage("campaign", Turn::Background, 15, campaign::beside),
    stage("campaign-alone", Turn::Alone, 15, campaign::alone),
    stage("alone", Turn::Alone, 10, |run| {
        suite::run(run, "alone", |_| {})
    }),
];

/// Result of a stage.
struct Ran {
    name: &'static str,
    seconds: u64,
    outcome: Outcome,
    kept: Vec<String>,
    unchecked: Vec<String>,
}

/// Options of the gate.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct How {
    /// True if a check that cannot be made here fails the gate.
    pub(crate) strict: bool,
    /// True if the seconds of this run become the record.
    pub(crate) record: bool,
}

/// The stage called `name`.
pub(crate) fn find(name: &str) -> Option<&'static Stage> {
    STAGES.iter().find(|stage| stage.name == name)
}

impl Stage {
    /// Runs the stage by itself. What it cannot check is a failure, since it was asked for.
    pub(crate) fn run_one(&self, root: &Path) -> Outcome {
        let ran = self.run(root, false);
        ran.outcome?;
        if ran.unchecked.is_empty() {
            return Ok(());
        }
        Err(ran
            .unchecked
            .iter()
            .map(|why| format!("not checked: {why}"))
            .collect())
    }

    fn run(&self, root: &Path, prefixed: bool) -> Ran {
        let limit = Duration::from_secs(60 * self.limit);
        let mut runner = Runner::new(root, self.name, limit, prefixed);
        let began = now();
        print_line(&format!("== {}", self.name));
        let outcome = (self.run)(&mut runner);
        let seconds = began.elapsed().as_secs();
        if let Err(complaints) = &outcome {
            for complaint in complaints {
                runner.say(&format!("error: {complaint}"));
            }
        }
        print_line(&format!("== {}: {seconds} s", self.name));
        Ran {
            name: self.name,
            seconds,
            outcome,
            kept: runner.kept,
            unchecked: runner.unchecked,
        }
    }
}

/// Runs every stage; ends with the runners' summaries, the seconds of each stage and `N passed, N failed`.
pub(crate) fn run(root: &Path, how: How) -> ExitCode {
    let built = match ready(root) {
        Ok(built) => built,
        Err(complaints) => {
            for complaint in complaints {
                print_line(&format!("error: {complaint}"));
            }
            return ExitCode::FAILURE;
        }
    };
    let _alone = match alone(&built) {
        Ok(lock) => lock,
        Err(why) => {
            print_line(&format!("error: {why}"));
            return ExitCode::FAILURE;
        }
    };
    let cold = !built.join(built::PROFILE).join("farhaul").exists();
    if let Err(why) = sources::restore(root, &built) {
        print_line(&format!("every source is built again: {why}"));
    }
    let (began, work) = (now(), Work::read());
    let mut ran = turn(root, Turn::First);
    let beside = thread::scope(|scope| {
        let background = scope.spawn(|| {
            // Of this thread and of what it starts; without it the stages only take longer.
            let _as_before = setpriority_process(None, 19);
            turn(root, Turn::Background)
        });
        let mut beside = turn(root, Turn::Foreground);
        match background.join() {
            Ok(more) => beside.extend(more),
            Err(panic) => std::panic::resume_unwind(panic),
        }
        beside
    });
    ran.extend(beside);
    ran.extend(turn(root, Turn::Alone));
    if let Err(why) = sources::keep(root, &built) {
        print_line(&format!("the next gate builds every source again: {why}"));
    }
    let verdict = record::verdict(cold, began.elapsed(), work, Work::read());
    conclude(root, how, cold, &ran, verdict)
}

/// All stages of a turn.
fn turn(root: &Path, turn: Turn) -> Vec<Ran> {
    let prefixed = matches!(turn, Turn::Foreground | Turn::Background);
    let stages = STAGES.iter().filter(|stage| stage.turn == turn);
    stages.map(|stage| stage.run(root, prefixed)).collect()
}

fn conclude(
    root: &Path,
    how: How,
    cold: bool,
    ran: &[Ran],
    verdict: Result<String, String>,
) -> ExitCode {
    print_line("== summary");
    for ran in ran {
        for line in &ran.kept {
            print_line(&format!("{:<8} {line}", ran.name));
        }
    }
    let seconds: Vec<_> = ran.iter().map(|ran| (ran.name, ran.seconds)).collect();
    for (name, seconds) in &seconds {
        print_line(&format!("{name:<8} {seconds} s"));
    }
    for line in record::grown(root, cold, &seconds) {
        print_line(&format!("grew: {line}"));
    }
    for line in soak::due(root) {
        print_line(&line);
    }
    let mut failed: Vec<_> = ran
        .iter()
        .filter(|ran| ran.outcome.is_err())
        .map(|ran| ran.name)
        .collect();
    for ran in ran {
        for why in &ran.unchecked {
            print_line(&format!("NOT CHECKED: {}: {why}", ran.name));
        }
        if how.strict && !ran.unchecked.is_empty() && ran.outcome.is_ok() {
            failed.push(ran.name);
        }
    }
    match verdict {
        Ok(line) => print_line(&line),
        Err(line) => {
            print_line(&format!("error: too long: {line}"));
            failed.push("budget");
        }
    }
    if how.record
        && let Err(why) = record::keep(root, cold, &seconds)
    {
        print_line(&format!("error: {why}"));
        failed.push("record");
    }
    if !failed.is_empty() {
        print_line(&format!("failed: {}", failed.join(", ")));
    }
    let passed = ran.iter().filter(|ran| !failed.contains(&ran.name)).count();
    print_line(&format!("{passed} passed, {} failed", failed.len()));
    ExitCode::from(u8::from(!failed.is_empty()))
}

/// Keeps other gates out of the build folder, as long as it lives.
fn alone(built: &Path) -> Result<File, String> {
    let path = built.join("gate.lock");
    let failed = |e: io::Error| format!("{}: {e}", path.display());
    fs::create_dir_all(built).map_err(failed)?;
    let lock = File::create(&path).map_err(failed)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(format!(
            "another gate builds in {}: wait for its end, or set CARGO_TARGET_DIR to another folder",
            built.display()
        )),
        Err(TryLockError::Error(e)) => Err(failed(e)),
    }
}

/// GiB that have to be free: where cargo builds, and where tests write.
const ROOM: [u64; 2] = [8, 4];

/// Folder into which cargo builds, if there is room for what the gate makes.
fn ready(root: &Path) -> Result<PathBuf, Vec<String>> {
    let built = target(root)?;
    let places = [
        (built.clone(), "CARGO_TARGET_DIR"),
        (env::temp_dir(), "TMPDIR"),
    ];
    all(&[0, 1], |at| {
        let (folder, variable) = &places[*at];
        let there = folder.ancestors().find(|folder| folder.exists());
        let there = there.unwrap_or(Path::new("/"));
        let failed = |e: rustix::io::Errno| vec![format!("{}: {e}", there.display())];
        let disk = statvfs(there).map_err(failed)?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize) >> 30;
        if free >= ROOM[*at] {
            return Ok(());
        }
        Err(vec![format!(
            "{} has {free} GiB free and the gate needs {}: free some, or set {variable} to a folder on another disk",
            there.display(),
            ROOM[*at]
        )])
    })?;
    Ok(built)
}

/// The format of every source.
pub(crate) fn fmt(run: &mut Runner<'_>) -> Outcome {
    let mut format = cargo(run.root);
    run.run(format.args(["fmt", "--all", "--", "--check"]))
}

/// Lints of everything, the fuzz targets included.
pub(crate) fn clippy(run: &mut Runner<'_>) -> Outcome {
    let everything = ["--workspace", "--all-targets", "--keep-going"];
    let without_lab = ["--package", "farhaul", "--no-default-features"];
    for what in [everything, without_lab] {
        let mut clippy = cargo(run.root);
        // By the profile of the build, so that build scripts run once, which compile C.
        clippy.args(["clippy", "--profile", built::PROFILE, "--locked"]);
        run.run(clippy.args(what).args(["--", "-D", "warnings"]))?;
    }
    Ok(())
}

/// Pages of every crate, whose links lead somewhere.
fn doc(run: &mut Runner<'_>) -> Outcome {
    let mut doc = cargo(run.root);
    doc.args([
        "doc",
        "--profile",
        built::PROFILE,
        "--locked",
        "--workspace",
        "--no-deps",
        "--keep-going",
    ]);
    run.run(doc.env("RUSTDOCFLAGS", "-D warnings"))
}

/// Runs the tests that `args` choose, as `cargo nextest run` takes them.
pub(crate) fn test(run: &mut Runner<'_>, args: &[&str]) -> Outcome {
    suite::run(run, "default", |tests| {
        tests.args(args);
    })
}
