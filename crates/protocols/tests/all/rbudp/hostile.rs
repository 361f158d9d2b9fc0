//! Tests against an other end that lies, or stops.

use farhaul_core::{
    layout::{Layout, Run},
    protocol::CloseReason,
    shell::frame::Frame,
};
use farhaul_protocols::rbudp::wire::Message;
use farhaul_testkit::{LaneEvent, Pair, Side};

use super::kit::{config, ms, open};
use crate::shared;

fn say(pair: &mut Pair, to: Side, message: &[u8]) {
    let mut bytes = Vec::new();
    Frame::Control(message).encode(&mut bytes);
    let now = pair.now;
    pair.inject_event(now, to, LaneEvent::Bytes(bytes));
}

fn message(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}

fn block(first: u32, len: u64) -> Vec<u8> {
    let mut layout = Layout::new(100);
    assert!(layout.push(Run {
        object: 1,
        offset: 0,
        len
    }));
    message(&Message::Block(first, layout))
}

#[test]
fn what_is_said_out_of_turn_ends_the_session_with_words() {
    let done = |first| {
        message(&Message::Done {
            first,
            round: 0,
            sent: 1,
        })
    };
    let mut report = message(&Message::Report(0));
    report.extend([1, 0xff]);
    for (said, words) in [
        (vec![9; 9], "malformed message"),
        (done(0), "question out of turn"),
        (report, "nobody asked for"),
        (
            message(&Message::Missing(0, vec![(0, 1)])),
            "nobody asked for",
        ),
        (
            [block(0, 500), block(3, 100)].concat(),
            "numbers of a block",
        ),
        (
            [block(0, 500), done(0), done(0)].concat(),
            "question out of turn",
        ),
        (
            (0..65).flat_map(|n| block(10 * n, 500)).collect(),
            "malformed block",
        ),
    ] {
        let mut pair = open(&config(), ms(10));
        // Between the first words and the next nothing is answered.
        say(&mut pair, Side::Server, &said);
        let reason = pair.end(Side::Server, ms(50));
        assert!(
            matches!(&reason, CloseReason::Protocol(text) if text.contains(words)),
            "{reason:?}"
        );
    }
}

#[test]
fn a_report_of_more_or_less_than_there_is_is_refused() {
    for ranges in [vec![(0, 101)], vec![(50, 1), (50, 1)], vec![(3, 0)]] {
        let mut pair = open(&config(), ms(10));
        pair.offer(Side::Client, 100_000);
        // The round has left, and its report has not come.
        pair.run(ms(20 + 12), |_| false);
        say(
            &mut pair,
            Side::Client,
            &message(&Message::Missing(0, ranges)),
        );
        let reason = pair.end(Side::Client, ms(5));
        assert!(
            matches!(&reason, CloseReason::Protocol(text) if text.contains("missing packets")),
            "{reason:?}"
        );
    }
}

#[test]
fn packets_of_no_block_are_counted_and_left() {
    shared::strays_are_counted(&mut open(&config(), ms(10)), u32::to_le_bytes);
}

#[test]
fn blocks_of_which_nothing_arrives_are_given_up() {
    shared::a_path_that_carries_nothing_is_given_up(&mut open(&config(), ms(10)));
}
