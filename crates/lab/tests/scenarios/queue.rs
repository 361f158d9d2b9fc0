//! Tests how much of the queue the flagship fills when it is alone on a link, and that a run
//! repeats.

use farhaul_core::units::Rate;
use farhaul_link::{PathConfig, QueueLimit};
use farhaul_sim::Scenario;

use super::kit::{cell, haul, ms, over, path, secs};

/// The standing queue: (median, 90th percentile, most) of what stood there each 10 ms, in ms.
fn standing(link: PathConfig, lasts: u64) -> [f64; 3] {
    let rate = link.rate;
    let scenario = Scenario {
        interval: ms(10),
        ..over(link, secs(lasts))
    };
    let report = haul(&scenario);
    let mut waits: Vec<f64> = report.flows[0]
        .series
        .iter()
        .filter(|p| p.at > 5.0)
        .map(|p| p.queue as f64 * 8e3 / rate.as_f64())
        .collect();
    waits.sort_by(f64::total_cmp);
    let at = |share: usize| waits[(waits.len() - 1) * share / 100];
    [at(50), at(90), at(100)]
}

#[test]
fn no_queue_is_left_standing() {
    for (mbit, rtt_ms, mtu, queue_ms) in [
        (100, 20, 1_500, 1_000),
        (1_000, 50, 9_000, 1_000),
        (10_000, 100, 9_000, 1_000),
    ] {
        let mut link = path(Rate::mbit(mbit), rtt_ms, mtu);
        link.queue = QueueLimit::Time(ms(queue_ms));
        let [median, high, most] = standing(link, 25);
        eprintln!(
            "{mbit} Mbit/s, {rtt_ms} ms: queue {median:.2} ms median, {high:.2} p90, {most:.2} most"
        );
        // A quarter of the product of bandwidth and delay is the most that may stand.
        assert!(
            median <= rtt_ms as f64 / 5.0,
            "{mbit} Mbit/s: {median:.2} ms"
        );
        assert!(high <= 13.0, "{mbit} Mbit/s: {high:.2} ms");
    }
}

#[test]
fn a_run_is_its_seed() {
    let hash = |seed| {
        let mut scenario = over(cell(50, 0.01, 9_000), secs(1));
        scenario.seed = seed;
        haul(&scenario).trace_hash
    };
    assert_eq!(hash(3), hash(3));
    assert_ne!(hash(3), hash(4));
}
