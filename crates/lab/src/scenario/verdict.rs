//! Judges each expectation: its figure over the runs that the figure is made of, and whether it is
//! within bounds.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    cases::{cells, fits, label},
    expect::{Combined, Expectation, Of, Other},
    measure::{Metric, Term, Whose, mean},
    outcome::Outcome,
    plan::Plan,
    run::Trial,
    source::Case,
    summary::Spread,
};
use crate::{reference::Fact, unit::Unit};

#[cfg(test)]
mod tests;

/// Fewest seeds for which a share has a meaning.
const SEEDS: usize = 5;

/// Runs that a figure is made of, the other term's included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Used {
    /// True if a mean is over a part of the file's cases only.
    pub partial: bool,
    /// Runs without a valid result, and those that are still to be made.
    pub missing: usize,
    /// The rate of the links in place of the scenario's, which the machine did not keep, bit/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lowered: Option<u64>,
}

impl Used {
    fn and(self, other: Self) -> Self {
        Self {
            partial: self.partial || other.partial,
            missing: self.missing + other.missing,
            lowered: self.lowered.or(other.lowered),
        }
    }
}

/// The runs of a file that are judged.
#[derive(Clone, Copy, Default)]
pub(super) struct Made<'a> {
    pub(super) plans: &'a [Plan],
    /// Runs with a valid result.
    pub(super) trials: &'a [Trial],
    /// Plan and seed of those without one.
    pub(super) missing: &'a [(usize, u64)],
    /// Runs of the other world.
    pub(super) beside: Option<&'a Self>,
}

impl<'a> Made<'a> {
    fn of(self, case: &'a Case) -> impl Iterator<Item = &'a Outcome> {
        let own = move |t: &&Trial| self.plans[t.plan].case == *case;
        self.trials.iter().filter(own).map(|t| &t.outcome)
    }

    fn used(self, case: &Case) -> Used {
        let own = |plan: usize| self.plans.get(plan).is_some_and(|p| p.case == *case);
        Used {
            partial: false,
            missing: self.missing.iter().filter(|(plan, _)| own(*plan)).count(),
            lowered: self.of(case).find_map(|o| o.lowered),
        }
    }
}

/// Verdict on an expectation in one case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// The figure in words.
    pub what: String,
    /// The case.
    pub case: String,
    /// Published figure.
    pub paper: Option<f64>,
    /// Simulated figure, if enough was run for it; infinite if it is the time of what never
    /// happens.
    pub ours: Option<f64>,
    /// Bounds.
    pub min: Option<f64>,
    /// Bounds.
    pub max: Option<f64>,
    /// Share of the seeds within the bounds, where the expectation is about that.
    pub share: Option<f64>,
    /// Least and greatest share that is expected.
    pub shares: Option<(f64, f64)>,
    /// True if the figure is as expected; none if it was not run, or is for comparison only.
    pub holds: Option<bool>,
    /// Source of the figure.
    pub source: String,
    /// The row of the study's table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fact: Option<Fact>,
    /// Experiment that the verdict belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experiment: Option<String>,
    /// Number that the model was fitted to, so that agreement says nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fitted: Option<String>,
    /// The figure of each seed: least and greatest.
    pub range: Option<(f64, f64)>,
    /// Figures of both cases of a ratio or difference, over the seeds.
    #[serde(skip)]
    pub pair: Option<(f64, f64)>,
    /// Runs that the figure is made of.
    #[serde(flatten)]
    pub runs: Used,
    /// The metric.
    #[serde(skip)]
    pub metric: Metric,
    /// The case's values.
    #[serde(skip)]
    pub values: Case,
    /// Unit of the figure.
    #[serde(skip)]
    pub unit: Unit,
}

impl Verdict {
    /// A figure of it, with digits that tell ours from the bounds.
    pub fn show(&self, figure: f64) -> String {
        let all = [self.ours, self.min, self.max];
        self.unit.show_apart(figure, all.into_iter().flatten())
    }

    /// The bounds in words.
    pub fn bounds(&self) -> String {
        let show = |x: f64| self.show(x);
        let text = match (self.min, self.max) {
            (Some(min), Some(max)) => format!("{} to {}", show(min), show(max)),
            (Some(min), None) => format!("at least {}", show(min)),
            (None, Some(max)) => format!("at most {}", show(max)),
            (None, None) => return String::new(),
        };
        let percent = |share: f64| share * 100.0;
        match self.shares {
            Some((least, most)) if most >= 1.0 => {
                format!("{text} in at least {:.0} % of the seeds", percent(least))
            }
            Some((least, most)) => {
                let (least, most) = (percent(least), percent(most));
                format!("{text} in {least:.0} to {most:.0} % of the seeds")
            }
            None => text,
        }
    }

    /// True if the figure was run and is not met, and the model was not fitted to it.
    pub fn fails(&self) -> bool {
        self.holds == Some(false) && self.fitted.is_none()
    }
}

impl Expectation {
    fn what(&self) -> String {
        let mut parts = vec![self.term.to_string()];
        if let Some(Other { how, term, backend }) = &self.other {
            let sign = match how {
                Combined::Ratio => "/",
                Combined::Difference => "-",
            };
            parts.push(format!(" {sign} {term}"));
            if !term.when.is_empty() {
                parts.push(format!(" with {}", label(&term.when)));
            }
            if let Some(backend) = backend {
                parts.push(format!(" ({})", backend.name()));
            }
        }
        if !self.across.is_empty() {
            let over = self.across.join(" and ");
            parts.push(format!(", {} over {over}", self.across_of.name()));
        }
        if let Some(variable) = &self.spread {
            parts.push(format!(", greatest / smallest over {variable}"));
        }
        parts.concat()
    }

    fn verdict(
        &self,
        case: &Case,
        (ours, range): (Option<f64>, Option<(f64, f64)>),
        share: Option<f64>,
        runs: Used,
    ) -> Verdict {
        let bounded = self.min.is_some() || self.max.is_some();
        let holds = match (ours.filter(|_| bounded), self.share) {
            (None, _) => None,
            (Some(_), Some((least, most))) => {
                share.map(|share| share >= least - 1e-9 && share <= most + 1e-9)
            }
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
            shares: self.share,
            holds,
            source: self.source.clone(),
            fact: self.fact.clone(),
            experiment: self.experiment.clone(),
            fitted: self.fitted.clone(),
            range,
            pair: None,
            runs,
            metric: self.term.metric.clone(),
            values: case.clone(),
            unit: self.unit,
        }
    }

    fn within(&self, value: f64) -> bool {
        self.min.is_none_or(|min| value >= min) && self.max.is_none_or(|max| value <= max)
    }

    /// The other term with its case and runs.
    fn second<'a>(&self, case: &Case, made: Made<'a>) -> Option<(&Other, Case, Made<'a>)> {
        let other = self.other.as_ref()?;
        let mut of = case.clone();
        of.extend(other.term.when.clone());
        let made = match (other.backend, made.beside) {
            (None, _) => made,
            (Some(_), Some(beside)) => *beside,
            (Some(_), None) => Made::default(),
        };
        Some((other, of, made))
    }

    fn used(&self, case: &Case, made: Made<'_>) -> Used {
        let other = self.second(case, made);
        let other = other.filter(|(other, of, _)| of != case || other.backend.is_some());
        let other = other.map_or_else(Used::default, |(_, of, made)| made.used(&of));
        made.used(case).and(other)
    }

    /// Both terms' figures of a case over the seeds, if it has two.
    fn pair(&self, case: &Case, made: Made<'_>) -> Option<(f64, f64)> {
        let (second, other, beside) = self.second(case, made)?;
        let upper = self.statistic(case, &by_seed(case, &self.term, made), made)?;
        let lower = by_seed(&other, &second.term, beside);
        Some((upper, self.statistic(&other, &lower, beside)?))
    }

    /// The figure of a case: of all seeds, and of each in which it could be taken.
    fn figure(&self, case: &Case, made: Made<'_>) -> (Option<f64>, Vec<f64>) {
        let upper = by_seed(case, &self.term, made);
        let Some((second, other, beside)) = self.second(case, made) else {
            return (self.statistic(case, &upper, made), each(upper));
        };
        let lower = by_seed(&other, &second.term, beside);
        let pairs = upper
            .iter()
            .filter_map(|(seed, value)| Some((*seed, second.how.of(*value, *lower.get(seed)?)?)));
        let pairs: BySeed = pairs.collect();
        // Runs of two cases have nothing but the number of the seed in common.
        let figure = if other == *case && second.backend.is_none() {
            self.statistic(case, &pairs, made)
        } else {
            let both = self.pair(case, made);
            both.and_then(|(upper, lower)| second.how.of(upper, lower))
        };
        (figure, each(pairs))
    }

    fn statistic(&self, case: &Case, values: &BySeed, made: Made<'_>) -> Option<f64> {
        if self.of == Of::BestRun {
            let runs = made.of(case);
            let best = runs.max_by(|a, b| a.goodput().total_cmp(&b.goodput()))?;
            return values.get(&best.seed).copied();
        }
        self.of.all(values.values().copied())
    }

    /// True if a case counts for a mean.
    fn passes(&self, case: &Case, made: Made<'_>) -> bool {
        let Some(least) = self.passed else {
            return true;
        };
        let rates = made.of(case).map(|o| (o.seed, o.goodput())).collect();
        self.statistic(case, &rates, made)
            .is_some_and(|rate| rate > least)
    }

    fn verdicts(&self, made: Made<'_>) -> Vec<Verdict> {
        let mut groups: Vec<Group> = Vec::new();
        for plan in made.plans.iter().filter(|p| fits(&p.case, &self.term.when)) {
            let mut case = plan.case.clone();
            for variable in self.spread.iter().chain(&self.across) {
                case.remove(variable);
            }
            let at = groups.iter().position(|g| g.case == case);
            let at = at.unwrap_or_else(|| {
                groups.push(Group::new(case));
                groups.len() - 1
            });
            let group = &mut groups[at];
            group.runs = group.runs.and(self.used(&plan.case, made));
            if self.passes(&plan.case, made) {
                group.figures.push(self.figure(&plan.case, made));
            }
        }
        groups.into_iter().map(|g| self.of_group(g, made)).collect()
    }

    fn of_group(&self, group: Group, made: Made<'_>) -> Verdict {
        let Group {
            case,
            figures: all,
            mut runs,
        } = group;
        if !self.across.is_empty() {
            let each: Vec<f64> = all.iter().filter_map(|(figure, _)| *figure).collect();
            let own = made.plans.iter().map(|p| p.case.clone());
            runs.partial = cells(&own.collect::<Vec<_>>(), &self.across) < self.cells;
            let of_cells = self.across_of.all(each.iter().copied());
            return self.verdict(&case, (of_cells, range(&each)), None, runs);
        }
        if self.spread.is_some() {
            let each: Option<Vec<f64>> = all.iter().map(|(figure, _)| *figure).collect();
            let ours = each.filter(|e| e.len() > 1).map(|each| {
                let spread = Spread::of(each);
                spread.max / spread.min
            });
            let ours = ours.filter(|ratio| !ratio.is_nan());
            return self.verdict(&case, (ours, None), None, runs);
        }
        // Nothing is taken together, so that there is one case.
        let (ours, figures) = all.into_iter().next().unwrap_or_default();
        let hits = figures.iter().map(|f| f64::from(u8::from(self.within(*f))));
        let share = mean(&hits.collect::<Vec<_>>()).filter(|_| figures.len() >= SEEDS);
        Verdict {
            pair: self.pair(&case, made),
            ..self.verdict(&case, (ours, range(&figures)), share, runs)
        }
    }
}

/// Cases that one figure is made of: they differ in the variables over which the figure is taken.
struct Group {
    /// Values that the cases have in common.
    case: Case,
    /// Figures of each case: of all its seeds, and of each.
    figures: Vec<(Option<f64>, Vec<f64>)>,
    runs: Used,
}

impl Group {
    fn new(case: Case) -> Self {
        Self {
            case,
            figures: Vec::new(),
            runs: Used::default(),
        }
    }
}

/// A figure of each seed.
type BySeed = BTreeMap<u64, f64>;

/// Values of `term` in each valid run of a case; infinite if the term is the time of what did not
/// happen in the run.
fn by_seed(case: &Case, term: &Term, made: Made<'_>) -> BySeed {
    let words = term.to_string();
    let own = made
        .trials
        .iter()
        .map(|t| (&made.plans[t.plan], &t.outcome));
    own.filter(|(plan, _)| plan.case == *case)
        .filter_map(|(plan, run)| {
            let figure = *run.figures.get(&words)?;
            let never = || term.is_never(plan, run).then_some(f64::INFINITY);
            Some((run.seed, figure.or_else(never)?))
        })
        .collect()
}

fn each(figures: BySeed) -> Vec<f64> {
    figures.into_values().collect()
}

fn range(figures: &[f64]) -> Option<(f64, f64)> {
    let spread = Spread::of(figures.iter().copied());
    (!figures.is_empty()).then_some((spread.min, spread.max))
}

/// Verdicts on all expectations.
pub(super) fn judge(expectations: &[Expectation], made: Made<'_>) -> Vec<Verdict> {
    let of_nobody = |e: &&Expectation| e.term.metric.whose() == Whose::Nobody;
    let here = |e: &&Expectation| {
        let mut worlds = made.plans.iter().map(|p| p.backend);
        e.backend.is_none_or(|backend| worlds.all(|b| b == backend))
    };
    let own = expectations.iter().filter(here).filter(|e| !of_nobody(e));
    let mut verdicts: Vec<Verdict> = own.flat_map(|e| e.verdicts(made)).collect();
    let errors: Vec<Verdict> = expectations
        .iter()
        .filter(here)
        .filter(of_nobody)
        .map(|expectation| {
            let of = |v: &&Verdict| {
                let fact = v.fact.as_ref();
                let rows = &expectation.rows;
                rows.is_empty() || fact.is_some_and(|f| f.id.starts_with(rows))
            };
            let own: Vec<&Verdict> = verdicts.iter().filter(of).collect();
            let (mut ours, mut runs) = error(&expectation.term, &own);
            if let Some(Other { how, term, .. }) = &expectation.other {
                let (lower, of) = error(&term.among(&expectation.term.when), &own);
                ours = ours
                    .zip(lower)
                    .and_then(|(upper, lower)| how.of(upper, lower));
                runs = runs.and(of);
            }
            let case = &expectation.term.when;
            expectation.verdict(case, (ours, None), None, runs)
        })
        .collect();
    verdicts.extend(errors);
    verdicts
}

/// Error of the published figures of the term's cases, in doublings: against ours, or against one
/// constant for all.
fn error(term: &Term, verdicts: &[&Verdict]) -> (Option<f64>, Used) {
    // Ratios have no unit.
    let own = verdicts.iter().filter(|v| {
        fits(&v.values, &term.when) && v.unit != Unit::Number && v.paper.is_some_and(|x| x > 0.0)
    });
    let runs = own.clone().fold(Used::default(), |all, v| all.and(v.runs));
    let pairs: Vec<(f64, f64)> = own
        .filter_map(|v| Some((v.ours?, v.paper?)))
        .filter(|(ours, _)| *ours > 0.0)
        .map(|(ours, paper)| (ours.log2(), paper.log2()))
        .collect();
    if pairs.is_empty() {
        return (None, runs);
    }
    let errors = |of: &dyn Fn(f64) -> f64| {
        Spread::of(pairs.iter().map(|(ours, paper)| (of(*ours) - paper).abs())).median
    };
    if term.metric == Metric::Log2Error {
        return (Some(errors(&|ours| ours)), runs);
    }
    // The best is in the middle of two of them.
    let middles = pairs
        .iter()
        .flat_map(|(_, a)| pairs.iter().map(move |(_, b)| f64::midpoint(*a, *b)));
    let best = middles.map(|constant| errors(&|_| constant));
    (best.reduce(f64::min), runs)
}
