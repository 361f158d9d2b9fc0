//! `farhaul lab check`: is what was kept as good as what was reached before?

use std::{
    fs,
    path::{Path, PathBuf},
};

use farhaul_lab::grid::{Bounds, BoundsError, Verdict};
use serde_json::json;

use super::{Where, fairness, study};
use crate::{
    exit::{Exit, Failure},
    out, read,
};

/// A record of what the project reached, by `lab check --write`: against regressions, not what is owed.
const REACHED: &str = include_str!("../../../../../lab/reference/bounds.json");

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Check {
    #[command(flatten)]
    place: Where,
    /// The bounds to check [default: those of this program]
    #[arg(long, value_name = "FILE")]
    reference: Option<PathBuf>,
    /// Instead of checking, write the results as bounds into a file, in addition to those it has
    #[arg(long, value_name = "FILE", conflicts_with = "reference")]
    write: Option<PathBuf>,
    /// Tolerance when bounds are written
    #[arg(long, value_name = "SHARE", default_value = "5%", requires = "write", value_parser = farhaul_link::share)]
    tolerance: f64,
    /// Fail only for misses of a study that are not listed as known, with figure and reason
    #[arg(long)]
    new: bool,
    /// The list of known misses [default: that of this program]
    #[arg(long, value_name = "FILE")]
    known: Option<PathBuf>,
    /// One JSON object instead of text
    #[arg(long, short = 'J')]
    json: bool,
}

impl Check {
    pub(super) fn run(&self) -> Result<(), Failure> {
        if let Some(study) = self.place.study() {
            if self.write.is_some() || self.reference.is_some() {
                return Err(Failure::usage(
                    "a study's bounds are in its scenarios: omit --write and --reference",
                ));
            }
            let how = study::How {
                backends: self.place.backend.clone(),
                ..study::How::default()
            };
            let list = (self.known.as_deref(), self.new);
            return study::check(&study, &how, list, self.json);
        }
        self.place.no_study()?;
        if fairness::asked(&self.place)? {
            return self.run_fairness();
        }
        let trials = self.place.kept()?;
        if let Some(file) = &self.write {
            let reached = Bounds::of(&trials, self.tolerance);
            let earlier = if file.exists() {
                bounds_of(file, Bounds::parse)?.with(reached)
            } else {
                reached
            };
            let text = serde_json::to_string_pretty(&earlier)
                .map_err(|e| Failure::new(Exit::Internal, e.to_string()))?;
            fs::write(file, text + "\n")
                .map_err(|e| Failure::new(Exit::DestError, format!("{}: {e}", file.display())))?;
            let object =
                json!({ "schema": "farhaul.lab.check/1", "ok": true, "written": trials.len() });
            self.print(
                &object,
                &format!("{} bounds in {}", trials.len(), file.display()),
            );
            return Ok(());
        }
        let bounds = match &self.reference {
            Some(file) => bounds_of(file, Bounds::parse)?,
            None => Bounds::parse(REACHED)
                .map_err(|e| Failure::new(Exit::Internal, format!("our own bounds: {e}")))?,
        };
        self.judged(&bounds.check(&trials), trials.len())
    }

    /// Bounds of fairness are requirements; they are not written from results.
    fn run_fairness(&self) -> Result<(), Failure> {
        if self.write.is_some() {
            return Err(Failure::usage(
                "--write is for grids: bounds of fairness are not written from results; edit a copy of lab/reference/fairness.json and give it with --reference",
            ));
        }
        let runs: Vec<farhaul_lab::fairness::Run> = self.place.latest()?;
        let bounds = match &self.reference {
            Some(file) => bounds_of(file, farhaul_lab::fairness::Bounds::parse)?,
            None => farhaul_lab::fairness::Bounds::owed(),
        };
        self.judged(&bounds.check(&runs), runs.len())
    }

    fn judged(&self, verdict: &Verdict, runs: usize) -> Result<(), Failure> {
        let mut object = json!({
            "schema": "farhaul.lab.check/1",
            "ok": true,
            "version": env!("CARGO_PKG_VERSION"),
            "grid": self.place.name,
            "backend": self.place.backend().name(),
            "verdict": verdict,
        });
        let text = match (verdict.compared, verdict.deviations.len()) {
            (0, _) => format!(
                "none of {runs} runs has a bound; {}",
                if self.place.name == fairness::NAME {
                    "quick ones have none, nor have laws other than haul; or give --reference FILE"
                } else {
                    "give --reference FILE, written by `lab check --write`"
                }
            ),
            (compared, 0) => {
                let without = match verdict.without {
                    0 => String::new(),
                    n => format!("; {n} have no bound"),
                };
                self.print(
                    &object,
                    &format!("{compared} runs are within bounds{without}"),
                );
                return Ok(());
            }
            (compared, n) => {
                for line in &verdict.deviations {
                    errln!("{line}");
                }
                format!("{n} deviations in {compared} runs")
            }
        };
        let failure = Failure::new(Exit::Threshold, text);
        object["ok"] = json!(false);
        object["error"] = json!(failure.text);
        object["exit"] = failure.exit.object();
        Err(failure.with_object(object))
    }

    fn print(&self, object: &serde_json::Value, text: &str) {
        if self.json {
            out::json(object);
        } else {
            out::line(text);
        }
    }
}

fn bounds_of<B>(
    file: &Path,
    parse: impl FnOnce(&str) -> Result<B, BoundsError>,
) -> Result<B, Failure> {
    let text = read::settings(file)
        .map_err(|e| Failure::new(Exit::SourceMissing, format!("{}: {e}", file.display())))?;
    parse(&text).map_err(|e| Failure::new(Exit::Config, format!("{}: {e}", file.display())))
}
