//! Makes the page of a study: figures, a verdict per published number, and what was not run.

use std::{collections::BTreeSet, io};

use super::{Experiment, FigurePlan, KnownMisses, Runs, figures::World, run::Part};
use crate::{
    host::Host,
    plot::Origin,
    report::{Figure, Outcome as Word, Page, Progress, Section, Verdict as Row},
    run_store::Backend,
    scenario::{Results, Verdict, exact, label},
    unit::Unit,
};

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
                        Word::Fitted | Word::Shown => "the number is not judged",
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
        let (mut figures, mut tables) = (Vec::new(), Vec::new());
        for plan in &experiment.figures {
            tables.extend(plan.tables(&worlds));
            for (word, chart) in plan.charts(&worlds) {
                let several = if word.is_empty() { "" } else { "-" };
                figures.push(Figure {
                    id: format!("{}{several}{word}", plan.id),
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
        Section {
            id: experiment.id.clone(),
            title: experiment.title.clone(),
            about: experiment.about.clone(),
            figures,
            tables,
            verdicts,
            deviations: experiment.deviations.clone(),
            repeat: self.repeat(experiment),
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
    caption
}

/// A verdict as the page has it.
fn row(told: &Told<'_>, verdict: &Verdict, known: &KnownMisses) -> Row {
    let variant = told.part.file.variant;
    let show = |x: f64| verdict.unit.show(x);
    let reason = known.reason(
        &told.part.file.name,
        variant.quick,
        variant.backend,
        verdict,
    );
    let (outcome, note) = match (verdict.ours, verdict.holds) {
        (None, _) => (Word::NotRun, unmeasured(told, verdict)),
        _ if let Some(why) = &verdict.fitted => {
            let off = verdict.holds.filter(|holds| !holds);
            let off = off.map_or_else(String::new, |_| {
                format!("; outside all the same, {}", by(verdict))
            });
            (Word::Fitted, format!("{why}{off}"))
        }
        _ if let Some(why) = &told.part.file.not_comparable => (Word::NotComparable, why.clone()),
        (Some(_), _) if let Some(rate) = verdict.runs.lowered => (
            Word::NotComparable,
            format!(
                "measured over {}, which this machine keeps",
                Unit::Rate.show(exact(rate))
            ),
        ),
        _ if verdict.runs.missing > 0 => (
            Word::Incomplete,
            format!(
                "{} of its runs are not made or not valid",
                verdict.runs.missing
            ),
        ),
        _ if verdict.runs.partial => (
            Word::NotComparable,
            "a mean over a part of the paper's cases".into(),
        ),
        (Some(_), Some(true)) => (Word::Met, String::new()),
        (Some(_), Some(false)) if let Some(why) = reason => (Word::Known, why.into()),
        (Some(_), Some(false)) => (Word::Missed, by(verdict)),
        (Some(_), None) => (Word::Shown, ratio(verdict)),
    };
    let published = match (&verdict.fact, verdict.paper) {
        (Some(fact), _) => fact.words(),
        (None, Some(paper)) => show(paper),
        (None, None) => String::new(),
    };
    Row {
        row: verdict.fact.as_ref().map(|f| f.id.clone()),
        place: verdict.source.clone(),
        what: verdict.what.clone(),
        case: verdict.case.clone(),
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
        outcome,
        note,
    }
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

/// Runs without a valid result, and those that are still to be made.
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
    let mut all: Vec<String> = invalid.chain(ended).collect();
    if told.results.open() > 0 {
        all.push(format!(
            "{backend}: {} of {} runs are not made yet",
            told.results.open(),
            told.results.open() + told.results.kept
        ));
    }
    all
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
