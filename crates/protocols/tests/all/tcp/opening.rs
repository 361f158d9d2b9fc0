//! Tests how a connection begins and ends.

use std::{cell::Cell, rc::Rc, time::Duration};

use farhaul_core::{
    codec::Writer,
    protocol::{Accepted, CloseReason, Event, Protocol, Route},
    rng::Rng,
    time::Instant,
};
use farhaul_protocols::tcp::{
    Tcp,
    wire::{Header, Hello, flag},
};
use farhaul_testkit::{Fate, Side};

use super::kit::{config, deliver, ms, offer, open, pair, stats};

#[test]
fn data_flows_one_round_trip_after_the_syn() {
    let mut pair = pair("", ms(50));
    open(&mut pair);
    offer(&mut pair, 1_000);
    deliver(&mut pair, Duration::from_secs(5));
    assert!(pair.server.store.has(1, 1_000));
    let elapsed = pair.now.since(Instant::EPOCH);
    assert!(elapsed <= ms(260), "{elapsed:?}");
    assert_eq!(stats(&mut pair, Side::Client).timeouts, 0);
}

#[test]
fn every_segment_of_the_handshake_can_be_lost() {
    for (side, index) in [
        (Side::Client, 0),
        (Side::Server, 0),
        (Side::Client, 1),
        (Side::Server, 1),
    ] {
        let mut pair = pair("", ms(10))
            .with_script(move |d| Fate::drop_if(d.from == side && d.index == index));
        open(&mut pair);
        offer(&mut pair, 100_000);
        deliver(&mut pair, Duration::from_secs(20));
        assert!(pair.server.store.has(1, 100_000), "{side:?} {index}");
    }
}

#[test]
fn a_close_is_told_with_its_code_and_words() {
    for side in [Side::Client, Side::Server] {
        let mut pair = pair("", ms(10));
        open(&mut pair);
        let now = pair.now;
        let session = pair.node(side).session();
        session.close(now, 42, "enough");
        pair.settle(side);
        pair.run(Duration::from_secs(5), |p| {
            p.client.is_closed() && p.server.is_closed()
        });
        let told = pair.node(side.other()).events.last().cloned();
        let expected = CloseReason::Peer {
            code: 42,
            text: "enough".into(),
        };
        assert_eq!(told, Some(Event::Closed(expected)));
        assert!(
            pair.now < Instant::from_nanos(1_000_000_000),
            "the answer ends it"
        );
    }
}

#[test]
fn a_missing_peer_is_detected() {
    let mut pair = pair("", ms(10)).with_script(|_| Fate::Drop);
    pair.connect(None);
    let ended = |p: &mut farhaul_testkit::Pair| !p.client.events.is_empty();
    assert!(pair.run(Duration::from_mins(1), ended));
    assert_eq!(pair.client.events, [Event::Closed(CloseReason::NoAnswer)]);
}

#[test]
fn a_peer_that_falls_silent_is_noticed_and_an_idle_one_is_not() {
    let mut pair = pair("", ms(10));
    open(&mut pair);
    pair.run(Duration::from_mins(10), |_| false);
    assert_eq!(pair.client.events.len(), 1, "{:?}", pair.client.events);
    pair.set_script(|_| Fate::Drop);
    pair.run(Duration::from_mins(2), |_| false);
    for events in [&pair.client.events, &pair.server.events] {
        assert_eq!(events.last(), Some(&Event::Closed(CloseReason::TimedOut)));
    }
}

#[test]
fn an_answer_with_an_mss_that_no_path_has_is_no_answer() {
    let mut pair = pair("", ms(10)).with_script(|d| {
        let (mut header, _) = Header::decode(d.bytes).expect("sessions send what they can read");
        let Some(hello) = header.hello.as_mut().filter(|_| d.from == Side::Server) else {
            return Fate::Deliver;
        };
        hello.mss = 40;
        let mut bytes = vec![0; header.encoded_len()];
        let written = header.encode(&mut Writer::new(&mut bytes));
        written.expect("it has the header's length");
        Fate::Change(bytes)
    });
    pair.connect(None);
    let ended = |p: &mut farhaul_testkit::Pair| !p.client.events.is_empty();
    assert!(pair.run(Duration::from_mins(1), ended));
    assert_eq!(pair.client.events, [Event::Closed(CloseReason::NoAnswer)]);
}

/// RFC 9293 §3.10.7.3: a sender that knows no number of the connection shows nothing by a SYN.
#[test]
fn forged_syns_do_not_keep_a_connection_whose_peer_is_gone() {
    let to = Rc::new(Cell::new(0));
    let seen = Rc::clone(&to);
    let mut pair = pair("", ms(10)).with_script(move |d| {
        let (header, _) = Header::decode(d.bytes).expect("sessions send what they can read");
        if d.from == Side::Server && header.to != 0 {
            seen.set(header.to);
        }
        Fate::Deliver
    });
    open(&mut pair);
    offer(&mut pair, 10_000);
    deliver(&mut pair, Duration::from_secs(5));
    pair.set_script(|_| Fate::Drop);
    let (mut header, _) = Header::decode(&syn(9)).expect("a SYN");
    header.to = to.get();
    let mut forged = vec![0; header.encoded_len()];
    let written = header.encode(&mut Writer::new(&mut forged));
    written.expect("it has the header's length");
    for _ in 0..6 {
        pair.pass(Duration::from_secs(20));
        if pair.client.session.is_some() {
            pair.inject(Side::Client, forged.clone());
        }
    }
    let last = pair.client.events.last();
    assert_eq!(last, Some(&Event::Closed(CloseReason::TimedOut)));
}

fn syn(from: u32) -> Vec<u8> {
    let header = Header {
        flags: flag::SYN,
        seq: 5,
        window: u16::MAX,
        hello: Some(Hello {
            from,
            mss: 1_472,
            shift: 14,
            sack: true,
        }),
        ..Header::default()
    };
    let mut bytes = vec![0; header.encoded_len()];
    header
        .encode(&mut Writer::new(&mut bytes))
        .expect("it has the header's length");
    bytes
}

/// Verdict of a listener on `bytes` from `port`, and its answer.
fn heard(tcp: &mut Tcp, port: u16, bytes: &[u8]) -> (Accepted, Vec<u8>) {
    let mut reply = Vec::new();
    let from = ([192, 0, 2, 1], port).into();
    let now = Instant::from_nanos(1 << 40);
    assert_eq!(tcp.route(bytes), Route::New);
    let accepted = tcp.accept(now, &mut Rng::new(3), from, bytes, &mut reply);
    (accepted, reply)
}

#[test]
fn only_who_can_hear_gets_a_session() {
    let mut tcp = Tcp::server(config("cubic", ""));
    let (accepted, reply) = heard(&mut tcp, 1_000, &syn(9));
    assert!(matches!(accepted, Accepted::Reply));
    assert!(reply.len() <= 3 * syn(9).len(), "no amplification");
    let (answer, _) = Header::decode(&reply).unwrap();
    assert_eq!((answer.to, answer.ack), (9, 6));
    let proof = Header {
        flags: flag::ACK,
        to: answer.hello.unwrap().from,
        seq: 6,
        ack: answer.seq.wrapping_add(1),
        open: answer.open,
        ..Header::default()
    };
    let bytes = |header: &Header| {
        let mut bytes = vec![0; header.encoded_len()];
        header
            .encode(&mut Writer::new(&mut bytes))
            .expect("it has the header's length");
        bytes
    };
    let mut forged = proof;
    forged.open.as_mut().unwrap().hello.mss = 9_000;
    for (port, header) in [
        (1_000, forged),
        (1_001, proof),
        (1_000, Header { to: 77, ..proof }),
        (1_000, Header { ack: 77, ..proof }),
        (
            1_000,
            Header {
                open: None,
                ..proof
            },
        ),
    ] {
        let (accepted, reply) = heard(&mut tcp, port, &bytes(&header));
        assert!(matches!(accepted, Accepted::Drop) && reply.is_empty());
    }
    let (accepted, _) = heard(&mut tcp, 1_000, &bytes(&proof));
    let Accepted::Session(id, _session) = accepted else {
        panic!("the proof is good");
    };
    assert_eq!(tcp.route(&bytes(&proof)), Route::Known(id));
}
