//! Runs scenario files. A TOML file describes links, hosts, flows and cross traffic, what to vary,
//! and what to expect of the result; `docs/scenarios.md` is its reference. [`File::read`] checks
//! all of it, [`File::run`] runs every case with every seed.

mod added;
mod carried;
mod cases;
mod costs;
mod document;
mod emulate;
mod expect;
mod measure;
mod outcome;
mod output;
mod plan;
mod processor;
mod profile;
mod run;
mod series;
mod source;
mod summary;
mod variant;
mod verdict;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use toml::{Spanned, de::DeTable};

pub use added::Vary;
pub use cases::label;
pub(crate) use cases::{fits, name_of, none_of, shown, table_of};
pub use costs::{Costs, Processors, RunReport};
pub use document::{MAX_SAMPLES, seeds};
pub use expect::Expectation;
pub(crate) use measure::Term;
pub use measure::{Metric, exact};
pub use outcome::{Columns, FlowOutcome, LinkOutcome, Outcome};
pub use output::{Output, Plot};
pub use plan::{Driver, Plan};
pub use run::{Done, Onlooker, Results, RunError, Runs, Simulated, Wanted};
pub(crate) use series::{level, window};
pub use source::{Case, Problem};
pub(crate) use source::{Fields, Source, unknown};
pub use summary::{CaseSummary, FlowSummary, LinkSummary, Spread, Summary};
pub use variant::Variant;
pub use verdict::{Used, Verdict};

use crate::{reference::Reference, run_store::Backend};
use document::{Document, Frame, TOP};

/// A scenario file, read and checked.
#[derive(Clone, Debug)]
pub struct File {
    /// Name of the scenario.
    pub name: String,
    /// One line about the scenario.
    pub about: String,
    /// The source of its figures.
    pub source: String,
    /// The first and the last seed by default.
    pub seeds: (u64, u64),
    /// The worlds that can run it.
    pub backends: Vec<Backend>,
    /// Variant in which the file was read.
    pub variant: Variant,
    /// Reason why published numbers do not hold for the file, if so.
    pub not_comparable: Option<String>,
    /// Every case.
    pub plans: Vec<Plan>,
    /// Expectations of the results.
    pub expectations: Vec<Expectation>,
    /// Terms measured of each run.
    terms: Vec<Term>,
    /// Cases that are not its own, whose plans are the last.
    added: BTreeSet<Case>,
}

impl File {
    /// Reads the text of the file called `file`.
    ///
    /// # Panics
    /// Never: a file without variables has one case.
    pub fn read(file: &str, text: &str) -> Result<Self, Problem> {
        Self::read_as(file, text, Variant::default(), &Reference::default())
    }

    /// Reads the file as `variant`; its expectations may refer to the rows of `reference`.
    ///
    /// # Panics
    /// Never: a file without variables has one case.
    pub fn read_as(
        file: &str,
        text: &str,
        variant: Variant,
        reference: &Reference,
    ) -> Result<Self, Problem> {
        let none = Case::new();
        let source = Source {
            file,
            text,
            case: &none,
        };
        let document = parse(source)?;
        let span = document.span();
        let base = variant::of(source, document.get_ref(), Variant::default())?;
        let document = variant::of(source, document.get_ref(), variant)?;
        let mut plans = Vec::new();
        let mut frame = None;
        let cases = cases::cases(file, text, &document)?;
        // An expectation may be about cases that this variant leaves out.
        let base = cases::cases(file, text, &base)?;
        let document = Spanned::new(span, document);
        for case in cases {
            let of = Source {
                case: &case,
                ..source
            };
            let (plan, read) = read_case(of, &document, variant)?;
            plans.push(plan);
            frame.get_or_insert(read);
        }
        let frame = frame.expect("there is at least one case");
        let known = expect::Known::new(&plans, base, !frame.sample.is_zero(), reference);
        let expectations = expect::read(&top(source, &document)?, &known)?;
        let terms = expectations.iter().flat_map(Expectation::terms).cloned();
        let mut file = Self {
            terms: Vec::new(),
            name: frame.name,
            about: frame.about,
            source: frame.source,
            seeds: frame.seeds,
            backends: frame.backends,
            not_comparable: frame.not_comparable,
            variant,
            expectations: Vec::new(),
            plans: Vec::new(),
            added: BTreeSet::new(),
        };
        file.also(terms);
        Ok(Self {
            plans,
            expectations,
            ..file
        })
    }

    /// The experiments that its expectations name.
    pub fn experiments(&self) -> impl Iterator<Item = &str> {
        let named = self.expectations.iter().map(|e| e.experiment.as_deref());
        named.flatten()
    }

    /// The worlds that can run the file with this text, whatever else is in it.
    pub fn backends(file: &str, text: &str) -> Result<Vec<Backend>, Problem> {
        let none = Case::new();
        let source = Source {
            file,
            text,
            case: &none,
        };
        let document = parse(source)?;
        let mut known: Vec<&str> = TOP.to_vec();
        known.extend(["quick", "emu"]);
        let top = Fields::new(source, "the file", document.get_ref(), 0..0, &known)?;
        document::backends(&top)
    }

    /// Keeps only the cases in which every variable of `when` has that value.
    ///
    /// # Errors
    /// If there is no such case; the text says which values there are.
    pub fn only(mut self, when: &BTreeMap<String, String>) -> Result<Self, String> {
        if !self.plans.iter().any(|plan| fits(&plan.case, when)) {
            return Err(none_of(self.plans.iter().map(|plan| &plan.case), when));
        }
        self.plans.retain(|plan| fits(&plan.case, when));
        Ok(self)
    }
}

/// One case of a document, and what all its cases have in common.
fn read_case(
    source: Source<'_>,
    document: &Spanned<DeTable<'_>>,
    variant: Variant,
) -> Result<(Plan, Frame), Problem> {
    let read = Document::read(&top(source, document)?)?;
    let plan = Plan::new(&source, &read, variant.backend)?;
    Ok((plan, read.frame))
}

fn parse(source: Source<'_>) -> Result<Spanned<DeTable<'_>>, Problem> {
    DeTable::parse(source.text).map_err(|error| {
        let span = error.span().unwrap_or(0..0);
        source.problem(&span, error.message())
    })
}

fn top<'a>(source: Source<'a>, document: &'a Spanned<DeTable<'a>>) -> Result<Fields<'a>, Problem> {
    let whole: Range<usize> = 0..0;
    Fields::new(source, "the file", document.get_ref(), whole, &TOP)
}

#[cfg(test)]
mod tests;
