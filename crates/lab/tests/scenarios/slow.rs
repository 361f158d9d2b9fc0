//! Tests the flagship on links that carry less than it starts with. Queues of two packets are as
//! long as the least that is of use, since one is being sent meanwhile.

use farhaul_core::units::{Rate, Size};
use farhaul_link::{PathConfig, QueueLimit};
use farhaul_sim::SimReport;

use super::kit::{Who, medians, over, path, secs, share};

const MTU: u32 = 1_500;

/// A link with room for this many packets.
fn link(kbit: u64, rtt_ms: u64, packets: u64) -> PathConfig {
    PathConfig {
        queue: QueueLimit::Bytes(Size::from_bytes(packets * u64::from(MTU))),
        ..path(Rate::from_bps(kbit * 1_000), rtt_ms, MTU)
    }
}

/// Packets of the first flow sent and dropped from second `from` to second `to`.
fn sent_and_dropped(report: &SimReport, from: usize, to: usize) -> (f64, f64) {
    let points = &report.flows[0].series;
    let (from, to) = (&points[from - 1], &points[to - 1]);
    (
        (to.sent - from.sent) as f64,
        (to.dropped - from.dropped) as f64,
    )
}

#[test]
fn links_slower_than_any_start_are_not_overrun() {
    // Rate and queue; least goodput; the share dropped, and packets sent in the first ten seconds by what the link carries meanwhile.
    for (kbit, packets, least, most_dropped, most_sent) in [
        (64, 2, 0.75, 0.2, 20.0),
        (64, 20, 0.8, 0.2, 45.0),
        (128, 2, 0.68, 0.2, 8.0),
        (256, 2, 0.75, 0.2, 4.0),
        (512, 2, 0.7, 0.2, 3.0),
        (512, 20, 0.88, 0.1, 3.0),
        (1_000, 2, 0.65, 0.2, 2.0),
    ] {
        for rtt_ms in [50, 200] {
            let rate = Rate::from_bps(kbit * 1_000);
            let scenario = over(link(kbit, rtt_ms, packets), secs(60));
            let [reached, dropped, early] = medians(&scenario, &[Who::Haul], |report| {
                let (sent, lost) = sent_and_dropped(report, 30, 60);
                let carried = rate.bytes_in(secs(10)) as f64 / f64::from(MTU);
                let (early, _) = sent_and_dropped(report, 1, 10);
                [share(report, 0, 30, 60, rate), lost / sent, early / carried]
            });
            let name = format!("{kbit} kbit/s, {rtt_ms} ms, {packets} packets");
            let found = format!("{name}: {reached:.3}, {dropped:.3} dropped, {early:.1}");
            eprintln!("{found}");
            assert!(reached >= least, "{found}");
            assert!(dropped <= most_dropped, "{found}");
            assert!(early <= most_sent, "{found}");
        }
    }
}

#[test]
fn a_link_that_was_very_slow_for_a_while_is_found_again() {
    let fast = Rate::mbit(100);
    for (low_kbit, rtt_ms) in [(1_000, 50), (256, 50), (256, 200), (64, 200)] {
        let mut link = link(100_000, rtt_ms, 20);
        link.rate_steps = [(20, Rate::from_bps(low_kbit * 1_000)), (30, fast)]
            .map(|(at, to)| farhaul_link::Step { at: secs(at), to })
            .to_vec();
        let [after] = medians(&over(link, secs(60)), &[Who::Haul], |report| {
            [share(report, 0, 42, 60, fast)]
        });
        eprintln!("{low_kbit} kbit/s for 10 s, {rtt_ms} ms: {after:.3}");
        assert!(after >= 0.8, "{low_kbit} kbit/s, {rtt_ms} ms: {after:.3}");
    }
}
