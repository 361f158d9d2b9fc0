//! `farhaul lab list`: the studies and their experiments, and the size of their runs.

use std::{path::PathBuf, time::Duration};

use farhaul_lab::study::{Effort, Experiment, Library, Study, StudyError};
use serde_json::{Value, json};

use super::study::{How, Which, parts, unreadable};
use crate::{exit::Failure, out, when};

/// Arguments of `lab list`.
#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// Only this study, with the number and the time of its runs; or a study's FILE.toml
    #[arg(value_name = "STUDY")]
    study: Option<String>,
    /// One JSON object instead of text
    #[arg(long, short = 'J')]
    json: bool,
}

impl List {
    pub(super) fn run(&self) -> Result<(), Failure> {
        if let Some(name) = &self.study {
            let listed = Listed::read(name)?;
            if self.json {
                out::json(&json!({
                    "schema": "farhaul.lab.list/3",
                    "ok": true,
                    "studies": [listed.object()],
                }));
            } else {
                listed.print();
            }
            return Ok(());
        }
        let studies = all()?;
        if self.json {
            out::json(&json!({
                "schema": "farhaul.lab.list/3",
                "ok": true,
                "studies": objects(&studies),
            }));
            return Ok(());
        }
        list(&studies);
        Ok(())
    }
}

/// Every study of the program.
fn all() -> Result<Vec<Study>, Failure> {
    let names = Library::names().into_iter();
    let read = names.map(|name| Ok(Library::find(name)?.0));
    read.collect::<Result<_, StudyError>>().map_err(unreadable)
}

/// Objects as `lab list --json` shows them.
fn objects(studies: &[Study]) -> Value {
    let experiment = |e: &Experiment| json!({ "id": e.id, "title": e.title, "about": e.about });
    let study = |s: &Study| {
        json!({
            "name": s.name, "title": s.title, "source": s.source, "about": s.about,
            "experiments": s.experiments.iter().map(experiment).collect::<Vec<_>>(),
        })
    };
    studies.iter().map(study).collect()
}

fn heading(study: &Study) -> String {
    format!("{}: {} ({})", study.name, study.title, study.source)
}

/// Prints the studies as `lab list` shows them.
fn list(studies: &[Study]) {
    for study in studies {
        out::line(heading(study));
        for experiment in &study.experiments {
            let name = format!("{}/{}", study.name, experiment.id);
            out::line(format!("  {name:<24} {}", experiment.title));
        }
    }
}

/// One study as `lab list STUDY` shows it: each experiment, and the size of its runs.
struct Listed {
    study: Study,
    /// Short and full version of each experiment.
    sizes: Vec<[Effort; 2]>,
}

impl Listed {
    /// Reads the study called `name`.
    fn read(name: &str) -> Result<Self, Failure> {
        let (name, _) = parts(name);
        let runs = |quick| {
            let which = Which {
                name: name.into(),
                quick,
                out: PathBuf::new(),
            };
            which.runs(&How::default())
        };
        // Experiments share scenarios, so that each is read once and not for each of them.
        let (short, full) = (runs(true)?, runs(false)?);
        let study = full.study().clone();
        let sizes = study.experiments.iter();
        let sizes = sizes.map(|e| [short.effort(Some(e)), full.effort(Some(e))]);
        Ok(Self {
            sizes: sizes.collect(),
            study,
        })
    }

    /// The study as an object.
    fn object(&self) -> Value {
        let mut object = objects(std::slice::from_ref(&self.study))[0].take();
        for (at, [quick, full]) in self.sizes.iter().enumerate() {
            object["experiments"][at]["quick"] = json!(quick);
            object["experiments"][at]["full"] = json!(full);
        }
        object
    }

    /// Prints the study.
    fn print(&self) {
        out::line(heading(&self.study));
        for (experiment, [quick, full]) in self.study.experiments.iter().zip(&self.sizes) {
            let name = format!("{}/{}", self.study.name, experiment.id);
            out::line(format!("  {name:<24} {}", experiment.title));
            let space = "";
            out::line(format!(
                "  {space:<24} {}; with --quick {}",
                size(full),
                size(quick)
            ));
        }
        out::line(
            "Emulated time is real time. A processor simulates most of these networks faster than they are.",
        );
    }
}

/// The size of runs in words.
fn size(effort: &Effort) -> String {
    let mut text = format!("{} runs", effort.runs);
    for (seconds, how) in [
        (effort.emulated_seconds, "emulated"),
        (effort.simulated_seconds, "simulated"),
    ] {
        if seconds > 0.0 {
            let time = Duration::from_secs_f64(seconds.clamp(0.0, 1e9));
            for part in [", ", &when::rough(time), " ", how] {
                text.push_str(part);
            }
        }
    }
    text
}
