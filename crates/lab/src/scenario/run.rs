//! How is a file run? Every case with every seed, several at once; each run is one thread's and
//! depends on its seed alone.

use std::{
    io,
    path::PathBuf,
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
    output::{self, Output},
    plan::Plan,
};
use crate::registry::ChoiceError;

/// With which seeds, and how many at once.
#[derive(Clone, Debug)]
pub struct Runs {
    /// First and last.
    pub seeds: (u64, u64),
    /// Threads.
    pub jobs: usize,
    /// What to write.
    pub output: Option<Output>,
}

/// A run that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Done<'a> {
    /// Which case.
    pub case: &'a str,
    /// What came out.
    pub report: &'a SimReport,
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
}

/// One run and what it came to; its series are gone.
#[derive(Debug)]
pub(super) struct Trial {
    pub(super) plan: usize,
    pub(super) report: SimReport,
    /// For every expectation its terms.
    pub(super) terms: Vec<[Option<f64>; 2]>,
}

impl File {
    /// Runs every case with every seed; `done` hears of each that ends.
    ///
    /// # Panics
    /// If a run panicked.
    pub fn run(&self, runs: &Runs, done: &(dyn Fn(&Done<'_>) + Sync)) -> Result<Summary, RunError> {
        let seeds = || runs.seeds.0..=runs.seeds.1;
        let jobs: Vec<(usize, u64)> = (0..self.plans.len())
            .flat_map(|plan| seeds().map(move |seed| (plan, seed)))
            .collect();
        let (next, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let stop = AtomicBool::new(false);
        let results = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for _ in 0..runs.jobs.clamp(1, jobs.len().max(1)) {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed)
                        && let Some((plan, seed)) = jobs.get(next.fetch_add(1, Ordering::Relaxed))
                    {
                        let result = self.trial(*plan, *seed, runs.output.as_ref());
                        match &result {
                            Ok(trial) => done(&Done {
                                case: &label(&self.plans[*plan].case),
                                report: &trial.report,
                                ended: ended.fetch_add(1, Ordering::Relaxed) + 1,
                                runs: jobs.len(),
                            }),
                            Err(_) => stop.store(true, Ordering::Relaxed),
                        }
                        results.lock().expect("no run panicked").push(result);
                    }
                });
            }
        });
        let results = results.into_inner().expect("no run panicked");
        let mut trials = results.into_iter().collect::<Result<Vec<_>, _>>()?;
        trials.sort_by_key(|trial| (trial.plan, trial.report.seed));
        Ok(self.summary(&trials))
    }

    fn summary(&self, trials: &[Trial]) -> Summary {
        let case = |(i, plan): (usize, &Plan)| {
            let of: Vec<_> = trials.iter().filter(|t| t.plan == i).collect();
            CaseSummary::new(plan, &of)
        };
        Summary {
            name: self.name.clone(),
            cases: self.plans.iter().enumerate().map(case).collect(),
            verdicts: judge(&self.expectations, &self.plans, trials),
        }
    }

    fn trial(&self, index: usize, seed: u64, output: Option<&Output>) -> Result<Trial, RunError> {
        let plan = &self.plans[index];
        let mut report = match output {
            Some(output) => written(plan, seed, output)?,
            None => simulate(plan, seed, None)?,
        };
        let terms = self
            .expectations
            .iter()
            .map(|e| e.measure(plan, &report))
            .collect();
        for flow in &mut report.flows {
            flow.series = Vec::new();
        }
        for cross in &mut report.cross {
            cross.series = Vec::new();
        }
        Ok(Trial {
            plan: index,
            report,
            terms,
        })
    }
}

fn written(plan: &Plan, seed: u64, output: &Output) -> Result<SimReport, RunError> {
    let failed = |error| RunError::Write {
        dir: output.dir.clone(),
        error,
    };
    let dir = output.folder(&plan.case, seed).map_err(failed)?;
    let mut onlookers = output.onlookers(&dir, plan).map_err(failed)?;
    let watched = output.events || !output.traces.is_empty();
    let report = simulate(plan, seed, watched.then_some(&mut onlookers))?;
    onlookers.finish().map_err(failed)?;
    output::write(&dir, plan, &report).map_err(failed)?;
    Ok(report)
}

fn simulate(
    plan: &Plan,
    seed: u64,
    onlookers: Option<&mut output::Onlookers>,
) -> Result<SimReport, RunError> {
    let scenario = plan.scenario(seed);
    let mut ends: Vec<Option<[Box<dyn Protocol>; 2]>> = plan
        .drivers
        .iter()
        .map(|driver| driver.make().map(Some))
        .collect::<Result<_, _>>()?;
    let mut make = |flow: usize| {
        let [client, server] = ends[flow].take().expect("each flow is made once");
        (client, server)
    };
    let result = match onlookers {
        Some(onlookers) => run_observed(&scenario, &mut make, onlookers),
        None => run(&scenario, &mut make),
    };
    result.map_err(|error| RunError::Sim {
        case: label(&plan.case),
        seed,
        error,
    })
}
