//! Tests that everything arrives, how often a packet leaves, and what goes first.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc, time::Duration};

use farhaul_core::{rng::Rng, units::Rate};
use farhaul_protocols::fobs::{Config, wire::Header};
use farhaul_testkit::{Fate, Side, assert_live, seeds};

use super::kit::{ends, greedy, ms, open, segments};
use crate::shared;

#[test]
fn either_end_sends_and_a_stream_goes_beside() {
    for config in [segments(), greedy()] {
        let mut pair = open(&config, ms(2));
        shared::both_ends_send(&mut pair, 1_234_567, Duration::from_secs(5));
        let stats = pair.client.session().stats();
        assert_eq!((stats.data_sent, stats.data_acked), (1_234_567, 1_234_567));
        assert_eq!((stats.in_flight, stats.datagram_size), (0, 1_472));
    }
}

/// Reference §9: on the wire no packet is seen for the n-th time before every missing one has been
/// seen n - 1 times. Missing is one not known to have arrived; here: that never arrived.
#[test]
fn greedy_sends_nothing_again_before_all_that_is_missing() {
    let mut pair = open(&greedy(), ms(10));
    let (times, arrived) = (
        Rc::new(RefCell::new(BTreeMap::new())),
        RefCell::new(vec![false; 100]),
    );
    let (seen, mut rng) = (Rc::clone(&times), Rng::new(5));
    pair.set_script(move |d| {
        if d.bytes.len() != 1_472 {
            return Fate::Deliver;
        }
        let header = Header::decode(d.bytes).unwrap();
        let mut times = seen.borrow_mut();
        let this: u16 = *times.get(&header.number).unwrap_or(&0);
        assert_eq!(this, header.round);
        for number in 0..100_u32 {
            let there = arrived.borrow()[number as usize];
            assert!(
                there || this <= *times.get(&number).unwrap_or(&0),
                "{number}"
            );
        }
        times.insert(header.number, this + 1);
        let lost = rng.chance(0.3);
        if !lost {
            arrived.borrow_mut()[header.number as usize] = true;
        }
        Fate::drop_if(lost)
    });
    pair.offer(Side::Client, 146_600);
    pair.deliver(Side::Client, ms(500));
    assert!(pair.server.store.has(1, 146_600));
    assert!(times.borrow().values().any(|times| *times > 2));
}

/// A chunk's end: packets under way when the last one has left leave again until the receiver's
/// word comes. That is rate x rtt for each chunk, whatever its size.
#[test]
fn greedy_wastes_a_round_trip_of_packets_at_the_end_of_each_chunk() {
    for (chunk, chunks) in [(146_600, 8), (1_466_000, 3)] {
        let config = Config { chunk, ..greedy() };
        let mut pair = open(&config, ms(10));
        pair.offer(Side::Client, chunk * chunks);
        pair.deliver(Side::Client, Duration::from_secs(5));
        let stats = pair.client.session().stats();
        // 20 ms of a packet each 146.6 us.
        let each = stats.retransmits / chunks;
        assert!((130..=142).contains(&each), "{each}");
        assert_eq!(stats.data_sent, chunk * chunks);
    }
}

/// Segments go on while the first is reported, and its lost packets go first in the one that begins
/// after the report.
#[test]
fn what_a_segment_lost_goes_first_in_a_later_one() {
    let mut pair = open(&segments(), ms(4));
    let order = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&order);
    pair.set_script(move |d| {
        if d.bytes.len() != 1_472 {
            return Fate::Deliver;
        }
        let header = Header::decode(d.bytes).unwrap();
        seen.borrow_mut().push((header.round, header.number));
        Fate::drop_if(matches!(
            (header.round, header.number),
            (0, 3 | 7) | (1, 25)
        ))
    });
    pair.offer(Side::Client, 146_600);
    pair.deliver(Side::Client, ms(500));
    // A segment takes 2.9 ms, its report 8 ms: the first is known when the fourth is under way.
    let order = order.borrow();
    let first = |round| {
        order
            .iter()
            .filter(|(r, _)| *r == round)
            .map(|(_, n)| *n)
            .collect::<Vec<_>>()
    };
    assert_eq!(first(0), (0..20).collect::<Vec<_>>());
    assert_eq!(first(3), (60..80).collect::<Vec<_>>());
    let mut fifth = vec![3, 7];
    fifth.extend(80..98);
    assert_eq!(first(4), fifth);
    assert_eq!(first(5), [25, 98, 99]);
    assert_eq!(order.len(), 103);
    let stats = pair.client.session().stats();
    assert_eq!((stats.retransmits, stats.packets_lost), (3, 3));
}

/// The next chunk waits for the word that the one before is whole: a round trip each.
#[test]
fn a_chunk_waits_for_the_one_before() {
    let mut pair = open(&segments(), ms(20));
    let start = pair.now;
    pair.offer(Side::Client, 3 * 146_600);
    pair.deliver(Side::Client, Duration::from_secs(2));
    // The first is announced, and each leaves in 14.7 ms and is confirmed.
    let took = pair.now.since(start);
    assert!(
        took >= ms(40 + 3 * (14 + 40)) && took < ms(40 + 3 * (16 + 40)),
        "{took:?}"
    );
}

/// Chosen, reference §4.3: more than 1 % of loss slows down, persistent loss by much; none speeds up again.
#[test]
fn the_rate_follows_the_loss_of_segments() {
    let config = Config {
        chunk: 10_000_000,
        ..segments()
    };
    let mut pair = open(&config, ms(1));
    let mut rng = Rng::new(1);
    pair.set_script(move |d| Fate::drop_if(d.bytes.len() == 1_472 && rng.chance(0.2)));
    pair.offer(Side::Client, 100_000_000);
    pair.run(ms(300), |_| false);
    let rate = pair.client.session().stats().pacing_rate;
    assert!(rate < Rate::mbit(8), "{rate}");
    pair.set_script(|_| Fate::Deliver);
    pair.run(Duration::from_secs(2), |_| false);
    let rate = pair.client.session().stats().pacing_rate;
    assert_eq!(rate, Rate::mbit(80));
}

/// A packet of a chunk that is over comes again within the next.
#[test]
fn a_late_packet_of_another_chunk_changes_nothing() {
    let mut pair = open(&segments(), ms(20));
    pair.set_script(|d| match Header::decode(d.bytes) {
        Ok(header) if header.number == 7 => Fate::Twice(ms(70)),
        _ => Fate::Deliver,
    });
    pair.offer(Side::Client, 3 * 146_600);
    pair.deliver(Side::Client, Duration::from_secs(2));
    assert!(pair.server.store.has(1, 3 * 146_600));
    assert_eq!(pair.server.session().stats().dropped_duplicate, 1);
}

#[test]
fn small_pieces_of_many_objects_share_packets() {
    for config in [segments(), greedy()] {
        let mut pair = open(&config, ms(2));
        for object in 0..300 {
            let len = u64::from(object % 7) * 300 + 1;
            pair.client.session().send(object, 0, len);
        }
        pair.settle(Side::Client);
        pair.deliver(Side::Client, Duration::from_secs(2));
        for object in 0..300 {
            let len = u64::from(object % 7) * 300 + 1;
            assert!(pair.server.store.has(object, len), "{object}");
        }
    }
}

#[test]
fn what_is_cancelled_ends_early_and_the_next_begins() {
    for config in [segments(), greedy()] {
        let mut pair = open(&config, ms(20));
        pair.offer(Side::Client, 146_600);
        pair.run(ms(45), |_| false);
        pair.client.session().cancel_unsent();
        pair.settle(Side::Client);
        assert_eq!(pair.client.session().unsent(), 0);
        pair.deliver(Side::Client, ms(100));
        let sent = pair.client.session().stats().data_sent;
        assert!(sent > 10_000 && sent < 140_000, "{sent}");
        pair.client.session().send(2, 0, 5_000);
        pair.client.events.clear();
        pair.settle(Side::Client);
        pair.deliver(Side::Client, ms(200));
        assert!(pair.server.store.has(2, 5_000));
    }
}

/// 40 s for a chunk are no silence.
#[test]
fn a_chunk_may_take_longer_than_anybody_is_silent() {
    for config in [segments(), greedy()] {
        let config = Config {
            rate: Rate::from_bps(40_000),
            chunk: 200_000,
            ..config
        };
        let mut pair = open(&config, ms(20));
        pair.offer(Side::Client, 200_000);
        pair.deliver(Side::Client, Duration::from_secs(50));
        assert!(pair.server.store.has(1, 200_000));
    }
}

#[test]
fn any_pattern_of_loss_that_stops_lets_the_transfer_end() {
    for config in [
        segments(),
        greedy(),
        Config {
            rate: Rate::mbit(10),
            ..segments()
        },
    ] {
        assert_live(|_| ends(&config), seeds(20));
    }
}
