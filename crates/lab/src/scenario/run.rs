//! Runs a file: every case with every seed. Simulations run several at once; each is one thread's
//! and depends on its seed alone. Runs on real sockets go one after the other.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt, io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use farhaul_core::protocol::Protocol;
use farhaul_io::{Stop, clock};
use farhaul_sim::{Observer, SimReport, run_until};
use serde_json::Value;

use super::{
    CaseSummary, File, Summary,
    cases::label,
    costs::RunReport,
    measure::Term,
    outcome::Outcome,
    output::{self, Output},
    plan::{Hosts, Plan},
    verdict::{Made, judge},
};
use crate::{
    parallel,
    run_store::{Backend, RunStore},
};
use farhaul_measure::host::{self, Host};
use farhaul_measure::registry::ChoiceError;

/// Settings of runs: seeds, how many at once, and where runs are kept.
#[derive(Clone, Debug)]
pub struct Runs<'a> {
    /// First and last.
    pub seeds: (u64, u64),
    /// Simulations at a time.
    pub jobs: usize,
    /// Files to write of each run.
    pub output: Option<Output>,
    /// Runs that are there are not made again.
    pub store: Option<&'a RunStore<Outcome>>,
    /// True if stored runs of other builds of the program count; otherwise they are made again.
    pub any_build: bool,
    /// The farhaul binary, for runs on real sockets.
    pub program: &'a Path,
    /// Set by a signal, after which no run is begun.
    pub stop: Option<&'a Stop>,
    /// Flag that, once set, ends running simulations, too, without a result.
    pub abort: Option<&'a AtomicBool>,
    /// Onlooker at simulations.
    pub onlooker: Option<&'a dyn Onlooker>,
}

/// Looks on at simulations, on the threads that make them.
pub trait Onlooker: fmt::Debug + Sync {
    /// Makes a simulation: calls `run` once.
    fn around(&self, run: &mut (dyn FnMut() + Send)) {
        run();
    }

    /// One has ended.
    fn ended(&self, run: &Simulated<'_>);
}

/// A simulation that has ended, with its series.
#[derive(Clone, Copy, Debug)]
pub struct Simulated<'a> {
    /// Plan of the file.
    pub plan: &'a Plan,
    /// Index among the simulations.
    pub number: usize,
    /// The seed.
    pub seed: u64,
    /// Everything that is known of it.
    pub report: &'a SimReport,
}

impl Runs<'_> {
    /// Looked at before a run begins.
    pub(super) fn go_on(&self) -> Result<(), RunError> {
        let stopped = self.stop.is_some_and(Stop::is_set);
        let aborted = self.abort.is_some_and(|abort| abort.load(Relaxed));
        if stopped || aborted {
            return Err(RunError::Interrupted { stored: 0, runs: 0 });
        }
        Ok(())
    }
}

/// A run that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Done<'a> {
    /// The run.
    pub outcome: &'a Outcome,
    /// Runs that have ended, this one included.
    pub ended: usize,
    /// Runs in all.
    pub runs: usize,
}

/// Reason why there is no result.
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
        /// Error of the simulator.
        error: farhaul_sim::Error,
    },
    /// A signal ended the run.
    #[error("interrupted: {stored} of {runs} runs are stored, and the same command goes on")]
    Interrupted {
        /// Runs that are stored, or would be.
        stored: usize,
        /// Runs in all.
        runs: usize,
    },
    /// A protocol could not be made.
    #[error(transparent)]
    Choice(#[from] ChoiceError),
    /// Results could not be written.
    #[error("cannot write {dir}: {error}")]
    Write {
        /// The folder.
        dir: PathBuf,
        /// Error of the write.
        error: io::Error,
    },
    /// Runs could not be kept, or kept runs not read.
    #[error("{folder}: {error}")]
    Keep {
        /// The folder.
        folder: PathBuf,
        /// Error of the store.
        error: io::Error,
    },
}

impl RunError {
    /// Reports an interrupt with the counts of stored and of all runs; other errors as they are.
    pub(crate) fn after(self, stored: usize, runs: usize) -> Self {
        match self {
            Self::Interrupted { .. } => Self::Interrupted { stored, runs },
            other => other,
        }
    }
}

/// Selection of stored runs.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Seeds, first and last: missing ones are to be made.
    pub seeds: (u64, u64),
    /// True for other seeds that are stored, too.
    pub every_seed: bool,
    /// True for runs of other builds of the program, too.
    pub any_build: bool,
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
    /// Runs that were stored before.
    pub kept: usize,
    /// Plan and seed of those that are still to be made.
    pub(super) open: Vec<(usize, u64)>,
    /// Runs that another build of the program has made.
    pub others: usize,
}

impl Results {
    /// Every run, those without a valid result included, in the order of cases and seeds.
    pub fn outcomes(&self) -> impl Iterator<Item = &Outcome> {
        self.trials.iter().map(|trial| &trial.outcome)
    }

    /// Runs still to be made.
    pub fn open(&self) -> usize {
        self.open.len()
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
    /// Count of the file's own plans; the rest has values that were given in place of its.
    fn own(&self) -> usize {
        self.plans
            .iter()
            .filter(|p| !self.added.contains(&p.case))
            .count()
    }

    /// Adds terms to measure of each run besides those expected.
    pub(crate) fn also(&mut self, terms: impl IntoIterator<Item = Term>) {
        for term in terms {
            if self.terms.iter().all(|t| t.to_string() != term.to_string()) {
                self.terms.push(term);
            }
        }
    }

    /// Sorts `stored`: the wanted runs, those without a valid result included; and the runs still
    /// to be made: plan and seed.
    pub fn sort_out(&self, wanted: Wanted, stored: &[Outcome]) -> (Results, Vec<(usize, u64)>) {
        let mut by_plan: HashMap<_, BTreeMap<u64, &Outcome>> = HashMap::new();
        for outcome in stored.iter().filter(|o| o.scenario == self.name) {
            let key = (outcome.backend, &outcome.case, &outcome.fingerprint);
            by_plan
                .entry(key)
                .or_default()
                .insert(outcome.seed, outcome);
        }
        let (mut results, mut open) = (Results::default(), Vec::new());
        let nothing = BTreeMap::new();
        for (index, plan) in self.plans.iter().enumerate() {
            let key = (plan.backend, &plan.case, &plan.fingerprint());
            let stored = by_plan.get(&key).unwrap_or(&nothing);
            let seeds = wanted.seeds.0..=wanted.seeds.1;
            let more = stored
                .keys()
                .filter(|s| wanted.every_seed && !seeds.contains(s));
            for seed in seeds.clone().chain(more.copied()) {
                let mut found = stored.get(&seed).filter(|o| o.answers(&self.terms));
                let other = found.is_some_and(|o| !o.is_of_this_build());
                if other && !wanted.any_build {
                    results.others += usize::from(found.is_some_and(|o| o.invalid.is_none()));
                    found = None;
                }
                let asked = !(wanted.every_seed && self.added.contains(&plan.case));
                if asked && found.is_none_or(|o| o.invalid.is_some()) && seeds.contains(&seed) {
                    open.push((index, seed));
                }
                results.trials.extend(found.map(|outcome| Trial {
                    plan: index,
                    outcome: (*outcome).clone(),
                }));
            }
        }
        results.open.clone_from(&open);
        results.kept = results.valid().count();
        (results, open)
    }

    /// Runs every case with every seed; `done` is called for each that ends.
    pub fn run(
        &self,
        runs: &Runs<'_>,
        done: &mut dyn FnMut(&Done<'_>),
    ) -> Result<Results, RunError> {
        let host = Host::read();
        let stored = match runs.store {
            Some(store) => store
                .prepare(&host)
                .and_then(|()| store.latest())
                .map_err(|e| unkept(store, e))?,
            None => Vec::new(),
        };
        let wanted = Wanted {
            seeds: runs.seeds,
            every_seed: false,
            any_build: runs.any_build,
        };
        let (mut results, open) = self.sort_out(wanted, &stored);
        // Those are made again.
        results.trials.retain(|t| t.outcome.invalid.is_none());
        let machine = serde_json::to_value(&host).unwrap_or(Value::Null);
        let mut failure = None;
        let mut ended = 0;
        let mut keep = |trial: Result<Trial, RunError>| {
            let trial = match trial {
                Ok(trial) => trial,
                Err(error) => return stop(&mut failure, error),
            };
            if let Some(store) = runs.store
                && let Err(error) = store.keep(&trial.outcome)
            {
                return stop(&mut failure, unkept(store, error));
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
        if let Some(error) = failure {
            return Err(error.after(results.kept + ended, results.kept + open.len()));
        }
        debug_assert!(!stopped, "it stops after a failure only");
        results.open.clear();
        results.sort();
        Ok(results)
    }

    /// Summary of the runs.
    pub fn summary(&self, results: &Results) -> Summary {
        self.summary_beside(results, None)
    }

    /// Summary of the runs, with those of the same scenario in the other world.
    pub fn summary_beside(&self, results: &Results, other: Option<(&Self, &Results)>) -> Summary {
        let valid: Vec<&Trial> = results.valid().collect();
        let case = |(i, plan): (usize, &Plan)| {
            let of = valid.iter().filter(|t| t.plan == i);
            CaseSummary::new(plan, &of.map(|t| &t.outcome).collect::<Vec<_>>())
        };
        let (trials, missing) = self.judged(results);
        let (others, lacking) = other.map_or_else(Default::default, |(file, of)| file.judged(of));
        let beside = other.map(|(file, _)| Made {
            plans: &file.plans[..file.own()],
            trials: &others,
            missing: &lacking,
            beside: None,
        });
        let made = Made {
            plans: &self.plans[..self.own()],
            trials: &trials,
            missing: &missing,
            beside: beside.as_ref(),
        };
        Summary {
            name: self.name.clone(),
            kept: results.kept,
            cases: self.plans.iter().enumerate().map(case).collect(),
            verdicts: judge(&self.expectations, made),
        }
    }

    /// Valid runs of its own cases, and plan and seed of those that are not there.
    fn judged(&self, results: &Results) -> (Vec<Trial>, Vec<(usize, u64)>) {
        let own = self.own();
        let valid = results.valid().filter(|t| t.plan < own).cloned();
        let invalid = results.trials.iter();
        let invalid = invalid
            .filter(|t| t.outcome.invalid.is_some())
            .map(|t| (t.plan, t.outcome.seed));
        let missing: BTreeSet<_> = results.open.iter().copied().chain(invalid).collect();
        (valid.collect(), missing.into_iter().collect())
    }

    fn trial(
        &self,
        (index, seed): (usize, u64),
        runs: &Runs<'_>,
        machine: &Value,
    ) -> Result<Trial, RunError> {
        runs.go_on()?;
        let plan = &self.plans[index];
        let (began, start) = (host::seconds_since_1970(), clock::now());
        let outcome = match plan.backend {
            Backend::Sim => {
                let mut made = None;
                let mut make = || {
                    made = Some(match &runs.output {
                        Some(output) => self.written(plan, seed, output, runs),
                        None => simulate(plan, seed, None, runs),
                    });
                };
                match runs.onlooker {
                    Some(onlooker) => onlooker.around(&mut make),
                    None => make(),
                }
                let report = made.expect("an onlooker has it made")?;
                if let Some(onlooker) = runs.onlooker {
                    onlooker.ended(&Simulated {
                        plan,
                        number: index,
                        seed,
                        report: &report,
                    });
                }
                Outcome::new(
                    &self.name,
                    plan,
                    &self.terms,
                    &RunReport::simulated(plan, report),
                )
            }
            Backend::Emu => self.emulated(plan, seed, runs)?,
        };
        Ok(Trial {
            plan: index,
            outcome: Outcome {
                wall_seconds: clock::now().since(start).as_secs_f64(),
                began,
                machine: machine.clone(),
                ..outcome
            }
            .storable(),
        })
    }

    fn written(
        &self,
        plan: &Plan,
        seed: u64,
        output: &Output,
        runs: &Runs<'_>,
    ) -> Result<SimReport, RunError> {
        let report = match &output.dir {
            Some(dir) => recorded(plan, seed, (output, dir), runs)?,
            None => simulate(plan, seed, None, runs)?,
        };
        if let Some(plot) = &output.plot {
            let drawn = plot.draw(&self.name, plan, seed, &report);
            drawn.map_err(|error| unwritten(plot.path(), error))?;
        }
        Ok(report)
    }
}

/// The first failure is the one that is reported. After an interrupt, a simulation under way is
/// still kept.
fn stop(failure: &mut Option<RunError>, error: RunError) -> io::Result<()> {
    let interrupted = matches!(error, RunError::Interrupted { .. });
    failure.get_or_insert(error);
    if interrupted {
        return Ok(());
    }
    Err(io::Error::other("stopped"))
}

fn unkept(store: &RunStore<Outcome>, error: io::Error) -> RunError {
    RunError::Keep {
        folder: store.folder().to_path_buf(),
        error,
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
    runs: &Runs<'_>,
) -> Result<SimReport, RunError> {
    let failed = |error| unwritten(dir, error);
    let dir = output::folder(dir, &plan.case, seed).map_err(failed)?;
    let mut observers = output.observers(&dir, plan).map_err(failed)?;
    let watched = output.events || !output.traces.is_empty();
    let report = simulate(plan, seed, watched.then_some(&mut observers), runs)?;
    observers.finish().map_err(failed)?;
    output::write(&dir, plan, &report).map_err(failed)?;
    Ok(report)
}

fn simulate(
    plan: &Plan,
    seed: u64,
    observers: Option<&mut output::Observers>,
    runs: &Runs<'_>,
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
    let observer = observers.map(|all| all as &mut dyn Observer);
    let never = AtomicBool::new(false);
    let result = run_until(&scenario, &mut make, observer, runs.abort.unwrap_or(&never));
    result.map_err(|error| match error {
        farhaul_sim::Error::Stopped { .. } => RunError::Interrupted { stored: 0, runs: 0 },
        error => RunError::Sim {
            case: label(&plan.case),
            seed,
            error,
        },
    })
}
