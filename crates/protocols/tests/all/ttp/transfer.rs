//! Tests that everything arrives.

use std::{cell::Cell, rc::Rc};

use farhaul_protocols::ttp::{Config, Loss, wire::Kind};
use farhaul_testkit::{Fate, Pair, Side, assert_live, seeds};

use super::ends::{BLOCK, Log, config, ends, losing, ms, opened, secs};

const SIDES: [Side; 2] = [Side::Client, Side::Server];

fn deliver_both(pair: &mut Pair, bytes: u64) {
    for side in SIDES {
        pair.node(side).session().write(b"words beside");
        pair.offer(side, bytes);
    }
    pair.until(secs(60), |p| p.client.delivered() && p.server.delivered());
    for side in SIDES {
        let node = pair.node(side);
        assert!(node.store.has(1, bytes) && node.stream == b"words beside");
        let stats = node.session().stats();
        assert_eq!((stats.data_sent, stats.data_acked), (bytes, bytes));
    }
}

#[test]
fn both_ends_send_at_once_and_what_arrives_is_what_was_sent() {
    let mut pair = opened(&config(100_000_000), ms(20));
    deliver_both(&mut pair, 5_000_003);
    for side in SIDES {
        let stats = pair.node(side).session().stats();
        assert_eq!((stats.packets_lost, stats.dropped_malformed), (0, 0));
    }
    pair.client.session().close(pair.now, 3, "enough");
    pair.settle(Side::Client);
    pair.end(Side::Server, ms(100));
}

#[test]
fn what_is_lost_late_and_repeated_arrives_all_the_same() {
    for share in [0.01, 0.1, 0.5] {
        let mut pair = opened(&config(50_000_000), ms(20));
        let (mut loses, mut turn) = (losing(share), 0_u64);
        pair.set_script(move |d| {
            turn += 1;
            match (turn % 11, loses(d)) {
                (_, Fate::Drop) => Fate::Drop,
                (3, _) => Fate::Late(ms(turn % 37)),
                (7, _) => Fate::Twice(ms(turn % 290)),
                _ => Fate::Deliver,
            }
        });
        deliver_both(&mut pair, 3_000_001);
        let stats = pair.client.session().stats();
        assert!(stats.retransmits > 0 && stats.packets_lost > 0);
    }
}

#[test]
fn runs_of_many_objects_are_one_file_and_the_last_block_is_of_full_length() {
    let mut pair = opened(&config(10_000_000), ms(5));
    let log = Log::default();
    let noted = log.clone();
    pair.set_script(move |d| {
        noted.note(Side::Client, d);
        Fate::Deliver
    });
    let objects: Vec<(u32, u64)> = (0..300).map(|i| (i, 1 + u64::from(i) * 37 % 400)).collect();
    for (object, len) in &objects {
        pair.client.session().send(*object, 0, *len);
    }
    pair.until(secs(20), |p| p.client.delivered());
    assert!(
        objects
            .iter()
            .all(|(o, len)| pair.server.store.has(*o, *len))
    );
    let left = log.take();
    let bytes: u64 = objects.iter().map(|(_, len)| len).sum();
    let blocks = u32::try_from(bytes.div_ceil(BLOCK)).unwrap();
    assert!(!bytes.is_multiple_of(BLOCK) && left.iter().all(|l| l.len == 1_472));
    assert!(
        left.iter()
            .all(|l| (l.kind == Kind::Last) == (l.block == blocks))
    );
}

#[test]
fn files_come_one_after_the_other_and_each_begins_slowly() {
    let mut pair = opened(&config(11_728_000), ms(5));
    let log = Log::default();
    let (noted, stale) = (log.clone(), Rc::new(Cell::new(0)));
    let repeats = Rc::clone(&stale);
    pair.set_script(move |d| match noted.note(Side::Client, d) {
        // Blocks of the first file come again when the second has begun.
        Some(left) if left.block <= 30 => {
            repeats.set(repeats.get() + 1);
            Fate::Twice(ms(400))
        }
        _ => Fate::Deliver,
    });
    pair.offer(Side::Client, 30 * BLOCK);
    pair.run(ms(30), |_| false);
    pair.client.session().send(2, 0, 300 * BLOCK);
    pair.until(secs(20), |p| p.client.delivered());
    assert!(pair.server.store.has(1, 30 * BLOCK) && pair.server.store.has(2, 300 * BLOCK));
    assert!(stale.get() >= 30);
    let left = log.take();
    for first in [1, 31] {
        let at = |block| left.iter().find(|l| l.block == block).expect("sent").at;
        assert_eq!(
            at(first + 1).since(at(first)),
            ms(3),
            "thrice the least gap"
        );
    }
}

#[test]
fn a_file_that_is_cut_short_ends_there() {
    let mut pair = opened(&config(100_000_000), ms(20));
    pair.set_script(losing(0.02));
    pair.offer(Side::Client, 1 << 30);
    pair.client.session().send(2, 0, 99);
    pair.run(secs(2), |_| false);
    let session = pair.client.session();
    let unsent = session.unsent();
    session.cancel_unsent();
    assert_eq!(session.unsent(), 0);
    let sent = (1 << 30) + 99 - unsent;
    pair.settle(Side::Client);
    pair.until(secs(5), |p| p.client.delivered());
    assert!(pair.server.store.has(1, sent) && sent > 1_000_000);
    assert_eq!(pair.server.store.received(1), sent);
    assert_eq!(pair.client.session().stats().data_acked, sent);
    // Before anything was sent one block is left of it.
    pair.client.events.clear();
    pair.client.session().send(3, 0, 10 * BLOCK);
    pair.settle(Side::Client);
    pair.client.session().cancel_unsent();
    pair.until(secs(5), |p| p.client.delivered());
    assert_eq!(pair.server.store.received(3), BLOCK);
    assert_eq!(pair.client.session().stats().data_acked, sent + BLOCK);
}

#[test]
fn a_receiver_that_bears_loss_does_without() {
    for (window, least, most) in [(ms(0), 0.965, 0.975), (ms(2_000), 0.99, 0.999)] {
        let loss = Loss::Borne(window);
        let lossy = Config {
            loss,
            ..config(100_000_000)
        };
        let mut pair = opened(&lossy, ms(20));
        pair.set_script(losing(0.03));
        let bytes = 20_000 * BLOCK;
        pair.offer(Side::Client, bytes);
        pair.until(secs(20), |p| p.client.delivered());
        let came = pair.server.store.received(1) as f64 / bytes as f64;
        assert!((least..=most).contains(&came), "{window:?}: {came}");
        let stats = pair.client.session().stats();
        assert_eq!(stats.data_acked, pair.server.store.received(1));
        assert_eq!(stats.packets_lost > 0, !window.is_zero());
    }
}

#[test]
fn any_pattern_of_loss_that_stops_lets_the_transfer_end() {
    assert_live(|_| ends(&config(650_000_000)), seeds(14));
    assert_live(|_| ends(&config(20_000_000)), seeds(8));
    let big = Config {
        mtu: 9_000,
        ..config(2_000_000_000)
    };
    assert_live(|_| ends(&big), seeds(8));
}
