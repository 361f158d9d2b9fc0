//! Shows results. A [`Page`] per study has figures with the published figures beside ours, and a
//! verdict on each published number. A page is data; HTML, Markdown, SVG and PNG are made from it.
//!
//! - [`html`], [`markdown`]: the page as text
//! - [`write()`]: both and the figures in a folder
//! - [`Server`]: the page for a browser, while runs are being made

mod files;
mod html;
mod markdown;
mod server;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

pub use files::{version, write};
pub use html::html;
pub use markdown::markdown;
pub use server::{Server, Source};

use crate::plot::Chart;

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
    /// Runs that are not valid, and parts that were not run, with the reason.
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
    /// Place where the number is printed.
    pub place: String,
    /// The quantity in words.
    pub what: String,
    /// The case, `all` if there is one only.
    pub case: String,
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
    /// The model was fitted to this number, so that agreement says nothing.
    Fitted,
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

    /// All outcomes, as summaries list them.
    pub const ALL: [Self; 8] = [
        Self::Met,
        Self::Missed,
        Self::Known,
        Self::Fitted,
        Self::Shown,
        Self::NotComparable,
        Self::Incomplete,
        Self::NotRun,
    ];

    /// Meaning of the outcome, in a sentence.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Met => "within what was allowed",
            Self::Missed => "outside what was allowed",
            Self::Known => {
                "outside what was allowed, and listed with what is known of the cause, if anything is"
            }
            Self::Fitted => "the model was fitted to this number: agreement says nothing",
            Self::Shown => "shown beside ours, without bounds",
            Self::NotComparable => "measured under conditions that the number does not hold for",
            Self::Incomplete => "some of its runs are not made, or not valid",
            Self::NotRun => "there is no valid run",
        }
    }

    /// Name of the outcome in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Known => "missed, known",
            Self::Missed => "missed",
            Self::Fitted => "fitted",
            Self::Shown => "shown",
            Self::NotComparable => "not comparable",
            Self::Incomplete => "incomplete",
            Self::NotRun => "not run",
        }
    }
}

/// Count of published numbers by outcome.
type Tally = BTreeMap<Outcome, usize>;

fn tally<'a>(verdicts: impl IntoIterator<Item = &'a Verdict>) -> Tally {
    let mut tally = Tally::new();
    for verdict in verdicts {
        *tally.entry(verdict.outcome).or_default() += 1;
    }
    tally
}

impl Page {
    fn verdicts(&self) -> impl Iterator<Item = &Verdict> {
        self.sections.iter().flat_map(|s| &s.verdicts)
    }

    /// Rows of the table of published numbers that ours are compared with.
    pub fn rows(&self) -> usize {
        let rows = self.verdicts().filter_map(|v| v.row.as_ref());
        rows.collect::<BTreeSet<_>>().len()
    }
}

impl Verdict {
    /// The quantity, and the case if there are several.
    fn title(&self) -> String {
        match self.case.as_str() {
            "" | "all" => self.what.clone(),
            case => format!("{}, {case}", self.what),
        }
    }

    /// Title with the place, if the number has one.
    fn placed(&self) -> String {
        match self.place.as_str() {
            "" => self.title(),
            place => format!("{place}: {}", self.title()),
        }
    }

    /// The two numbers and the words on them.
    fn compared(&self) -> String {
        let parts = [
            ("published ", &self.published),
            ("ours ", &self.ours),
            ("", &self.note),
        ];
        let there = parts.iter().filter(|(_, text)| !text.is_empty());
        let words: Vec<_> = there.map(|(name, text)| format!("{name}{text}")).collect();
        words.join("; ")
    }
}

impl Progress {
    /// Count as in `37 of 120 runs`.
    fn count(&self) -> String {
        format!("{} of {} runs", self.ended, self.runs)
    }
}
