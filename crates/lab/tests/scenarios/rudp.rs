//! Tests that Reliable UDP keeps to its ceiling. Derived: a window of segments in a round trip; 255
//! of 8,800 bytes are 45 Mbit/s at 400 ms.

use super::kit::{cell, figures, named, over, secs};

/// Segments of 8,800 bytes of UDP payload, 22 of them no data.
fn carried(window: u32, rtt_ms: u64, loss: f64) -> f64 {
    let protocol = format!("rudp:window={window},mtu=8828");
    let report = named(&protocol, None, &over(cell(rtt_ms, loss, 9_000), secs(30)));
    figures(&format!("{protocol} {rtt_ms} ms {loss}"), &report);
    report.flows[0].goodput_bits_per_second / 1e6
}

/// Mbit/s of a window in a round trip, or the path's.
fn ceiling(window: u32, rtt_ms: u64) -> f64 {
    let most = f64::from(window) * 8_800.0 * 8.0 / 1e3 / rtt_ms as f64;
    most.min(10_000.0)
}

/// Tests the rate within 5 %: the headers, and the first round trips.
#[test]
fn without_loss_the_rate_is_the_window_in_a_round_trip() {
    let most = ceiling(255, 400);
    assert!((44.0..46.0).contains(&most), "derived: 45 Mbit/s, {most}");
    for (window, rtt_ms) in [
        (255, 50),
        (255, 100),
        (255, 200),
        (255, 400),
        (128, 50),
        (128, 400),
    ] {
        let (is, most) = (carried(window, rtt_ms, 0.0), ceiling(window, rtt_ms));
        assert!(is < most && is > 0.95 * most, "{is} of {most}");
    }
}

/// Chosen bounds: no more than the window gives, and something always.
#[test]
fn loss_takes_from_it_and_never_all() {
    for (rtt_ms, loss) in [(0, 0.02), (50, 0.01), (200, 0.001), (400, 0.02)] {
        let is = carried(128, rtt_ms, loss);
        let most = ceiling(128, rtt_ms);
        assert!(is < most && is > 1.0, "{is} of {most}");
    }
}
