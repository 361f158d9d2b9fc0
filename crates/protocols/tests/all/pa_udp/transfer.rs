//! Tests that everything arrives, at which rate, and when the end is reported.

use std::time::Duration;

use farhaul_testkit::{Side, assert_live, seeds};

use super::kit::{ends, ms, open};
use crate::shared;

#[test]
fn either_end_sends_at_the_rate_of_the_link_and_a_stream_goes_beside() {
    // An offer, its answer, a second at 80 Mbit/s, and the end of it.
    shared::both_ends_send_at_rate(&mut open(), 10_000_000, &(ms(1_000)..ms(1_060)));
}

#[test]
fn what_is_missing_is_asked_for_and_sent_once() {
    shared::missing_units_are_sent_once(&mut open(), 683..=685);
}

/// A memory of 3 MB before a disk of 20 Mbit/s, 10 MB to come: 28.6 Mbit/s fill it with the last
/// byte. The end is reported when all of it is written.
#[test]
fn the_end_is_told_when_the_store_has_written_everything() {
    const MEMORY: u64 = 3_000_000;
    let mut pair = open();
    pair.server.store.room = Some(MEMORY);
    pair.offer(Side::Client, 10_000_000);
    let (began, mut placed, mut fullest) = (pair.now, None, 0);
    while !pair.client.delivered() {
        pair.pass(ms(4));
        let arrived = pair.server.store.received(1);
        let drained = (pair.server.store.drained + 10_000).min(arrived);
        pair.server.store.drained = drained;
        fullest = fullest.max(arrived - drained);
        pair.server.store.room = Some(MEMORY - (arrived - drained));
        pair.settle(Side::Server);
        if arrived == 10_000_000 {
            placed.get_or_insert(pair.now);
        }
        assert!(pair.now.since(began) < Duration::from_secs(10), "{pair:#?}");
    }
    assert_eq!(pair.server.store.drained, 10_000_000);
    let (came, took) = (placed.unwrap().since(began), pair.now.since(began));
    assert!(took >= ms(4_000) && took < ms(4_250), "{took:?}");
    let wanted = 8.0 * 10.0 / 28.57;
    let share = came.as_secs_f64() / wanted;
    assert!((share - 1.0).abs() < 0.06, "{came:?} of {wanted}");
    assert!(fullest > MEMORY * 9 / 10, "{fullest}");
    // Next to nothing comes too early: less than one unit in a thousand.
    let early = pair.server.session().stats().dropped_full;
    assert!(early < 7, "{early}");
}

#[test]
fn what_has_no_room_is_left_and_comes_again() {
    let mut pair = open();
    pair.server.store.room = Some(200_000);
    pair.offer(Side::Client, 1_000_000);
    pair.pass(Duration::from_secs(20));
    let stats = pair.server.session().stats();
    assert!(stats.dropped_full > 0 && pair.server.closed().is_none());
    pair.server.store.room = None;
    pair.settle(Side::Server);
    pair.until(Duration::from_secs(20), |p| p.client.delivered());
    assert!(pair.server.store.has(1, 1_000_000));
}

#[test]
fn a_disk_that_stands_still_is_waited_for_and_given_up_in_the_end() {
    let mut pair = open();
    pair.server.store.room = Some(500_000);
    pair.offer(Side::Client, 1_000_000);
    pair.pass(Duration::from_mins(4));
    assert!(pair.server.closed().is_none() && pair.client.closed().is_none());
    pair.until(Duration::from_secs(90), |p| p.server.closed().is_some());
    let reason = pair.server.closed().unwrap().to_string();
    assert!(reason.contains("taken nothing for 300 s"), "{reason}");
}

#[test]
fn what_is_cancelled_ends_early_and_the_next_begins() {
    shared::the_next_follows_a_cancelled_one(&mut open());
}

#[test]
fn any_pattern_of_loss_that_stops_lets_the_transfer_end() {
    assert_live(|_| ends(), seeds(40));
}

#[test]
fn a_blackout_costs_what_it_swallows() {
    shared::a_blackout_costs_what_it_swallows(&mut open(), Duration::from_secs(10));
}
