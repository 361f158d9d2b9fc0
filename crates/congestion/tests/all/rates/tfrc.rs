//! TFRC against its equation.

use std::time::Duration;

use farhaul_congestion::lookup;
use farhaul_core::units::Rate;

use super::fluid::FluidPath;

/// RFC 5348 §3.1, bit/s.
fn equation(datagram: f64, rtt: f64, p: f64) -> f64 {
    let fast = rtt * (2.0 * p / 3.0).sqrt();
    let slow = 4.0 * rtt * (3.0 * (3.0 * p / 8.0).sqrt()) * p * (1.0 + 32.0 * p.powi(2));
    datagram * 8.0 / (fast + slow)
}

#[test]
fn regular_loss_gives_the_rate_of_the_equation() {
    for (rtt, one_in) in [(50, 1_000), (100, 1_000), (100, 10_000), (200, 500)] {
        let mut path = FluidPath::new(Rate::gbit(10), rtt, 8_948, 100_000_000);
        path.lose_one_in = one_in;
        let mut law = lookup("tfrc").expect("the law exists").make();
        path.start(law.as_mut());
        path.run(law.as_mut(), Duration::from_mins(1));
        let reached = path.run(law.as_mut(), Duration::from_mins(1)).as_f64();
        let expected = equation(8_948.0, rtt as f64 / 1e3, 1.0 / one_in as f64);
        let ratio = reached / expected;
        assert!(
            (0.93..1.07).contains(&ratio),
            "{rtt} ms, 1 in {one_in}: {ratio}"
        );
    }
}

#[test]
fn a_link_is_used_without_a_saw_tooth() {
    let mut path = FluidPath::new(Rate::mbit(100), 50, 1_472, 625_000);
    let mut law = lookup("tfrc").expect("the law exists").make();
    path.start(law.as_mut());
    path.run(law.as_mut(), Duration::from_secs(30));
    let (mut low, mut high) = (f64::MAX, 0.0_f64);
    let share = path
        .run_with(law.as_mut(), Duration::from_mins(1), &mut |_, law| {
            let rate = law.allowance().rate.as_f64();
            (low, high) = (low.min(rate), high.max(rate));
        })
        .as_f64()
        / 1e8;
    assert!(share > 0.85, "{share}");
    assert!(high / low < 1.8, "a TCP's would be 2: {low} to {high}");
}

#[test]
fn curve() {
    let mut path = FluidPath::new(Rate::mbit(100), 50, 1_472, 625_000);
    let mut law = lookup("tfrc").expect("the law exists").make();
    path.start(law.as_mut());
    let curve: Vec<u64> = (0..16)
        .map(|_| {
            path.run(law.as_mut(), Duration::from_secs(1));
            law.allowance().rate.bps() / 1_000_000
        })
        .collect();
    assert_eq!(curve, CURVE);
}

/// Mbit/s each second: slow start is over, half of what arrived, then less and less loss.
const CURVE: [u64; 16] = [
    38, 51, 51, 51, 51, 51, 51, 51, 52, 53, 54, 55, 56, 58, 59, 60,
];
