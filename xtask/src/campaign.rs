//! The parts of the campaign of attacks and faults, at the scale of the gate.

use std::process::Command;

use crate::{Outcome, all, built::built, run::Runner};

/// Parts in virtual time or on folders, beside which others may run.
const BESIDE: [&str; 5] = ["lying-peer", "optimist", "transfers", "many", "power-loss"];
/// Parts that measure, or that wait for real time.
const ALONE: [&str; 7] = [
    "flood",
    "neighbour",
    "soak",
    "chaos",
    "calls",
    "hung",
    "signals",
];

/// The parts that depend on no clock.
pub(crate) fn beside(run: &mut Runner<'_>) -> Outcome {
    parts(run, &BESIDE, &[])
}

/// The parts that need the machine for themselves.
pub(crate) fn alone(run: &mut Runner<'_>) -> Outcome {
    parts(run, &ALONE, &[])
}

/// Every part's name.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    BESIDE.into_iter().chain(ALONE)
}

/// Every part runs, whatever became of those before.
pub(crate) fn parts(run: &mut Runner<'_>, parts: &[&str], options: &[&str]) -> Outcome {
    let program = built(run)?.campaign;
    all(parts, |part| {
        run.run(Command::new(&program).arg(part).args(options))
    })
}
