//! Tests that the fixed UDT starts sanely. `docs/protocols/udt4-2014.md` says what the original
//! does.

use farhaul_core::{
    protocol::Protocol,
    units::{Rate, Size},
};
use farhaul_measure::registry::{self, Choice};

use farhaul_link::{PathConfig, QueueLimit};
use farhaul_sim::Route;

use super::kit::{cell, figures, named, over, seconds, secs, share};

#[test]
fn the_fixed_start_finds_a_clean_link_in_seconds() {
    let rate = Rate::gbit(10);
    for (rtt_ms, least) in [(50, 0.92), (100, 0.88)] {
        let scenario = over(cell(rtt_ms, 0.0, 9_000), secs(12));
        let report = named("udt4-tuned", None, &scenario);
        figures(&format!("udt4-tuned, {rtt_ms} ms"), &report);
        let steady = share(&report, 0, 3, 12, rate);
        eprintln!("from 3 s on {steady:.3}: {}", seconds(&report, 0, rate));
        assert!(steady >= least, "{}", seconds(&report, 0, rate));
    }
}

/// Sends fixed, to an end that behaves as libudt does.
fn fixed_to_libudt(_: usize) -> (Box<dyn Protocol>, Box<dyn Protocol>) {
    let choice = Choice {
        simulated: true,
        ..Choice::default()
    };
    let end = |name| registry::protocol(name).expect("a protocol");
    let valid = "the settings are valid";
    (
        end("udt4-tuned").client(&choice).expect(valid),
        end("udt4").server(&choice).expect(valid),
    )
}

/// A receiver of libudt misleads: its first reports are inventions, it takes packets more slowly
/// than they come, and reports a hole once.
#[test]
fn the_fixed_sender_is_not_misled_by_the_receiver_of_libudt() {
    let slow = Rate::mbit(1_500);
    for (rtt_ms, least) in [(0, 0.95), (50, 0.9), (100, 0.9)] {
        let mut scenario = over(cell(rtt_ms, 0.0, 9_000), secs(12));
        scenario.links = vec![PathConfig {
            rate: slow,
            queue: QueueLimit::Bytes(Size::from_bytes(4 << 20)),
            ..PathConfig::default()
        }];
        scenario.routes = vec![Route {
            forward: vec![0, 2],
            back: vec![1],
        }];
        scenario.flows[0].route = Some(0);
        let report = farhaul_sim::run(&scenario, &mut fixed_to_libudt).expect("the run ends");
        figures(&format!("udt4-tuned to udt4, {rtt_ms} ms"), &report);
        eprintln!("{}", seconds(&report, 0, slow));
        let steady = share(&report, 0, 3, 12, slow);
        assert!(steady >= least, "{}", seconds(&report, 0, slow));
    }
}

/// A lost repair holds up everything behind it, and the receiver of libudt says nothing while it does.
/// A sender of libudt stands still meanwhile; the fixed sender keeps a rate.
#[test]
fn the_fixed_sender_notices_lost_repairs_by_itself() {
    let rate = Rate::gbit(10);
    for seed in 1..=3 {
        let mut scenario = over(cell(50, 0.01, 9_000), secs(12));
        scenario.seed = seed;
        let report = farhaul_sim::run(&scenario, &mut fixed_to_libudt).expect("the run ends");
        figures(&format!("udt4-tuned to udt4, 1 %, seed {seed}"), &report);
        eprintln!("{}", seconds(&report, 0, rate));
        let steady = share(&report, 0, 3, 12, rate);
        assert!(steady >= 0.02, "{}", seconds(&report, 0, rate));
    }
}
