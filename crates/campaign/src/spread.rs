//! Seeds on every processor: lots of a fixed size, each run by a child of this program one seed
//! after the other. As many children run at a time as there are processors.
//!
//! - The report is the same whatever the number of processors: lots are put together in the order of their seeds.
//! - The allocator counts a process: in a child it counts the one run that is under way.
//! - A single run stays in this process, where it can be looked into.

use std::{
    io,
    ops::Range,
    process::{Command, Stdio},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
};

use crate::{Scale, report::Report};

/// Runs `runs` seeds of `part` by `lot` in children; those of a child, and a single one, by `here`.
pub(crate) fn spread(
    part: &'static str,
    scale: &Scale,
    (runs, lot): (u64, u64),
    here: impl FnOnce(&Scale) -> Report,
) -> Report {
    let scale = Scale {
        runs: Some(runs),
        ..*scale
    };
    if scale.lot || runs <= 1 {
        return here(&scale);
    }
    let cores = thread::available_parallelism().map_or(1, usize::from);
    over(part, &scale, (runs.div_ceil(lot), cores), |n| {
        let from = n * lot;
        child(
            part,
            &Scale {
                seed: scale.seed + from,
                runs: Some(lot.min(runs - from)),
                ..scale
            },
        )
    })
}

/// The reports of `lots` by `run`, put together in their order; `at_once` of them at a time.
fn over(
    part: &'static str,
    scale: &Scale,
    (lots, at_once): (u64, usize),
    run: impl Fn(u64) -> io::Result<Report> + Sync,
) -> Report {
    let (next, done) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let lock = || done.lock().unwrap_or_else(PoisonError::into_inner);
    let worker = || {
        loop {
            let n = next.fetch_add(1, Relaxed);
            if n >= lots {
                return;
            }
            let report = run(n).unwrap_or_else(|error| {
                let mut report = Report::new(part);
                report.fault(format!("lot {n} from seed {}: {error}", scale.seed));
                report
            });
            lock().push((n, report));
        }
    };
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(worker);
        }
    });
    let mut reports = std::mem::take(&mut *lock());
    reports.sort_by_key(|(n, _)| *n);
    let mut all = Report::new(part);
    for (_, report) in reports {
        all.add(report);
    }
    all
}

/// Runs `one` for each of `seeds` in this process, `threads` of them at a time; what it says is a fault.
pub(crate) fn at_once(
    part: &'static str,
    threads: usize,
    seeds: Range<u64>,
    one: impl Fn(u64) -> Result<(), String> + Sync,
) -> Report {
    let (next, report) = (AtomicU64::new(seeds.start), Mutex::new(Report::new(part)));
    let lock = || report.lock().unwrap_or_else(PoisonError::into_inner);
    let worker = || {
        loop {
            let seed = next.fetch_add(1, Relaxed);
            if seed >= seeds.end {
                return;
            }
            let outcome = one(seed);
            let mut report = lock();
            report.ran();
            if let Err(fault) = outcome {
                report.fault(format!(
                    "{fault} (again: campaign {part} --runs 1 --seed {seed})"
                ));
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(worker);
        }
    });
    std::mem::take(&mut *lock())
}

/// A lot, in a process of its own.
fn child(part: &'static str, scale: &Scale) -> io::Result<Report> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(part).arg("--lot");
    command.args(["--seed", &scale.seed.to_string()]);
    command.args(["--runs", &scale.runs.unwrap_or_default().to_string()]);
    for (flag, is_set) in [("--full", scale.full), ("--planted", scale.planted)] {
        if is_set {
            command.arg(flag);
        }
    }
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    match Report::decode(part, &text) {
        Some(report) if output.status.success() => Ok(report),
        _ => Err(io::Error::other(format!(
            "seeds {} to {}: ended with {}",
            scale.seed,
            scale.seed + scale.runs.unwrap_or_default() - 1,
            output.status
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCALE: Scale = Scale {
        full: false,
        planted: false,
        lot: false,
        seed: 1,
        runs: Some(40),
    };

    #[test]
    fn the_report_does_not_depend_on_how_many_run_at_once() {
        let lot = |n: u64| {
            let mut report = Report::new("x");
            report.ran();
            report.sum("sum", n);
            report.most("most", n % 7);
            report.mixed("mixed", n << 40);
            report.fault(format!("of {n}"));
            // As it comes from a child.
            Ok(Report::decode("x", &report.encode()).expect("what was encoded"))
        };
        let [one, many] = [1, 8].map(|at_once| over("x", &SCALE, (40, at_once), lot));
        assert_eq!(one, many);
        assert_eq!(one.figure_of("sum"), (0..40).sum::<u64>());
        assert_eq!(one.figure_of("most"), 6);
    }

    #[test]
    fn a_child_that_dies_is_a_fault() {
        let report = over("x", &SCALE, (2, 2), |n| match n {
            0 => Ok(Report::new("x")),
            _ => Err(io::Error::other("killed")),
        });
        assert_eq!(report.conclude(false), std::process::ExitCode::FAILURE);
    }
}
