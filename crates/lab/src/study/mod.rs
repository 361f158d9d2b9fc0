//! Runs the experiments of a paper and compares them with what the paper prints. A study is a file
//! `lab/scenarios/NAME.toml`: experiments, each with a scenario and figures, and a table of
//! published numbers.
//!
//! - [`Study`]: the file, read and checked
//! - [`Runs`]: its runs, stored in one folder, so that they can be resumed
//! - figures and the [page](self::Runs::page) that shows them
//! - [`KnownMisses`]: published numbers that are known to be missed, with figure and reason

mod bars;
mod cells;
mod figures;
mod known;
mod library;
mod page;
mod progress;
mod read;
mod run;
mod tables;
#[cfg(test)]
mod tests;
mod words;

pub use known::{KnownMiss, KnownMisses};
pub use library::{Library, StudyError};
pub use progress::Progress;
pub use run::{Choice, Effort, Runs};

use farhaul_congestion::lookup;

use crate::{
    reference::Reference,
    scenario::{Case, Term},
};

/// A study, read and checked.
#[derive(Clone, Debug)]
pub struct Study {
    /// Name as in `farhaul lab run NAME`.
    pub name: String,
    /// Heading.
    pub title: String,
    /// The paper, with authors and year.
    pub source: String,
    /// One paragraph.
    pub about: String,
    /// Ways in which all of it deviates from the paper.
    pub deviations: Vec<String>,
    /// The variable that holds the congestion law which the study tries, and that law.
    pub law: Option<(String, String)>,
    /// Experiments in the file's order.
    pub experiments: Vec<Experiment>,
    /// The published numbers.
    pub reference: Reference,
}

/// One experiment of a study.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Id as in `farhaul lab run NAME/ID`.
    pub id: String,
    /// Heading.
    pub title: String,
    /// One paragraph.
    pub about: String,
    /// Scenario of the experiment: a file beside the study's.
    pub scenario: String,
    /// Ways in which the experiment deviates from the paper.
    pub deviations: Vec<String>,
    /// Figures in the file's order.
    pub figures: Vec<FigurePlan>,
}

/// A figure to be drawn.
#[derive(Clone, Debug)]
pub struct FigurePlan {
    /// Id, which names the figure's files.
    pub id: String,
    /// The paper's figure.
    pub place: String,
    /// A sentence.
    pub caption: String,
    shape: Shape,
    /// Terms drawn upwards: of one time, or of several, each a line. Of a table, its columns.
    terms: Vec<Term>,
    /// The column over time.
    column: String,
    /// The variable along x.
    x: Option<String>,
    /// The variable with a line for each of its values.
    line: Option<String>,
    /// The cases that are drawn.
    when: Case,
    /// True for a scatter of both terms of each ratio in place of ours and the published.
    pairs: bool,
    /// The shown unit, and by how much values are divided.
    unit: (String, f64),
    /// Logarithmic axes: x, y.
    log: (bool, bool),
}

/// The shape of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Lines,
    Bars,
    Heat,
    Scatter,
    Series,
    Table,
}

impl Study {
    /// The experiment called `id`; the text of the error names those there are.
    pub fn experiment(&self, id: &str) -> Result<&Experiment, String> {
        let found = self.experiments.iter().find(|e| e.id == id);
        found.ok_or_else(|| {
            let ids = self.experiments.iter().map(|e| e.id.as_str());
            crate::scenario::unknown(&format!("experiment of {}", self.name), id, ids)
        })
    }

    /// Refuses laws that there are not, and any if the study tries none.
    fn tries(&self, laws: &[String]) -> Result<(), StudyError> {
        for law in laws {
            lookup(law).map_err(|e| StudyError::Unknown(e.to_string()))?;
        }
        if laws.is_empty() || self.law.is_some() {
            return Ok(());
        }
        Err(StudyError::Unknown(format!(
            "{} does not try one congestion law: to give any variable of its scenarios another value, use --vary NAME=VALUE",
            self.name
        )))
    }

    /// Scenario files by name, each once, in the order of the experiments that use them.
    fn scenarios(&self, only: Option<&str>) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for experiment in &self.experiments {
            let wanted = only.is_none_or(|id| id == experiment.id);
            if wanted && !names.contains(&experiment.scenario.as_str()) {
                names.push(&experiment.scenario);
            }
        }
        names
    }

    /// Every figure of the scenario `name`.
    fn figures_of(&self, name: &str) -> impl Iterator<Item = &FigurePlan> {
        let of = self.experiments.iter().filter(move |e| e.scenario == name);
        of.flat_map(|e| &e.figures)
    }
}
