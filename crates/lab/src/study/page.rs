//! Makes the page of a study: figures, a verdict per published number, and what was not run.

use std::{collections::BTreeSet, io};

use super::{Experiment, FigurePlan, KnownMisses, Runs, figures::World, run::Part, words};
use crate::{
    plot::Origin,
    report::{Figure, Outcome as Word, Page, Progress, Section, Table, Verdict as Row},
    run_store::Backend,
    scenario::{Case, Plan, Results, Spread, Verdict, exact, fits, label},
    unit::Unit,
};
use farhaul_measure::host::Host;

/// One scenario in one world with its results.
struct Told<'a> {
    part: &'a Part,
    results: Results,
    verdicts: Vec<Verdict>,
}

impl Runs {
    fn told(&self) -> io::Result<Vec<Told<'_>>> {
        let results = self.results()?;
        let all: Vec<(&Part, &Results)> = self.parts.iter().zip(&results).collect();
        let told = all.iter().map(|(part, results)| {
            let (name, own) = (&part.name, part.file.variant.backend);
            let other = all
                .iter()
                .find(|(p, _)| p.name == *name && p.file.variant.backend != own);
            let other = other.map(|(part, results)| (&part.file, *results));
            Told {
                part,
                verdicts: part.file.summary_beside(results, other).verdicts,
                results: (*results).clone(),
            }
        });
        Ok(told
            .filter(|t| t.part.chosen || t.results.outcomes().next().is_some())
            .collect())
    }

    /// Entries of `known` without use for the choice. They are entries without a figure or case, or
    /// for a number that is not judged, or that is met (of the simulator, which gives the same each
    /// time).
    pub fn useless(&self, known: &KnownMisses) -> io::Result<Vec<String>> {
        if !self.choice.cases.is_empty() || self.choice.seeds.is_some() {
            return Ok(Vec::new());
        }
        let told = self.told()?;
        let chosen = told.iter().filter(|t| t.part.chosen);
        let of = |told: &Told<'_>| -> Vec<String> {
            let (name, variant) = (&told.part.file.name, told.part.file.variant);
            let entries = known.entries(name, variant.quick, variant.backend);
            let useless = entries.filter_map(|(entry, _)| {
                let own = |v: &&Verdict| v.what == entry.what && v.case == entry.case;
                // Several numbers may be of one figure and case.
                let mut why = "there is no such figure and case";
                for verdict in told.verdicts.iter().filter(own) {
                    why = match row(told, verdict, known).outcome {
                        Word::Met if variant.backend == Backend::Sim => "the number is met",
                        Word::Fitted | Word::FittedOutside | Word::Shown => {
                            "the number is not judged"
                        }
                        Word::NotComparable if told.part.file.not_comparable.is_some() => {
                            "the number is not comparable"
                        }
                        _ => return None,
                    };
                }
                let quick = if variant.quick { ", quick" } else { "" };
                let (what, case, backend) = (&entry.what, &entry.case, variant.backend.name());
                Some(format!(
                    "{what} [{case}] of {name} ({backend}{quick}): {why}"
                ))
            });
            useless.collect()
        };
        Ok(chosen.flat_map(of).collect())
    }

    /// Page of the stored runs.
    pub fn page(&self, known: &KnownMisses) -> io::Result<Page> {
        let told = self.told()?;
        let wanted = |e: &&Experiment| {
            let only = self.choice.experiment.as_ref();
            only.is_none_or(|id| *id == e.id)
        };
        let sections = self.study.experiments.iter().filter(wanted);
        let progress = self.progress().map(|p| Progress {
            ended: p.ended,
            runs: p.runs,
            text: p.words(),
        });
        Ok(Page {
            name: self.study.name.clone(),
            title: self.study.title.clone(),
            source: self.study.source.clone(),
            about: self.study.about.clone(),
            quick: self.choice.quick,
            deviations: self.study.deviations.clone(),
            sections: sections.map(|e| self.section(e, &told, known)).collect(),
            facts: facts(&told),
            progress,
        })
    }

    fn section(&self, experiment: &Experiment, told: &[Told<'_>], known: &KnownMisses) -> Section {
        let own: Vec<&Told<'_>> = told
            .iter()
            .filter(|t| t.part.name == experiment.scenario)
            .collect();
        let worlds: Vec<World<'_>> = own.iter().map(|t| world(t)).collect();
        let (mut figures, mut tables, mut undrawn) = (Vec::new(), Vec::new(), Vec::new());
        for plan in &experiment.figures {
            tables.extend(plan.tables(&worlds).into_iter().map(|table| Table {
                caption: with_end(&table.caption, &made(&own, &plan.when)),
                ..table
            }));
            for (word, chart) in plan.charts(&worlds) {
                let several = if word.is_empty() { "" } else { "-" };
                let id = format!("{}{several}{word}", plan.id);
                if !chart.has_ours() {
                    undrawn.push(id);
                    continue;
                }
                figures.push(Figure {
                    id,
                    place: plan.place.clone(),
                    caption: captioned(plan, &own),
                    chart,
                });
            }
        }
        // Without a word of it, a number belongs to the first experiment that has its scenario.
        let sharing = self.study.experiments.iter();
        let first = sharing.clone().find(|e| e.scenario == experiment.scenario);
        let first = first.is_some_and(|e| e.id == experiment.id);
        let mut verdicts = Vec::new();
        for told in &own {
            for verdict in &told.verdicts {
                let of = verdict.experiment.as_ref();
                if of.map_or(first, |id| *id == experiment.id) {
                    verdicts.push(row(told, verdict, known));
                }
            }
        }
        let outcomes = own.iter().flat_map(|t| t.results.outcomes());
        Section {
            id: experiment.id.clone(),
            title: experiment.title.clone(),
            about: about(experiment, &own),
            figures,
            tables,
            verdicts,
            deviations: experiment.deviations.clone(),
            repeat: self.repeat(experiment),
            ran: outcomes.count() > 0,
            undrawn,
            open: own.iter().filter_map(|t| open(t)).collect(),
            remarks: own.iter().flat_map(|t| remarks(t)).collect(),
        }
    }

    fn repeat(&self, experiment: &Experiment) -> String {
        let quick = if self.choice.quick { " --quick" } else { "" };
        let worlds: Vec<_> = self.choice.backends.iter().map(|b| b.name()).collect();
        let backend = match worlds.as_slice() {
            [] => String::new(),
            worlds => format!(" --backend {}", worlds.join(",")),
        };
        format!(
            "farhaul lab run {}/{}{quick}{backend}",
            self.named, experiment.id
        )
    }
}

fn world<'a>(told: &'a Told<'_>) -> World<'a> {
    let valid = told.results.outcomes().filter(|o| o.invalid.is_none());
    World {
        file: &told.part.file,
        outcomes: valid.collect(),
        verdicts: &told.verdicts,
        origin: match told.part.file.variant.backend {
            Backend::Sim => Origin::Simulated,
            Backend::Emu => Origin::Measured,
        },
    }
}

/// The caption of a figure, with what a processor of the simulator is.
fn captioned(plan: &FigurePlan, told: &[&Told<'_>]) -> String {
    let simulated = told
        .iter()
        .any(|t| t.part.file.variant.backend == Backend::Sim);
    let processor = plan.terms.iter().any(|t| t.metric.of_processor());
    let mut caption = plan.caption.clone();
    if simulated && processor {
        caption += ". Simulated: by the scenario's host model, not measured";
    }
    with_end(&caption, &made(told, &plan.when))
}

/// A caption, and what was made for it.
fn with_end(caption: &str, made: &str) -> String {
    let caption = if made.is_empty() {
        caption
    } else {
        caption.trim_end_matches('.')
    };
    format!("{caption}{made}")
}

/// The experiment's paragraph. It is of the full study, so that a quick run says what it made.
fn about(experiment: &Experiment, told: &[&Told<'_>]) -> String {
    let (about, made) = (&experiment.about, made(told, &Case::new()));
    match (about.is_empty(), made.is_empty()) {
        (_, true) => about.clone(),
        (true, false) => made.trim_start_matches(['.', ' ']).into(),
        (false, false) => format!(
            "The full study: {}{made}{}.",
            about.trim_end_matches('.'),
            not_comparable(told)
        ),
    }
}

/// Reasons why the published numbers do not hold for a quick run.
fn not_comparable(told: &[&Told<'_>]) -> String {
    let reasons = told
        .iter()
        .filter_map(|t| t.part.file.not_comparable.as_deref());
    let reasons: BTreeSet<&str> = reasons.collect();
    if reasons.is_empty() {
        return String::new();
    }
    let reasons = reasons.into_iter().collect::<Vec<_>>().join("; ");
    format!(". Its numbers are not comparable: {reasons}")
}

/// Runs of a quick study among the cases `when`, as an end of a caption; nothing for a full one.
fn made(told: &[&Told<'_>], when: &Case) -> String {
    let quick = told.iter().filter(|t| t.part.file.variant.quick);
    let with_runs = quick.filter(|t| t.results.outcomes().next().is_some());
    let of = |t: &&Told<'_>| {
        let outcomes = || t.results.outcomes().filter(|o| fits(&o.case, when));
        let cases: BTreeSet<&Case> = outcomes().map(|o| &o.case).collect();
        let seeds: BTreeSet<u64> = outcomes().map(|o| o.seed).collect();
        let plans = t.part.file.plans.iter().filter(|p| fits(&p.case, when));
        let seconds = Spread::of(plans.map(Plan::seconds));
        let (cases, seeds) = (counted(cases.len(), "case"), counted(seeds.len(), "seed"));
        let time = if seconds.min < seconds.max {
            format!("{} to {}", seconds.min, seconds.max)
        } else {
            seconds.max.to_string()
        };
        format!(
            "{}, {cases} of at most {time} s, {seeds}",
            t.part.file.variant.backend.name()
        )
    };
    let each: Vec<_> = with_runs.map(of).collect();
    if each.is_empty() {
        return String::new();
    }
    format!(". Quick run: {}", each.join("; "))
}

fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// A verdict as the page has it.
fn row(told: &Told<'_>, verdict: &Verdict, known: &KnownMisses) -> Row {
    let variant = told.part.file.variant;
    let show = |x: f64| verdict.show(x);
    let reason = known.reason(
        &told.part.file.name,
        variant.quick,
        variant.backend,
        verdict,
    );
    let (outcome, note) = judged(told, verdict, reason);
    let published = match (&verdict.fact, verdict.paper) {
        (Some(fact), _) => fact.words(),
        (None, Some(paper)) => show(paper),
        (None, None) => String::new(),
    };
    Row {
        row: verdict.fact.as_ref().map(|f| f.id.clone()),
        kind: verdict.fact.as_ref().map(|f| f.kind),
        place: verdict.source.clone(),
        quantity: match &verdict.fact {
            Some(fact) => fact.quantity.clone(),
            None => verdict.what.replace('_', " "),
        },
        what: verdict.what.clone(),
        case: verdict.case.clone(),
        setting: words::setting(&verdict.values),
        backend: match variant.backend {
            Backend::Sim if verdict.metric.of_processor() => "sim, host model",
            other => other.name(),
        },
        published,
        ours: verdict.ours.map_or_else(String::new, show),
        range: verdict
            .range
            .filter(|(low, high)| low < high)
            .map_or_else(String::new, |(low, high)| {
                format!("{} to {}", show(low), show(high))
            }),
        bounds: verdict.bounds(),
        off: off(verdict),
        outcome,
        note,
    }
}

/// The outcome, and the words on it; `reason` is why a miss is known. A number that does not hold
/// for the runs is neither met by them nor fitted.
fn judged(told: &Told<'_>, verdict: &Verdict, reason: Option<&str>) -> (Word, String) {
    if verdict.ours.is_none() {
        return (Word::NotRun, unmeasured(told, verdict));
    }
    if let Some(why) = &told.part.file.not_comparable {
        let fitted = verdict.fitted.as_ref();
        let fitted = fitted.map_or_else(String::new, |to| format!("; fitted in full runs: {to}"));
        return (Word::NotComparable, format!("{why}{fitted}"));
    }
    if let Some(rate) = verdict.runs.lowered {
        let rate = Unit::Rate.show(exact(rate));
        let why = format!("measured over {rate}, which this machine keeps");
        return (Word::NotComparable, why);
    }
    if verdict.runs.missing > 0 {
        let missing = verdict.runs.missing;
        let why = format!("{missing} of its runs are not made or not valid");
        return (Word::Incomplete, why);
    }
    if verdict.runs.partial {
        let why = "a mean over a part of the paper's cases";
        return (Word::NotComparable, why.into());
    }
    match (verdict.holds, &verdict.fitted) {
        (Some(true), Some(why)) => (Word::Fitted, why.clone()),
        (Some(false), Some(why)) => (Word::FittedOutside, format!("{why}; {}", by(verdict))),
        (None, Some(why)) => (Word::Shown, format!("fitted: {why}; {}", ratio(verdict))),
        (Some(true), None) => (Word::Met, String::new()),
        (Some(false), None) => match reason {
            Some(why) => (Word::Known, why.into()),
            None => (Word::Missed, by(verdict)),
        },
        (None, None) => (Word::Shown, ratio(verdict)),
    }
}

/// Distance of ours from what is allowed, as a share of the nearer bound: above zero outside.
/// Without bounds, the distance from the published number.
fn off(verdict: &Verdict) -> f64 {
    let Some(ours) = verdict.ours else {
        return f64::NEG_INFINITY;
    };
    let share = |distance: f64, bound: f64| match bound.abs() {
        0.0 => distance,
        size => distance / size,
    };
    let below = verdict.min.map(|min| share(min - ours, min));
    let above = verdict.max.map(|max| share(ours - max, max));
    let bounded = below.into_iter().chain(above).reduce(f64::max);
    let apart = |paper: f64| share((ours - paper).abs(), paper);
    bounded.or(verdict.paper.map(apart)).unwrap_or(0.0)
}

/// Reason why there is no figure, where that is known.
fn unmeasured(told: &Told<'_>, verdict: &Verdict) -> String {
    if verdict.metric.of_processor() && told.part.file.variant.backend == Backend::Sim {
        return "in the simulator only what the scenario has a [[processor]] for".into();
    }
    String::new()
}

/// Amount by which a number is missed.
fn by(verdict: &Verdict) -> String {
    let Some(ours) = verdict.ours else {
        return String::new();
    };
    if ours.is_infinite() {
        return "it did not happen in some run".into();
    }
    let share = |bound: f64| {
        if bound == 0.0 {
            return verdict.unit.show(ours.abs());
        }
        let percent = ((ours / bound - 1.0) * 100.0).abs();
        let digits = if percent < 1.0 { 2 } else { 0 };
        format!("{percent:.digits$} %")
    };
    match (verdict.min, verdict.max) {
        (Some(min), _) if ours < min => format!("{} below the bound", share(min)),
        (_, Some(max)) if ours > max => format!("{} above the bound", share(max)),
        _ => "too few or too many of the seeds are within the bounds".into(),
    }
}

fn ratio(verdict: &Verdict) -> String {
    let both = verdict
        .ours
        .zip(verdict.paper)
        .filter(|(_, paper)| *paper != 0.0);
    both.map_or_else(String::new, |(ours, paper)| {
        format!("{:.2} times the published", ours / paper)
    })
}

/// Runs that are still to be made, in words.
fn open(told: &Told<'_>) -> Option<String> {
    let backend = told.part.file.variant.backend.name();
    let open = told.results.open();
    (open > 0).then(|| {
        let all = open + told.results.kept;
        format!("{backend}: {open} of {all} runs are not made yet")
    })
}

/// Runs without a valid result, and those that ended early.
fn remarks(told: &Told<'_>) -> Vec<String> {
    let backend = told.part.file.variant.backend.name();
    let invalid = told.results.outcomes().filter_map(|o| {
        let why = o.invalid.as_ref()?;
        Some(format!(
            "{backend}, {}, seed {}: {why}",
            label(&o.case),
            o.seed
        ))
    });
    let ended = told.results.outcomes().flat_map(|o| {
        let of = format!("{backend}, {}, seed {}", label(&o.case), o.seed);
        o.ended.iter().map(move |why| format!("{of}: {why}"))
    });
    invalid.chain(ended).collect()
}

/// Machines and programs of the runs; of this machine if there are none.
fn facts(told: &[Told<'_>]) -> Vec<(String, String)> {
    let runs = || told.iter().flat_map(|t| t.results.outcomes());
    let mut facts = vec![("runs".to_string(), format!("{} in all", runs().count()))];
    let builds: BTreeSet<_> = runs().map(|o| &o.build).collect();
    if builds.len() > 1 {
        let text = format!(
            "runs of {} builds are mixed: `farhaul lab run` makes them again by one",
            builds.len()
        );
        facts.push(("builds of the program".into(), text));
    }
    let mut machines: Vec<_> = runs()
        .map(|o| &o.machine)
        .filter(|m| !m.is_null())
        .collect();
    machines.dedup();
    let own = serde_json::to_value(Host::read()).unwrap_or_default();
    if machines.is_empty() {
        machines.push(&own);
    }
    for machine in machines {
        for (name, value) in machine.as_object().into_iter().flatten() {
            let text = match value {
                serde_json::Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let fact = (name.replace('_', " "), text);
            if !facts.contains(&fact) {
                facts.push(fact);
            }
        }
    }
    facts
}
