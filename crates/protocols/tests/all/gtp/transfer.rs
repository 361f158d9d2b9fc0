//! Tests that everything arrives, at which rate, and that flows received together share.

use std::time::Duration;

use farhaul_protocols::gtp::Group;
use farhaul_testkit::{Fate, Pair, Side, assert_live, seeds};

use super::kit::{ends, member, ms, open};
use crate::shared;

#[test]
fn either_end_sends_at_what_the_other_takes_and_a_stream_goes_beside() {
    // An offer, its answer, 997 ms at 80 Mbit/s, and the end of it.
    shared::both_ends_send_at_rate(&mut open(), 9_700_000, &(ms(997)..ms(1_060)));
}

#[test]
fn what_is_missing_is_asked_for_and_sent_once() {
    shared::missing_units_are_sent_once(&mut open(), 684..=686);
}

/// Both go on until `until`; Mbit/s of data that each got in the last `ms` of it.
fn together(pairs: &mut [Pair], until: Duration, last: u64) -> Vec<u64> {
    let mut before = vec![0; pairs.len()];
    let (end, mut now) = (ms(last), Duration::ZERO);
    while now < until {
        now += ms(1);
        for (pair, before) in pairs.iter_mut().zip(&mut before) {
            pair.pass(ms(1));
            if now + end == until {
                *before = pair.server.store.received(1);
            }
        }
    }
    let got = pairs.iter().zip(before);
    got.map(|(pair, before)| (pair.server.store.received(1) - before) / (125 * last))
        .collect()
}

/// 80 Mbit/s of packets are 77.8 of data. A flow that leaves makes room within four round trips of
/// 20 ms.
#[test]
fn who_comes_gets_half_and_who_goes_leaves_it_at_once() {
    let group = Group::default();
    let mut pairs = [member(&group, 1), member(&group, 2)];
    pairs[0].offer(Side::Client, 100_000_000);
    assert_eq!(together(&mut pairs, ms(500), 100), [77, 0]);
    pairs[1].offer(Side::Client, 3_000_000);
    // One look of the first, and an rtt; then the offer is answered.
    let shares = together(&mut pairs, ms(300), 100);
    assert_eq!(shares, [38, 38]);
    while !pairs[1].client.delivered() {
        together(&mut pairs, ms(1), 1);
    }
    together(&mut pairs, ms(80), 1);
    let alone = together(&mut pairs, ms(40), 40)[0];
    assert!(alone >= 76, "{alone}");
}

#[test]
fn a_flow_that_is_slower_on_its_way_leaves_the_rest_to_the_other() {
    let group = Group::default();
    let mut pairs = [member(&group, 1), member(&group, 2)];
    let mut allowed = 0.0_f64;
    let mut before = pairs[1].now;
    // The second one's path carries 10 Mbit/s.
    pairs[1].set_script(move |d| {
        if d.bytes.len() < 1_000 {
            return Fate::Deliver;
        }
        allowed = (allowed + d.at.since(before).as_secs_f64() * 1.25e6).min(20_000.0);
        before = d.at;
        let passes = allowed >= 1_500.0;
        if passes {
            allowed -= 1_500.0;
        }
        Fate::drop_if(!passes)
    });
    for pair in &mut pairs {
        pair.offer(Side::Client, 100_000_000);
    }
    let shares = together(&mut pairs, ms(6_000), 1_000);
    assert!(shares[0] >= 60, "{shares:?}");
    assert!(shares[1] >= 7, "{shares:?}");
}

#[test]
fn what_is_cancelled_ends_early_and_the_next_begins() {
    shared::the_next_follows_a_cancelled_one(&mut open());
}

#[test]
fn any_pattern_of_loss_that_stops_lets_the_transfer_end() {
    assert_live(|_| ends(&Group::default()), seeds(40));
}

/// The rate comes back by 2 % at a time, which takes longer.
#[test]
fn a_blackout_costs_what_it_swallows() {
    shared::a_blackout_costs_what_it_swallows(&mut open(), Duration::from_mins(1));
}
