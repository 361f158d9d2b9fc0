//! How is a file run? Every case with every seed; simulations several at once, each of which is one thread's
//! and depends on its seed alone, runs on real sockets one after the other.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use farhaul_core::protocol::Protocol;
use farhaul_io::clock;
use farhaul_sim::{SimReport, run, run_observed};
use serde_json::Value;

use super::{
    CaseSummary, File, Summary,
    cases::label,
    expect::judge,
    measure::{RunReport, Term},
    outcome::Outcome,
    output::{self, Output},
    plan::{Hosts, Plan},
};
use crate::{
    grid::{Backend, RunStore},
    host::{self, Host},
    parallel,
    registry::ChoiceError,
};

/// With which seeds, how many at once, and where runs are kept.
#[derive(Clone, Debug)]
pub struct Runs<'a> {
    /// First and last.
    pub seeds: (u64, u64),
    /// Simulations at a time.
    pub jobs: usize,
    /// What to write of each.
    pub output: Option<Output>,
    /// Runs that are there are not made again.
    pub store: Option<&'a RunStore<Outcome>>,
    /// The farhaul binary, for runs on real sockets.
    pub program: &'a Path,
}

/// A run that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Done<'a> {
    /// The run.
    pub outcome: &'a Outcome,
    /// How many have ended, this one included.
    pub ended: usize,
    /// How many there are.
    pub runs: usize,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The simulator refused or found a fault.
    #[error("{case}, seed {seed}: {error}")]
    Sim {
        /// The case.
        case: String,
        /// The seed.
        seed: u64,
        /// Why.
        error: farhaul_sim::Error,
    },
    /// A signal ended it.
    #[error("ended by signal {0}; what was made is stored, and the same command goes on")]
    Interrupted(i32),
    /// A protocol could not be made.
    #[error(transparent)]
    Choice(#[from] ChoiceError),
    /// Results could not be written.
    #[error("cannot write {dir}: {error}")]
    Write {
        /// The folder.
        dir: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Runs could not be kept, or what was kept not read.
    #[error("{folder}: {error}")]
    Keep {
        /// The folder.
        folder: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// One run and its plan.
#[derive(Clone, Debug)]
pub(super) struct Trial {
    pub(super) plan: usize,
    pub(super) outcome: Outcome,
}

/// The runs of a file, as far as they were made.
#[derive(Clone, Debug, Default)]
pub struct Results {
    pub(super) trials: Vec<Trial>,
    /// How many of them were stored before.
    pub kept: usize,
    /// How many are still to be made.
    pub open: usize,
}

impl Results {
    /// Every run, those without a valid result included, in the order of cases and seeds.
    pub fn outcomes(&self) -> impl Iterator<Item = &Outcome> {
        self.trials.iter().map(|trial| &trial.outcome)
    }

    fn valid(&self) -> impl Iterator<Item = &Trial> {
        self.trials.iter().filter(|t| t.outcome.invalid.is_none())
    }

    fn sort(&mut self) {
        self.trials
            .sort_by_key(|trial| (trial.plan, trial.outcome.seed));
    }
}

impl File {
    /// What is measured of each run besides what is expected.
    pub(crate) fn also(&mut self, terms: impl IntoIterator<Item = Term>) {
        for term in terms {
            if self.terms.iter().all(|t| t.to_string() != term.to_string()) {
                self.terms.push(term);
            }
        }
    }

    /// The runs with these seeds that `stored` has, and those without a valid result: plan and seed.
    pub fn sort_out(&self, seeds: (u64, u64), stored: &[Outcome]) -> (Results, Vec<(usize, u64)>) {
        let by_key: BTreeMap<_, _> = stored.iter().map(|o| (o.key(), o)).collect();
        let (mut results, mut open) = (Results::default(), Vec::new());
        for (index, plan) in self.plans.iter().enumerate() {
            let fingerprint = plan.fingerprint();
            for seed in seeds.0..=seeds.1 {
                let key = (plan.backend, self.name.as_str(), &plan.case, seed);
                let stored = by_key
                    .get(&key)
                    .filter(|o| o.answers(&fingerprint, &self.terms));
                if stored.is_none_or(|o| o.invalid.is_some()) {
                    open.push((index, seed));
                }
                results.trials.extend(stored.map(|outcome| Trial {
                    plan: index,
                    outcome: (*outcome).clone(),
                }));
            }
        }
        results.open = open.len();
        results.kept = results.valid().count();
        (results, open)
    }

    /// Runs every case with every seed; `done` is called for each that ends.
    pub fn run(
        &self,
        runs: &Runs<'_>,
        done: &mut dyn FnMut(&Done<'_>),
    ) -> Result<Results, RunError> {
        let unkept = |store: &RunStore<Outcome>| {
            let folder = store.folder().to_path_buf();
            |error| RunError::Keep { folder, error }
        };
        let host = Host::read();
        let stored = match runs.store {
            Some(store) => store
                .prepare(&host)
                .and_then(|()| store.latest())
                .map_err(unkept(store))?,
            None => Vec::new(),
        };
        let (mut results, open) = self.sort_out(runs.seeds, &stored);
        // Those are made again.
        results.trials.retain(|t| t.outcome.invalid.is_none());
        let machine = serde_json::to_value(&host).unwrap_or(Value::Null);
        let mut failure = None;
        let mut ended = 0;
        let mut keep = |trial: Result<Trial, RunError>| {
            let mut stop = |error| {
                failure.get_or_insert(error);
                Err(io::Error::other("stopped"))
            };
            let trial = match trial {
                Ok(trial) => trial,
                Err(error) => return stop(error),
            };
            if let Some(store) = runs.store
                && let Err(error) = store.keep(&trial.outcome)
            {
                return stop(unkept(store)(error));
            }
            ended += 1;
            done(&Done {
                outcome: &trial.outcome,
                ended,
                runs: open.len(),
            });
            results.trials.push(trial);
            Ok(())
        };
        let jobs = match self.variant.backend {
            Backend::Sim => runs.jobs,
            // It needs the whole machine.
            Backend::Emu => 1,
        };
        let one = |job: &(usize, u64)| self.trial(*job, runs, &machine);
        let stopped = parallel::answer(jobs, &open, one, &mut keep).is_err();
        if let Some(error) = failure.filter(|_| stopped) {
            return Err(error);
        }
        results.open -= ended;
        results.sort();
        Ok(results)
    }

    /// What the runs say.
    pub fn summary(&self, results: &Results) -> Summary {
        let valid: Vec<Trial> = results.valid().cloned().collect();
        let case = |(i, plan): (usize, &Plan)| {
            let of = valid.iter().filter(|t| t.plan == i);
            CaseSummary::new(plan, &of.map(|t| &t.outcome).collect::<Vec<_>>())
        };
        Summary {
            name: self.name.clone(),
            kept: results.kept,
            cases: self.plans.iter().enumerate().map(case).collect(),
            verdicts: judge(&self.expectations, &self.plans, &valid),
        }
    }

    fn trial(
        &self,
        (index, seed): (usize, u64),
        runs: &Runs<'_>,
        machine: &Value,
    ) -> Result<Trial, RunError> {
        let plan = &self.plans[index];
        let (began, start) = (host::seconds_since_1970(), clock::now());
        let outcome = match plan.backend {
            Backend::Sim => {
                let report = match &runs.output {
                    Some(output) => self.written(plan, seed, output)?,
                    None => simulate(plan, seed, None)?,
                };
                Outcome::new(
                    &self.name,
                    plan,
                    &self.terms,
                    &RunReport::simulated(plan, report),
                )
            }
            Backend::Emu => self.emulated(plan, seed, runs.program)?,
        };
        Ok(Trial {
            plan: index,
            outcome: Outcome {
                wall_seconds: clock::now().since(start).as_secs_f64(),
                began,
                machine: machine.clone(),
                ..outcome
            },
        })
    }

    fn written(&self, plan: &Plan, seed: u64, output: &Output) -> Result<SimReport, RunError> {
        let report = match &output.dir {
            Some(dir) => recorded(plan, seed, (output, dir))?,
            None => simulate(plan, seed, None)?,
        };
        if let Some(plot) = &output.plot {
            let drawn = plot.draw(&self.name, plan, seed, &report);
            drawn.map_err(|error| unwritten(plot.path(), error))?;
        }
        Ok(report)
    }
}

fn unwritten(dir: &Path, error: io::Error) -> RunError {
    RunError::Write {
        dir: dir.to_path_buf(),
        error,
    }
}

fn recorded(
    plan: &Plan,
    seed: u64,
    (output, dir): (&Output, &Path),
) -> Result<SimReport, RunError> {
    let failed = |error| unwritten(dir, error);
    let dir = output::folder(dir, &plan.case, seed).map_err(failed)?;
    let mut observers = output.observers(&dir, plan).map_err(failed)?;
    let watched = output.events || !output.traces.is_empty();
    let report = simulate(plan, seed, watched.then_some(&mut observers))?;
    observers.finish().map_err(failed)?;
    output::write(&dir, plan, &report).map_err(failed)?;
    Ok(report)
}

fn simulate(
    plan: &Plan,
    seed: u64,
    observers: Option<&mut output::Observers>,
) -> Result<SimReport, RunError> {
    let scenario = plan.scenario(seed);
    let mut hosts = Hosts::new();
    let mut ends: Vec<Option<[Box<dyn Protocol>; 2]>> = plan
        .drivers
        .iter()
        .map(|driver| driver.make(&mut hosts).map(Some))
        .collect::<Result<_, _>>()?;
    let mut make = |flow: usize| {
        let [client, server] = ends[flow].take().expect("each flow is made once");
        (client, server)
    };
    let result = match observers {
        Some(observers) => run_observed(&scenario, &mut make, observers),
        None => run(&scenario, &mut make),
    };
    result.map_err(|error| RunError::Sim {
        case: label(&plan.case),
        seed,
        error,
    })
}
