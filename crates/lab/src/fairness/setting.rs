//! Which path and which flows does a question mean, and when does what happen?
//!
//! Every path has a base rtt of 50 ms, an MTU of 1,500 and a drop-tail queue; what is returned
//! meets a path of its own, of the same rate.

use std::{ops::Range, time::Duration};

use farhaul_core::units::{Rate, Size};
use farhaul_link::{Jitter, PathConfig, QueueLimit, Step, Window};
use farhaul_sim::{FlowConfig, Scenario};

use super::{
    Case, Question,
    tracks::{BIN, bin},
};
use crate::starts;

const BASE_RTT: Duration = Duration::from_millis(50);
const SHORT_RTT: Duration = Duration::from_millis(20);
const LONG_RTT: Duration = Duration::from_millis(200);
/// The longest packet, with its IP header.
pub(super) const MTU: u32 = 1_500;
/// Every flow starts up to so much later, by the seed.
const START_SPREAD: Duration = Duration::from_millis(200);
/// No two packets take exactly as long: it keeps flows from locking in phase at a full queue.
const JITTER: Jitter = Jitter {
    spread: Duration::from_micros(20),
    reorder: false,
};
/// How long nothing is returned.
const IDLE_LIMIT: Duration = Duration::from_secs(10);

/// When what happens; all of it from the length of a third of the run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    third: Duration,
}

impl Times {
    pub(super) const fn new(quick: bool) -> Self {
        let third = Duration::from_secs(if quick { 10 } else { 30 });
        Self { third }
    }

    /// The last flow among equals starts.
    fn last_start(self) -> Duration {
        self.third / 2
    }

    /// What is measured once the start is over.
    pub(super) fn after_start(self) -> Range<usize> {
        span(self.third, 3 * self.third)
    }

    /// What is measured among equals: their last third.
    pub(super) fn last_third(self) -> Range<usize> {
        span(2 * self.third, 3 * self.third)
    }

    /// All flows are there.
    pub(super) fn all_there(self) -> Range<usize> {
        span(self.last_start(), 3 * self.third)
    }

    /// The path is worse than before.
    fn worse(self, case: &Case) -> [Duration; 2] {
        let lasts = match case {
            Case::ReportsLost => IDLE_LIMIT,
            _ => self.third * 2 / 3,
        };
        [self.third, self.third + lasts]
    }

    /// The second before the path gets worse, while it is, and afterwards.
    pub(super) fn collapse(self, case: &Case) -> [Range<usize>; 3] {
        let [from, to] = self.worse(case);
        let before = span(from.saturating_sub(Duration::from_secs(1)), from);
        [before, span(from, to), span(to, self.duration(case))]
    }

    /// Of the whole run.
    pub(super) fn duration(self, case: &Case) -> Duration {
        match case {
            Case::ReportsLost | Case::CapacityLost => self.worse(case)[1] + self.third,
            _ => 3 * self.third,
        }
    }
}

fn span(from: Duration, to: Duration) -> Range<usize> {
    bin(from)..bin(to)
}

/// The rate while the path is worse.
pub(super) fn low(case: &Case, rate: Rate) -> Rate {
    let part = match case {
        Case::RateStep => 10,
        Case::CapacityLost => 100,
        _ => 1,
    };
    Rate::from_bps(rate.bps() / part)
}

/// Bytes that the base rtt holds.
pub(super) fn bdp(rate: Rate) -> u64 {
    rate.bytes_in(BASE_RTT)
}

impl Question {
    pub(super) const fn rate(&self) -> Rate {
        Rate::from_bps(self.rate_bits_per_second)
    }

    /// The law of every flow, in order of their starts.
    pub(super) fn laws(&self) -> Vec<&str> {
        let law = self.law.as_str();
        match &self.case {
            Case::Among { flows } => (0..*flows).map(|_| law).collect(),
            Case::RoundTrips => vec![law; 2],
            Case::Against { standard, .. } => vec![standard, law],
            _ => vec![law],
        }
    }

    /// What is simulated.
    pub(super) fn scenario(&self) -> Scenario {
        let times = Times::new(self.quick);
        let queue_percent = match self.case {
            Case::Against { queue_percent, .. } | Case::Alone { queue_percent } => queue_percent,
            _ => 100,
        };
        let queue = bdp(self.rate()) * u64::from(queue_percent) / 100;
        let rtt = match self.case {
            Case::RoundTrips => SHORT_RTT,
            _ => BASE_RTT,
        };
        let back = PathConfig {
            rate: self.rate(),
            delay: rtt / 2,
            mtu: Some(MTU),
            jitter: Some(JITTER),
            ..PathConfig::default()
        };
        let forward = PathConfig {
            queue: QueueLimit::Bytes(Size::from_bytes(queue)),
            ..back.clone()
        };
        let mut scenario = Scenario {
            forward,
            back,
            flows: self.flows(times),
            duration: times.duration(&self.case),
            interval: BIN,
            interface_mtu: Some(MTU),
            ..Scenario::default()
        };
        starts::spread(&mut scenario, self.seed, START_SPREAD);
        let [from, to] = times.worse(&self.case);
        match self.case {
            Case::RateStep | Case::CapacityLost => {
                let step = |at, to| Step { at, to };
                let low = low(&self.case, self.rate());
                scenario.forward.rate_steps = vec![step(from, low), step(to, self.rate())];
            }
            Case::ReportsLost => {
                let lasts = to.saturating_sub(from);
                scenario.back.blackouts = vec![Window { from, lasts }];
            }
            _ => {}
        }
        scenario
    }

    fn flows(&self, times: Times) -> Vec<FlowConfig> {
        let at = |start| FlowConfig {
            start,
            ..FlowConfig::default()
        };
        match &self.case {
            Case::Among { flows } => {
                let gaps = flows.saturating_sub(1).max(1);
                let start = |i| at(times.last_start() * i / gaps);
                (0..*flows).map(start).collect()
            }
            Case::RoundTrips => {
                let long = FlowConfig {
                    extra_delay: LONG_RTT.saturating_sub(SHORT_RTT) / 2,
                    ..FlowConfig::default()
                };
                vec![FlowConfig::default(), long]
            }
            Case::Against { .. } => vec![FlowConfig::default(), at(times.third / 3)],
            _ => vec![FlowConfig::default()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(case: Case) -> Question {
        Question {
            law: "haul".into(),
            case,
            rate_bits_per_second: 100_000_000,
            quick: false,
            seed: 1,
        }
    }

    #[test]
    fn equals_start_one_after_the_other_within_the_first_half_third() {
        let scenario = question(Case::Among { flows: 4 }).scenario();
        let starts: Vec<_> = scenario.flows.iter().map(|f| f.start.as_secs()).collect();
        assert_eq!(starts, [0, 5, 10, 15]);
        assert_eq!(scenario.duration.as_secs(), 90);
        let one = question(Case::Among { flows: 1 }).scenario();
        assert_eq!(one.flows.len(), 1);
        assert!(one.flows[0].start < START_SPREAD);
    }

    #[test]
    fn another_seed_starts_its_flows_at_other_times() {
        let starts = |seed| {
            let question = Question {
                seed,
                ..question(Case::RoundTrips)
            };
            let flows = question.scenario().flows;
            flows.iter().map(|f| f.start).collect::<Vec<_>>()
        };
        assert_eq!(starts(1), starts(1));
        assert_ne!(starts(1), starts(2));
    }

    #[test]
    fn queues_are_parts_of_the_bdp() {
        let queue = |case| question(case).scenario().forward.queue;
        let bytes = |n| QueueLimit::Bytes(Size::from_bytes(n));
        assert_eq!(queue(Case::Alone { queue_percent: 10 }), bytes(62_500));
        assert_eq!(queue(Case::RoundTrips), bytes(625_000));
        let case = Case::Against {
            standard: "reno".into(),
            queue_percent: 400,
        };
        assert_eq!(queue(case), bytes(2_500_000));
    }

    #[test]
    fn the_path_gets_worse_and_recovers() {
        let step = question(Case::RateStep).scenario().forward.rate_steps;
        let times: Vec<_> = step.iter().map(|s| (s.at.as_secs(), s.to.bps())).collect();
        assert_eq!(times, [(30, 10_000_000), (50, 100_000_000)]);
        let lost = question(Case::ReportsLost).scenario();
        assert_eq!(lost.back.blackouts[0].lasts, IDLE_LIMIT);
        assert!(lost.forward.blackouts.is_empty() && lost.forward.rate_steps.is_empty());
        let [before, during, after] = Times::new(true).collapse(&Case::ReportsLost);
        assert_eq!(
            (before, during, after),
            (450..500, 500..1_000, 1_000..1_500)
        );
        let [.., after] = Times::new(false).collapse(&Case::CapacityLost);
        assert_eq!(after, 2_500..4_000);
    }

    #[test]
    fn a_round_trip_is_ten_times_the_other() {
        let scenario = question(Case::RoundTrips).scenario();
        let rtt = |i: usize| {
            let links = scenario.forward.delay + scenario.back.delay;
            (links + 2 * scenario.flows[i].extra_delay).as_millis()
        };
        assert_eq!((rtt(0), rtt(1)), (20, 200));
    }
}
