//! Studies that are simulated, and what of each runs in the gate: published numbers beside ours.

use std::{path::Path, process::Command};

use crate::{Outcome, all, built::built, run::Runner};

/// What of each study runs in the gate: most judged numbers for the time that they take. The others are in `cargo xtask soak`.
const GATE: [&str; 12] = [
    "kachan-2014/K1 --quick --seeds 1 --case loss=0.1%",
    "iwanaga-2010/I0 --quick --seeds 1",
    "masirap-2014 --quick --seeds 1",
    "rfc-9743 --quick --seeds 1",
    "flagship/cost --quick --seeds 1",
    "flagship/paths --quick --seeds 1",
    "flagship/completion --quick --seeds 1",
    "flagship/company --quick --seeds 1",
    "flagship/among --quick --seeds 1",
    "flagship/pages --quick --seeds 1",
    "flagship/policer --quick --seeds 1",
    "flagship/recovery --quick --seeds 1",
];

/// Every study in full, or in its short form where that takes a day.
pub(crate) const SOAK: [&str; 8] = [
    "kachan-2014/K1 --seeds 1",
    "kachan-2014/K2 --seeds 1",
    "kachan-2014/K3 --seeds 1",
    "kachan-2014 --quick --seeds 1",
    "iwanaga-2010 --quick --seeds 1",
    "masirap-2014 --seeds 1",
    "rfc-9743 --quick --seeds 1..3",
    "flagship --quick --seeds 1",
];

/// Runs these anew; fails for misses that are not listed as known.
pub(crate) fn stage(run: &mut Runner<'_>) -> Outcome {
    let below = tempfile::tempdir().map_err(|e| vec![format!("a folder for runs: {e}")])?;
    studies(run, &GATE, below.path())
}

/// Runs and checks each of `studies`, with runs below `out`.
pub(crate) fn studies(run: &mut Runner<'_>, studies: &[&str], out: &Path) -> Outcome {
    let program = built(run)?.program;
    all(studies, |study| {
        let mut lab = |action: &str, more: &[&str]| {
            let mut lab = Command::new(&program);
            lab.args(["lab", action])
                .args(study.split_whitespace())
                .args(more);
            run.run(lab.args(["--backend", "sim", "--out"]).arg(out))
        };
        lab("run", &[])?;
        lab("check", &["--new"])
    })
}
