//! Copies by the program while one kind of system call of one end fails, comes short, is
//! interrupted for ever or hangs.
//!
//! Never to happen: exit code 0 where the destination is not the source; a name deleted that the
//! source has. Content under a name that is neither old nor new; a copy that does not end. A panic,
//! code 1, or a code that is not documented; a server that ends by one failed call. The same
//! command that fails when nothing is injected any more; litter after it.

mod copy;
mod inject;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::{Scale, program, report::Report, spread::at_once};

/// Copies at a time: they wait more than they work.
const AT_ONCE: usize = 6;

/// Counts of all copies together.
#[derive(Debug, Default)]
struct Counts {
    /// Copies in which the rule was used, and how often.
    met: AtomicU64,
    calls: AtomicU64,
    /// First runs that ended with 0, and with another code.
    succeeded: AtomicU64,
    failed: AtomicU64,
    /// Planted faults that were found.
    found: AtomicU64,
}

/// Runs copies, each from a seed of its own.
pub(crate) fn run(scale: &Scale) -> Report {
    let runs = scale.runs(48, 1_000);
    if let Some(why) = inject::impossible() {
        let mut report = Report::new("calls");
        report.skip(why);
        return report;
    }
    let counts = Counts::default();
    let seeds = scale.seed..scale.seed + runs;
    let mut report = at_once("calls", AT_ONCE, seeds, |seed| one(seed, scale, &counts));
    if scale.planted && counts.found.load(Relaxed) < runs {
        // Every kind is planted: to find one of them is not enough.
        report = Report::new("calls");
    }
    if !scale.planted && counts.met.load(Relaxed) == 0 {
        report.fault("no copy met a failed call: nothing was tried");
    }
    let figures = [
        ("copies that met a failed call", &counts.met),
        ("calls made to fail", &counts.calls),
        ("copies that succeeded nevertheless", &counts.succeeded),
        ("copies that failed", &counts.failed),
    ];
    for (name, count) in figures {
        report.figure(name, count.load(Relaxed));
    }
    if scale.planted {
        let found = counts.found.load(Relaxed);
        report.figure("planted faults found", format!("{found} of {runs}"));
    }
    report
}

fn one(seed: u64, scale: &Scale, counts: &Counts) -> Result<(), String> {
    let home = program::folder("calls").map_err(|e| format!("no folder to work in: {e}"))?;
    let outcome = copy::run(home.path(), seed, scale, counts);
    counts.found.fetch_add(u64::from(outcome.is_err()), Relaxed);
    // A single run is looked into.
    if outcome.is_err() && scale.runs == Some(1) {
        let kept = home.keep();
        return outcome.map_err(|fault| format!("{fault}; kept in {}", kept.display()));
    }
    outcome
}
