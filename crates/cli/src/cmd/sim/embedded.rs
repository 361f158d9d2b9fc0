//! Simulates a scenario inside another program, as `sim run` does: the same file, the same runs,
//! the same object. Everything that a run reports, series included, is handed over as it ends.

use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

use farhaul_lab::{
    hash,
    reference::Reference,
    scenario::{self, Done, File, Onlooker, RunError, Runs, Variant},
};
use serde_json::{Value, json};

use super::scenario::{object, refuse_invalid, report::Tally, whole};
use crate::{
    app::console::Console,
    exit::{Exit, Failure},
    interrupt,
};

/// Request to simulate.
#[derive(Clone, Copy)]
pub struct Simulation<'a> {
    /// The name of the file, for messages; the rows that its expectations refer to are looked for beside it.
    pub file: &'a str,
    /// Content of the scenario file.
    pub text: &'a str,
    /// Seeds instead of the file's, as in `1..32` or `7`.
    pub seeds: Option<&'a str>,
    /// Values of variables: only the cases that have them are run.
    pub case: &'a BTreeMap<String, String>,
    /// Runs at once; one per core if not given.
    pub jobs: Option<NonZeroUsize>,
    /// True if an expectation that is not met is a failure.
    pub check: bool,
}

/// Simulates on this thread and `jobs` others; returns what `sim run --json` would print.
/// `onlooker` looks on at every run. `console` gets an event of the type `run` for each, on this
/// thread, with what `--keep` stores of it.
///
/// # Errors
/// As the command fails.
pub fn simulate(
    what: &Simulation<'_>,
    console: &dyn Console,
    onlooker: &dyn Onlooker,
) -> Result<Value, Failure> {
    let file = read(what)?;
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let abort = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&abort);
    let ended = move || asked.store(true, Relaxed);
    let _ends = console.cancel().map(|cancel| cancel.and(ended));
    let runs = Runs {
        seeds: seeds(what, &file)?,
        jobs: what.jobs.map_or(cores, NonZeroUsize::get),
        output: None,
        store: None,
        any_build: false,
        program: Path::new(""),
        stop: None,
        abort: Some(&abort),
        onlooker: Some(onlooker),
    };
    let mut done = |done: &Done<'_>| {
        console.event(&json!({
            "type": "run",
            "ended": done.ended,
            "runs": done.runs,
            "case": scenario::label(&done.outcome.case),
            "seed": done.outcome.seed,
            "outcome": done.outcome,
        }));
    };
    let results = file.run(&runs, &mut done).map_err(|error| match error {
        RunError::Interrupted { stored, runs } => {
            let text = format!("interrupted after {stored} of {runs} runs");
            Failure::new(Exit::Signal(interrupt::signal()), text)
        }
        error => error.into(),
    })?;
    refuse_invalid(&results)?;
    let summary = file.summary(&results);
    let mut tally = Tally::default();
    tally.add(&summary.verdicts);
    whole(&[object(what.file, &file, &summary)], &tally, what.check)
}

/// The runs that [`simulate`] would make, without making them. The object has the scenario's name
/// and its `cases`, each with the fingerprint of all that is simulated. It also has the first and
/// the last of its `seeds`, and the `build` that would make them.
///
/// # Errors
/// As the command fails.
pub fn cells(what: &Simulation<'_>) -> Result<Value, Failure> {
    let file = read(what)?;
    let seeds = seeds(what, &file)?;
    let cases: Vec<_> = file
        .plans
        .iter()
        .map(|plan| json!({ "case": plan.case, "fingerprint": plan.fingerprint() }))
        .collect();
    Ok(
        json!({ "name": file.name, "cases": cases, "seeds": [seeds.0, seeds.1], "build": hash::build() }),
    )
}

fn seeds(what: &Simulation<'_>, file: &File) -> Result<(u64, u64), Failure> {
    let seeds = what.seeds.map(scenario::seeds).transpose();
    let seeds = seeds.map_err(|text| Failure::usage(format!("seeds: {text}")))?;
    Ok(seeds.unwrap_or(file.seeds))
}

fn read(what: &Simulation<'_>) -> Result<File, Failure> {
    let reference = Reference::beside(Path::new(what.file)).map_err(Failure::usage)?;
    let file = File::read_as(what.file, what.text, Variant::default(), &reference)
        .map_err(|problem| Failure::usage(problem.to_string()))?;
    file.only(what.case)
        .map_err(|text| Failure::usage(format!("{}: {text}", what.file)))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use farhaul_lab::scenario::Simulated;

    use super::*;
    use crate::app::console::Cancel;

    #[derive(Debug, Default)]
    struct Points(AtomicUsize);

    impl Onlooker for Points {
        fn ended(&self, run: &Simulated<'_>) {
            self.0.fetch_add(run.report.flows[0].series.len(), Relaxed);
        }
    }

    const TEXT: &str = "name = \"one\"\nduration = \"1s\"\nseeds = \"1..2\"\n[[link]]\nname = \"l\"\nrate = \"10Mbit\"\nrtt = \"10ms\"\n[[flow]]\nname = \"f\"\n";

    fn with(text: &str, cancel: &dyn Console) -> (Result<Value, Failure>, usize) {
        let points = Points::default();
        let what = Simulation {
            file: "a.toml",
            text,
            seeds: None,
            case: &BTreeMap::new(),
            jobs: NonZeroUsize::new(1),
            check: true,
        };
        let ended = simulate(&what, cancel, &points);
        (ended, points.0.into_inner())
    }

    #[test]
    fn a_scenario_gives_its_object_and_the_series_of_its_runs() {
        let (object, points) = with(TEXT, &Cancel::new());
        let object = object.unwrap();
        assert_eq!(object["scenarios"][0]["name"], "one");
        assert!(points >= 2 * 9, "{points} points of two runs");
    }

    #[test]
    fn what_is_wrong_or_cancelled_has_its_code() {
        let (wrong, _) = with(&TEXT.replace("10Mbit", "10"), &Cancel::new());
        let wrong = wrong.unwrap_err();
        assert_eq!(wrong.exit, Exit::Usage);
        assert!(wrong.text.starts_with("a.toml:6:"), "{}", wrong.text);
        let cancel = Cancel::new();
        cancel.cancel();
        assert_eq!(with(TEXT, &cancel).0.unwrap_err().exit.name(), "int");
        let missed = format!("{TEXT}[[expect]]\nmetric = \"goodput\"\nmin = \"1Gbit\"\n");
        let (missed, _) = with(&missed, &Cancel::new());
        assert_eq!(missed.unwrap_err().exit, Exit::Threshold);
    }
}
