//! Shows results. A [`Page`] per study has figures with the published figures beside ours, and a
//! verdict on each published number. A page is data; HTML, Markdown, SVG and PNG are made from it.
//!
//! - [`numbers`]: verdicts by published number, each with its worst case
//! - [`html`], [`markdown`]: the page as text
//! - [`write()`]: both and the figures in a folder
//! - [`Server`]: the page for a browser, while runs are being made

mod files;
mod html;
mod markdown;
mod numbers;
mod server;
#[cfg(test)]
mod tests;

pub use files::{version, write};
pub use html::html;
pub use markdown::markdown;
pub use numbers::{Number, Score, Tally, counted, numbers};
pub use server::{Server, Source};

use crate::{plot::Chart, reference::Kind};

/// A figure on a page and in files: width and height, px.
const WIDE: (u32, u32) = (720, 432);
/// Size for a narrow window, such as a telephone's.
const NARROW: (u32, u32) = (360, 320);

/// The results of a study.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// Name of the study, as in `farhaul lab run NAME`.
    pub name: String,
    /// Heading.
    pub title: String,
    /// The paper, with authors and year.
    pub source: String,
    /// One paragraph.
    pub about: String,
    /// True for the short version of the study.
    pub quick: bool,
    /// Ways in which the whole study deviates from the paper.
    pub deviations: Vec<String>,
    /// One per experiment.
    pub sections: Vec<Section>,
    /// Machine, program, times: name and value.
    pub facts: Vec<(String, String)>,
    /// Progress, while runs are being made.
    pub progress: Option<Progress>,
}

/// Progress of a run of the study.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Runs that have ended, those stored before included.
    pub ended: usize,
    /// Runs in all.
    pub runs: usize,
    /// Text of the running case, and how long the rest will take.
    pub text: String,
}

/// One experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// Id as in `farhaul lab run NAME/ID`.
    pub id: String,
    /// Heading.
    pub title: String,
    /// One paragraph.
    pub about: String,
    /// Figures in the order of the study.
    pub figures: Vec<Figure>,
    /// Tables in the order of the study.
    pub tables: Vec<Table>,
    /// One per published number, case and world.
    pub verdicts: Vec<Verdict>,
    /// Ways in which the experiment deviates from the paper.
    pub deviations: Vec<String>,
    /// Command that repeats the experiment.
    pub repeat: String,
    /// True if at least one of its runs is stored.
    pub ran: bool,
    /// Figures without a point of ours, by place or id.
    pub undrawn: Vec<String>,
    /// Count of runs that are not made yet, in words.
    pub open: Vec<String>,
    /// Runs that are not valid or ended early, with the reason.
    pub remarks: Vec<String>,
}

/// Figures as numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Letters, digits and `-`.
    pub id: String,
    /// The paper's table, as in `Table 3`.
    pub place: String,
    /// A sentence.
    pub caption: String,
    /// Names of the columns with their units.
    pub head: Vec<String>,
    /// Rows with as many cells in each as there are columns.
    pub rows: Vec<Vec<String>>,
}

/// One figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Names its files: letters, digits and `-`.
    pub id: String,
    /// The paper's figure, as in `Fig. 3`.
    pub place: String,
    /// A sentence.
    pub caption: String,
    /// The drawing.
    pub chart: Chart,
}

/// Verdict on a published number.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The row of the table of published numbers, if it is of one: several comparisons may be with the same.
    pub row: Option<String>,
    /// Source of the number, if it is of such a row.
    pub kind: Option<Kind>,
    /// Place where the number is printed.
    pub place: String,
    /// The quantity in words.
    pub quantity: String,
    /// The figure that is compared, as scenarios and the list of known misses name it.
    pub what: String,
    /// The case as they name it, `all` if there is one only.
    pub case: String,
    /// The case in words; empty if there is one only.
    pub setting: String,
    /// `sim` or `emu`.
    pub backend: &'static str,
    /// The published number with its unit, and how it is known: printed, derived, assumed, recalled.
    pub published: String,
    /// Our value of the statistic.
    pub ours: String,
    /// Least to greatest over the seeds.
    pub range: String,
    /// Bounds that were allowed.
    pub bounds: String,
    /// Distance from what is allowed, as a share of the nearer bound: above zero outside.
    pub off: f64,
    /// The outcome.
    pub outcome: Outcome,
    /// Amount by which the number is missed, why it cannot be compared, or why it is known to be
    /// missed.
    pub note: String,
}

/// Words after the place of a figure: figures and tables are a paper's.
fn of_paper(place: &str) -> &'static str {
    let of = ["Fig", "Table"].iter().any(|name| place.starts_with(name));
    if of { " of the paper" } else { "" }
}

/// The outcome of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Within the bounds.
    Met,
    /// Outside the bounds, and listed as known with a reason.
    Known,
    /// Outside the bounds.
    Missed,
    /// The model was fitted to this number, and is within the bounds.
    Fitted,
    /// The model was fitted to this number, and is outside the bounds all the same.
    FittedOutside,
    /// Shown beside ours without bounds.
    Shown,
    /// Measured under conditions that the number does not hold for.
    NotComparable,
    /// Some of the runs behind the number are not made, or not valid.
    Incomplete,
    /// There is no valid run.
    NotRun,
}

impl Outcome {
    /// True for an outcome outside the bounds, listed or not.
    pub const fn is_miss(self) -> bool {
        matches!(self, Self::Missed | Self::Known)
    }

    /// True for an outcome that judges ours: met or missed, and not fitted.
    pub const fn is_verdict(self) -> bool {
        matches!(self, Self::Met) || self.is_miss()
    }

    /// All outcomes, as summaries list them.
    pub const ALL: [Self; 9] = [
        Self::Met,
        Self::Missed,
        Self::Known,
        Self::Fitted,
        Self::FittedOutside,
        Self::Shown,
        Self::NotComparable,
        Self::Incomplete,
        Self::NotRun,
    ];

    /// Meaning of the outcome, in a sentence.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Met => "ours is within what is allowed: the number is reproduced",
            Self::Missed => "ours is outside what is allowed",
            Self::Known => {
                "ours is outside what is allowed, and listed with what is known of the cause, if anything is"
            }
            Self::Fitted => {
                "the model was fitted to this number and is within what is allowed: agreement says nothing"
            }
            Self::FittedOutside => {
                "the model was fitted to this number, and is outside what is allowed all the same"
            }
            Self::Shown => "ours is shown beside the number, without bounds",
            Self::NotComparable => "ours has conditions that the number does not hold for",
            Self::Incomplete => "some of the runs are not made, or not valid",
            Self::NotRun => "there is no valid run",
        }
    }

    /// Name of the outcome in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Known => "missed, known",
            Self::Missed => "missed",
            Self::Fitted => "fitted, inside",
            Self::FittedOutside => "fitted, outside",
            Self::Shown => "shown",
            Self::NotComparable => "not comparable",
            Self::Incomplete => "incomplete",
            Self::NotRun => "not run",
        }
    }

    /// Sign of the outcome, which only repeats the name.
    pub const fn sign(self) -> &'static str {
        match self {
            Self::Met => "✓",
            Self::Missed | Self::Known => "✗",
            Self::Fitted => "=",
            Self::FittedOutside => "≠",
            Self::Shown => "·",
            Self::NotComparable => "~",
            Self::Incomplete => "…",
            Self::NotRun => "–",
        }
    }
}

impl Page {
    /// Experiments of which at least one run is stored.
    fn ran(&self) -> impl Iterator<Item = &Section> {
        self.sections.iter().filter(|s| s.ran)
    }

    /// Experiments without a stored run.
    fn unrun(&self) -> Vec<&Section> {
        self.sections.iter().filter(|s| !s.ran).collect()
    }
}

/// Said at the top of the page of a quick run.
const QUICK: &str = "Runs are shorter, and cases and seeds fewer, than in the study. Each caption says what was run; \
                     descriptions are of the full study.";

/// The experiments without a run, in one line; nothing if all have one.
fn unrun(sections: &[&Section]) -> Option<String> {
    let ids: Vec<_> = sections.iter().map(|s| s.id.as_str()).collect();
    match ids.as_slice() {
        [] => None,
        [one] => Some(format!("1 experiment is not run: {one}")),
        all => Some(format!(
            "{} experiments are not run: {}",
            all.len(),
            all.join(", ")
        )),
    }
}

impl Section {
    /// Figures that are not drawn, in one line; nothing if all are.
    fn missing(&self) -> Option<String> {
        let all = self.undrawn.join(", ");
        (!all.is_empty()).then(|| format!("Not drawn, as no run has the data: {all}."))
    }
}

impl Progress {
    /// Count as in `37 of 120 runs`.
    fn count(&self) -> String {
        format!("{} of {} runs", self.ended, self.runs)
    }
}
