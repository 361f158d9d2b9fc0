//! What must pass before a change goes in? The stages, in order of cost. Each inherits the
//! terminal, so every runner's own lines are shown immediately; the runners' summary lines are kept
//! and repeated at the end.

use std::{
    env,
    ffi::OsString,
    io::{self, BufRead, BufReader, Write},
    path::Path,
    process::{Command, ExitCode, Stdio},
    time::Instant,
};

use crate::{Outcome, deny, dist, fuzz, layers, previous, python, tidy};

/// One gate.
pub(crate) struct Stage {
    name: &'static str,
    run: fn(&Path, &mut Vec<String>) -> Outcome,
}

const STAGES: [Stage; 15] = [
    Stage {
        name: "fmt",
        run: |root, kept| cargo(root, &["fmt", "--all", "--", "--check"], &[], kept),
    },
    Stage {
        name: "tidy",
        run: |root, _| tidy::check(root),
    },
    Stage {
        name: "layers",
        run: |root, _| layers::check(root),
    },
    Stage {
        name: "deny",
        run: deny::stage,
    },
    Stage {
        name: "clippy",
        run: clippy,
    },
    Stage {
        name: "doc",
        run: doc,
    },
    Stage {
        name: "test",
        run: test,
    },
    Stage {
        name: "sim",
        run: sim,
    },
    Stage {
        name: "cli",
        run: |root, kept| {
            cargo(
                root,
                &["test", "--no-fail-fast", "-p", "farhaul"],
                &[],
                kept,
            )
        },
    },
    Stage {
        name: "versions",
        run: previous::stage,
    },
    Stage {
        name: "packages",
        run: dist::stage,
    },
    Stage {
        name: "python",
        run: python::stage,
    },
    Stage {
        name: "lab",
        run: lab,
    },
    Stage {
        name: "campaign",
        run: campaign,
    },
    Stage {
        name: "fuzz",
        run: fuzz::stage,
    },
];

/// The stage called `name`.
pub(crate) fn stage(name: &str) -> Option<&'static Stage> {
    STAGES.iter().find(|stage| stage.name == name)
}

/// Runs one stage and shows its output.
pub(crate) fn run_one(root: &Path, name: &str) -> Outcome {
    let stage = stage(name).ok_or_else(|| vec![format!("no stage called {name}")])?;
    (stage.run)(root, &mut Vec::new())
}

/// Runs every stage and ends with how long each took and `N passed, N failed`.
#[expect(clippy::disallowed_methods, reason = "no stage depends on it")]
pub(crate) fn run(root: &Path, stop_early: bool) -> ExitCode {
    let mut summaries = Vec::new();
    let mut passed = 0;
    let mut failed = Vec::new();
    for stage in &STAGES {
        print_line(&format!("== {}", stage.name));
        let mut kept = Vec::new();
        let began = Instant::now();
        let outcome = (stage.run)(root, &mut kept);
        kept.push(format!("{} s", began.elapsed().as_secs()));
        summaries.extend(kept.iter().map(|line| format!("{:<5} {line}", stage.name)));
        match outcome {
            Ok(()) => passed += 1,
            Err(complaints) => {
                for complaint in complaints {
                    print_line(&format!("error: {complaint}"));
                }
                failed.push(stage.name);
                if stop_early {
                    break;
                }
            }
        }
    }
    print_line("== summary");
    for line in summaries {
        print_line(&line);
    }
    if !failed.is_empty() {
        print_line(&format!("failed: {}", failed.join(", ")));
    }
    print_line(&format!("{passed} passed, {} failed", failed.len()));
    ExitCode::from(u8::from(!failed.is_empty()))
}

/// One line on stdout; a closed pipe is not worth a panic.
pub(crate) fn print_line(line: &str) {
    let mut out = io::stdout().lock();
    drop(writeln!(out, "{line}").and_then(|()| out.flush()));
}

/// Runs cargo with `args` from `root`, passing its output on and keeping the runners' summary lines.
fn cargo(root: &Path, args: &[&str], vars: &[(&str, &str)], kept: &mut Vec<String>) -> Outcome {
    let program = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(program);
    command.args(args).envs(vars.iter().copied());
    pass_through(
        command.current_dir(root),
        &format!("cargo {}", args.join(" ")),
        kept,
    )
}

/// Runs `command`, likewise.
pub(crate) fn pass_through(command: &mut Command, what: &str, kept: &mut Vec<String>) -> Outcome {
    print_line(&format!("$ {what}"));
    let fail = |text: String| vec![format!("{what}: {text}")];
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| fail(e.to_string()))?;
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).split(b'\n') {
            let line = line.map_err(|e| fail(e.to_string()))?;
            let line = String::from_utf8_lossy(&line);
            print_line(&line);
            let tests = line.starts_with("test result:")
                && !line.contains(" 0 passed; 0 failed; 0 ignored;");
            let failed = line.starts_with("test ") && line.ends_with(" ... FAILED");
            let of_pytest = line.ends_with('s') && line.contains(" in ") && is_count(&line);
            if tests
                || failed
                || of_pytest
                || line.starts_with(CAMPAIGN)
                || line.starts_with(COMPARED)
            {
                kept.push(line.into_owned());
            }
        }
    }
    match child.wait() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(fail(status.to_string())),
        Err(e) => Err(fail(e.to_string())),
    }
}

/// Whether it begins with how many tests passed, failed or were skipped.
fn is_count(line: &str) -> bool {
    let mut words = line.split([' ', ',']);
    let number = words.next().is_some_and(|word| word.parse::<u32>().is_ok());
    number
        && words
            .next()
            .is_some_and(|word| ["passed", "failed", "skipped"].contains(&word))
}

fn clippy(root: &Path, kept: &mut Vec<String>) -> Outcome {
    let args = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--keep-going",
        "--",
        "-D",
        "warnings",
    ];
    cargo(root, &args, &[], kept)
}

fn doc(root: &Path, kept: &mut Vec<String>) -> Outcome {
    let args = ["doc", "--workspace", "--no-deps", "--keep-going"];
    cargo(root, &args, &[("RUSTDOCFLAGS", "-D warnings")], kept)
}

/// The crates whose tests simulate: gigabytes in virtual time, optimised, but with overflow checks
/// and assertions.
const SIMULATED: [(&str, &str); 2] = [("sim", "farhaul-sim"), ("lab", "farhaul-lab")];

/// Those of [`SIMULATED`] that have such tests.
fn simulated(root: &Path) -> Vec<&'static str> {
    let has = |folder: &str| root.join("crates").join(folder).join("tests").is_dir();
    SIMULATED
        .into_iter()
        .filter(|(folder, _)| has(folder))
        .map(|(_, name)| name)
        .collect()
}

/// Everything but the crates that have a stage of their own, so that nothing runs twice.
fn test(root: &Path, kept: &mut Vec<String>) -> Outcome {
    let mut args = vec![
        "test",
        "--no-fail-fast",
        "--workspace",
        "--exclude",
        "farhaul",
    ];
    for name in simulated(root) {
        args.extend(["--exclude", name]);
    }
    cargo(root, &args, &[], kept)
}

fn sim(root: &Path, kept: &mut Vec<String>) -> Outcome {
    let names = simulated(root);
    if names.is_empty() {
        print_line("skipped: no scenarios");
        return Ok(());
    }
    let mut args = vec!["test", "--no-fail-fast", "--profile", "sim"];
    for name in names {
        args.extend(["-p", name]);
    }
    cargo(root, &args, &[], kept)
}

/// The studies whose short versions are simulated in the gate, and their seeds; the others run on real sockets only.
/// How flows share differs from seed to seed.
const STUDIES: [(&str, &str); 5] = [
    ("kachan-2014", "1"),
    ("iwanaga-2010", "1"),
    ("masirap-2014", "1"),
    ("rfc-9743", "1..3"),
    ("flagship", "1"),
];
/// The experiments that share the grid of Kachan and Siemens, and a part of it that is run as long as the paper's: quick
/// runs are too short for its numbers.
const GRID: [&str; 4] = [
    "kachan-2014/K1",
    "kachan-2014/K2",
    "kachan-2014/K3",
    "kachan-2014/K4",
];
const PART_OF_GRID: [&str; 4] = ["--case", "loss=0.1%", "--seeds", "1"];
/// Prefix of what became of their comparisons with published numbers.
const COMPARED: &str = "comparisons: ";

/// Runs the short version of every study, and a part of the grid in full, anew; fails for misses that are not listed as
/// known.
fn lab(root: &Path, kept: &mut Vec<String>) -> Outcome {
    let below = tempfile::tempdir().map_err(|e| vec![format!("a folder for runs: {e}")])?;
    let out = below.path().display().to_string();
    let farhaul = [
        "run",
        "--quiet",
        "--profile",
        "sim",
        "-p",
        "farhaul",
        "--",
        "lab",
    ];
    let mut complaints = Vec::new();
    let mut call = |action: &[&str], how: &[&str]| {
        let args = [
            &farhaul[..],
            action,
            how,
            &["--backend", "sim", "--out", &out],
        ]
        .concat();
        complaints.extend(cargo(root, &args, &[], kept).err().into_iter().flatten());
    };
    for (study, seeds) in STUDIES {
        let short = ["--quick", "--seeds", seeds];
        call(&["run", study], &short);
        call(&["check", study, "--new"], &short);
    }
    call(&["run", GRID[0]], &PART_OF_GRID);
    for experiment in GRID {
        call(&["check", experiment, "--new"], &PART_OF_GRID);
    }
    if complaints.is_empty() {
        Ok(())
    } else {
        Err(complaints)
    }
}

/// Prefix of the result lines of a part of the campaign.
const CAMPAIGN: &str = "campaign ";

/// The parts of the campaign, run at the scale of the gate.
const PARTS: [&str; 9] = [
    "lying-peer",
    "optimist",
    "transfers",
    "many",
    "power-loss",
    "flood",
    "neighbour",
    "soak",
    "chaos",
];

/// Every part runs, whatever became of those before.
fn campaign(root: &Path, kept: &mut Vec<String>) -> Outcome {
    let build = [
        "build",
        "--profile",
        "sim",
        "-p",
        "farhaul",
        "-p",
        "farhaul-campaign",
    ];
    cargo(root, &build, &[], kept)?;
    let mut complaints = Vec::new();
    for part in PARTS {
        let args = [
            "run",
            "--quiet",
            "--profile",
            "sim",
            "-p",
            "farhaul-campaign",
            "--",
            part,
        ];
        complaints.extend(cargo(root, &args, &[], kept).err().into_iter().flatten());
    }
    if complaints.is_empty() {
        Ok(())
    } else {
        Err(complaints)
    }
}
