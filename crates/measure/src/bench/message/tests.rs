use std::time::Duration;

use proptest::{collection, option, prelude::*, sample::Index};

use super::*;
use crate::bench::{Lane, Report};

fn inbox(bytes: &[u8]) -> Inbox {
    Inbox {
        bytes: bytes.to_vec(),
        taken: 0,
    }
}

fn a_limit() -> impl Strategy<Value = Limit> {
    prop_oneof![
        any::<u64>().prop_map(Limit::Nanos),
        any::<u64>().prop_map(Limit::Bytes)
    ]
}

/// Text as a peer may have it: quotes and letters of every length.
fn a_text() -> impl Strategy<Value = String> {
    let letter = any::<char>().prop_filter("is refused", |c| !text::steers(*c));
    collection::vec(letter, 0..20).prop_map(String::from_iter)
}

#[test]
fn what_would_steer_a_terminal_is_refused() {
    let refused = |text: &str| {
        let side = Side {
            farhaul: text.into(),
            ..Side::default()
        };
        Message::Outcome(Box::new(side))
    };
    assert!(inbox(&framed(&refused("no"))).take().unwrap().is_some());
    for text in ["\u{1b}[2J", "a\rb", "\u{9b}31m"] {
        assert!(inbox(&framed(&refused(text))).take().is_err(), "{text:?}");
        let mut side = Side::default();
        side.held.insert(text.into(), 1.0);
        let outcome = Message::Outcome(Box::new(side));
        assert!(inbox(&framed(&outcome)).take().is_err(), "{text:?}");
    }
    let body = br#"{"type":"\u001b[2J"}"#;
    let len = u32::try_from(body.len()).unwrap().to_be_bytes();
    let error = inbox(&[&len[..], body].concat()).take().unwrap_err();
    assert!(!error.to_string().contains(text::steers), "{error}");
}

fn a_hello() -> impl Strategy<Value = Hello> {
    let numbers = any::<(u32, bool, u64, u64, u64, u32, u32, Option<u64>)>();
    (
        numbers,
        a_limit(),
        a_text(),
        a_text(),
        option::of(any::<u64>()),
    )
        .prop_map(|(n, limit, farhaul, policy, max_rate)| Hello {
            version: n.0,
            farhaul,
            reverse: n.1,
            limit,
            since_start: n.2,
            omit: n.3,
            interval: n.4,
            marks_at_end: n.1,
            lanes: n.5,
            lane: n.6,
            max_rate,
            policy,
            constant: n.7,
        })
}

/// Thousandths, which decimal text carries exactly.
fn a_figure() -> impl Strategy<Value = f64> {
    any::<u32>().prop_map(|n| f64::from(n) / 1e3)
}

fn datagrams_of([sent, received, reordered, duplicates, jitter_ns]: [u64; 5]) -> Datagrams {
    Datagrams {
        sent,
        received,
        reordered,
        duplicates,
        jitter_ns,
    }
}

fn a_side() -> impl Strategy<Value = Side> {
    let rtt = (
        option::of(a_figure()),
        option::of(a_figure()),
        option::of(a_figure()),
    )
        .prop_map(|(min, p50, p99)| RttMs { min, p50, p99 });
    let held = collection::btree_map(a_text(), a_figure(), 0..9);
    let counts = any::<([u64; 9], u32, [Option<u64>; 2], bool, Option<[u64; 5]>)>();
    (a_text(), a_figure(), rtt, held, counts).prop_map(
        |(
            farhaul,
            cpu_seconds,
            rtt,
            held,
            (n, datagram_size, [max_rss_bytes, first_blast], complete, datagrams),
        )| Side {
            farhaul,
            cpu_seconds,
            max_rss_bytes,
            wire_sent: n[0],
            repaired: n[1],
            packets_lost: n[2],
            packets_spurious: n[3],
            datagram_size,
            rtt,
            held,
            received: n[4],
            omitted: n[5],
            repeated: n[6],
            last_after_hello: n[7],
            packets_sent: n[8],
            complete,
            datagrams: datagrams.map(datagrams_of),
            first_blast,
        },
    )
}

fn a_message() -> impl Strategy<Value = Message> {
    prop_oneof![
        a_hello().prop_map(Message::Hello),
        any::<(u64, u64, Option<[u64; 5]>)>().prop_map(|(at, bytes, datagrams)| Message::Mark(
            Mark {
                at,
                bytes,
                datagrams: datagrams.map(datagrams_of)
            }
        )),
        any::<(u64, Option<u64>)>()
            .prop_map(|(bytes, datagrams)| Message::Done { bytes, datagrams }),
        Just(Message::Stop),
        Just(Message::Ready),
        a_side().prop_map(|side| Message::Outcome(Box::new(side))),
    ]
}

proptest! {
    #[test]
    fn messages_survive_being_cut_anywhere(
        messages in collection::vec(a_message(), 1..5),
        cut in 1_usize..300,
    ) {
        let stream: Vec<u8> = messages.iter().flat_map(framed).collect();
        let mut inbox = Inbox::default();
        let mut found = Vec::new();
        for piece in stream.chunks(cut) {
            inbox.bytes.extend_from_slice(piece);
            while let Some(message) = inbox.take().unwrap() {
                found.push(message);
            }
        }
        prop_assert_eq!(found, messages);
        prop_assert_eq!(inbox.taken, stream.len());
    }

    #[test]
    fn a_truncated_message_is_waited_for(message in a_message(), at in any::<Index>()) {
        let stream = framed(&message);
        let mut inbox = inbox(&stream[..at.index(stream.len())]);
        prop_assert_eq!(inbox.take(), Ok(None));
        prop_assert_eq!(inbox.taken, 0);
    }

    #[test]
    fn damaged_messages_never_panic(message in a_message(), at in any::<Index>(), bits in 1_u8..) {
        let mut stream = framed(&message);
        let at = at.index(stream.len());
        stream[at] ^= bits;
        fuzz_bench_messages(&stream);
    }

    #[test]
    fn reports_of_whatever_a_peer_says_never_panic(
        sides in collection::vec((a_side(), a_side()), 0..3),
        elapsed: u64,
        omit: u64,
        reverse: bool,
    ) {
        let elapsed = Duration::from_nanos(elapsed);
        let lanes: Vec<_> = sides
            .into_iter()
            .map(|(sender, receiver)| Lane { sender, receiver, elapsed })
            .collect();
        let report = Report::new("haul", "haul", reverse, Duration::from_nanos(omit), &lanes);
        prop_assert!(!report.limits().contains("NaN"));
        prop_assert!(report.goodput_bits_per_second.is_finite());
    }

    #[test]
    fn any_bytes_never_panic(
        whole: bool,
        bytes in collection::vec(prop_oneof![any::<u8>(), Just(b'"'), Just(b'{')], 0..200),
    ) {
        // Half of them behind a length that is right, so that they are read as a message.
        let len = u32::try_from(bytes.len()).unwrap().to_be_bytes();
        let head = if whole { &len[..] } else { &[] };
        fuzz_bench_messages(&[head, &bytes].concat());
    }
}

#[test]
fn a_length_is_not_trusted() {
    let huge = u32::MAX.to_be_bytes();
    assert_eq!(inbox(&huge).take(), Err(BadMessage::TooLong(u32::MAX)));
    assert!(matches!(
        inbox(&[0, 0, 0, 2, b'{', b'}']).take(),
        Err(BadMessage::Malformed(_))
    ));
    assert_eq!(inbox(&[0, 0, 0, 2, b'{']).take(), Ok(None));
}

#[test]
fn numbers_that_grow_when_they_are_written_again_are_no_fault() {
    let held: Vec<_> = (0..4_000).map(|i| format!("\"{i}\":1e9")).collect();
    let mut side = serde_json::to_string(&Message::Outcome(Box::default())).unwrap();
    side = side.replace("\"held\":{}", &format!("\"held\":{{{}}}", held.join(",")));
    let len = u32::try_from(side.len()).unwrap();
    let stream = [&len.to_be_bytes(), side.as_bytes()].concat();
    let message = inbox(&stream).take().unwrap().unwrap();
    assert!(stream.len() < MAX && framed(&message).len() > MAX);
    fuzz_bench_messages(&stream);
}
