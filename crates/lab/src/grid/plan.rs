//! How is a grid run? In the simulator on as many cores as there are, in the emulator one run after
//! the other, since it needs the whole machine. A run that fails is a result too.

use std::{collections::BTreeMap, io, path::PathBuf, time::Duration};

use farhaul_sim::{FlowReport, Scenario};

use super::{Backend, Grid, Kept as _, System, Trial};
use crate::{
    bench::Report,
    emulated::{EmulatedRun, EmulatedRunError, network},
    parallel,
    registry::{self, Choice, ChoiceError},
    results::Cell,
};

/// Why a grid could not be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A system cannot be made.
    #[error(transparent)]
    Choice(#[from] ChoiceError),
    /// A run could not be kept.
    #[error("{0}")]
    Keep(#[from] io::Error),
}

/// A grid to be run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The paths.
    pub grid: Grid,
    /// The world.
    pub backend: Backend,
    /// What is run on each path.
    pub systems: Vec<System>,
    /// How long each run sends, s.
    pub seconds: u64,
    /// Seed of the paths' randomness.
    pub seed: u64,
    /// Simulations at a time.
    pub jobs: usize,
    /// The farhaul binary, for the emulator.
    pub program: PathBuf,
}

impl Plan {
    /// The system called `protocol` with `cc` or its own law, if it can be made.
    pub fn system(protocol: &str, cc: Option<&str>) -> Result<System, ChoiceError> {
        let entry = registry::protocol(protocol)?;
        let system = System {
            protocol: protocol.into(),
            cc: cc.unwrap_or(entry.default_law).into(),
        };
        entry.client(&choice(&system))?;
        Ok(system)
    }

    /// Runs what `done` has not answered yet, and hands each run to `keep` as it ends. How many were
    /// run.
    pub fn run(
        &self,
        done: &[Trial],
        keep: &mut dyn FnMut(Trial) -> io::Result<()>,
    ) -> Result<usize, PlanError> {
        for system in &self.systems {
            registry::protocol(&system.protocol)?.client(&choice(system))?;
        }
        let answered = |q: &Trial| done.iter().any(|t| t.asks(q) && t.invalid.is_none());
        let open: Vec<_> = self.questions().filter(|q| !answered(q)).collect();
        match self.backend {
            Backend::Sim => parallel::answer(
                self.jobs,
                &open,
                |question| self.simulate(question.clone()),
                keep,
            )?,
            Backend::Emu => {
                for question in &open {
                    keep(self.emulate(question.clone()))?;
                }
            }
        }
        Ok(open.len())
    }

    /// Every run of the plan, without its answer.
    fn questions(&self) -> impl Iterator<Item = Trial> {
        let each = |cell: &Cell| self.systems.iter().map(|s| (*cell, s)).collect::<Vec<_>>();
        let pairs = self.grid.cells.iter().flat_map(each);
        pairs.map(|(cell, system)| Trial {
            backend: self.backend,
            system: system.clone(),
            cell,
            rate_bits_per_second: self.grid.rate.bps(),
            asked_seconds: self.seconds,
            seed: self.seed,
            version: env!("CARGO_PKG_VERSION").into(),
            seconds: 0.0,
            goodput_bits_per_second: 0.0,
            feedback_kib_per_gib: None,
            wire_over_goodput: None,
            repaired_bytes: 0,
            sender_cpu_percent_per_gbps: None,
            receiver_cpu_percent_per_gbps: None,
            limited_by: BTreeMap::new(),
            trace_hash: None,
            invalid: None,
        })
    }

    fn simulate(&self, question: Trial) -> Trial {
        let path = network(question.cell, self.grid.rate, self.seed).near_to_far;
        let path = farhaul_link::PathConfig {
            mtu: Some(question.cell.mtu),
            ..path
        };
        let scenario = Scenario {
            forward: path.clone(),
            back: path,
            duration: Duration::from_secs(self.seconds),
            interval: Duration::ZERO,
            interface_mtu: Some(question.cell.mtu),
            seed: self.seed,
            ..Scenario::default()
        };
        let choice = choice(&question.system);
        let entry = registry::protocol(&question.system.protocol);
        let ran = entry.map_err(|e| e.to_string()).and_then(|entry| {
            let mut make = |_| {
                let made = "was made before the first run";
                let client = entry.client(&choice).expect(made);
                (client, entry.server(&choice).expect(made))
            };
            farhaul_sim::run(&scenario, &mut make).map_err(|e| e.to_string())
        });
        let report = match ran {
            Ok(report) => report,
            Err(e) => {
                return Trial {
                    invalid: Some(e),
                    ..question
                };
            }
        };
        let Some(flow) = report.flows.first() else {
            return question;
        };
        let closed = flow.closed.iter().flatten().next();
        Trial {
            seconds: flow.seconds,
            goodput_bits_per_second: flow.goodput_bits_per_second,
            feedback_kib_per_gib: flow.feedback_kib_per_gib,
            wire_over_goodput: flow.wire_over_goodput,
            repaired_bytes: flow.sender.repaired,
            limited_by: limits(flow),
            trace_hash: Some(report.trace_hash.clone()),
            invalid: closed.map(|why| format!("the session ended: {why}")),
            ..question
        }
    }

    fn emulate(&self, question: Trial) -> Trial {
        let attempt = || -> Result<_, EmulatedRunError> {
            let network = network(question.cell, self.grid.rate, self.seed);
            let run = EmulatedRun::build(&network, &self.program)?;
            let report = run.bench_system(&question.system, self.seconds)?;
            Ok((report, run.finish()?))
        };
        match attempt() {
            Ok((report, wan)) => {
                let complaints = wan.health.complaints.join("; ");
                Trial {
                    invalid: (!wan.health.valid).then_some(complaints),
                    ..answered(question, report)
                }
            }
            Err(e) => Trial {
                invalid: Some(e.to_string()),
                ..question
            },
        }
    }
}

fn choice(system: &System) -> Choice {
    Choice {
        law: Some(system.cc.clone()),
        simulated: true,
        ..Choice::default()
    }
}

fn answered(question: Trial, report: Report) -> Trial {
    Trial {
        seconds: report.seconds,
        goodput_bits_per_second: report.goodput_bits_per_second,
        feedback_kib_per_gib: report.feedback_kib_per_gib,
        wire_over_goodput: report.wire_over_goodput,
        repaired_bytes: report.repaired_bytes,
        sender_cpu_percent_per_gbps: report.sender.cpu_percent_per_gbps,
        receiver_cpu_percent_per_gbps: report.receiver.cpu_percent_per_gbps,
        limited_by: report.limited_by,
        ..question
    }
}

/// Shares of the flow's time by reason; what is left was spent sending.
fn limits(flow: &FlowReport) -> BTreeMap<String, f64> {
    let total = flow.seconds.max(1e-9);
    let mut rest = 1.0;
    let mut shares = BTreeMap::new();
    for (why, seconds) in &flow.sender.held {
        let share = (seconds / total).clamp(0.0, rest);
        rest -= share;
        shares.insert((*why).to_string(), share);
    }
    shares.insert("sending".into(), rest);
    shares
}

#[cfg(test)]
mod tests {
    use farhaul_core::units::Rate;

    use super::*;

    fn plan(jobs: usize) -> Plan {
        let cell = |rtt_ms| Cell {
            mtu: 9_000,
            rtt_ms,
            loss_percent: 0.1,
        };
        Plan {
            grid: Grid {
                name: "small",
                about: "for this test",
                rate: Rate::mbit(50),
                cells: vec![cell(5), cell(10), cell(20)],
                seconds: 2,
            },
            backend: Backend::Sim,
            systems: vec![
                Plan::system("haul", None).unwrap(),
                Plan::system("haul", Some("cubic")).unwrap(),
            ],
            seconds: 2,
            seed: 3,
            jobs,
            program: PathBuf::new(),
        }
    }

    fn run(plan: &Plan, done: &[Trial]) -> Vec<Trial> {
        let mut kept = Vec::new();
        let ran = plan.run(done, &mut |trial| {
            kept.push(trial);
            Ok(())
        });
        assert_eq!(ran.unwrap(), kept.len());
        kept.sort_by_key(|t| (t.cell.rtt_ms, t.system.cc.clone()));
        kept
    }

    #[test]
    fn the_number_of_jobs_changes_nothing_and_resuming_runs_the_rest() {
        let all = run(&plan(1), &[]);
        assert_eq!(all.len(), 6);
        assert!(all.iter().all(|t| t.invalid.is_none()), "{all:?}");
        assert!(all.iter().all(|t| t.goodput_bits_per_second > 20e6));
        assert_eq!(run(&plan(4), &[]), all);
        assert_eq!(run(&plan(2), &all[..4]), all[4..]);
        let failed = Trial {
            invalid: Some("late".into()),
            ..all[0].clone()
        };
        assert_eq!(run(&plan(2), &[failed]).len(), 6, "failures are run again");
    }

    #[test]
    fn what_cannot_be_kept_ends_it() {
        let mut calls = 0;
        let ended = plan(1).run(&[], &mut |_| {
            calls += 1;
            Err(io::Error::other("full"))
        });
        assert!(matches!(ended, Err(PlanError::Keep(_))));
        assert_eq!(calls, 1);
        assert!(Plan::system("haul", Some("cubik")).is_err());
        assert!(Plan::system("hual", None).is_err());
    }
}
