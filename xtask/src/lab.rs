//! Studies that are simulated, and what of each runs in the gate: published numbers beside ours.

use std::{path::Path, process::Command};

use crate::{Outcome, all, built::built, run::Runner};

/// What of each study runs in the gate.
pub(crate) const GATE: &[&[&str]] = &[
    &["kachan-2014", "--quick", "--seeds", "1"],
    &["iwanaga-2010", "--quick", "--seeds", "1"],
    &["masirap-2014", "--quick", "--seeds", "1"],
    &["rfc-9743", "--quick", "--seeds", "1"],
    &["flagship", "--quick", "--seeds", "1"],
];

/// Runs these anew; fails for misses that are not listed as known.
pub(crate) fn stage(run: &mut Runner<'_>) -> Outcome {
    let below = tempfile::tempdir().map_err(|e| vec![format!("a folder for runs: {e}")])?;
    studies(run, GATE, below.path())
}

/// Runs and checks each of `studies`, with runs below `out`.
pub(crate) fn studies(run: &mut Runner<'_>, studies: &[&[&str]], out: &Path) -> Outcome {
    let program = built(run)?.program;
    all(studies, |study| {
        let [name, how @ ..] = study else {
            return Ok(());
        };
        for action in [&["run", name][..], &["check", name, "--new"]] {
            let mut lab = Command::new(&program);
            lab.arg("lab").args(action).args(how);
            run.run(lab.args(["--backend", "sim", "--out"]).arg(out))?;
        }
        Ok(())
    })
}
