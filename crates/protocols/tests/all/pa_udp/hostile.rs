//! Tests against an other end that lies, or stops.

use std::time::Duration;

use farhaul_core::{
    layout::{Layout, Run},
    protocol::CloseReason,
    pull::Offer,
    units::Rate,
};
use farhaul_protocols::pa_udp::wire::{Message, Signal};
use farhaul_testkit::{Fate, Side};

use super::kit::{ms, open, say};

const RATE: Rate = Rate::mbit(1);

fn offer(first: u64, len: u64) -> Message {
    let mut layout = Layout::new(1_000);
    assert!(layout.push(Run {
        object: 1,
        offset: 0,
        len
    }));
    Message::Offer(RATE, Offer { first, layout })
}

#[test]
fn what_is_said_out_of_turn_ends_the_session_with_words() {
    for (said, words) in [
        (
            vec![Message::Own(Signal::Start(0, RATE, 0))],
            "nobody asked for",
        ),
        (vec![Message::Own(Signal::Go(0, RATE))], "out of turn"),
        (vec![offer(0, 500), offer(1, 500)], "an offer out of turn"),
        (vec![offer(3, 500)], "an offer out of turn"),
        (
            vec![offer(0, 500), Message::Own(Signal::Go(1, RATE))],
            "out of turn",
        ),
        (
            vec![Message::Own(Signal::Missing(vec![0..1, 2..3]))],
            "no file",
        ),
        (vec![Message::Done(0)], "no file"),
        (vec![Message::Cut(0)], "no file"),
        (vec![offer(0, 500), Message::Cut(1)], "no file"),
    ] {
        let mut pair = open();
        for message in &said {
            say(&mut pair, Side::Server, message);
        }
        let reason = pair.end(Side::Server, ms(50));
        assert!(
            matches!(&reason, CloseReason::Protocol(text) if text.contains(words)),
            "{said:?}: {reason:?}"
        );
    }
}

#[test]
fn a_sender_believes_nothing_of_what_it_did_not_offer() {
    for (message, words) in [
        (Message::Own(Signal::Start(0, RATE, 0)), "nobody asked for"),
        (
            Message::Own(Signal::Missing(vec![0..1, 683..685])),
            "not in the file",
        ),
        (Message::Done(0), "not over"),
        (Message::Done(1), "not over"),
    ] {
        let mut pair = open();
        pair.offer(Side::Client, 1_000_000);
        pair.pass(ms(60));
        say(&mut pair, Side::Client, &message);
        let reason = pair.end(Side::Client, ms(50));
        assert!(
            matches!(&reason, CloseReason::Protocol(text) if text.contains(words)),
            "{message:?}: {reason:?}"
        );
    }
}

#[test]
fn units_of_no_file_are_counted_and_left() {
    let mut pair = open();
    for number in [0_u64, 7, u64::MAX] {
        let mut bytes = number.to_be_bytes().to_vec();
        bytes.extend([1; 1_000]);
        pair.inject(Side::Server, bytes);
    }
    pair.pass(ms(50));
    let stats = pair.server.session().stats();
    assert_eq!((stats.data_received, stats.dropped_malformed), (0, 3));
    assert!(pair.server.closed().is_none());
}

#[test]
fn who_never_answers_an_offer_or_never_sends_what_was_offered_is_left() {
    let mut pair = open();
    say(&mut pair, Side::Server, &offer(0, 500));
    say(&mut pair, Side::Server, &Message::Own(Signal::Go(0, RATE)));
    // The client hears an answer to what it did not offer.
    let reason = pair.end(Side::Client, Duration::from_secs(1));
    assert!(matches!(reason, CloseReason::Protocol(_)), "{reason:?}");
    let mut pair = open();
    pair.set_script(|_| Fate::Drop);
    pair.offer(Side::Client, 100_000);
    let reason = pair.end(Side::Server, Duration::from_secs(40));
    assert!(
        matches!(&reason, CloseReason::Lane(text) | CloseReason::Peer { text, .. } if text.contains("block UDP")),
        "{reason:?}"
    );
}

#[test]
fn an_offer_that_is_never_begun_is_left() {
    let mut pair = open();
    say(&mut pair, Side::Server, &offer(0, 500));
    let reason = pair.end(Side::Server, Duration::from_secs(40));
    assert!(
        matches!(&reason, CloseReason::Lane(text) if text.contains("what the peer offered"))
            || matches!(reason, CloseReason::Peer { .. }),
        "{reason:?}"
    );
}
