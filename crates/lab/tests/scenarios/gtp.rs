//! Tests that GTP fills its link alone, and that flows to one host share it without meeting in it.
//! The published figures for four senders into one receiver at 1 Gbit/s are recalled, not read:
//! RBUDP 443 Mbit/s with 53.3 % lost, UDT 811 with 8.7 %, GTP 865 with 0.06 %.

use farhaul_core::units::Rate;
use farhaul_sim::{FlowConfig, Scenario, SimReport};

use super::kit::{dropped, figures, jain, ms, named, over, path, rate, secs, share};

const GBIT: Rate = Rate::gbit(1);
const GTP: &str = "gtp:capacity=1Gbit,mtu=9000";

/// `flows` into one host over a link of 1 Gbit/s, with a point each 20 ms.
fn into_one(protocol: &str, flows: Vec<FlowConfig>, rtt_ms: u64, lasts: u64) -> SimReport {
    let scenario = Scenario {
        flows,
        interval: ms(20),
        ..over(path(GBIT, rtt_ms, 9_000), secs(lasts))
    };
    named(protocol, None, &scenario)
}

fn starting(times_ms: &[u64]) -> Vec<FlowConfig> {
    let flow = |start: &u64| FlowConfig {
        start: ms(*start),
        ..FlowConfig::default()
    };
    times_ms.iter().map(flow).collect()
}

#[test]
fn alone_it_has_95_per_cent_of_the_link() {
    for rtt in [0, 10, 50, 200] {
        let report = into_one(GTP, starting(&[0]), rtt, 20);
        figures(&format!("{rtt} ms"), &report);
        let reached = share(&report, 0, 2, 20, GBIT);
        eprintln!("{rtt} ms: {reached:.3}");
        assert!(reached >= 0.95, "{rtt} ms: {reached}");
    }
}

#[test]
fn four_into_one_lose_next_to_nothing_where_rbudp_loses_more_than_half() {
    let starts = [0, 70, 150, 1_000];
    let report = into_one(GTP, starting(&starts), 50, 20);
    let shares: Vec<f64> = (0..4)
        .map(|i| rate(&report.flows[i], 5.0, 20.0) / 1e9)
        .collect();
    let lost = dropped(&report, "queue");
    eprintln!("gtp: {shares:.3?}, {:.4} % lost", lost * 100.0);
    assert!(lost < 0.001, "{lost}");
    assert!(shares.iter().sum::<f64>() >= 0.95, "{shares:?}");
    assert!(jain(&shares) > 0.98, "{shares:?}");
    let report = into_one("rbudp:rate=1Gbit", starting(&starts), 50, 20);
    let total: f64 = (0..4)
        .map(|i| rate(&report.flows[i], 5.0, 20.0) / 1e9)
        .sum();
    let lost = dropped(&report, "queue");
    eprintln!("rbudp: {total:.3}, {:.1} % lost", lost * 100.0);
    assert!(lost > 0.5, "{lost}");
}

/// One of four leaves at 10 s, another at 15 s: four round trips later the others have what it had.
#[test]
fn a_share_that_is_left_is_used_within_four_round_trips() {
    for rtt in [20, 100] {
        let mut flows = starting(&[0, 100, 200, 300]);
        flows[0].stop = Some(secs(10));
        flows[1].stop = Some(secs(15));
        let report = into_one(GTP, flows, rtt, 20);
        let all: Vec<f64> = (0..4)
            .map(|i| rate(&report.flows[i], 5.0, 10.0) / 1e9)
            .collect();
        eprintln!("{rtt} ms, all: {all:.3?}");
        assert!(jain(&all) > 0.98, "{rtt} ms: {all:?}");
        for (left, from) in [(1, 10.0), (2, 15.0)] {
            let settled = from + 4.0 * rtt as f64 / 1e3;
            let shares: Vec<f64> = (left..4)
                .map(|i| rate(&report.flows[i], settled + 0.02, settled + 0.5) / 1e9)
                .collect();
            eprintln!("{rtt} ms, after {from} s: {shares:.3?}");
            assert!(shares.iter().sum::<f64>() >= 0.95, "{rtt} ms: {shares:?}");
            assert!(jain(&shares) > 0.98, "{rtt} ms: {shares:?}");
        }
        assert!(dropped(&report, "queue") < 0.001);
    }
}

/// Round trips of different length make no difference to the shares.
#[test]
fn long_and_short_paths_get_equal_shares() {
    let mut flows = starting(&[0, 0, 0]);
    flows[1].extra_delay = ms(40);
    flows[2].extra_delay = ms(90);
    let report = into_one(GTP, flows, 20, 20);
    let shares: Vec<f64> = (0..3)
        .map(|i| rate(&report.flows[i], 8.0, 20.0) / 1e9)
        .collect();
    eprintln!("{shares:.3?}");
    assert!(jain(&shares) > 0.98, "{shares:?}");
    assert!(dropped(&report, "queue") < 0.001);
}
