//! How is a scenario file run, and what are its results? A TOML file describes links, hosts, flows
//! and cross traffic, what to vary, and what to expect of the result; `docs/scenarios.md` is its
//! reference. [`File::read`] checks all of it, [`File::run`] runs every case with every seed.

mod cases;
mod document;
mod expect;
mod measure;
mod outcome;
mod output;
mod plan;
mod run;
mod source;
mod summary;

use std::{collections::BTreeMap, ops::Range};

use toml::{Spanned, de::DeTable};

pub use document::seeds;
pub use expect::{Expectation, Verdict};
pub use measure::Unit;
pub use outcome::{FlowOutcome, LinkOutcome, Outcome};
pub use output::Output;
pub use plan::{Driver, Plan};
pub use run::{Done, RunError, Runs};
pub use source::{Case, Problem};
pub use summary::{CaseSummary, FlowSummary, LinkSummary, Spread, Summary};

use document::{Document, TOP};
use source::{Fields, Source};

/// A scenario file, read and checked.
#[derive(Clone, Debug)]
pub struct File {
    /// Its name.
    pub name: String,
    /// One line about it.
    pub about: String,
    /// The source of its figures.
    pub source: String,
    /// The first and the last seed by default.
    pub seeds: (u64, u64),
    /// Every case.
    pub plans: Vec<Plan>,
    /// What to expect.
    pub expectations: Vec<Expectation>,
}

impl File {
    /// Reads the text of the file called `file`.
    ///
    /// # Panics
    /// Never: a file without variables has one case.
    pub fn read(file: &str, text: &str) -> Result<Self, Problem> {
        let none = Case::new();
        let source = Source {
            file,
            text,
            case: &none,
        };
        let document = DeTable::parse(text).map_err(|error| {
            let span = error.span().unwrap_or(0..0);
            source.problem(&span, error.message())
        })?;
        let mut plans = Vec::new();
        let mut frame = None;
        for case in cases::cases(file, text, document.get_ref())? {
            let source = Source {
                file,
                text,
                case: &case,
            };
            let read = Document::read(&top(source, &document)?)?;
            plans.push(Plan::new(&source, &read)?);
            frame.get_or_insert(read.frame);
        }
        let frame = frame.expect("there is at least one case");
        Ok(Self {
            expectations: expect::read(&top(source, &document)?, &plans, !frame.sample.is_zero())?,
            name: frame.name,
            about: frame.about,
            source: frame.source,
            seeds: frame.seeds,
            plans,
        })
    }

    /// The same with those cases only in which every variable of `when` has that value.
    ///
    /// # Errors
    /// If there is no such case; the text lists what there is.
    pub fn only(mut self, when: &BTreeMap<String, String>) -> Result<Self, String> {
        let labels: Vec<_> = self.plans.iter().map(|p| cases::label(&p.case)).collect();
        self.plans.retain(|plan| cases::fits(&plan.case, when));
        if self.plans.is_empty() {
            return Err(format!("no such case; there are: {}", labels.join("; ")));
        }
        Ok(self)
    }
}

fn top<'a>(source: Source<'a>, document: &'a Spanned<DeTable<'a>>) -> Result<Fields<'a>, Problem> {
    let whole: Range<usize> = 0..0;
    Fields::new(source, "the file", document.get_ref(), whole, &TOP)
}

#[cfg(test)]
mod tests;
