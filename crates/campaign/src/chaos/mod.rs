//! What if many faults occur at once? Copies of trees by the program itself, over paths that lose,
//! reorder, repeat and damage datagrams, go dark and change addresses and MTU, while either end is
//! stopped, killed and started again, and the disk fills or fails. Whatever ends a copy, the same command
//! is run again until nothing disturbs it any more.
//!
//! What must never happen: a copy that reports success falsely; a wrong byte under a name; leftover files
//! after a success; a copy that neither ends nor gets on; one that does not succeed when left in peace.

mod copy;
mod path;
mod tree;

use std::{
    io,
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
};

use crate::{Scale, report::Report};

/// Copies at a time: they wait more than they work.
const AT_ONCE: usize = 8;

/// What copies did together.
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
    let next = AtomicU64::new(scale.seed);
    let end = scale.seed + runs;
    let (counts, report) = (Counts::default(), Mutex::new(Report::new("chaos")));
    let lock = || report.lock().unwrap_or_else(PoisonError::into_inner);
    let worker = || {
        loop {
            let seed = next.fetch_add(1, Relaxed);
            if seed >= end {
                return;
            }
            let outcome = one(seed, &scale, &counts);
            let mut report = lock();
            report.ran();
            if let Err(fault) = outcome {
                report.fault(format!(
                    "{fault} (again: campaign chaos --runs 1 --seed {seed})"
                ));
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(worker);
        }
    });
    let mut report = lock().clone();
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
    let home = folder().map_err(|e| format!("no folder to work in: {e}"))?;
    let outcome = copy::run(home.path(), seed, scale, counts);
    // A single run is looked into.
    if outcome.is_err() && scale.runs == Some(1) {
        let kept = home.keep();
        return outcome.map_err(|fault| format!("{fault}; kept in {}", kept.display()));
    }
    outcome
}

/// Of this machine's memory where that is possible: copies are many and short.
fn folder() -> io::Result<tempfile::TempDir> {
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() {
        memory.to_owned()
    } else {
        std::env::temp_dir()
    };
    tempfile::Builder::new()
        .prefix("farhaul-chaos-")
        .tempdir_in(place)
}
