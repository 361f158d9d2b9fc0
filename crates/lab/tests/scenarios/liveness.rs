//! Tests that every transfer ends: under its own law, sealed and plain, over patterns of trouble
//! that end.

use farhaul_measure::registry::{Choice, protocol};
use farhaul_testkit::{assert_live, seeds};

fn check(simulated: bool) {
    let entry = protocol("haul").expect("haul is there");
    let choice = Choice {
        simulated,
        identity: Some(vec![5; 32]),
        ..Choice::default()
    };
    let make = |_| {
        (
            entry.client(&choice).expect("defaults are fine"),
            entry.server(&choice).expect("defaults are fine"),
        )
    };
    assert_live(make, seeds(50));
}

#[test]
fn every_plain_transfer_ends() {
    check(true);
}

#[test]
fn every_sealed_transfer_ends() {
    check(false);
}
