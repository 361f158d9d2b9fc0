//! Tests that routers that say what to send keep their promise. The flagship's session runs under
//! the law `xcp`, over a link with such a router: full, fair at any rtt, its queue empty, nothing
//! dropped.

use farhaul_core::units::Rate;
use farhaul_link::{PathConfig, Router};
use farhaul_sim::{FlowConfig, Scenario, SimReport};

use super::kit::{Who, dropped, jain, ms, over, path, run, seconds, secs, share};

const GBIT: Rate = Rate::gbit(1);
const XCP: &[Who] = &[Who::HaulUnder("xcp")];

fn routed(rate: Rate, rtt_ms: u64) -> PathConfig {
    PathConfig {
        router: Some(Router::Xcp),
        ..path(rate, rtt_ms, 9_000)
    }
}

/// Mean and most of the queue in the points of time from `from` s on, in ms at `rate`.
fn queue(report: &SimReport, from: u64, rate: Rate) -> (f64, f64) {
    let waits: Vec<f64> = report.flows[0]
        .series
        .iter()
        .filter(|p| p.at > from as f64)
        .map(|p| p.queue as f64 * 8e3 / rate.as_f64())
        .collect();
    let sum: f64 = waits.iter().sum();
    let most = waits.iter().copied().fold(0.0, f64::max);
    (sum / waits.len() as f64, most)
}

#[test]
fn two_flows_of_20_and_200_ms_share_equally_within_a_few_rtts() {
    let far = FlowConfig {
        extra_delay: ms(90),
        ..FlowConfig::default()
    };
    let scenario = Scenario {
        flows: vec![FlowConfig::default(), far],
        interval: ms(500),
        ..over(routed(GBIT, 20), secs(20))
    };
    let report = run(&scenario, XCP);
    for flow in 0..2 {
        eprintln!("{}", seconds(&report, flow, GBIT));
    }
    for (from, to) in [(4, 8), (8, 20)] {
        let shares: Vec<f64> = (0..2).map(|i| share(&report, i, from, to, GBIT)).collect();
        eprintln!("{from}..{to} s: {shares:.3?}, Jain {:.4}", jain(&shares));
        assert!(jain(&shares) >= 0.99, "{shares:.3?}");
        assert!(shares.iter().sum::<f64>() >= 0.95, "{shares:.3?}");
    }
    let (mean, most) = queue(&report, 4, GBIT);
    eprintln!(
        "queue {mean:.2} ms, at most {most:.2}; {:?}",
        report.forward.drops
    );
    assert!(mean < 1.0 && most < 5.0, "{mean} {most}");
    assert!(dropped(&report, "queue") == 0.0);
}

#[test]
fn a_long_fat_link_is_full_and_its_queue_empty() {
    for (rate, rtt_ms) in [(Rate::gbit(10), 10), (Rate::gbit(10), 100), (GBIT, 200)] {
        let report = run(&over(routed(rate, rtt_ms), secs(12)), XCP);
        let steady = share(&report, 0, 4, 12, rate);
        let (mean, most) = queue(&report, 4, rate);
        eprintln!(
            "xcp, {rate}, {rtt_ms} ms: {steady:.3}, queue {mean:.2} ms, at most {most:.2}, {:?}: {}",
            report.forward.drops,
            seconds(&report, 0, rate)
        );
        assert!(steady > 0.95, "{rtt_ms} ms: {steady}");
        // Not quite empty: the loop is as long as the rtt, and longer by the waits of reports.
        assert!(mean < 0.05 * rtt_ms as f64, "{rtt_ms} ms: {mean}");
        assert!(dropped(&report, "queue") == 0.0);
    }
}

#[test]
fn newcomers_are_let_in_and_leavers_replaced() {
    let flow = |start, stop| FlowConfig {
        start: secs(start),
        stop,
        ..FlowConfig::default()
    };
    let scenario = Scenario {
        flows: vec![
            flow(0, None),
            flow(5, None),
            flow(5, None),
            flow(5, Some(secs(10))),
        ],
        ..over(routed(GBIT, 50), secs(15))
    };
    let report = run(&scenario, XCP);
    let four: Vec<f64> = (0..4).map(|i| share(&report, i, 7, 10, GBIT)).collect();
    let three: Vec<f64> = (0..3).map(|i| share(&report, i, 12, 15, GBIT)).collect();
    eprintln!("four {four:.3?}, then three {three:.3?}");
    for shares in [four, three] {
        assert!(jain(&shares) >= 0.99, "{shares:.3?}");
        assert!(shares.iter().sum::<f64>() >= 0.93, "{shares:.3?}");
    }
    assert!(dropped(&report, "queue") == 0.0);
}

#[test]
fn without_a_router_it_stays_where_it_began() {
    let report = run(&over(path(GBIT, 50, 1_500), secs(10)), XCP);
    let first = report.flows[0].series[2].window;
    let last = report.flows[0].series.last().expect("ten points").window;
    eprintln!("{first} {last}: {}", seconds(&report, 0, GBIT));
    assert_eq!(first, last);
    // The initial window of RFC 6928 for datagrams of 1,200 bytes, in 56 ms: 1.7 Mbit/s.
    let got = report.flows[0].goodput_bits_per_second;
    assert!(got > 1e6 && got < 2e6, "{got}");
}
