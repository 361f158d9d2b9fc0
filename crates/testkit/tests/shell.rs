//! Tests a session of the shell without a control lane against all that anybody may send to it.

use std::{net::SocketAddr, time::Duration};

use farhaul_congestion::lookup;
use farhaul_core::{
    datagram::TxBuf,
    protocol::{CloseReason, Event},
    rng::Rng,
    store::Hollow,
    time::Instant,
    units::Rate,
};
use farhaul_testkit::{Admitted, Driver, Pair, Steady, bare};
use proptest::prelude::*;

const ID: [u8; 4] = [1, 2, 3, 4];

fn client() -> SocketAddr {
    ([192, 0, 2, 1], 1).into()
}

fn start() -> Instant {
    Instant::from_nanos(1 << 40)
}

fn datagram(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind][..], &ID, body].concat()
}

fn feed(end: &mut Driver<Hollow>, now: Instant, mut datagram: Vec<u8>) {
    end.feed(now, client(), &mut datagram);
    end.listen(now);
}

fn said(end: &mut Driver<Hollow>, now: Instant) -> Vec<Vec<u8>> {
    let sent = end.drain(now, &mut TxBuf::default());
    sent.into_iter().map(|sent| sent.bytes).collect()
}

/// A listener that was greeted, and the nonce that it answered with.
fn greeted() -> (Driver<Hollow>, Vec<u8>) {
    let law = lookup("reno").expect("a known law");
    let protocol = Box::new(bare(move || law.make(), 1_500));
    let mut end = Driver::new(protocol, ([192, 0, 2, 2], 2).into(), Hollow, Rng::new(1));
    let hello = datagram(0x40, &1_472_u16.to_be_bytes());
    assert_eq!(end.admit(start(), client(), &hello), Admitted::Session);
    end.feed(start(), client(), &mut hello.clone());
    let said = said(&mut end, start());
    assert_eq!((said.len(), said[0][0]), (1, 0x41), "a welcome and no more");
    assert!(said[0].len() <= 3 * hello.len());
    (end, said[0][5..13].to_vec())
}

fn opened() -> Driver<Hollow> {
    let (mut end, nonce) = greeted();
    feed(&mut end, start(), datagram(0x42, &nonce));
    assert_eq!(end.events, [Event::Connected { peer_key: None }]);
    end
}

#[test]
fn who_does_not_hear_the_listener_opens_nothing_and_is_sent_nothing() {
    let (mut end, nonce) = greeted();
    end.session().send(1, 0, 1 << 20);
    for body in [&[0; 8][..], &nonce[..7], &[&nonce[..], &[0]].concat()] {
        feed(&mut end, start(), datagram(0x42, body));
    }
    let channel = [&[0; 16][..], b"\x04\0\0\x05words"].concat();
    feed(&mut end, start(), datagram(0x43, &channel));
    let elsewhere = ([192, 0, 2, 7], 1).into();
    end.feed(start(), elsewhere, &mut datagram(0x42, &nonce));
    assert!(end.events.is_empty());
    assert_eq!(said(&mut end, start()), Vec::<Vec<u8>>::new());
    let late = start() + Duration::from_secs(6);
    end.expire(late);
    end.listen(late);
    assert_eq!(end.events, [Event::Closed(CloseReason::Unfinished)]);
    let after = said(&mut end, late);
    assert_eq!(after, Vec::<Vec<u8>>::new(), "nobody is told");
}

#[test]
fn an_answer_is_bounded_by_the_shortest_that_asks() {
    let law = lookup("reno").expect("a known law");
    let protocol = Box::new(bare(move || law.make(), 1_500));
    let mut end = Driver::new(protocol, ([192, 0, 2, 2], 2).into(), Hollow, Rng::new(1));
    let hello = datagram(0x40, &1_472_u16.to_be_bytes());
    end.admit(start(), client(), &hello);
    feed(&mut end, start(), hello.clone());
    feed(&mut end, start(), datagram(0x40, &[]));
    let asked = hello.len() + 5;
    let answered: usize = said(&mut end, start()).iter().map(Vec::len).sum();
    assert!(answered <= 3 * asked, "{answered} for {asked}");
}

#[test]
fn frames_that_cannot_be_end_the_session_with_words() {
    for (frame, words) in [
        (&b"\x09\0\0\0"[..], "type of a frame"),
        (b"\x03\xff\0\0", "length of a frame"),
        (b"\x01\0\0\x02\x05\xc0", "out of turn"),
        (b"\x02\0\0\0", "out of turn"),
        (b"\x03\0\0\x01x", "control message"),
        (b"\x05\0\0\x04\0\0\0\x01", "more of the stream read"),
    ] {
        let mut end = opened();
        let body = [&[0; 16][..], frame].concat();
        feed(&mut end, start(), datagram(0x43, &body));
        let closed = end.events.iter().find_map(|event| match event {
            Event::Closed(CloseReason::Protocol(text)) => Some(text.clone()),
            _ => None,
        });
        assert!(
            closed.as_ref().is_some_and(|t| t.contains(words)),
            "{closed:?}"
        );
        let last = said(&mut end, start()).pop().expect("the peer is told");
        assert_eq!(last[..9], datagram(0x4f, &[0xff; 4])[..]);
    }
}

#[test]
fn a_stream_that_nobody_reads_is_bounded() {
    let mut end = opened();
    end.reads = false;
    let piece = [&[4, 0, 4, 0][..], &[7; 1_024]].concat();
    let mut offset = 0_u64;
    while end.events.len() == 1 || !matches!(end.events.last(), Some(Event::Closed(_))) {
        let body = [&[0; 8][..], &offset.to_be_bytes(), &piece].concat();
        feed(&mut end, start(), datagram(0x43, &body));
        offset += piece.len() as u64;
        assert!(offset < 2 << 20, "more than a window was taken");
    }
}

proptest! {
    #[test]
    fn anything_may_arrive(
        pieces in proptest::collection::vec(
            (0x40_u8..0x50, proptest::collection::vec(any::<u8>(), 0..80)), 1..60,
        ),
    ) {
        let mut end = opened();
        end.session().send(1, 0, 100_000);
        end.session().write(b"some words");
        let mut now = start();
        for (kind, body) in pieces {
            now += Duration::from_millis(7);
            feed(&mut end, now, datagram(kind, &body));
            end.expire(now);
            let bytes: usize = said(&mut end, now).iter().map(Vec::len).sum();
            prop_assert!(bytes < 1 << 20, "at rest");
        }
    }
}

/// A full store costs datagrams and not the session.
#[test]
fn what_the_store_has_no_room_for_is_dropped_as_if_it_had_not_come() {
    let steady = Steady::new(Rate::mbit(80), 1_500);
    let ends = || Box::new(steady.endpoint());
    let mut pair = Pair::new(ends(), ends(), Duration::from_millis(5), 1);
    pair.connect(None);
    pair.open();
    pair.server.store.room = Some(100_000);
    pair.client.session().send(1, 0, 1_000_000);
    pair.pass(Duration::from_secs(1));
    let stats = pair.server.session().stats();
    assert!(stats.dropped_full > 100, "{}", stats.dropped_full);
    assert!(stats.data_received <= 100_000, "{}", stats.data_received);
    assert!(pair.server.closed().is_none());
    pair.server.store.room = None;
    pair.until(Duration::from_secs(5), |p| p.client.delivered());
    assert!(pair.server.store.has(1, 1_000_000));
}
