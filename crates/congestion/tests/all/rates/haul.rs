//! Tests the flagship where feedback is coarser than was requested, as of a receiver that gets a
//! processor only now and then. Bursts and probes shorter than that have no reports of their own.

use std::time::Duration;

use farhaul_congestion::lookup;
use farhaul_core::units::Rate;

use super::fluid::FluidPath;

#[test]
fn rare_feedback_neither_ends_the_start_nor_deafens_probes() {
    let ms = Duration::from_millis;
    for (rtt_ms, feedback_ms) in [(20, 35), (100, 35), (100, 70), (100, 140), (200, 70)] {
        let mut law = lookup("haul").expect("the law exists").make();
        let mut path = FluidPath::new(Rate::gbit(1), rtt_ms, 9_000, 12_500_000);
        path.feedback = ms(feedback_ms);
        path.start(&mut *law);
        path.run(&mut *law, ms(6_000));
        let reached = path.run(&mut *law, ms(4_000)).as_f64() / 1e9;
        eprintln!("{rtt_ms} ms, feedback each {feedback_ms} ms: {reached:.3}");
        assert!(reached > 0.65, "{rtt_ms} {feedback_ms}: {reached:.3}");
    }
}
