//! Tests that everything arrives, at which rate, and when the end is reported.

use std::{cell::Cell, time::Duration};

use farhaul_testkit::{Fate, Side, assert_live, seeds};

use super::kit::{ends, ms, open};

#[test]
fn either_end_sends_at_the_rate_of_the_link_and_a_stream_goes_beside() {
    let mut pair = open();
    for side in [Side::Client, Side::Server] {
        let began = pair.now;
        pair.node(side).session().write(b"words beside");
        pair.offer(side, 10_000_000);
        pair.until(Duration::from_secs(5), |p| p.node(side).delivered());
        assert!(pair.node(side.other()).store.has(1, 10_000_000));
        assert_eq!(pair.node(side.other()).stream, b"words beside");
        // An offer, its answer, a second at 80 Mbit/s, and the end of it.
        let took = pair.now.since(began);
        assert!(took >= ms(1_000) && took < ms(1_060), "{took:?}");
    }
    let stats = pair.client.session().stats();
    assert_eq!((stats.data_sent, stats.repaired), (10_000_000, 0));
    assert_eq!(stats.data_acked, 10_000_000);
}

#[test]
fn what_is_missing_is_asked_for_and_sent_once() {
    let mut pair = open();
    let seen = Cell::new(0_u64);
    pair.set_script(move |d| {
        let data = d.bytes.len() > 1_000;
        seen.set(seen.get() + u64::from(data));
        Fate::drop_if(data && matches!(seen.get(), 10..=19 | 100 | 683..=685))
    });
    pair.offer(Side::Client, 1_000_000);
    pair.until(Duration::from_secs(3), |p| p.client.delivered());
    assert!(pair.server.store.has(1, 1_000_000));
    let stats = pair.client.session().stats();
    assert_eq!((stats.retransmits, stats.packets_lost), (14, 14));
    assert_eq!(pair.server.session().stats().dropped_duplicate, 0);
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
    let mut pair = open();
    pair.offer(Side::Client, 10_000_000);
    pair.pass(ms(300));
    pair.client.session().cancel_unsent();
    assert_eq!(pair.client.session().unsent(), 0);
    pair.until(ms(300), |p| p.client.delivered());
    let sent = pair.client.session().stats().data_sent;
    assert!(sent > 2_000_000 && sent < 3_000_000, "{sent}");
    pair.client.session().send(2, 0, 5_000);
    pair.client.events.clear();
    pair.until(ms(200), |p| p.client.delivered());
    assert!(pair.server.store.has(2, 5_000));
}

#[test]
fn any_pattern_of_loss_that_stops_lets_the_transfer_end() {
    assert_live(|_| ends(), seeds(40));
}

/// For half a second nothing passes, in the middle of a file. Lost units are sent again, and those
/// on their way around the gap, not all that were still to come.
#[test]
fn a_blackout_costs_what_it_swallows() {
    let mut pair = open();
    let (mut swallowed, mut until) = (0_u64, None);
    let lost = std::rc::Rc::new(Cell::new(0));
    let told = std::rc::Rc::clone(&lost);
    pair.set_script(move |d| {
        let data = d.bytes.len() > 1_000;
        let begin = *until.get_or_insert(d.at + ms(500));
        let dark = d.at >= begin && d.at < begin + ms(500);
        swallowed += u64::from(data && dark);
        told.set(swallowed);
        Fate::drop_if(data && dark)
    });
    pair.offer(Side::Client, 20_000_000);
    pair.until(Duration::from_secs(10), |p| p.client.delivered());
    assert!(pair.server.store.has(1, 20_000_000));
    let again = pair.client.session().stats().retransmits;
    assert!(lost.get() > 0 && again >= lost.get());
    assert!(
        again <= lost.get() * 3 / 2,
        "{again} again of {} lost",
        lost.get()
    );
}
