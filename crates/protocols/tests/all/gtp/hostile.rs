//! Tests against an other end that lies, or stops: two honest sessions, and a stranger that puts
//! datagrams in their place.

use std::time::Duration;

use farhaul_core::{
    codec::Writer,
    layout::{Layout, Run},
    protocol::CloseReason,
    pull::Offer,
    shell::frame::Frame,
    units::Rate,
};
use farhaul_protocols::gtp::wire::{COMMAND, Command, Message, Request};
use farhaul_testkit::{Fate, Pair, Side};

use super::kit::{ms, open};

/// The session's type and id before a datagram of `kind`.
fn datagram(pair: &mut Pair, kind: u8, body: &[u8]) -> Vec<u8> {
    let seen = std::rc::Rc::new(std::cell::Cell::new([0; 4]));
    let noted = std::rc::Rc::clone(&seen);
    pair.set_script(move |d| {
        noted.set(*d.bytes[1..].first_chunk().expect("a head"));
        Fate::Deliver
    });
    pair.client.session().write(b"so that something is said");
    pair.pass(ms(50));
    [&[kind][..], &seen.get(), body].concat()
}

/// The first bytes of the channel to the server say `message`, before the client's own.
fn said(message: &Message) -> CloseReason {
    let mut pair = open();
    let (mut words, mut frame) = (Vec::new(), Vec::new());
    message.encode(&mut words);
    Frame::Control(&words).encode(&mut frame);
    // What the client says on the channel is put in the place of its own.
    let body = [&[0; 16][..], &frame].concat();
    pair.set_script(move |d| {
        let channel = d.bytes[0] == 0x43 && d.bytes.len() > 21;
        if channel {
            Fate::Change([&d.bytes[..5], &body].concat())
        } else {
            Fate::Deliver
        }
    });
    pair.client.session().write(b"words");
    pair.settle(Side::Client);
    pair.until(ms(100), |p| p.server.closed().is_some());
    pair.server.closed().expect("just seen").clone()
}

#[test]
fn what_is_said_out_of_turn_ends_the_session_with_words() {
    let mut layout = Layout::new(100);
    assert!(layout.push(Run {
        object: 1,
        offset: 0,
        len: 5
    }));
    let command = Command {
        number: 1,
        rate: Rate::mbit(1),
    };
    let request = Request {
        command,
        ranges: vec![0..1, 2..3],
    };
    for (message, words) in [
        (
            Message::Offer(Rate::UNLIMITED, Offer { first: 1, layout }),
            "an offer out of turn",
        ),
        (Message::Own(request), "no file"),
        (Message::Done(0), "no file"),
        (Message::Cut(0), "no file"),
    ] {
        let reason = said(&message);
        assert!(
            matches!(&reason, CloseReason::Protocol(text) if text.contains(words)),
            "{message:?}: {reason:?}"
        );
    }
}

#[test]
fn an_old_rate_and_one_that_is_none_change_nothing() {
    let mut pair = open();
    pair.offer(Side::Client, 100_000_000);
    let command = |number, bps| {
        let mut body = [0; 16];
        let rate = Rate::from_bps(bps);
        Command { number, rate }
            .put(&mut Writer::new(&mut body))
            .expect("it fits");
        body
    };
    let old = datagram(&mut pair, COMMAND, &command(1, 1_000_000));
    let none = datagram(&mut pair, COMMAND, &command(u64::MAX, 0));
    pair.pass(ms(200));
    let before = pair.client.session().stats();
    assert_eq!(before.pacing_rate, Rate::mbit(80));
    for bytes in [old.clone(), none, old[..9].to_vec()] {
        pair.inject(Side::Client, bytes);
    }
    pair.pass(ms(15));
    let after = pair.client.session().stats();
    assert_eq!(after.pacing_rate, Rate::mbit(80));
    assert_eq!(after.dropped_malformed - before.dropped_malformed, 2);
    assert!(pair.client.closed().is_none());
}

#[test]
fn who_offers_and_sends_nothing_is_left() {
    let mut pair = open();
    pair.set_script(|d| Fate::drop_if(d.bytes.len() > 1_000));
    pair.offer(Side::Client, 100_000);
    pair.until(Duration::from_secs(40), |p| p.server.closed().is_some());
    let reason = pair.server.closed().expect("just seen");
    assert!(
        matches!(reason, CloseReason::Lane(text) if text.contains("nothing has come")),
        "{reason:?}"
    );
}
