//! Judges results by expectations. An `[[expect]]` bounds a figure, a ratio of two, or its spread
//! over a variable; it quotes the published figure and its source. Deviations are reported.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    cases::{OR, cells, fits, name_of, table_of},
    measure::{Metric, Term, Whose},
    plan::Plan,
    series::{level, window},
    source::{Case, Fields, Problem, unknown},
    summary::Spread,
};
use crate::{
    reference::{Fact, Reference},
    run_store::Backend,
    unit::Unit,
};

const EXPECT: [&str; 25] = [
    "metric",
    "flow",
    "link",
    "cross",
    "during",
    "level",
    "when",
    "over",
    "minus",
    "spread",
    "of",
    "share",
    "min",
    "max",
    "paper",
    "source",
    "reference",
    "rows",
    "within",
    "experiment",
    "fitted",
    "backend",
    "across",
    "across_of",
    "passed",
];
const OVER: [&str; 8] = [
    "metric", "flow", "link", "cross", "during", "level", "when", "backend",
];

/// Rule by which the figures of all seeds become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    Mean,
    Median,
    Min,
    Max,
    /// Figure of the seed with the greatest goodput.
    BestRun,
}

impl Of {
    const ALL: [(&str, Self); 5] = [
        ("mean", Self::Mean),
        ("median", Self::Median),
        ("min", Self::Min),
        ("max", Self::Max),
        ("best run", Self::BestRun),
    ];

    pub(super) fn name(self) -> &'static str {
        let found = Self::ALL.iter().find(|(_, of)| *of == self);
        found.map_or("", |(name, _)| name)
    }

    /// One figure of `values` that belong to no run, so that none is the best run's.
    pub(super) fn all(self, values: impl Iterator<Item = f64> + Clone) -> Option<f64> {
        values.clone().next()?;
        let spread = Spread::of(values);
        match self {
            Self::Mean => Some(spread.mean),
            Self::Median => Some(spread.median),
            Self::Min => Some(spread.min),
            Self::Max => Some(spread.max),
            Self::BestRun => None,
        }
    }
}

/// Rule by which two terms become one figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Combined {
    Ratio,
    Difference,
}

impl Combined {
    /// Nothing where there is nothing to compare with; infinite where only the first never happens.
    pub(super) fn of(self, first: f64, second: f64) -> Option<f64> {
        let figure = match self {
            Self::Ratio => first / second,
            Self::Difference => first - second,
        };
        let comparable = second.is_finite() && (figure.is_finite() || first.is_infinite());
        comparable.then_some(figure)
    }
}

/// The second term.
#[derive(Clone, Debug)]
pub(super) struct Other {
    pub(super) how: Combined,
    pub(super) term: Term,
    /// World of the runs, if not the same.
    pub(super) backend: Option<Backend>,
}

/// Expectation of a figure.
#[derive(Clone, Debug)]
pub struct Expectation {
    pub(super) term: Term,
    /// The other term of a ratio, or of a difference.
    pub(super) other: Option<Other>,
    /// Prefix of the names of the rows that an error is about.
    pub(super) rows: String,
    /// The variable over which the largest by the smallest is taken.
    pub(super) spread: Option<String>,
    pub(super) of: Of,
    /// Variables over whose cases the statistic is taken, of those cases that reach this goodput.
    pub(super) across: Vec<String>,
    pub(super) across_of: Of,
    /// Count of such cases that the file itself has.
    pub(super) cells: usize,
    pub(super) passed: Option<f64>,
    /// World in which alone the expectation holds.
    pub(super) backend: Option<Backend>,
    /// Least and greatest share of the seeds that must be within the bounds; of all seeds' figure
    /// by default.
    pub(super) share: Option<(f64, f64)>,
    pub(super) min: Option<f64>,
    pub(super) max: Option<f64>,
    pub(super) paper: Option<f64>,
    pub(super) source: String,
    /// Published number that the expectation is about.
    pub(super) fact: Option<Fact>,
    /// Experiment that the expectation belongs to.
    pub(super) experiment: Option<String>,
    /// Number that the model was fitted to, so that agreement says nothing.
    pub(super) fitted: Option<String>,
    pub(super) unit: Unit,
}

/// Names that an expectation may be about.
pub(super) struct Known<'a> {
    plans: &'a [Plan],
    /// Cases of this variant, one for each plan, then those of the file without one.
    cases: Vec<Case>,
    /// Every variable with its values, in these cases.
    values: BTreeMap<String, BTreeSet<String>>,
    /// True if flows are sampled.
    series: bool,
    reference: &'a Reference,
}

impl<'a> Known<'a> {
    /// `base` are the cases of the file without a variant.
    pub(super) fn new(
        plans: &'a [Plan],
        base: Vec<Case>,
        series: bool,
        reference: &'a Reference,
    ) -> Self {
        let own = plans.iter().map(|plan| plan.case.clone());
        let cases: Vec<Case> = own.chain(base).collect();
        let mut values: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (name, value) in cases.iter().flatten() {
            let known = values.entry(name.clone()).or_default();
            known.insert(value.clone());
        }
        Self {
            plans,
            cases,
            values,
            series,
            reference,
        }
    }

    /// Names of the variables.
    fn variables(&self) -> impl Iterator<Item = &str> + Clone {
        self.values.keys().map(String::as_str)
    }

    /// All values of the table that `key` names and of which `when` says this much. The tables of the
    /// variant go before those of the file; only one of either may be meant.
    fn table(&self, key: &str, when: &Case) -> Result<Case, String> {
        let table = table_of(key);
        if key != name_of(table) {
            return Ok(Case::new());
        }
        let of = |case: &Case| -> Case {
            let own = case.iter().filter(|(key, _)| table_of(key) == table);
            own.map(|(key, value)| (key.clone(), value.clone()))
                .collect()
        };
        let said = of(when);
        let meant = |cases: &[Case]| -> BTreeSet<Case> {
            let cases = cases.iter().filter(|case| fits(case, &said));
            cases.map(of).collect()
        };
        let (own, base) = self.cases.split_at(self.plans.len());
        let mut tables = meant(own);
        if tables.is_empty() {
            tables = meant(base);
        }
        let differs = |key: &&String| {
            let mut values = tables.iter().map(|table| table.get(*key));
            let first = values.next();
            values.any(|other| Some(other) != first)
        };
        let keys = tables.iter().flat_map(Case::keys).filter(differs);
        let keys: BTreeSet<&str> = keys.map(String::as_str).collect();
        if keys.is_empty() {
            return Ok(tables.pop_first().unwrap_or_default());
        }
        let keys = keys.into_iter().collect::<Vec<_>>().join(", ");
        let named = said.get(key).map_or("", String::as_str);
        Err(format!(
            "several values of {table} are called '{named}': tell them apart by {keys}"
        ))
    }
}

pub(super) fn read(top: &Fields<'_>, known: &Known<'_>) -> Result<Vec<Expectation>, Problem> {
    let tables = top.tables("expect", &EXPECT)?;
    let one = |fields: &Fields<'_>| {
        let expectation = expectation(fields, known)?;
        if !known.series && expectation.term.during.is_some() {
            return Err(fields.problem("during", "without samples nothing is known of a part"));
        }
        Ok(expectation)
    };
    tables.iter().map(one).collect()
}

fn expectation(fields: &Fields<'_>, known: &Known<'_>) -> Result<Expectation, Problem> {
    fields.needed("metric", "\"goodput\"")?;
    let term = term(fields, known, None)?;
    let other = second(fields, known, &term)?;
    let spread = fields.text("spread")?.map(|t| t.value);
    if let Some(variable) = &spread
        && !known.values.contains_key(variable)
    {
        let text = unknown("variable", variable, known.variables());
        return Err(fields.problem("spread", text));
    }
    let ratio = other.as_ref().is_some_and(|o| o.how == Combined::Ratio);
    let unit = if ratio || spread.is_some() {
        Unit::Number
    } else {
        term.metric.unit()
    };
    let bound = |key: &str| fields.parse(key, |text| unit.parse(text));
    // A published share of the trials bounds the share of the seeds, not the metric.
    let of_seeds = fields.has("share");
    let counted = if of_seeds { Unit::Share } else { unit };
    let fact = fact(fields, known.reference, counted)?;
    let own = fact.as_ref().filter(|_| !of_seeds);
    let (low, high) = widened(fields, own)?;
    let (min, max) = (bound("min")?.or(low), bound("max")?.or(high));
    let paper = bound("paper")?.or(own.and_then(|f| f.value));
    if min.is_none() && max.is_none() && paper.is_none() && fact.is_none() {
        let text = "an expectation needs min or max, or both, or a paper's figure";
        return Err(fields.problem("metric", text));
    }
    if let (Some(low), Some(high)) = (min, max)
        && low > high
    {
        return Err(fields.problem("max", "max is below min"));
    }
    let across = across(fields, known)?;
    let across_of = fields.parse("across_of", of)?;
    if across_of == Some(Of::BestRun) || (across_of.is_some() && across.is_empty()) {
        let text = "across_of is mean, median, min or max over the cases of across";
        return Err(fields.problem("across_of", text));
    }
    Ok(Expectation {
        rows: rows(fields, known.reference, &term)?,
        term,
        other,
        spread,
        of: fields.parse("of", of)?.unwrap_or(Of::Mean),
        cells: cells(&known.cases, &across),
        across,
        across_of: across_of.unwrap_or(Of::Mean),
        passed: fields.parse("passed", |text| Unit::Rate.parse(text))?,
        backend: fields.parse("backend", str::parse)?,
        share: fields.parse("share", shares)?,
        min,
        max,
        paper,
        source: match (fields.text("source")?, &fact) {
            (Some(text), _) => text.value,
            (None, Some(fact)) => fact.place.clone(),
            (None, None) => String::new(),
        },
        fact,
        experiment: fields.text("experiment")?.map(|t| t.value),
        fitted: fields.text("fitted")?.map(|t| t.value),
        unit,
    })
}

/// Prefix of the names of the rows whose errors are taken together.
fn rows(fields: &Fields<'_>, reference: &Reference, term: &Term) -> Result<String, Problem> {
    let Some(text) = fields.text("rows")? else {
        return Ok(String::new());
    };
    if term.metric.whose() != Whose::Nobody {
        return Err(fields.problem(
            "rows",
            "rows are for errors: log2_error and constant_log2_error",
        ));
    }
    if reference
        .facts()
        .all(|fact| !fact.id.starts_with(&text.value))
    {
        let problem = format!("no row begins with '{}'", text.value);
        return Err(fields.problem("rows", problem));
    }
    Ok(text.value)
}

/// The second term of a ratio or difference.
fn second(fields: &Fields<'_>, known: &Known<'_>, first: &Term) -> Result<Option<Other>, Problem> {
    let over = fields.table("over", &OVER)?;
    let minus = fields.table("minus", &OVER)?;
    let (how, table) = match (over, minus) {
        (None, None) => return Ok(None),
        (Some(over), None) => (Combined::Ratio, over),
        (None, Some(minus)) => (Combined::Difference, minus),
        (Some(_), Some(_)) => {
            let text = "over and minus are alternatives: give one of them";
            return Err(fields.problem("minus", text));
        }
    };
    let backend: Option<Backend> = table.parse("backend", str::parse)?;
    let own: Option<Backend> = fields.parse("backend", str::parse)?;
    if backend.is_some() && own.is_none_or(|own| Some(own) == backend) {
        let text = "the expectation itself has to be of the other world: give it that backend";
        return Err(table.problem("backend", text));
    }
    Ok(Some(Other {
        how,
        term: term(&table, known, Some(first))?,
        backend,
    }))
}

/// Parses the rule by which the figures of all seeds become one.
fn of(text: &str) -> Result<Of, String> {
    let found = Of::ALL.iter().find(|(name, _)| *name == text);
    let names = Of::ALL.iter().map(|(name, _)| *name);
    found
        .map(|(_, of)| *of)
        .ok_or_else(|| unknown("figure", text, names))
}

/// The variables over which a mean is taken.
fn across(fields: &Fields<'_>, known: &Known<'_>) -> Result<Vec<String>, Problem> {
    fields.each("across", |text| {
        let found = known.values.contains_key(text);
        found
            .then(|| text.to_string())
            .ok_or_else(|| unknown("variable", text, known.variables()))
    })
}

/// The row that `reference` names, which is counted in `unit`.
fn fact(fields: &Fields<'_>, reference: &Reference, unit: Unit) -> Result<Option<Fact>, Problem> {
    let Some(fact) = fields.parse("reference", |id| {
        let names = reference.facts().map(|f| f.id.as_str());
        let fact = reference.get(id).cloned();
        fact.ok_or_else(|| unknown("row", id, names))
    })?
    else {
        return Ok(None);
    };
    if fact.unit != unit {
        let (theirs, ours) = (fact.unit.scale().0, unit.scale().0);
        let text = format!("the row is counted in '{theirs}', the expectation in '{ours}'");
        return Err(fields.problem("reference", text));
    }
    Ok(Some(fact))
}

/// The bounds of the published number: as printed if it is a range or bound, wider by `within`.
fn widened(
    fields: &Fields<'_>,
    fact: Option<&Fact>,
) -> Result<(Option<f64>, Option<f64>), Problem> {
    match (fields.share("within")?, fact) {
        (Some(_), None) => Err(fields.problem("within", "within needs a reference")),
        (None, Some(fact)) => Ok((fact.low, fact.high)),
        (None, None) => Ok((None, None)),
        (Some(share), Some(fact)) => {
            let (low, high) = fact.bounds();
            Ok((
                low.map(|x| x - x.abs() * share),
                high.map(|x| x + x.abs() * share),
            ))
        }
    }
}

/// A term; the second of a ratio has the keys of the first by default.
fn term(fields: &Fields<'_>, known: &Known<'_>, base: Option<&Term>) -> Result<Term, Problem> {
    let metric = fields.parse("metric", Metric::named)?;
    let metric = metric.or(base.map(|b| b.metric.clone()));
    let metric = metric.unwrap_or(Metric::Goodput);
    let when = when(fields, known, base.is_some())?;
    let key = owner(&metric);
    for other in ["flow", "link", "cross"] {
        if other != key && fields.has(other) {
            let text = format!("{} has no {other}", metric.name());
            return Err(fields.problem(other, text));
        }
    }
    let name = if key.is_empty() {
        None
    } else {
        fields.parse(key, |text| {
            let names = names(&metric, known.plans);
            if names.contains(text) {
                Ok(text.to_string())
            } else {
                Err(unknown(key, text, names.iter().copied()))
            }
        })?
    };
    let during = fields.parse("during", window)?;
    if during.is_some() && !metric.has_times() {
        let text = format!("{} is known of the whole run only", metric.name());
        return Err(fields.problem("during", text));
    }
    let term = Term {
        name: name.or_else(|| base.and_then(|b| b.name.clone())),
        during: during.or_else(|| base.and_then(|b| b.during)),
        level: level(fields, &metric, base)?,
        metric,
        when,
    };
    let mut all = base.map_or_else(Case::new, |b| b.when.clone());
    all.extend(term.when.clone());
    let plans = known.plans.iter().filter(|plan| fits(&plan.case, &all));
    let checked = term.checked(plans);
    checked.map_err(|text| fields.problem("metric", text))?;
    Ok(term)
}

/// The cases of a term; those of an `other` term are one.
fn when(fields: &Fields<'_>, known: &Known<'_>, other: bool) -> Result<Case, Problem> {
    let mut when = Case::new();
    let pairs = fields.pairs("when")?;
    for (name, text) in &pairs {
        let wrong = |message: String| fields.source.problem(&text.span, message);
        let Some(values) = known.values.get(name) else {
            return Err(wrong(unknown("variable", name, known.variables())));
        };
        let listed: Vec<&str> = text.value.split(OR).collect();
        if other && listed.len() > 1 {
            return Err(wrong(format!("{name} of the other term is one value")));
        }
        for value in listed {
            if !values.contains(value) {
                let what = format!("value of {name}");
                let values = values.iter().map(String::as_str);
                return Err(wrong(unknown(&what, value, values)));
            }
        }
        when.insert(name.clone(), text.value.clone());
    }
    if other {
        for (name, text) in &pairs {
            let wrong = |message| fields.source.problem(&text.span, message);
            when.extend(known.table(name, &when).map_err(wrong)?);
        }
    }
    Ok(when)
}

/// The key that selects the object of a metric.
const fn owner(metric: &Metric) -> &'static str {
    match metric.whose() {
        Whose::Flow => "flow",
        Whose::Link => "link",
        Whose::Cross => "cross",
        Whose::Nobody => "",
    }
}

/// Names of the objects that a metric may be of.
fn names<'a>(metric: &Metric, plans: &'a [Plan]) -> BTreeSet<&'a str> {
    let each = plans.iter();
    match metric.whose() {
        Whose::Flow => {
            let drivers = each.flat_map(|p| &p.drivers);
            let both = drivers.flat_map(|d| [&d.name, &d.group]);
            both.map(String::as_str).collect()
        }
        Whose::Link => each.flat_map(|p| &p.links).map(String::as_str).collect(),
        Whose::Cross => each.flat_map(|p| &p.cross).map(String::as_str).collect(),
        Whose::Nobody => BTreeSet::new(),
    }
}

impl Expectation {
    /// Terms that the expectation is about: a figure, or two for a ratio.
    pub(super) fn terms(&self) -> impl Iterator<Item = &Term> {
        let other = self.other.as_ref().map(|o| &o.term);
        let all = [Some(&self.term), other].into_iter().flatten();
        all.filter(|term| term.metric.whose() != Whose::Nobody)
    }
}

/// `40%` of the seeds or more, or `5%..95%` of them.
fn shares(text: &str) -> Result<(f64, f64), String> {
    let share = |text: &str| farhaul_link::share(text).map_err(|e| e.to_string());
    match text.split_once("..") {
        None => Ok((share(text)?, 1.0)),
        Some((least, most)) => match (share(least)?, share(most)?) {
            (least, most) if least <= most => Ok((least, most)),
            _ => Err(format!("'{text}' runs backwards")),
        },
    }
}
