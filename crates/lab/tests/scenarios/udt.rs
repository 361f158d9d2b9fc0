//! Does the cured UDT start sanely? What the original does is in `docs/protocols/udt4-2014.md`.

use farhaul_core::units::Rate;
use farhaul_lab::registry::{self, Choice};

use super::kit::{cell, figures, over, seconds, secs, share};

#[test]
fn the_cured_start_finds_a_clean_link_in_seconds() {
    let rate = Rate::gbit(10);
    let choice = Choice {
        simulated: true,
        ..Choice::default()
    };
    let entry = registry::protocol("udt4-tuned").expect("a protocol");
    for (rtt_ms, least) in [(50, 0.92), (100, 0.88)] {
        let mut make = |_| {
            let end = "the settings are valid";
            (
                entry.client(&choice).expect(end),
                entry.server(&choice).expect(end),
            )
        };
        let scenario = over(cell(rtt_ms, 0.0, 9_000), secs(12));
        let report = farhaul_sim::run(&scenario, &mut make).expect("the run ends");
        figures(&format!("udt4-tuned, {rtt_ms} ms"), &report);
        let steady = share(&report, 0, 3, 12, rate);
        eprintln!("from 3 s on {steady:.3}: {}", seconds(&report, 0, rate));
        assert!(steady >= least, "{}", seconds(&report, 0, rate));
    }
}
