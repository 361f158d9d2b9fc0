//! Tests a lane that fails, and one over which comes what is not SABUL.

use std::time::Duration;

use farhaul_core::{
    control::Token,
    protocol::{Accepted, CloseReason, Protocol, Route},
    rng::Rng,
    shell::frame::Frame,
    time::Instant,
};
use farhaul_protocols::sabul::{
    Config, client, server,
    wire::{Message, put_losses},
};
use farhaul_testkit::{Fate, LaneEvent, Pair, Side};

use super::ends::{config, ms, open, pair};

fn opened() -> Pair {
    let mut pair = pair(&config("sabul"), ms(10));
    open(&mut pair);
    pair
}

fn frame(frame: Frame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    bytes
}

fn say(pair: &mut Pair, to: Side, bytes: Vec<u8>) {
    let now = pair.now;
    pair.inject_event(now, to, LaneEvent::Bytes(bytes));
}

#[test]
fn datagrams_that_never_arrive_are_named() {
    for (blocked, words) in [
        (Side::Client, "block UDP, or is it another protocol"),
        (Side::Server, "none comes back"),
    ] {
        let mut pair =
            pair(&config("sabul"), ms(10)).with_script(move |d| Fate::drop_if(d.from == blocked));
        pair.connect(Some(1_500));
        let reason = pair.end(Side::Client, Duration::from_secs(6));
        assert!(
            matches!(&reason, CloseReason::Lane(text) if text.contains(words)),
            "{reason:?}"
        );
        assert!(pair.run(Duration::from_secs(3), |p| {
            p.client.session().is_closed()
        }));
    }
}

#[test]
fn datagrams_that_stop_arriving_in_mid_transfer_are_named_at_both_ends() {
    let mut pair = opened();
    pair.offer(Side::Client, 1 << 30);
    pair.run(ms(500), |_| false);
    pair.set_script(|_| Fate::Drop);
    let reason = pair.end(Side::Client, Duration::from_secs(40));
    let words = "no datagram has reached the peer for 30 s";
    assert!(
        matches!(&reason, CloseReason::Lane(text) if text.contains(words)),
        "{reason:?}"
    );
    let reason = pair.end(Side::Server, Duration::from_secs(1));
    assert!(
        matches!(&reason, CloseReason::Peer { text, .. } if text.contains(words)),
        "{reason:?}"
    );
}

#[test]
fn a_control_lane_that_is_cut_in_mid_transfer_ends_the_session_there() {
    for side in [Side::Client, Side::Server] {
        let mut pair = opened();
        pair.offer(Side::Client, 1 << 30);
        pair.run(ms(300), |_| false);
        let now = pair.now;
        pair.inject_event(now, side, LaneEvent::Ended);
        let reason = pair.end(side, ms(50));
        assert!(
            matches!(&reason, CloseReason::Lane(text) if text.contains("closed")),
            "{reason:?}"
        );
        assert!(pair.node(side).session().is_closed());
    }
}

#[test]
fn what_cannot_be_on_the_control_lane_ends_the_session_with_words() {
    let message = |message: Message<'_>| {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        frame(Frame::Control(&bytes))
    };
    let mut never = Vec::new();
    put_losses(&mut never, [7_000_000].into_iter());
    for (bytes, words) in [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "length of a frame"),
        (vec![0; 64], "type of a frame"),
        (vec![0xff; 64], "length of a frame"),
        (
            frame(Frame::Control(&[0xff; 64])),
            "type of a control message",
        ),
        (message(Message::Ack(9_000_000)), "never sent"),
        (frame(Frame::Control(&never)), "never sent"),
        (frame(Frame::Ready), "out of turn"),
        (frame(Frame::Credit(12)), "more of the stream read"),
    ] {
        let mut pair = opened();
        pair.offer(Side::Client, 1 << 20);
        say(&mut pair, Side::Client, bytes);
        let reason = pair.end(Side::Client, ms(50));
        assert!(
            matches!(&reason, CloseReason::Protocol(text) if text.contains(words)),
            "{reason:?}"
        );
        let told = pair.end(Side::Server, ms(50));
        assert!(
            matches!(told, CloseReason::Peer { code: u32::MAX, .. }),
            "{told:?}"
        );
    }
}

/// An end that closes does not listen to a peer that goes on talking.
#[test]
fn what_comes_after_the_end_is_not_kept() {
    let mut pair = opened();
    say(&mut pair, Side::Client, vec![0; 4]);
    pair.end(Side::Client, ms(50));
    let before = pair.client.session().stats().wire_received;
    for _ in 0..64 {
        say(&mut pair, Side::Client, vec![7; 16 << 10]);
    }
    pair.run(ms(5), |_| false);
    assert_eq!(pair.client.session().stats().wire_received, before);
}

#[test]
fn options_that_nobody_has_and_talk_before_the_greeting_are_refused() {
    for greeting in [&[0; 40][..], &[0xff; 40], &[1; 39]] {
        let bytes = frame(Frame::Hello(1_472, greeting));
        let mut pair = pair(&config("sabul"), ms(10));
        pair.connect(Some(1_500));
        pair.run(ms(25), |_| false);
        say(&mut pair, Side::Client, bytes);
        let reason = pair.end(Side::Client, ms(50));
        assert!(matches!(reason, CloseReason::Protocol(_)), "{reason:?}");
    }
}

#[test]
fn a_stream_that_nobody_reads_is_bounded() {
    let mut pair = opened();
    let mut flood = Vec::new();
    for _ in 0..1_025 {
        Frame::Stream(&[7; 1_024]).encode(&mut flood);
    }
    pair.server.reads = false;
    say(&mut pair, Side::Server, flood);
    let reason = pair.end(Side::Server, ms(50));
    let words = "more of the stream than was asked for";
    assert!(
        matches!(&reason, CloseReason::Protocol(text) if text.contains(words)),
        "{reason:?}"
    );
}

#[test]
fn only_a_token_makes_a_session() {
    let mut sabul = server(&Config::default()).unwrap();
    let from = "192.0.2.1:9".parse().unwrap();
    let mut accept = |bytes: &[u8]| {
        let now = Instant::EPOCH;
        sabul.accept(now, &mut Rng::new(1), from, bytes, &mut Vec::new())
    };
    for stranger in [&[0; 1_472][..], &[0xff; 20], b"", &[7; 19]] {
        assert!(matches!(accept(stranger), Accepted::Drop));
    }
    let bytes = [&[0xff, 0xff, 0xff, 0xf0][..], &[5; 16]].concat();
    assert!(matches!(accept(&bytes), Accepted::Session(..)));
    let client = client(&Config::default()).unwrap();
    assert_eq!(client.route(&bytes), Route::Peer);
    assert_eq!(
        client.control_token(&bytes),
        Some(Token::from_bytes([5; 16]))
    );
    assert_eq!(client.control_token(b"GET / HTTP/1.1\r\n\r\n"), None);
}
