//! Tests how soon a path is filled that was never seen: 10 Gbit/s, medians of five seeds. The gate
//! has three seeds and does not wait for 10 GiB. `cells` tests that a full link stays full.

use farhaul_sim::{FlowReport, Scenario, SimReport};
use farhaul_testkit::scale;

use super::kit::{Who, cell, medians, ms, over, path, secs, share};
use farhaul_core::{congestion::SavedPath, units::Rate};

/// Rate that the link carries, sealed and framed, bit/s.
const CARRIED: f64 = 9.93e9;
const MIB: u64 = 1 << 20;

/// Time at which this many bytes have arrived, s.
fn arrived(flow: &FlowReport, bytes: u64) -> f64 {
    let mut last = (0.0, 0);
    for point in &flow.series {
        if point.delivered >= bytes {
            let share = (bytes - last.1) as f64 / (point.delivered - last.1) as f64;
            return last.0 + (point.at - last.0) * share;
        }
        last = (point.at, point.delivered);
    }
    f64::INFINITY
}

/// Completion of 100 MiB, 1 GiB and 10 GiB over the ideal, and round trips until nine tenths of the link are used for
/// half a round trip.
fn start(report: &SimReport, rtt_ms: u64) -> [f64; 4] {
    let rtt = rtt_ms as f64 / 1e3;
    let flow = &report.flows[0];
    let over_ideal = |bytes: u64| {
        let ideal = 1.5 * rtt + bytes as f64 * 8.0 / CARRIED;
        arrived(flow, bytes) / ideal
    };
    // Points of 5 ms.
    let span = usize::try_from(rtt_ms / 10).expect("small").max(2);
    let full = flow.series.windows(span + 1).find(|points| {
        let (from, to) = (&points[0], &points[span]);
        let rate = (to.delivered - from.delivered) as f64 * 8.0 / (to.at - from.at);
        rate >= 0.9 * CARRIED
    });
    let full = full.map_or(f64::INFINITY, |points| points[0].at / rtt);
    [
        over_ideal(100 * MIB),
        over_ideal(1_024 * MIB),
        scale(1.0, over_ideal(10_240 * MIB)),
        full,
    ]
}

/// Asserts that none of the figures of [`start`] on a path of 10 Gbit/s is above `most`.
fn is_full_soon(who: Who, rtt_ms: u64, loss: f64, most: [f64; 4]) {
    let scenario = Scenario {
        interval: ms(5),
        ..over(cell(rtt_ms, loss, 9_000), secs(scale(4, 12)))
    };
    let figures = medians(&scenario, &[who], |report| start(report, rtt_ms));
    let shown = format!("{who:?}, {rtt_ms} ms, {loss}: {figures:.2?}");
    eprintln!("{shown}");
    for (figure, most) in figures.iter().zip(most) {
        assert!(*figure <= most, "{shown}");
    }
}

#[test]
fn a_path_never_seen_is_filled_within_round_trips() {
    for (rtt_ms, loss, most) in [
        (20, 0.0, [2.2, 1.35, 1.06, 6.0]),
        (50, 0.001, [2.2, 1.35, 1.06, 6.0]),
        (100, 0.01, [2.2, 1.35, 1.06, 6.0]),
        (200, 0.001, [2.2, 1.35, 1.06, 6.0]),
        // There is no target there but the round trips.
        (400, 0.02, [3.0, 2.0, 1.2, 6.0]),
    ] {
        is_full_soon(Who::Haul, rtt_ms, loss, most);
    }
}

#[test]
fn a_gigabit_is_full_after_its_start() {
    let gbit = Rate::gbit(1);
    let scenario = Scenario {
        interval: ms(50),
        ..over(path(gbit, 50, 9_000), secs(3))
    };
    let [least] = medians(&scenario, &[Who::Haul], |report| {
        let points = report.flows[0].series.iter().filter(|p| p.at > 0.45);
        let shares: Vec<_> = points
            .map(|p| p.goodput_bits_per_second / gbit.as_f64())
            .collect();
        eprintln!("1 Gbit/s, 50 ms: {shares:.2?}");
        [shares.iter().copied().fold(1.0, f64::min)]
    });
    assert!(least >= 0.9, "{least:.3}");
}

/// A flow that resumes from what an earlier connection proved.
fn proved(capacity: Rate, rtt_ms: u64) -> Who {
    Who::Resumed(SavedPath {
        capacity,
        min_rtt: ms(rtt_ms),
    })
}

#[test]
fn a_remembered_path_is_filled_sooner() {
    for (rtt_ms, loss, most) in [
        (20, 0.0, [1.9, 1.2, 1.03, 3.0]),
        (100, 0.01, [1.9, 1.2, 1.03, 3.0]),
        (200, 0.001, [1.9, 1.2, 1.03, 3.0]),
    ] {
        is_full_soon(proved(Rate::mbit(9_900), rtt_ms), rtt_ms, loss, most);
    }
}

#[test]
fn what_a_path_no_longer_carries_costs_a_round_trip_at_half_of_it() {
    // A tenth of what is remembered.
    let rtt_ms = 100;
    let gbit = Rate::gbit(1);
    let scenario = Scenario {
        interval: ms(50),
        ..over(path(gbit, rtt_ms, 9_000), secs(5))
    };
    let lost = |report: &SimReport| -> f64 {
        let repaired = report.flows[0].series.iter().map(|p| p.repaired);
        repaired.sum::<u64>() as f64
    };
    let [new] = medians(&scenario, &[Who::Haul], |report| [lost(report)]);
    let who = proved(Rate::gbit(10), rtt_ms);
    let [resumed, share] = medians(&scenario, &[who], |report| {
        [lost(report), share(report, 0, 1, 5, gbit)]
    });
    let half = Rate::gbit(5).bytes_in(ms(rtt_ms + 40)) as f64;
    eprintln!(
        "lost {resumed} of {half} sent at half, {new} on a path never seen; share {share:.3}"
    );
    assert!(resumed <= 0.75 * half, "{resumed} of {half}");
    assert!(new <= f64::from(8 << 20), "{new}");
    assert!(share >= 0.9, "{share}");
}
