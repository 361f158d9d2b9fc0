//! `farhaul lab list` and `lab run`.

use std::{num::NonZeroUsize, thread};

use farhaul_lab::grid::{Backend, Kept, RunStore};
use serde_json::json;

use super::{Where, fairness, study};
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
        if self.json {
            out::json(&json!({
                "schema": "farhaul.lab.list/2",
                "ok": true,
                "grids": [fairness::listed()],
                "studies": study::objects(&studies),
            }));
            return Ok(());
        }
        study::list(&studies);
        out::line(format!("\n{}", fairness::line()));
        Ok(())
    }
}

/// Arguments of `lab run`.
#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    #[command(flatten)]
    place: Where,
    /// Seed of the paths' randomness
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = seed, allow_negative_numbers = true)]
    seed: u64,
    /// Run a study with this value of a variable instead of its scenarios' own; for more values, or more variables,
    /// give it again. These runs are stored beside the others
    #[arg(long, value_name = "NAME=VALUE", value_parser = study::setting)]
    vary: Vec<(String, String)>,
    /// Do not make runs of a study again that another build of the program has made
    #[arg(long)]
    any_build: bool,
    /// Simulations at a time [default: number of cores]
    #[arg(long, value_name = "N", value_parser = whole(1..=1024), allow_negative_numbers = true)]
    jobs: Option<u64>,
    /// Run only what is missing of fairness; studies always do
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
            self.fairness.refused()?;
            return self.run_study(&study);
        }
        self.run_fairness()
    }

    /// Refuses what only studies have.
    fn no_study(&self) -> Result<(), Failure> {
        let studies = [
            (!self.vary.is_empty(), "--vary"),
            (self.any_build, "--any-build"),
        ];
        if let Some((_, flag)) = studies.iter().find(|(given, _)| *given) {
            return Err(Failure::usage(format!("{flag} is for studies")));
        }
        self.place.no_study()
    }

    fn run_study(&self, study: &study::Which) -> Result<(), Failure> {
        let mut how = study::How {
            jobs: NonZeroUsize::new(self.jobs()),
            any_build: self.any_build,
            ..self.place.how()
        };
        for (name, value) in &self.vary {
            let values = how.vary.entry(name.clone()).or_default();
            values.push(value.clone());
        }
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
        self.no_study()?;
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
        let folder = RunStore::<T>::new(&self.place.out, fairness::NAME, Backend::Sim)
            .folder()
            .display()
            .to_string();
        let object = |failure: Option<&Failure>| {
            let mut object = json!({
                "schema": "farhaul.lab.run/1",
                "ok": failed == 0,
                "version": env!("CARGO_PKG_VERSION"),
                "grid": self.place.name,
                "backend": Backend::Sim.name(),
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
