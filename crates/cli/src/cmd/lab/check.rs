//! `farhaul lab check`: is what was kept as good as what was reached before?

use std::path::{Path, PathBuf};

use farhaul_lab::grid::{Backend, BoundsError, Verdict};
use serde_json::json;

use super::{Where, study};
use crate::{
    exit::{Exit, Failure},
    out, read,
};

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Check {
    #[command(flatten)]
    place: Where,
    /// The bounds of fairness [default: those of this program]
    #[arg(long, value_name = "FILE")]
    reference: Option<PathBuf>,
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
            if self.reference.is_some() {
                return Err(Failure::usage(
                    "a study's bounds are in its scenarios: omit --reference",
                ));
            }
            let how = self.place.how();
            let list = (self.known.as_deref(), self.new);
            return study::check(&study, &how, list, self.json);
        }
        self.place.no_study()?;
        self.run_fairness()
    }

    /// Bounds of fairness are requirements; they are not written from results.
    fn run_fairness(&self) -> Result<(), Failure> {
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
            "backend": Backend::Sim.name(),
            "verdict": verdict,
        });
        let text = match (verdict.compared, verdict.deviations.len()) {
            (0, _) => format!(
                "none of {runs} runs has a bound; {}",
                "quick ones have none, nor have laws other than haul; or give --reference FILE"
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
