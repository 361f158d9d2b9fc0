//! Tests that a sender keeps to the room that there is, and that a full store holds up nothing
//! else.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use crate::pair::{config, ms, pair};
use farhaul_core::protocol::CloseReason;
use farhaul_testkit::{Fate, Pair, Side};

const MINUTE: Duration = Duration::from_mins(1);
/// Room of the receiver's store, bytes.
const ROOM: u64 = 1_000_000;
const LEN: u64 = 8_000_000;

/// Open, with more to send than there is room for.
fn full() -> Pair {
    let mut pair = pair(config(1), config(2), ms(20));
    pair.server.store.room = Some(ROOM);
    pair.open();
    pair.client.session().send(3, 0, LEN);
    pair.pass(Duration::from_secs(2));
    pair
}

/// Drains `bytes` from the store, and serves its app.
fn drain(pair: &mut Pair, bytes: u64) {
    let room = pair.server.store.room.unwrap_or(0) + bytes;
    pair.server.store.room = Some(room.min(ROOM));
    pair.settle(Side::Server);
}

fn refused(pair: &mut Pair) -> u64 {
    pair.server.session().stats().dropped_full
}

#[test]
fn nothing_is_sent_to_a_full_store_and_everything_once_it_drains() {
    let mut pair = full();
    let had = pair.server.store.received(3);
    assert!((ROOM / 2..=ROOM).contains(&had), "{had}");
    let before = pair.client.session().stats();
    assert!(before.repaired < 500_000, "{}", before.repaired);
    pair.pass(MINUTE);
    let after = pair.client.session().stats();
    let vain = after.wire_sent - before.wire_sent;
    assert!(vain < 100_000, "{vain} bytes in a minute");
    assert_eq!(after.timeouts, before.timeouts, "the path is as it was");
    assert_eq!(after.datagram_size, 1_472);
    // 2 of the 12.5 MB/s that the law sends.
    let (since, refused_before) = (pair.now, refused(&mut pair));
    while !pair.client.delivered() {
        assert!(pair.now.since(since) < MINUTE, "{pair:#?}");
        drain(&mut pair, 20_000);
        pair.pass(ms(10));
    }
    assert_eq!(pair.server.store.prefix(3), LEN);
    let took = pair.now.since(since);
    let least = Duration::from_millis((LEN - had - ROOM) / 2_000);
    assert!(
        took <= least + Duration::from_secs(1),
        "{took:?}, {least:?}"
    );
    let refused = refused(&mut pair) - refused_before;
    assert!(refused < 20, "{refused} datagrams sent in vain");
    assert!(pair.client.session().stats().peer_window.is_some());
}

#[test]
fn a_full_store_holds_up_neither_the_stream_nor_the_other_way() {
    let mut pair = full();
    pair.client.session().write(&vec![7; 100_000]);
    pair.server.session().send(4, 0, 500_000);
    pair.until(MINUTE, |p| {
        p.server.stream.len() == 100_000 && p.client.store.has(4, 500_000)
    });
}

#[test]
fn room_that_was_reported_in_vain_is_requested() {
    let mut pair = full();
    let dark = Rc::new(Cell::new(true));
    let hides = Rc::clone(&dark);
    pair.set_script(move |d| Fate::drop_if(d.from == Side::Server && hides.get()));
    drain(&mut pair, ROOM);
    pair.pass(Duration::from_secs(5));
    dark.set(false);
    let had = pair.server.store.received(3);
    pair.pass(Duration::from_secs(5));
    let more = pair.server.store.received(3) - had;
    assert!(more >= ROOM / 4, "{more}");
}

#[test]
fn a_store_that_never_has_room_again_ends_the_session_with_its_reason() {
    let mut pair = full();
    pair.pass(Duration::from_mins(4));
    assert_eq!(pair.client.closed(), None);
    pair.until(Duration::from_mins(2), |p| {
        p.client.closed().is_some() && p.server.closed().is_some()
    });
    let reason = pair.client.closed();
    let text = "the receiver has had no free space for 300 s";
    assert_eq!(reason, Some(&CloseReason::Starved(text.into())));
}

#[test]
fn room_that_takes_nothing_does_not_keep_a_sender_waiting() {
    let mut pair = full();
    let hides = Rc::new(Cell::new(false));
    let hidden = Rc::clone(&hides);
    pair.set_script(move |d| {
        Fate::drop_if(d.from == Side::Client && d.bytes.len() > 80 && hidden.get())
    });
    let since = pair.now;
    while pair.client.closed().is_none() {
        assert!(pair.now.since(since) < 15 * MINUTE, "{pair:#?}");
        pair.pass(Duration::from_mins(4));
        // Room is reported, and taken back before anything arrives.
        hides.set(true);
        drain(&mut pair, ROOM);
        pair.pass(Duration::from_secs(2));
        pair.server.store.room = Some(0);
        hides.set(false);
    }
    let reason = pair.client.closed();
    assert!(
        matches!(reason, Some(CloseReason::Starved(_))),
        "{reason:?}"
    );
}

#[test]
fn a_store_that_takes_a_little_now_and_then_is_waited_for() {
    let mut pair = full();
    for _ in 0..5 {
        pair.pass(Duration::from_mins(4));
        drain(&mut pair, ROOM / 2);
    }
    assert_eq!(pair.client.closed(), None);
}

#[test]
fn what_was_sent_before_keeps_no_dead_peer_alive() {
    let mut pair = pair(config(1), config(2), ms(20));
    pair.server.store.room = Some(ROOM);
    pair.open();
    let sent: Rc<RefCell<Vec<Vec<u8>>>> = Rc::default();
    let copies = Rc::clone(&sent);
    pair.set_script(move |d| {
        if d.from == Side::Client && d.bytes.len() > 1_000 {
            copies.borrow_mut().push(d.bytes.to_vec());
        }
        Fate::Deliver
    });
    pair.client.session().send(3, 0, LEN);
    pair.pass(Duration::from_secs(2));
    assert!(refused(&mut pair) > 0, "some had no room");
    pair.set_script(|d| Fate::drop_if(d.from == Side::Client));
    let (dead_since, wire) = (pair.now, pair.server.session().stats().wire_sent);
    while pair.server.closed().is_none() {
        assert!(pair.now.since(dead_since) < MINUTE, "it lives on copies");
        for copy in sent.borrow().iter() {
            pair.inject(Side::Server, copy.clone());
        }
        pair.pass(Duration::from_secs(5));
    }
    assert_eq!(pair.server.closed(), Some(&CloseReason::TimedOut));
    let said = pair.server.session().stats().wire_sent - wire;
    assert!(said < 20_000, "{said} bytes said to nobody");
}

#[test]
fn a_store_without_any_room_from_the_start_is_no_trouble() {
    let mut pair = pair(config(1), config(2), ms(20));
    pair.server.store.room = Some(0);
    pair.open();
    pair.client.session().send(3, 0, LEN);
    pair.pass(MINUTE);
    let sent = pair.client.session().stats().wire_sent;
    assert!(sent < 2_500_000, "{sent}");
    pair.server.store.room = None;
    pair.settle(Side::Server);
    pair.until(MINUTE, |p| p.client.delivered());
}
