//! Is the result as expected? An `[[expect]]` bounds a figure, a ratio of two, or its spread over a
//! variable; it quotes the published figure and its source. Deviations are reported.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{
    cases::{fits, label},
    measure::{Metric, Term, Unit, Whose, mean},
    plan::Plan,
    run::Trial,
    source::{Case, Fields, Problem, unknown},
    summary::Spread,
};

const EXPECT: [&str; 15] = [
    "metric", "flow", "link", "cross", "during", "when", "over", "spread", "of", "share", "min",
    "max", "paper", "source", "known",
];
const OVER: [&str; 6] = ["metric", "flow", "link", "cross", "during", "when"];

/// How the figures of all seeds become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Mean,
    Median,
    Min,
    Max,
}

/// What is expected.
#[derive(Clone, Debug)]
pub struct Expectation {
    term: Term,
    over: Option<Term>,
    /// The variable over which the largest by the smallest is taken.
    spread: Option<String>,
    of: Of,
    /// At least this share of the seeds must be within the bounds; of all seeds' figure by default.
    share: Option<f64>,
    min: Option<f64>,
    max: Option<f64>,
    paper: Option<f64>,
    source: String,
    /// Why it is known not to hold.
    known: Option<String>,
    unit: Unit,
}

/// What became of an expectation in one case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// The figure in words.
    pub what: String,
    /// The case.
    pub case: String,
    /// As published.
    pub paper: Option<f64>,
    /// As simulated, if enough was run for it.
    pub ours: Option<f64>,
    /// Bounds.
    pub min: Option<f64>,
    /// Bounds.
    pub max: Option<f64>,
    /// Share of the seeds within the bounds, where the expectation is about that.
    pub share: Option<f64>,
    /// Whether it is as expected; nothing if it was not run, or is for comparison only.
    pub holds: Option<bool>,
    /// Why it is known not to hold.
    pub known: Option<String>,
    /// Where the figure is from.
    pub source: String,
    /// In what it is counted.
    #[serde(skip)]
    pub unit: Unit,
}

impl Verdict {
    /// Whether it was run, is not met, and is not a known deviation.
    pub fn fails(&self) -> bool {
        self.holds == Some(false) && self.known.is_none()
    }
}

pub(super) fn read(
    top: &Fields<'_>,
    plans: &[Plan],
    series: bool,
) -> Result<Vec<Expectation>, Problem> {
    let tables = top.tables("expect", &EXPECT)?;
    let one = |fields: &Fields<'_>| {
        let expectation = expectation(fields, plans)?;
        if !series && expectation.term.during.is_some() {
            return Err(fields.problem("during", "without samples nothing is known of a part"));
        }
        Ok(expectation)
    };
    tables.iter().map(one).collect()
}

fn expectation(fields: &Fields<'_>, plans: &[Plan]) -> Result<Expectation, Problem> {
    fields.needed("metric", "\"goodput\"")?;
    let term = term(fields, plans, None)?;
    let over = fields
        .table("over", &OVER)?
        .map(|over| self::term(&over, plans, Some(&term)))
        .transpose()?;
    let spread = fields.text("spread")?.map(|t| t.value);
    if let Some(variable) = &spread {
        let known: BTreeSet<_> = plans.iter().flat_map(|p| p.case.keys()).collect();
        if !known.contains(variable) {
            let text = unknown("variable", variable, known.iter().map(|n| n.as_str()));
            return Err(fields.problem("spread", text));
        }
    }
    let unit = if over.is_some() || spread.is_some() {
        Unit::Number
    } else {
        term.metric.unit()
    };
    let bound = |key: &str| fields.parse(key, |text| unit.parse(text));
    let (min, max) = (bound("min")?, bound("max")?);
    let paper = bound("paper")?;
    if min.is_none() && max.is_none() && paper.is_none() {
        let text = "an expectation needs min or max, or both, or a paper's figure";
        return Err(fields.problem("metric", text));
    }
    if let (Some(low), Some(high)) = (min, max)
        && low > high
    {
        return Err(fields.problem("max", "max is below min"));
    }
    let of = fields.parse("of", |text| match text {
        "mean" => Ok(Of::Mean),
        "median" => Ok(Of::Median),
        "min" => Ok(Of::Min),
        "max" => Ok(Of::Max),
        _ => Err(unknown(
            "figure",
            text,
            ["mean", "median", "min", "max"].into_iter(),
        )),
    })?;
    Ok(Expectation {
        term,
        over,
        spread,
        of: of.unwrap_or(Of::Mean),
        share: fields.share("share")?,
        min,
        max,
        paper,
        source: fields.text("source")?.map_or_else(String::new, |t| t.value),
        known: fields.text("known")?.map(|t| t.value),
        unit,
    })
}

/// A term; the second of a ratio has the keys of the first by default.
fn term(fields: &Fields<'_>, plans: &[Plan], base: Option<&Term>) -> Result<Term, Problem> {
    let metric = fields.parse("metric", |text| {
        let names = Metric::ALL.into_iter();
        let known = names.clone().find(|(name, _)| *name == text);
        known
            .map(|(_, metric)| metric)
            .ok_or_else(|| unknown("metric", text, names.map(|(name, _)| name)))
    })?;
    let metric = metric.or(base.map(|b| b.metric)).unwrap_or(Metric::Goodput);
    let mut when = Case::new();
    for (name, text) in fields.pairs("when")? {
        let values: BTreeSet<_> = plans.iter().filter_map(|p| p.case.get(&name)).collect();
        if values.is_empty() {
            let known: BTreeSet<_> = plans.iter().flat_map(|p| p.case.keys()).collect();
            let known = known.iter().map(|n| n.as_str());
            return Err(fields
                .source
                .problem(&text.span, unknown("variable", &name, known)));
        }
        if !values.contains(&text.value) {
            let known = values.iter().map(|n| n.as_str());
            let text_of = unknown(&format!("value of {name}"), &text.value, known);
            return Err(fields.source.problem(&text.span, text_of));
        }
        when.insert(name, text.value);
    }
    let (key, names) = names(metric, plans);
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
            if names.contains(text) {
                Ok(text.to_string())
            } else {
                Err(unknown(key, text, names.iter().map(String::as_str)))
            }
        })?
    };
    let during = fields.parse("during", window)?;
    if during.is_some() && !metric.has_times() {
        let text = format!("{} is known of the whole run only", metric.name());
        return Err(fields.problem("during", text));
    }
    Ok(Term {
        metric,
        name: name.or_else(|| base.and_then(|b| b.name.clone())),
        during: during.or_else(|| base.and_then(|b| b.during)),
        when,
    })
}

/// The key that selects the object of a metric, and its valid names.
fn names(metric: Metric, plans: &[Plan]) -> (&'static str, BTreeSet<String>) {
    let each = plans.iter();
    match metric.whose() {
        Whose::Flow => {
            let drivers = each.flat_map(|p| &p.drivers);
            let both = drivers.flat_map(|d| [d.name.clone(), d.group.clone()]);
            ("flow", both.collect())
        }
        Whose::Link => ("link", each.flat_map(|p| p.links.clone()).collect()),
        Whose::Cross => ("cross", each.flat_map(|p| p.cross.clone()).collect()),
        Whose::Nobody => ("", BTreeSet::new()),
    }
}

/// `100s..200s`.
fn window(text: &str) -> Result<(f64, f64), String> {
    let (from, to) = text
        .split_once("..")
        .ok_or_else(|| format!("'{text}' is not a time such as 100s..200s"))?;
    let seconds = |text: &str| {
        let time = farhaul_link::duration(text).map_err(|e| e.to_string())?;
        Ok::<f64, String>(time.as_secs_f64())
    };
    let (from, to) = (seconds(from)?, seconds(to)?);
    if from < to {
        Ok((from, to))
    } else {
        Err(format!("'{text}' ends before it begins"))
    }
}

impl Expectation {
    /// What it is about: a figure, or two for a ratio.
    pub(super) fn terms(&self) -> impl Iterator<Item = &Term> {
        let all = [Some(&self.term), self.over.as_ref()].into_iter().flatten();
        all.filter(|term| term.metric != Metric::Log2Error)
    }

    fn what(&self) -> String {
        let mut parts = vec![self.term.to_string()];
        if let Some(over) = &self.over {
            parts.push(format!(" / {over}"));
            if !over.when.is_empty() {
                parts.push(format!(" with {}", label(&over.when)));
            }
        }
        if let Some(variable) = &self.spread {
            parts.push(format!(", greatest / smallest over {variable}"));
        }
        parts.concat()
    }

    fn verdict(&self, case: &Case, ours: Option<f64>, share: Option<f64>) -> Verdict {
        let bounded = self.min.is_some() || self.max.is_some();
        let holds = match (ours.filter(|_| bounded), self.share) {
            (None, _) => None,
            (Some(_), Some(wanted)) => share.map(|share| share >= wanted - 1e-9),
            (Some(ours), None) => Some(self.within(ours)),
        };
        Verdict {
            what: self.what(),
            case: label(case),
            paper: self.paper,
            ours,
            min: self.min,
            max: self.max,
            share: share.filter(|_| self.share.is_some()),
            holds,
            known: self.known.clone(),
            source: self.source.clone(),
            unit: self.unit,
        }
    }

    fn within(&self, value: f64) -> bool {
        self.min.is_none_or(|min| value >= min) && self.max.is_none_or(|max| value <= max)
    }

    /// The figure in each seed of a case, in which it could be taken.
    fn figures(&self, case: &Case, plans: &[Plan], trials: &[Trial]) -> Vec<f64> {
        let of = |case: &Case, term: &Term| -> BTreeMap<u64, f64> {
            let words = term.to_string();
            trials
                .iter()
                .map(|t| (&plans[t.plan].case, &t.outcome))
                .filter(|(of, _)| *of == case)
                .filter_map(|(_, o)| Some((o.seed, (*o.figures.get(&words)?)?)))
                .collect()
        };
        let upper = of(case, &self.term);
        let Some(over) = &self.over else {
            return upper.into_values().collect();
        };
        let mut other = case.clone();
        other.extend(over.when.clone());
        let lower = of(&other, over);
        upper
            .into_iter()
            .filter_map(|(seed, value)| Some(value / lower.get(&seed)?))
            .filter(|ratio| ratio.is_finite())
            .collect()
    }

    fn one(&self, values: &[f64]) -> Option<f64> {
        let spread = Spread::of(values.iter().copied());
        (!values.is_empty()).then_some(match self.of {
            Of::Mean => spread.mean,
            Of::Median => spread.median,
            Of::Min => spread.min,
            Of::Max => spread.max,
        })
    }

    fn verdicts(&self, plans: &[Plan], trials: &[Trial]) -> Vec<Verdict> {
        // By what is left of a case without the variable spread over: the figure of each.
        let mut groups: Vec<(Case, Vec<Vec<f64>>)> = Vec::new();
        for plan in plans.iter().filter(|p| fits(&p.case, &self.term.when)) {
            let mut case = plan.case.clone();
            if let Some(variable) = &self.spread {
                case.remove(variable);
            }
            let figures = self.figures(&plan.case, plans, trials);
            match groups.iter_mut().find(|(known, _)| *known == case) {
                Some((_, all)) => all.push(figures),
                None => groups.push((case, vec![figures])),
            }
        }
        let one = |(case, all): (Case, Vec<Vec<f64>>)| {
            if self.spread.is_some() {
                let means: Option<Vec<f64>> = all.iter().map(|f| self.one(f)).collect();
                let ours = means.filter(|m| m.len() > 1).map(|means| {
                    let spread = Spread::of(means);
                    spread.max / spread.min
                });
                return self.verdict(&case, ours, None);
            }
            let figures = all.into_iter().flatten().collect::<Vec<_>>();
            let hits = figures.iter().map(|f| f64::from(u8::from(self.within(*f))));
            let share = mean(&hits.collect::<Vec<_>>());
            self.verdict(&case, self.one(&figures), share)
        };
        groups.into_iter().map(one).collect()
    }
}

/// What became of every expectation.
pub(super) fn judge(
    expectations: &[Expectation],
    plans: &[Plan],
    trials: &[Trial],
) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for expectation in expectations {
        if expectation.term.metric != Metric::Log2Error {
            verdicts.extend(expectation.verdicts(plans, trials));
        }
    }
    let errors: Vec<f64> = verdicts
        .iter()
        .filter_map(|v| Some((v.ours? / v.paper?).log2().abs()))
        .collect();
    let error = (!errors.is_empty()).then(|| Spread::of(errors).median);
    for expectation in expectations {
        if expectation.term.metric == Metric::Log2Error {
            let mut verdict = expectation.verdict(&Case::new(), error, None);
            verdict.what = "median |log2(ours / paper)|".into();
            verdicts.push(verdict);
        }
    }
    verdicts
}
