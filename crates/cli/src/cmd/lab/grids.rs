//! `farhaul lab list` and `lab run`.

use std::{env, num::NonZeroUsize, thread};

use farhaul_core::units::Rate;
use farhaul_emu::wan;
use farhaul_lab::{
    grid::{Backend, Kept, Plan, PlanError, Trial, grids},
    host::Host,
};
use serde_json::json;

use super::{Where, disk, fairness, study};
use crate::{
    exit::{Exit, Failure},
    out,
    typed::{seed, whole},
};

/// Arguments of `lab list`.
#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// One JSON object instead of text
    #[arg(long, short = 'J')]
    json: bool,
}

impl List {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let studies = study::all()?;
        let all = grids();
        if self.json {
            let mut objects: Vec<_> = all
                .iter()
                .map(|g| {
                    json!({
                        "name": g.name, "about": g.about, "rate_bits_per_second": g.rate.bps(),
                        "seconds": g.seconds, "cells": g.cells,
                    })
                })
                .collect();
            objects.push(fairness::listed());
            out::json(&json!({
                "schema": "farhaul.lab.list/1",
                "ok": true,
                "grids": objects,
                "studies": study::objects(&studies),
            }));
            return Ok(());
        }
        study::list(&studies);
        out::line("\ngrids:");
        for grid in &all {
            out::line(format!(
                "{:<12} {:>2} cells at {}, {} s each: {}",
                grid.name,
                grid.cells.len(),
                grid.rate,
                grid.seconds,
                grid.about
            ));
        }
        out::line(fairness::line());
        Ok(())
    }
}

/// Arguments of `lab run`.
#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    #[command(flatten)]
    place: Where,
    /// The protocols to run, one after the other [default: haul]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    protocol: Vec<String>,
    /// The congestion law of all of them, as NAME or NAME:PARAMETER=VALUE,...
    #[arg(long, value_name = "LAW")]
    cc: Option<String>,
    /// How long each run sends, in seconds [default: the grid's own]
    #[arg(long, value_name = "SECONDS", value_parser = whole(1..=100_000), allow_negative_numbers = true)]
    secs: Option<u64>,
    /// Seed of the paths' randomness
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = seed, allow_negative_numbers = true)]
    seed: u64,
    /// Run a study with these seeds instead of its scenarios' own, as in 1..4 or 7
    #[arg(long, value_name = "SEEDS", value_parser = study::seeds)]
    seeds: Option<(u64, u64)>,
    /// Run only the cases of a study in which a variable has this value; may be given for several
    #[arg(long, value_name = "NAME=VALUE", value_parser = study::setting)]
    case: Vec<(String, String)>,
    /// Simulations at a time [default: number of cores]
    #[arg(long, value_name = "N", value_parser = whole(1..=1024), allow_negative_numbers = true)]
    jobs: Option<u64>,
    /// Run only what is missing of a grid; studies always do
    #[arg(long)]
    resume: bool,
    /// One JSON object with every run, instead of a line for each
    #[arg(long, short = 'J')]
    json: bool,
    #[command(flatten)]
    fairness: fairness::Flags,
}

impl Run {
    pub(super) fn run(&self) -> Result<(), Failure> {
        if let Some(study) = self.place.study() {
            return self.run_study(&study);
        }
        self.no_study()?;
        if fairness::asked(&self.place)? {
            return self.run_fairness();
        }
        self.fairness.refused(&self.place)?;
        let grid = self.place.grid()?;
        let backend = self.place.backend();
        if backend == Backend::Emu && self.jobs.is_some_and(|n| n > 1) {
            return Err(Failure::usage(
                "--jobs is for the simulator: an emulated run needs the whole machine",
            ));
        }
        let protocols = if self.protocol.is_empty() {
            &["haul".to_string()][..]
        } else {
            &self.protocol
        };
        let systems = protocols
            .iter()
            .map(|p| Plan::system(p, self.cc.as_deref()))
            .collect::<Result<Vec<_>, _>>();
        let systems = systems.map_err(|e| Failure::usage(e.to_string()))?;
        let store = self.place.run_store();
        let done = store.trials().map_err(|e| disk(store.folder(), &e))?;
        if !done.is_empty() && !self.resume {
            return Err(Failure::usage(format!(
                "{} has {} runs already: continue with --resume, or choose another --out",
                store.folder().display(),
                done.len()
            )));
        }
        if backend == Backend::Emu {
            wan::enter_user_namespace().map_err(|e| Failure::new(Exit::NetSetup, e.to_string()))?;
        }
        store
            .prepare(&described(backend))
            .map_err(|e| disk(store.folder(), &e))?;
        let plan = Plan {
            seconds: self.secs.unwrap_or(grid.seconds),
            grid,
            backend,
            systems,
            seed: self.seed,
            jobs: self.jobs(),
            program: env::current_exe().map_err(|e| Failure::new(Exit::Internal, e.to_string()))?,
        };
        let mut failed = 0;
        let mut keep = |trial: Trial| {
            if !self.json {
                out::line(row(&trial));
            }
            failed += usize::from(trial.invalid.is_some());
            store.keep(&trial)
        };
        let ran = plan.run(&done, &mut keep).map_err(|e| match e {
            PlanError::Keep(e) => disk(store.folder(), &e),
            other => Failure::usage(other.to_string()),
        })?;
        self.end(
            &store.latest().map_err(|e| disk(store.folder(), &e))?,
            ran,
            failed,
        )
    }

    /// Refuses what only studies have.
    fn no_study(&self) -> Result<(), Failure> {
        let studies = [
            (!self.case.is_empty(), "--case"),
            (self.seeds.is_some(), "--seeds"),
        ];
        if let Some((_, flag)) = studies.iter().find(|(given, _)| *given) {
            let text = format!("{flag} is for studies; a grid has --seed");
            return Err(Failure::usage(text));
        }
        self.place.no_study()
    }

    fn run_study(&self, study: &study::Which) -> Result<(), Failure> {
        let grids = [
            (!self.protocol.is_empty(), "--protocol"),
            (self.cc.is_some(), "--cc"),
            (self.secs.is_some(), "--secs"),
        ];
        if let Some((_, flag)) = grids.iter().find(|(given, _)| *given) {
            return Err(Failure::usage(format!(
                "{flag} is for grids: a study's scenarios have their own; --case and --seeds select of them"
            )));
        }
        let how = study::How {
            backends: self.place.backend.clone(),
            seeds: self.seeds,
            cases: self.case.iter().cloned().collect(),
            jobs: NonZeroUsize::new(self.jobs()),
        };
        study::run(study, &how, self.json)
    }

    fn jobs(&self) -> usize {
        self.jobs.map_or_else(
            || thread::available_parallelism().map_or(1, usize::from),
            |n| usize::try_from(n).unwrap_or(1),
        )
    }

    /// Every law meets the same questions over the same protocol for the same time.
    fn run_fairness(&self) -> Result<(), Failure> {
        let fixed = [
            (!self.protocol.is_empty(), "--protocol"),
            (self.cc.is_some(), "--cc"),
            (self.secs.is_some(), "--secs"),
        ];
        if let Some((_, flag)) = fixed.iter().find(|(given, _)| *given) {
            return Err(Failure::usage(format!(
                "fairness has no {flag}: choose with --law, --rate and --quick"
            )));
        }
        let terms = fairness::Terms {
            seed: self.seed,
            jobs: self.jobs(),
            resume: self.resume,
            printed: !self.json,
        };
        let (latest, ran, failed) = self.fairness.run(&self.place, terms)?;
        self.end(&latest, ran, failed)
    }

    fn end<T: Kept>(&self, latest: &[T], ran: usize, failed: usize) -> Result<(), Failure> {
        let folder = self.place.run_store::<T>().folder().display().to_string();
        let object = |failure: Option<&Failure>| {
            let mut object = json!({
                "schema": "farhaul.lab.run/1",
                "ok": failed == 0,
                "version": env!("CARGO_PKG_VERSION"),
                "grid": self.place.name,
                "backend": self.place.backend().name(),
                "folder": folder,
                "ran": ran,
                "invalid": failed,
                "runs": latest,
            });
            if let Some(failure) = failure {
                object["error"] = json!(failure.text);
                object["exit"] = failure.exit.object();
            }
            object
        };
        if failed > 0 {
            let text = format!(
                "{failed} of {ran} runs have no valid result; run those again with --resume"
            );
            let failure = Failure::new(Exit::Partial, text);
            let object = object(Some(&failure));
            return Err(failure.with_object(object));
        }
        if self.json {
            out::json(&object(None));
        } else {
            out::line(format!("{ran} runs, stored in {folder}"));
        }
        Ok(())
    }
}

/// This machine, with a warning if it cannot give useful figures.
fn described(backend: Backend) -> Host {
    let host = Host::read();
    if host.debug_build && backend == Backend::Emu {
        errln!("farhaul: a debug build: these figures are not worth keeping");
    }
    host
}

fn row(trial: &Trial) -> String {
    let mut text = format!(
        "{:<12} mtu {}, {:>3} ms, {} %: {}",
        trial.system.to_string(),
        trial.cell.mtu,
        trial.cell.rtt_ms,
        trial.cell.loss_percent,
        Rate::from_f64(trial.goodput_bits_per_second)
    );
    if let Some(why) = &trial.invalid {
        text += "  NOT VALID: ";
        text += why;
    }
    text
}
