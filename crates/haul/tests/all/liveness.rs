//! Tests that a session notices what happens to its path and its peer.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use crate::pair::{address, config, ms, pair, with_mtu};
use farhaul_core::protocol::{CloseReason, Event};
use farhaul_haul::{CODE_STORE, HaulConfig};
use farhaul_testkit::{Fate, Pair, Side};

const LIMIT: Duration = Duration::from_mins(2);

#[test]
fn codes_and_texts_reach_the_peer_even_if_the_first_is_lost() {
    for losses in 0..3 {
        let mut pair = pair(config(1), config(2), ms(20));
        pair.open();
        pair.pass(ms(200));
        let now = pair.now;
        pair.client.session().close(now, 42, "enough");
        let mut left = losses;
        pair.set_script(move |d| {
            let lost = d.from == Side::Client && left > 0;
            left -= u32::from(lost);
            Fate::drop_if(lost)
        });
        pair.until(LIMIT, |p| p.server.closed().is_some() || losses == 2);
        pair.pass(Duration::from_secs(5));
        assert!(pair.client.session().is_closed());
        let said = |text: &str| (42, text.to_owned());
        let (code, text) = said("enough");
        let local = CloseReason::Local {
            code,
            text: text.clone(),
        };
        assert_eq!(pair.client.events.last(), Some(&Event::Closed(local)));
        assert_eq!(
            pair.server.closed(),
            Some(&CloseReason::Peer { code, text })
        );
        assert!(pair.server.session().is_closed());
    }
}

#[test]
fn a_ping_is_a_sample_of_the_round_trip_time_while_the_session_is_open() {
    let mut pair = pair(config(1), config(2), ms(20));
    assert!(!pair.client.session().ping(), "before the handshake");
    pair.open();
    pair.pass(Duration::from_secs(1));
    let stats = |p: &mut Pair| p.client.session().stats();
    let before = stats(&mut pair).rtt_samples;
    for n in 1..=5 {
        assert!(pair.client.session().ping());
        pair.until(LIMIT, |p| stats(p).rtt_samples == before + n);
        assert_eq!(stats(&mut pair).rtt_latest, Some(ms(40)));
        pair.pass(ms(200));
    }
    assert_eq!(stats(&mut pair).rtt_samples, before + 5, "one each");
    let now = pair.now;
    pair.client.session().close(now, 0, "done");
    assert!(!pair.client.session().ping(), "after the end");
}

#[test]
fn late_packets_are_answered_with_the_close() {
    let mut pair = pair(config(1), config(2), ms(20));
    pair.open();
    pair.server.session().send(1, 0, 50_000_000);
    pair.pass(ms(300));
    let now = pair.now;
    pair.client.session().close(now, 1, "stop");
    // The timed copies are lost; what the peer still sends is answered.
    let mut first = true;
    pair.set_script(move |d| {
        Fate::drop_if(d.from == Side::Client && std::mem::replace(&mut first, false))
    });
    pair.until(LIMIT, |p| p.server.closed().is_some());
    assert!(pair.now.since(now) < ms(60), "not by the timer");
}

#[test]
fn a_failing_store_ends_the_session_on_both_sides() {
    for reader in [true, false] {
        let mut pair = pair(config(1), config(2), ms(5));
        pair.open();
        pair.client.store.fails = reader;
        pair.server.store.fails = !reader;
        pair.client.session().send(1, 0, 1_000_000);
        pair.until(LIMIT, |p| {
            p.client.closed().is_some() && p.server.closed().is_some()
        });
        let text = if reader { "disk on fire" } else { "disk full" };
        let here = CloseReason::Store(text.into());
        let there = CloseReason::Peer {
            code: CODE_STORE,
            text: text.into(),
        };
        let expected = if reader {
            (&here, &there)
        } else {
            (&there, &here)
        };
        assert_eq!(
            (pair.client.closed().unwrap(), pair.server.closed().unwrap()),
            expected
        );
    }
}

#[test]
fn an_idle_session_is_kept_alive_and_a_dead_one_noticed() {
    let mut pair = pair(config(1), config(2), ms(20));
    pair.open();
    let before = pair.server.sent;
    pair.pass(Duration::from_mins(10));
    assert!(pair.client.closed().is_none() && pair.server.closed().is_none());
    let words = pair.server.sent - before;
    assert!(words < 400, "few words: {words}");
    let start = pair.now;
    pair.set_script(|_| Fate::Drop);
    pair.until(LIMIT, |p| {
        p.client.closed().is_some() && p.server.closed().is_some()
    });
    assert_eq!(pair.client.closed(), Some(&CloseReason::TimedOut));
    assert!(pair.now.since(start) <= Duration::from_secs(31));
    assert!(pair.client.session().is_closed());
}

#[test]
fn the_shorter_idle_timeout_holds() {
    let hasty = HaulConfig {
        idle: Duration::from_secs(6),
        ..config(2)
    };
    let mut pair = pair(config(1), hasty, ms(20));
    pair.open();
    pair.pass(Duration::from_secs(1));
    let start = pair.now;
    pair.set_script(|_| Fate::Drop);
    pair.until(LIMIT, |p| p.client.closed().is_some());
    assert!(pair.now.since(start) <= Duration::from_secs(6));
}

#[test]
fn a_client_that_moves_is_followed() {
    // Another port: a NAT forgot; another host: everything about the path is new.
    for new in ["192.0.2.1:6000", "198.51.100.1:5000"] {
        for plain in [false, true] {
            let with = |seed| HaulConfig {
                plain,
                ..config(seed)
            };
            let mut pair = pair(with(1), with(2), ms(20));
            pair.open();
            pair.server.session().send(1, 0, 8_000_000);
            pair.client.session().send(2, 0, 8_000_000);
            pair.pass(ms(200));
            pair.client.address = address(new);
            pair.until(LIMIT, |p| p.client.delivered() && p.server.delivered());
            assert_eq!(pair.client.store.prefix(1), 8_000_000);
            assert_eq!(pair.server.store.prefix(2), 8_000_000);
            let stats = pair.server.session().stats();
            assert_eq!(stats.rebinds, 1);
            assert_eq!(stats.datagram_size, 1_472);
        }
    }
}

#[test]
fn a_client_that_is_told_of_its_new_address_asks_at_once() {
    let mut pair = pair(config(1), config(2), ms(20));
    pair.open();
    pair.server.session().send(1, 0, 30_000_000);
    pair.pass(ms(200));
    pair.client.address = address("198.51.100.1:5000");
    // The kernel refuses what is sent from the old address, to which everything goes; then there is nothing to answer to.
    pair.set_script(|d| Fate::drop_if(d.from == Side::Client));
    pair.pass(Duration::from_secs(5));
    assert!(pair.client.store.prefix(1) < 30_000_000);
    pair.set_script(|_| Fate::Deliver);
    let now = pair.now;
    pair.client.session().path_changed(now);
    pair.settle(Side::Client);
    pair.until(Duration::from_secs(4), |p| p.server.delivered());
    assert_eq!(pair.client.store.prefix(1), 30_000_000);
    assert_eq!(pair.server.session().stats().rebinds, 1);
}

#[test]
fn a_forged_source_gets_little_and_changes_nothing() {
    let mut pair = pair(config(1), config(2), ms(20));
    pair.open();
    pair.pass(ms(200));
    pair.client.session().send(2, 0, 300_000);
    pair.server.session().send(1, 0, 300_000);
    // Somebody on the path relays the client's datagrams from elsewhere, faster.
    let forged = Rc::new(RefCell::new(Vec::new()));
    let relayed = Rc::clone(&forged);
    pair.set_script(move |d| {
        if d.from == Side::Client {
            relayed.borrow_mut().push(d.bytes.to_vec());
        }
        Fate::drop_if(d.from == Side::Client)
    });
    pair.pass(ms(10));
    let victim = address("203.0.113.5:53");
    let came: usize = forged.borrow().iter().map(Vec::len).sum();
    for bytes in forged.take() {
        pair.intrude(Side::Server, victim, bytes);
    }
    pair.server.session().send(3, 0, 3_000_000);
    let wire = Rc::new(Cell::new(0));
    let seen = Rc::clone(&wire);
    pair.set_script(move |d| {
        if d.from == Side::Server {
            seen.set(seen.get() + d.bytes.len());
        }
        Fate::Deliver
    });
    pair.pass(ms(2_000));
    assert!(came > 0 && wire.get() > 3_000_000);
    assert_eq!(pair.server.session().stats().rebinds, 0);
    assert!(pair.server.delivered() && pair.client.delivered());
    assert_eq!(pair.client.store.prefix(3), 3_000_000);
}

#[test]
fn the_datagram_grows_to_what_the_path_carries() {
    for (interface, carries, found) in [
        (1_500, 1_472, 1_472),
        (9_000, 8_972, 8_972),
        (9_000, 1_472, 1_472),
        (1_500, 1_392, 1_392),
        (1_500, 1_200, 1_200),
        (65_535, 70_000, 9_216),
    ] {
        let mut pair = with_mtu(config(1), config(2), ms(20), interface);
        pair.largest = carries;
        pair.open();
        let start = pair.now;
        pair.client.session().send(1, 0, 4_000_000);
        pair.until(LIMIT, |p| p.client.delivered());
        let stats = pair.client.session().stats();
        assert_eq!(stats.datagram_size, found, "{interface} {carries}");
        assert!(
            pair.now.since(start) < ms(500),
            "probing does not delay data"
        );
        assert_eq!(stats.packets_lost, 0, "probes are not repaired");
    }
}

#[test]
fn a_path_that_shrinks_is_survived() {
    let cubic = HaulConfig {
        law: "cubic".into(),
        ..config(1)
    };
    let mut pair = with_mtu(cubic, config(2), ms(20), 9_000);
    pair.open();
    pair.client.session().send(1, 0, 30_000_000);
    pair.pass(ms(300));
    assert_eq!(pair.client.session().stats().datagram_size, 8_972);
    pair.largest = 1_472;
    pair.until(LIMIT, |p| p.client.delivered());
    assert_eq!(pair.client.session().stats().datagram_size, 1_472);
    assert_eq!(pair.server.store.prefix(1), 30_000_000);
}
