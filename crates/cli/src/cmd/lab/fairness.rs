//! `farhaul lab run|report fairness`: the same questions to every law, and the tables of the answers.

use std::fmt::Write as _;

use farhaul_core::units::Rate;
use farhaul_lab::{
    fairness::{self, ABOUT, RATE, Run, Setting},
    grid::{Backend, RunStore},
    host::Host,
};
use serde_json::{Value, json};

pub(super) use farhaul_lab::fairness::NAME;

use super::{Where, disk, report::quoted};
use crate::{exit::Failure, out};

/// Arguments of `lab run` that only these questions have.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Only for `lab run fairness`")]
pub(super) struct Flags {
    /// The laws to test, as NAME or NAME:PARAMETER=VALUE, separated by commas [default: all]
    #[arg(long, value_name = "LAW")]
    law: Vec<String>,
    /// The bottleneck [default: 100Mbit]
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
}

/// How to run, as every grid is run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) seed: u64,
    pub(super) jobs: usize,
    pub(super) resume: bool,
    /// A line for each run.
    pub(super) printed: bool,
}

/// Whether `place` is about fairness; it runs in the simulator only.
pub(super) fn asked(place: &Where) -> Result<bool, Failure> {
    if place.name == NAME && place.backend.contains(&Backend::Emu) {
        return Err(Failure::usage(
            "fairness runs in the simulator only: omit --backend",
        ));
    }
    Ok(place.name == NAME)
}

impl Flags {
    /// For a study, they mean nothing.
    pub(super) fn refused(&self) -> Result<(), Failure> {
        if self.law.is_empty() && self.rate.is_none() {
            return Ok(());
        }
        Err(Failure::usage(
            "--law and --rate are for `farhaul lab run fairness`: a study has --vary NAME=VALUE",
        ))
    }

    /// Runs what is missing: the latest runs, how many were made, and how many failed.
    pub(super) fn run(
        &self,
        place: &Where,
        terms: Terms,
    ) -> Result<(Vec<Run>, usize, usize), Failure> {
        let laws = fairness::laws(&self.law).map_err(|e| Failure::usage(e.to_string()))?;
        let rate = self.rate.unwrap_or(RATE);
        let setting = Setting::new(rate, place.quick, terms.seed).map_err(Failure::usage)?;
        let store: RunStore<Run> = place.run_store();
        let unkept = |e| disk(store.folder(), &e);
        let done = store.trials().map_err(unkept)?;
        if !done.is_empty() && !terms.resume {
            return Err(Failure::usage(format!(
                "{} has {} runs already: continue with --resume, or choose another --out",
                store.folder().display(),
                done.len()
            )));
        }
        store.prepare(&Host::read()).map_err(unkept)?;
        let mut open = fairness::questions(&laws, setting);
        open.retain(|q| !done.iter().any(|r| r.question == *q && r.invalid.is_none()));
        let mut failed = 0;
        let mut keep = |run: Run| {
            if terms.printed {
                out::line(row(&run));
            }
            failed += usize::from(run.invalid.is_some());
            store.keep(&run)
        };
        fairness::run(&open, terms.jobs, &mut keep).map_err(unkept)?;
        Ok((store.latest().map_err(unkept)?, open.len(), failed))
    }
}

fn row(run: &Run) -> String {
    let mut text = format!("{:<12} {}", run.question.law, run.question.case);
    match &run.invalid {
        Some(why) => {
            text += "  NOT VALID: ";
            text += why;
        }
        None => {
            for (figure, value) in &run.figures {
                let _ = write!(text, "  {figure} {value:.3}");
            }
        }
    }
    text
}

/// The tables, or all data for programs.
pub(super) fn report(place: &Where, csv: bool, json: bool) -> Result<(), Failure> {
    let runs: Vec<Run> = place.latest()?;
    if json {
        out::json(&json!({
            "schema": "farhaul.lab.report/1",
            "ok": true,
            "version": env!("CARGO_PKG_VERSION"),
            "grid": place.name,
            "backend": Backend::Sim.name(),
            "runs": runs,
            "harm": fairness::harms(&runs),
        }));
    } else if csv {
        out::line("law,case,rate_bits_per_second,quick,seed,figure,value");
        for run in &runs {
            rows(run);
        }
    } else {
        out::line(fairness::tables(&runs).trim_end());
    }
    Ok(())
}

/// A line for each figure.
fn rows(run: &Run) {
    let question = &run.question;
    for (figure, value) in &run.figures {
        out::line(format!(
            "{},{},{},{},{},{figure},{value}",
            quoted(&question.law),
            quoted(&question.case.to_string()),
            question.rate_bits_per_second,
            question.quick,
            question.seed,
        ));
    }
}

/// As `lab list --json` shows a grid.
pub(super) fn listed() -> Value {
    json!({
        "name": NAME,
        "about": ABOUT,
        "rate_bits_per_second": RATE.bps(),
        "laws": fairness::laws(&[]).unwrap_or_default(),
    })
}

/// As `lab list` shows a grid.
pub(super) fn line() -> String {
    format!("{NAME:<12} questions at {RATE}, 60 to 90 s each: {ABOUT}")
}
