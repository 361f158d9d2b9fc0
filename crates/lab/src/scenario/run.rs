//! How is a file run? Every case with every seed, several at once; each run is one thread's and
//! depends on its seed alone.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use farhaul_core::protocol::Protocol;
use farhaul_sim::{SimReport, run, run_observed};

use super::{
    CaseSummary, File, Summary,
    cases::label,
    expect::judge,
    outcome::Outcome,
    output::{self, Output},
    plan::{Hosts, Plan},
};
use crate::{
    grid::{Backend, RunStore},
    host::Host,
    registry::ChoiceError,
};

/// With which seeds, and how many at once.
#[derive(Clone, Debug)]
pub struct Runs {
    /// First and last.
    pub seeds: (u64, u64),
    /// Threads.
    pub jobs: usize,
    /// What to write.
    pub output: Option<Output>,
    /// The folder that keeps a folder per scenario: runs that are there are not made again.
    pub keep: Option<PathBuf>,
}

/// A run that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Done<'a> {
    /// Which case.
    pub case: &'a str,
    /// With which seed.
    pub seed: u64,
    /// How many have ended, this one included.
    pub ended: usize,
    /// How many there are.
    pub runs: usize,
}

/// Why a run has no result.
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
    /// A protocol could not be made.
    #[error(transparent)]
    Choice(#[from] ChoiceError),
    /// Results could not be written.
    #[error("cannot write below {dir}: {error}")]
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

/// One run and its results.
#[derive(Debug)]
pub(super) struct Trial {
    pub(super) plan: usize,
    pub(super) outcome: Outcome,
}

/// The runs of a scenario that were made before.
struct Before {
    run_store: Option<RunStore<Outcome>>,
    outcomes: Vec<Outcome>,
}

impl Before {
    fn read(scenario: &str, keep: Option<&Path>) -> Result<Self, RunError> {
        let Some(below) = keep else {
            return Ok(Self {
                run_store: None,
                outcomes: Vec::new(),
            });
        };
        let run_store = RunStore::new(below, scenario, Backend::Sim);
        let failed = |error| unkept(&run_store, error);
        run_store.prepare(&Host::read()).map_err(failed)?;
        Ok(Self {
            outcomes: run_store.latest().map_err(failed)?,
            run_store: Some(run_store),
        })
    }

    fn keep(&self, outcome: &Outcome) -> Result<(), RunError> {
        self.run_store.as_ref().map_or(Ok(()), |run_store| {
            run_store
                .keep(outcome)
                .map_err(|error| unkept(run_store, error))
        })
    }
}

fn unkept(run_store: &RunStore<Outcome>, error: io::Error) -> RunError {
    RunError::Keep {
        folder: run_store.folder().to_path_buf(),
        error,
    }
}

impl File {
    /// Runs every case with every seed; `done` is called for each that ends.
    ///
    /// # Panics
    /// If a run panicked.
    pub fn run(&self, runs: &Runs, done: &(dyn Fn(&Done<'_>) + Sync)) -> Result<Summary, RunError> {
        let before = Before::read(&self.name, runs.keep.as_deref())?;
        let (mut jobs, mut trials) = (Vec::new(), Vec::new());
        for (index, plan) in self.plans.iter().enumerate() {
            for seed in runs.seeds.0..=runs.seeds.1 {
                let answers = |o: &&Outcome| o.answers(&self.name, plan, &self.expectations, seed);
                match before.outcomes.iter().find(answers) {
                    Some(outcome) => trials.push(Trial {
                        plan: index,
                        outcome: outcome.clone(),
                    }),
                    None => jobs.push((index, seed)),
                }
            }
        }
        let kept = trials.len();
        trials.extend(self.make(&jobs, &before, runs, done)?);
        trials.sort_by_key(|trial| (trial.plan, trial.outcome.seed));
        let mut summary = self.summary(&trials);
        summary.kept = kept;
        Ok(summary)
    }

    /// Makes the runs of `jobs`, several at once.
    fn make(
        &self,
        jobs: &[(usize, u64)],
        before: &Before,
        runs: &Runs,
        done: &(dyn Fn(&Done<'_>) + Sync),
    ) -> Result<Vec<Trial>, RunError> {
        let (next, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let stop = AtomicBool::new(false);
        let results = Mutex::new(Vec::new());
        let one = |(plan, seed): (usize, u64)| {
            let trial = self.trial(plan, seed, runs.output.as_ref())?;
            before.keep(&trial.outcome)?;
            done(&Done {
                case: &label(&self.plans[plan].case),
                seed,
                ended: ended.fetch_add(1, Ordering::Relaxed) + 1,
                runs: jobs.len(),
            });
            Ok(trial)
        };
        thread::scope(|scope| {
            for _ in 0..runs.jobs.clamp(1, jobs.len().max(1)) {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed)
                        && let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed))
                    {
                        let result = one(*job);
                        stop.fetch_or(result.is_err(), Ordering::Relaxed);
                        results.lock().expect("no run panicked").push(result);
                    }
                });
            }
        });
        let results = results.into_inner().expect("no run panicked");
        results.into_iter().collect()
    }

    fn summary(&self, trials: &[Trial]) -> Summary {
        let case = |(i, plan): (usize, &Plan)| {
            let of = trials.iter().filter(|t| t.plan == i);
            CaseSummary::new(plan, &of.map(|t| &t.outcome).collect::<Vec<_>>())
        };
        Summary {
            name: self.name.clone(),
            kept: 0,
            cases: self.plans.iter().enumerate().map(case).collect(),
            verdicts: judge(&self.expectations, &self.plans, trials),
        }
    }

    fn trial(&self, index: usize, seed: u64, output: Option<&Output>) -> Result<Trial, RunError> {
        let plan = &self.plans[index];
        let report = match output {
            Some(output) => written(plan, seed, output)?,
            None => simulate(plan, seed, None)?,
        };
        Ok(Trial {
            plan: index,
            outcome: Outcome::new(&self.name, plan, &self.expectations, &report),
        })
    }
}

fn written(plan: &Plan, seed: u64, output: &Output) -> Result<SimReport, RunError> {
    let failed = |error| RunError::Write {
        dir: output.dir.clone(),
        error,
    };
    let dir = output.folder(&plan.case, seed).map_err(failed)?;
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
