//! Copies of trees by the program itself while many faults occur at once. The paths lose, reorder,
//! repeat and damage datagrams, go dark and change addresses and MTU. Either end is stopped, killed
//! and started again, and the disk fills or fails. Whatever ends a copy, the same command is run
//! again until nothing disturbs it any more.
//!
//! Never to happen: a copy that reports success falsely; a wrong byte under a name; leftover files
//! after a success. A copy that neither ends nor gets on; one that does not succeed when left in
//! peace.

mod copy;
mod path;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::{Scale, program, report::Report, spread::at_once};

/// Copies at a time: they wait more than they work.
const AT_ONCE: usize = 8;

/// Counts of all copies together.
#[derive(Debug, Default)]
struct Counts {
    attempts: AtomicU64,
    killed: AtomicU64,
    stopped: AtomicU64,
    rebound: AtomicU64,
    failed_calls: AtomicU64,
    full_disks: AtomicU64,
}

/// Runs copies, each from a seed of its own.
pub(crate) fn run(scale: Scale) -> Report {
    let runs = scale.runs(16, 1_000);
    let counts = Counts::default();
    let mut report = at_once("chaos", AT_ONCE, scale.seed..scale.seed + runs, |seed| {
        one(seed, &scale, &counts)
    });
    let figures = [
        ("copies begun, with those begun again", &counts.attempts),
        ("ends killed", &counts.killed),
        ("ends stopped for a while", &counts.stopped),
        ("changes of address and path", &counts.rebound),
        (
            "copies with a system call that failed",
            &counts.failed_calls,
        ),
        ("copies to a disk that was full", &counts.full_disks),
    ];
    for (name, count) in figures {
        report.figure(name, count.load(Relaxed));
    }
    report
}

fn one(seed: u64, scale: &Scale, counts: &Counts) -> Result<(), String> {
    let home = program::folder("chaos").map_err(|e| format!("no folder to work in: {e}"))?;
    let outcome = copy::run(home.path(), seed, scale, counts);
    // A single run is looked into.
    if outcome.is_err() && scale.runs == Some(1) {
        let kept = home.keep();
        return outcome.map_err(|fault| format!("{fault}; kept in {}", kept.display()));
    }
    outcome
}
