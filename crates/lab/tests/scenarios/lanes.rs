//! Tests that several parallel sessions claim the share of one flow: four beside one flow or three.
//! Without that sharing they would have four shares. The bounds are what holds today, with a
//! margin.

use farhaul_core::units::Rate;
use farhaul_sim::{FlowConfig, Scenario, SimReport};
use farhaul_testkit::scale;

use super::kit::{Who, medians, over, path, secs, share};

const RATE: Rate = Rate::mbit(500);
const ONE_OF_FOUR: Who = Who::HaulUnder("haul:lanes=4");

/// Duration of a run, s.
fn end() -> u64 {
    scale(100, 160)
}

/// Four parallel sessions from the beginning, and `others` flows from 10 s on.
fn scenario(rtt_ms: u64, others: usize) -> Scenario {
    let other = FlowConfig {
        start: secs(10),
        ..FlowConfig::default()
    };
    let lanes = std::iter::repeat_n(FlowConfig::default(), 4);
    Scenario {
        flows: lanes.chain(std::iter::repeat_n(other, others)).collect(),
        ..over(path(RATE, rtt_ms, 9_000), secs(end()))
    }
}

/// Goodput of the parallel sessions together, over that of each of the others.
fn ratio(report: &SimReport, others: usize) -> [f64; 2] {
    let of = |flows: std::ops::Range<usize>| -> f64 {
        flows.map(|flow| share(report, flow, 40, end(), RATE)).sum()
    };
    let (lanes, rest) = (of(0..4), of(4..4 + others));
    [lanes / (rest / others as f64), lanes + rest]
}

fn claim(rtt_ms: u64, other: Who, others: usize, most: f64) {
    let mut who = vec![ONE_OF_FOUR; 4];
    who.extend(vec![other; others]);
    let [ratio, full] = medians(&scenario(rtt_ms, others), &who, |report| {
        ratio(report, others)
    });
    let found = format!("{rtt_ms} ms, beside {others} {other:?}: {ratio:.2}, together {full:.2}");
    eprintln!("{found}");
    assert!((0.5..=most).contains(&ratio), "{found}");
    assert!(full >= 0.85, "{found}");
}

#[test]
fn four_lanes_claim_far_less_than_four_shares_at_20_ms() {
    claim(20, Who::Haul, 1, 1.5);
}

#[test]
fn four_lanes_claim_far_less_than_four_shares_at_100_ms() {
    claim(100, Who::Haul, 1, 2.7);
}

#[test]
fn four_lanes_claim_far_less_than_four_shares_beside_three() {
    claim(20, Who::Haul, 3, 2.5);
}

#[test]
fn four_lanes_claim_far_less_than_four_shares_beside_cubic_at_20_ms() {
    claim(20, Who::Bare("cubic"), 1, 2.4);
}

#[test]
fn four_lanes_claim_far_less_than_four_shares_beside_cubic_at_100_ms() {
    claim(100, Who::Bare("cubic"), 1, 2.2);
}
