//! Tests the time of a transfer whose last bytes may be lost: in round trips, from the call to
//! connect until the sender knows.

use farhaul_link::Loss;
use farhaul_sim::FlowReport;

use super::kit::{cell, haul, ms, transfer};

const RTT_MS: u64 = 100;

/// (completed, delivered) in round trips.
fn round_trips(bytes: u64, loss: f64, seed: u64) -> (f64, f64) {
    let mut scenario = transfer(cell(RTT_MS, loss, 9_000), bytes);
    scenario.seed = seed;
    scenario.back.loss = Loss::Random(loss);
    let report = haul(&scenario);
    let flow: &FlowReport = &report.flows[0];
    assert_eq!(flow.received_bytes, bytes, "{flow:?}");
    let trips = |at: Option<f64>| at.expect("it ends") / (RTT_MS as f64 / 1e3);
    (trips(flow.completed), trips(flow.delivered))
}

#[test]
fn transfers_of_any_size_end_in_few_round_trips() {
    // Connecting, the start, the bytes themselves and the last answer.
    for (bytes, most) in [(1, 3.1), (1 << 10, 3.1), (1 << 20, 5.4), (100 << 20, 12.0)] {
        let (completed, delivered) = round_trips(bytes, 0.0, 1);
        eprintln!("{bytes} B: completed {completed:.2} rtt, delivered {delivered:.2} rtt");
        assert!(delivered <= most, "{bytes} B: {delivered:.2} rtt");
    }
}

#[test]
fn lost_tails_are_repaired_quickly() {
    for (bytes, most) in [(1, 6.5), (1 << 10, 6.5), (1 << 20, 9.0), (100 << 20, 14.5)] {
        let ends: Vec<f64> = (0..20)
            .map(|seed| round_trips(bytes, 0.02, seed).1)
            .collect();
        let mean = ends.iter().sum::<f64>() / ends.len() as f64;
        let worst = ends.iter().copied().fold(0.0, f64::max);
        eprintln!("{bytes} B at 2 %: delivered {mean:.2} rtt mean, {worst:.2} worst of 20");
        assert!(worst <= most, "{bytes} B: {ends:.2?}");
    }
}

/// Round trips from the arrival of the last byte sent for the first time (lost or not) to that of
/// the last byte; and bytes sent again over bytes sent.
fn tail(bytes: u64, rtt_ms: u64, loss: f64, seed: u64) -> (f64, f64) {
    let mut scenario = transfer(cell(rtt_ms, loss, 1_500), bytes);
    scenario.seed = seed;
    scenario.interval = ms(1);
    scenario.back.loss = Loss::Random(loss);
    let report = haul(&scenario);
    let flow = &report.flows[0];
    assert_eq!(flow.received_bytes, bytes, "{flow:?}");
    // The application's own messages are on the stream and not counted.
    let last = flow.series.iter().find(|point| point.snd_nxt >= bytes);
    let last = last.expect("all is sent").at + rtt_ms as f64 / 2e3;
    let completed = flow.completed.expect("it ends");
    let again = flow.sender.repaired as f64 / bytes as f64;
    ((completed - last) / (rtt_ms as f64 / 1e3), again)
}

#[test]
fn the_last_byte_arrives_a_round_trip_after_it_could_at_the_latest() {
    let mut late = Vec::new();
    for bytes in [1 << 20, 100 << 20] {
        for rtt_ms in [20, 100, 200, 400] {
            for loss in [0.0, 0.001, 0.01, 0.02] {
                let runs: Vec<_> = (1..=5).map(|s| tail(bytes, rtt_ms, loss, s)).collect();
                let mut tails: Vec<f64> = runs.iter().map(|run| run.0).collect();
                tails.sort_by(f64::total_cmp);
                let again = runs.iter().map(|run| run.1).sum::<f64>() / 5.0;
                let shown =
                    format!("{bytes} B, {rtt_ms} ms, {loss}: {tails:.2?}, again {again:.4}");
                eprintln!("{shown}");
                if tails[2] > 1.2 {
                    late.push(shown);
                }
            }
        }
    }
    assert!(late.is_empty(), "{late:#?}");
}
