//! Runs a case on real sockets, between two hosts with the emulator as the only link. The measured
//! figures are put into the simulator's terms, so that figures and expectations are the same in
//! both worlds.

use std::{collections::BTreeMap, time::Duration};

use farhaul_core::units::Rate;
use farhaul_emu::{DirectionReport, wan::WanConfig};
use farhaul_sim::{CrossReport, FlowReport, LinkReport, Point, Scenario, SimReport};

use super::{
    File,
    costs::{Costs, Processors, RunReport},
    measure::exact,
    outcome::Outcome,
    plan::Plan,
    run::{RunError, Runs},
};
use crate::emulated::{
    Amount, EmulatedRunError, Flow, FlowResult, FlowsRun, Highest, Sockets, System, cannot_bound,
    highest_rate, lower_rates, profile, run_flows,
};
use farhaul_measure::bench::{Cost, percent_per_gbps};

/// Signal reported for an interrupt between two attempts; the code that caught it knows better.
const SIGINT: i32 = 2;
/// Attempts at a run at each rate while the emulator is late.
const ATTEMPTS: u32 = 2;

impl File {
    /// Runs `plan` with `seed`; a failure is a result too.
    pub(super) fn emulated(
        &self,
        plan: &Plan,
        seed: u64,
        runs: &Runs<'_>,
    ) -> Result<Outcome, RunError> {
        let scenario = plan.scenario(seed);
        let unmade = |why: String| Outcome {
            invalid: Some(why),
            ..Outcome::new(
                &self.name,
                plan,
                &[],
                &RunReport {
                    report: empty(&scenario),
                    costs: Vec::new(),
                    processors: Vec::new(),
                    jitter_ms: Vec::new(),
                },
            )
        };
        let flows = match flows(plan, &scenario) {
            Ok(flows) => flows,
            Err(why) => return Ok(unmade(format!("skipped: {why}"))),
        };
        let full = scenario.forward.rate;
        let mut at = |rate: Rate| {
            runs.go_on()
                .map_err(|_| EmulatedRunError::Interrupted(SIGINT))?;
            let network = WanConfig {
                loopback_mtu: plan.loopback_mtu,
                ..network(&scenario, rate, seed)
            };
            run_flows(&network, &flows, runs.program, plan.cpu)
        };
        let Highest {
            valid,
            mut attempts,
        } = match highest_rate(&lower_rates(full), ATTEMPTS, &mut at) {
            Ok(found) => found,
            Err(EmulatedRunError::Interrupted(_)) => {
                return Err(RunError::Interrupted { stored: 0, runs: 0 });
            }
            Err(error) => return Ok(unmade(error.to_string())),
        };
        // If none is valid, the last one shows what there is.
        let last = || attempts.pop().map(|attempt| (attempt.rate, attempt.run));
        let Some((rate, ran)) = valid.or_else(last) else {
            return Ok(unmade("it was not tried".into()));
        };
        let run = report(plan, &scenario, &ran);
        let failed: Vec<String> = attempts
            .iter()
            .map(|a| format!("{}: {}", a.rate, a.invalid))
            .collect();
        let health = serde_json::json!({ "emulator": ran.wan.health, "failed_attempts": failed });
        Ok(Outcome {
            invalid: ran.invalid(),
            lowered: (rate != full).then(|| rate.bps()),
            commands: ran.flows.iter().flat_map(|f| f.commands.clone()).collect(),
            health,
            ..Outcome::new(&self.name, plan, &self.terms, &run)
        })
    }
}

/// The network of the case with links of `rate`.
fn network(scenario: &Scenario, rate: Rate, seed: u64) -> WanConfig {
    let share = |own: Rate| {
        let of = u128::from(own.bps()) * u128::from(rate.bps())
            / u128::from(scenario.forward.rate.bps().max(1));
        Rate::from_bps(u64::try_from(of).unwrap_or(u64::MAX))
    };
    let (mut forward, mut back) = (scenario.forward.clone(), scenario.back.clone());
    for path in [&mut forward, &mut back] {
        path.rate = share(path.rate);
    }
    let mtu = forward.mtu.take().unwrap_or(1_500);
    back.mtu = None;
    WanConfig {
        near_to_far: forward,
        far_to_near: back,
        mtu,
        seed,
        ..WanConfig::symmetric(scenario.forward.clone())
    }
}

/// Every flow and cross traffic, or why this machine cannot run one of them.
fn flows(plan: &Plan, scenario: &Scenario) -> Result<Vec<Flow>, String> {
    if let Some(why) = plan.cpu.and_then(|_| cannot_bound()) {
        return Err(why);
    }
    let mut flows = Vec::new();
    if let Some(why) = plan.profile.as_ref().and_then(|_| profile::missing()) {
        return Err(why);
    }
    for (driver, config) in plan.drivers.iter().zip(&scenario.flows) {
        let system = driver
            .system
            .clone()
            .ok_or("it was read for the simulator")?;
        if let Some(why) = system.missing() {
            return Err(why);
        }
        let end = config
            .stop
            .unwrap_or(scenario.duration)
            .min(scenario.duration);
        let time = end.saturating_sub(config.start);
        flows.push(Flow {
            start: config.start,
            amount: match config.bytes {
                Some(bytes) => Amount::Bytes {
                    bytes,
                    within: time,
                },
                None => Amount::Time(time),
            },
            max_rate: driver.max_rate(),
            local: driver.local,
            profile: plan.profile.clone(),
            interval: plan.series.unwrap_or_default().max(scenario.interval),
            reverse: config
                .route
                .is_some_and(|route| reversed(&scenario.routes[route].forward)),
            ..Flow::new(&driver.name, system, time)
        });
    }
    for (name, cross) in plan.cross.iter().zip(&scenario.cross) {
        let end = cross
            .stop
            .unwrap_or(scenario.duration)
            .min(scenario.duration);
        let system = System::Udp {
            rate: cross.rate,
            packet: cross.packet,
            sockets: Sockets::default(),
            loss: None,
        };
        flows.push(Flow {
            start: cross.start,
            reverse: reversed(&cross.links),
            ..Flow::new(name, system, end.saturating_sub(cross.start))
        });
    }
    Ok(flows)
}

/// True if the second link is the first one's way back.
fn reversed(links: &[usize]) -> bool {
    links.first() == Some(&1)
}

fn empty(scenario: &Scenario) -> SimReport {
    SimReport {
        seed: scenario.seed,
        ..SimReport::default()
    }
}

/// Report of the measured figures, in the simulator's terms.
fn report(plan: &Plan, scenario: &Scenario, ran: &FlowsRun) -> RunReport {
    let own = ran.flows.iter().take(plan.drivers.len());
    let bytes: u64 = own.clone().map(|flow| flow.bytes).sum();
    let shared = shared(ran, bytes);
    let costs = own.clone().map(|flow| costs(flow, &shared)).collect();
    let processors = own.clone().map(|flow| Processors(flow.processors.clone()));
    let processors = processors.collect();
    let cross = ran.flows.iter().skip(plan.drivers.len());
    let jitter = |flow: &FlowResult| {
        let delay = |name| flow.metrics.get(name);
        Some(delay("delay_p99_ms")? - delay("delay_p50_ms")?)
    };
    let jitter_ms = cross.clone().map(jitter).collect();
    let cross = cross.map(|flow| CrossReport {
        start: flow.start,
        loss: flow.metrics.get("loss").copied(),
        ..CrossReport::default()
    });
    let cross = cross.collect();
    let flows: Vec<FlowReport> = own.map(flow).collect();
    let seconds = scenario.duration.as_secs_f64();
    let forward = link(&ran.wan.near_to_far, scenario.forward.rate, ran.wan.seconds);
    let back = link(&ran.wan.far_to_near, scenario.back.rate, ran.wan.seconds);
    RunReport {
        report: SimReport {
            seconds,
            forward,
            back,
            flows,
            cross,
            ..empty(scenario)
        },
        costs,
        processors,
        jitter_ms,
    }
}

fn link(way: &DirectionReport, rate: Rate, seconds: f64) -> LinkReport {
    LinkReport {
        offered: way.offered_packets,
        offered_bytes: way.offered_bytes,
        passed: way.delivered_packets,
        passed_bytes: way.delivered_bytes,
        duplicated: way.duplicated,
        corrupted: way.corrupted,
        reordered: way.reordered,
        marked: way.marked,
        max_queue_bytes: way.max_queue_bytes,
        max_wait_ms: way.max_wait_ms,
        utilisation: exact(way.delivered_bytes) * 8.0 / (rate.as_f64() * seconds).max(1.0),
        drops: way.drops.clone(),
        ..LinkReport::default()
    }
}

/// Processor time that is nobody's own, per byte of all flows.
fn shared(ran: &FlowsRun, bytes: u64) -> BTreeMap<String, f64> {
    let bits = exact(bytes) * 8.0;
    let emulator = ran.wan.health.cpu_seconds;
    let machine = ran.machine_cpu_seconds;
    let all = [
        ("emulator_percent_per_gbps", Some(emulator)),
        ("machine_percent_per_gbps", machine),
        ("hosts_percent_per_gbps", machine.map(|all| all - emulator)),
    ];
    let each = all.into_iter().filter_map(|(name, seconds)| {
        let cpu = Duration::try_from_secs_f64(seconds?).ok()?;
        Some((name.to_string(), percent_per_gbps(cpu, bits)?))
    });
    each.collect()
}

fn costs(flow: &FlowResult, shared: &BTreeMap<String, f64>) -> Costs {
    // Processor time of short transfers, too, whose programs do not print it.
    let cpu = |end: &Cost| {
        let all = Duration::try_from_secs_f64(end.cpu_seconds).ok();
        let all = all.filter(|time| !time.is_zero());
        let own = end.cpu_percent_per_gbps;
        own.or_else(|| percent_per_gbps(all?, exact(flow.bytes) * 8.0))
    };
    Costs {
        sender_cpu: cpu(&flow.sender),
        receiver_cpu: cpu(&flow.receiver),
        feedback_kib_per_gib: flow.feedback_kib_per_gib,
        overhead: flow.ip_over_goodput,
        rtt_ms: flow.rtt_ms.p50,
        retransmits: flow.retransmits,
        named: shared
            .iter()
            .chain(&flow.metrics)
            .map(|(k, v)| (k.clone(), *v))
            .collect(),
    }
}

fn flow(flow: &FlowResult) -> FlowReport {
    let mut delivered = 0.0;
    let points = flow.intervals.iter().map(|part| {
        delivered += part.goodput_bits_per_second * (part.to - part.from) / 8.0;
        Point {
            at: part.to,
            goodput_bits_per_second: part.goodput_bits_per_second,
            delivered: whole(delivered),
            ..Point::default()
        }
    });
    FlowReport {
        start: flow.start,
        seconds: flow.seconds,
        received_bytes: flow.bytes,
        goodput_bits_per_second: flow.goodput_bits_per_second,
        completed: Some(flow.seconds),
        series: points.collect(),
        ..FlowReport::default()
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float-to-int `as` saturates"
)]
const fn whole(x: f64) -> u64 {
    x as u64
}
