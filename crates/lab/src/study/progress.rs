//! Tracks the progress of a study's runs, and estimates the rest.

use std::{collections::BTreeMap, process, time::Duration};

use serde::{Deserialize, Serialize};

use super::run::Part;
use crate::{
    run_store::Backend,
    scenario::{self, Case, Outcome, Results},
};

/// Progress of a study's runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Progress {
    /// Runs that have ended, those stored before included.
    pub ended: usize,
    /// Runs in all.
    pub runs: usize,
    /// Scenario of the run that ended last, or is about to begin.
    pub scenario: String,
    /// World of that run.
    pub backend: Backend,
    /// Case of that run.
    pub case: String,
    /// Estimated time of the rest, s; not known before the first run has ended.
    pub left_seconds: Option<f64>,
    /// Process that makes the runs.
    pub process: u32,
}

/// Estimates the time of the rest: as long as the runs of the same system took on average.
pub(super) struct Pace {
    pub(super) ended: usize,
    pub(super) runs: usize,
    jobs: usize,
    /// Per part, and per system of it: runs that are to be made.
    open: Vec<BTreeMap<String, usize>>,
    /// Per part and system: seconds in all, and runs.
    took: BTreeMap<(usize, String), (f64, f64)>,
}

impl Pace {
    pub(super) fn new(before: &[Results], parts: &[Part], jobs: usize) -> Self {
        let chosen = || parts.iter().zip(before).filter(|(part, _)| part.chosen);
        let ended = chosen().map(|(_, r)| r.kept).sum();
        let of = |(part, results): (&Part, &Results)| {
            let mut open = BTreeMap::new();
            if !part.chosen {
                return open;
            }
            let made: Vec<_> = results.outcomes().map(|o| &o.case).collect();
            let seeds = (results.kept + results.open()) / part.file.plans.len().max(1);
            for plan in &part.file.plans {
                let there = made.iter().filter(|case| **case == &plan.case).count();
                *open.entry(system(&plan.case)).or_default() += seeds.saturating_sub(there);
            }
            open
        };
        Self {
            ended,
            runs: ended + chosen().map(|(_, r)| r.open()).sum::<usize>(),
            jobs: jobs.max(1),
            open: parts.iter().zip(before).map(of).collect(),
            took: BTreeMap::new(),
        }
    }

    pub(super) fn progress(
        &mut self,
        number: usize,
        part: &Part,
        outcome: Option<&Outcome>,
    ) -> Progress {
        if let Some(outcome) = outcome {
            let name = system(&outcome.case);
            self.ended += 1;
            if let Some(open) = self.open.get_mut(number).and_then(|o| o.get_mut(&name)) {
                *open = open.saturating_sub(1);
            }
            let took = self.took.entry((number, name)).or_default();
            took.0 += outcome.wall_seconds;
            took.1 += 1.0;
        }
        Progress {
            ended: self.ended,
            runs: self.runs,
            scenario: part.file.name.clone(),
            backend: part.file.variant.backend,
            case: outcome.map_or_else(String::new, |o| scenario::label(&o.case)),
            left_seconds: self.left(part),
            process: process::id(),
        }
    }

    fn left(&self, part: &Part) -> Option<f64> {
        let all = self
            .took
            .values()
            .fold((0.0, 0.0), |s, t| (s.0 + t.0, s.1 + t.1));
        if all.1 == 0.0 {
            return None;
        }
        let jobs = match part.file.variant.backend {
            Backend::Sim => scenario::exact(self.jobs as u64),
            Backend::Emu => 1.0,
        };
        let each = self.open.iter().enumerate().flat_map(|(number, open)| {
            open.iter().map(move |(name, open)| {
                let (seconds, runs) = *self.took.get(&(number, name.clone())).unwrap_or(&all);
                seconds / runs * scenario::exact(*open as u64)
            })
        });
        Some(each.sum::<f64>() / jobs)
    }
}

/// Part of a case that decides, more or less, how long the case takes.
fn system(case: &Case) -> String {
    let of = |(name, value): (&String, &String)| {
        ["system", "protocol", "law"]
            .iter()
            .any(|key| name.starts_with(key))
            .then(|| value.clone())
    };
    case.iter().filter_map(of).collect::<Vec<_>>().join(" ")
}

impl Progress {
    /// Progress and estimated rest, in words.
    pub fn words(&self) -> String {
        let left = self.left_seconds.map_or_else(String::new, |seconds| {
            let seconds = Duration::from_secs_f64(seconds.clamp(0.0, 1e9)).as_secs();
            match (seconds / 3_600, seconds / 60 % 60, seconds % 60) {
                (0, 0, s) => format!(", about {s} s left"),
                (0, m, s) => format!(", about {m} min {s} s left"),
                (h, m, _) => format!(", about {h} h {m} min left"),
            }
        });
        let case = if self.case.is_empty() {
            String::new()
        } else {
            format!(": {}", self.case)
        };
        format!(
            "{}/{} {} ({}){case}{left}",
            self.ended,
            self.runs,
            self.scenario,
            self.backend.name()
        )
    }
}
