//! Tests against an other end that lies, or stops.

use farhaul_core::{
    layout::{Layout, Run},
    loss::Bitmap,
    protocol::CloseReason,
    shell::frame::Frame,
};
use farhaul_protocols::fobs::wire::Message;
use farhaul_testkit::{LaneEvent, Pair, Side};

use super::kit::{greedy, ms, open, segments};
use crate::shared;

fn say(pair: &mut Pair, to: Side, messages: &[Message]) {
    let mut said = Vec::new();
    for message in messages {
        message.encode(&mut said);
    }
    let mut bytes = Vec::new();
    Frame::Control(&said).encode(&mut bytes);
    let now = pair.now;
    pair.inject_event(now, to, LaneEvent::Bytes(bytes));
}

fn chunk(first: u32, len: u64) -> Message {
    let mut layout = Layout::new(100);
    assert!(layout.push(Run {
        object: 1,
        offset: 0,
        len
    }));
    Message::Chunk(first, None, layout)
}

const fn end_of(first: u32, segment: u32) -> Message {
    Message::EndOfSegment {
        first,
        segment,
        sent: 1,
    }
}

fn refused(pair: &mut Pair, side: Side, words: &str) {
    let reason = pair.end(side, ms(50));
    assert!(
        matches!(&reason, CloseReason::Protocol(text) if text.contains(words)),
        "{reason:?}"
    );
}

#[test]
fn what_is_said_out_of_turn_ends_the_session_with_words() {
    for (said, words) in [
        (
            vec![chunk(0, 500), end_of(0, 3), end_of(0, 2)],
            "question out of turn",
        ),
        (vec![chunk(0, 500), chunk(3, 100)], "numbers of a block"),
        (
            (0..65).map(|n| chunk(10 * n, 500)).collect(),
            "malformed block",
        ),
    ] {
        let mut pair = open(&segments(), ms(10));
        say(&mut pair, Side::Server, &said);
        refused(&mut pair, Side::Server, words);
    }
}

#[test]
fn what_never_left_cannot_have_arrived() {
    let mut have = Bitmap::default();
    have.insert(99);
    for (said, words) in [
        (Message::Completed(0), "never sent"),
        (Message::Ack(0, have.clone()), "never sent"),
        (Message::Feedback(0, 0, have), "nobody asked for"),
    ] {
        for config in [segments(), greedy()] {
            let mut pair = open(&config, ms(10));
            pair.offer(Side::Client, 146_600);
            // The chunk was announced, and the first packets have left.
            pair.run(ms(20 + 2), |_| false);
            say(&mut pair, Side::Client, std::slice::from_ref(&said));
            refused(&mut pair, Side::Client, words);
        }
    }
}

/// Words about chunks that are over, which may have been under way, change nothing.
#[test]
fn words_about_what_is_over_are_left() {
    let mut pair = open(&segments(), ms(10));
    let said = [
        end_of(7, 3),
        Message::Completed(7),
        Message::Ack(7, Bitmap::default()),
        Message::Feedback(7, 0, Bitmap::default()),
        Message::Cut(7),
        Message::Ready(7),
    ];
    say(&mut pair, Side::Server, &said);
    pair.run(ms(100), |_| false);
    assert!(pair.server.closed().is_none());
}

#[test]
fn packets_of_no_chunk_are_counted_and_left() {
    shared::strays_are_counted(&mut open(&segments(), ms(10)), u32::to_be_bytes);
}

#[test]
fn chunks_of_which_nothing_arrives_are_given_up() {
    for config in [segments(), greedy()] {
        shared::a_path_that_carries_nothing_is_given_up(&mut open(&config, ms(10)));
    }
}
