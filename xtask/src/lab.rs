//! Studies that are simulated, and what of each runs in the gate: published numbers beside ours.

use std::{path::Path, process::Command};

use crate::{Outcome, all, built::built, run::Runner};

/// An experiment or study with its options, and what else its runs judge.
pub(crate) type Part = (&'static str, &'static [&'static str]);

/// Parts of each study that run in the gate: most judged numbers for the time that they take. The
/// others are in `cargo xtask soak`.
const GATE: [Part; 12] = [
    (
        "kachan-2014/K1 --quick --seeds 1 --case rtt=400ms",
        &["kachan-2014/K3"],
    ),
    ("iwanaga-2010/I0 --quick --seeds 1", &[]),
    (
        "iwanaga-2010/I2 --quick --seeds 1 --case client=linux-2.6.29 --case law.name=reno",
        &[],
    ),
    ("masirap-2014 --quick --seeds 1", &[]),
    ("rfc-9743 --quick --seeds 1", &[]),
    (
        "flagship/cost --quick --seeds 1 --case cell.rtt=400ms",
        &["flagship/filling"],
    ),
    ("flagship/completion --quick --seeds 1", &[]),
    ("flagship/company --quick --seeds 1", &[]),
    ("flagship/among --quick --seeds 1", &[]),
    ("flagship/pages --quick --seeds 1", &[]),
    ("flagship/policer --quick --seeds 1", &[]),
    ("flagship/recovery --quick --seeds 1", &[]),
];

/// Every study in full, or in its short form where that takes a day.
pub(crate) const SOAK: [Part; 6] = [
    (
        "kachan-2014/K1 --seeds 1",
        &["kachan-2014/K2", "kachan-2014/K3", "kachan-2014/K4"],
    ),
    ("kachan-2014 --quick --seeds 1", &[]),
    ("iwanaga-2010 --quick --seeds 1", &[]),
    ("masirap-2014 --seeds 1", &[]),
    ("rfc-9743 --quick --seeds 1..3", &[]),
    ("flagship --quick --seeds 1", &[]),
];

/// Runs these anew; fails for misses that are not listed as known.
pub(crate) fn stage(run: &mut Runner<'_>) -> Outcome {
    let below = tempfile::tempdir().map_err(|e| vec![format!("a folder for runs: {e}")])?;
    studies(run, &GATE, below.path())
}

/// Runs and checks each of `studies`, with runs below `out`.
pub(crate) fn studies(run: &mut Runner<'_>, studies: &[Part], out: &Path) -> Outcome {
    let program = built(run)?.program;
    all(studies, |(study, also)| {
        let (name, how) = study.split_once(' ').unwrap_or((study, ""));
        let mut lab = |action: &str, name: &str, more: &[&str]| {
            let mut lab = Command::new(&program);
            lab.args(["lab", action, name]).args(how.split_whitespace());
            lab.args(["--backend", "sim", "--out"]).arg(out).args(more);
            run.run(&mut lab)
        };
        lab("run", name, &[])?;
        let checked = [&[name][..], also].concat();
        all(&checked, |name| lab("check", name, &["--new"]))
    })
}
