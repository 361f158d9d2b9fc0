//! Tests against a peer that lies, or falls silent.

use farhaul_core::{
    protocol::CloseReason,
    shell::frame::{Frame, MAX_FRAME},
    units::Rate,
};
use farhaul_protocols::ttp::{
    Config, server,
    wire::{BlockHeader, Feedback, FeedbackKind, FileInfo, Kind, Parameters, REVISION},
};
use farhaul_testkit::{Fate, LaneEvent, Pair, Side};

use super::ends::{BLOCK, config, ms, opened, pair, secs};

/// `bytes` of object 1 on the way from a client whose blocks all vanish, so that nobody else gives feedback.
pub(crate) fn let_come(config: &Config, bytes: u64) -> Pair {
    let mut pair = opened(config, ms(0)).with_script(|_| Fate::Drop);
    pair.offer(Side::Client, bytes);
    pair.until(secs(1), |p| p.client.session().stats().data_sent > 0);
    pair
}

/// The client hears `bytes` of control.
fn control(pair: &mut Pair, bytes: &[u8]) {
    let mut framed = Vec::new();
    for part in bytes.chunks(MAX_FRAME) {
        Frame::Control(part).encode(&mut framed);
    }
    let now = pair.now;
    pair.inject_event(now, Side::Client, LaneEvent::Bytes(framed));
}

/// The client gets feedback.
pub(crate) fn feedback(pair: &mut Pair, kind: FeedbackKind, block: u32, error_rate: u32) {
    let mut bytes = vec![3];
    let feedback = Feedback {
        kind,
        block,
        error_rate,
    };
    feedback.encode(&mut bytes);
    control(pair, &bytes);
}

/// An announcement of `runs`.
fn file(block_size: u32, blocks: u32, size: u64, runs: &[(u32, u64, u64)]) -> Vec<u8> {
    let mut bytes = vec![1];
    let info = FileInfo {
        size,
        block_size,
        blocks,
        epoch: 0,
    };
    info.encode(&mut bytes);
    bytes.extend(u32::try_from(runs.len()).expect("a few").to_be_bytes());
    for (object, offset, len) in runs {
        bytes.extend(object.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes.extend(len.to_be_bytes());
    }
    bytes
}

fn block(number: u32, kind: Kind, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(6 + len).expect("a block")];
    let header = BlockHeader {
        block: number,
        kind,
    };
    let mut w = farhaul_core::codec::Writer::new(&mut bytes);
    header.encode(&mut w).expect("it fits");
    bytes
}

#[track_caller]
fn refused(pair: &mut Pair, words: &str) {
    let reason = pair.end(Side::Client, ms(50));
    assert!(
        matches!(&reason, CloseReason::Protocol(text) if text.contains(words)),
        "{words}: {reason:?}"
    );
}

/// A client whose peer says only what the test says.
fn alone(config: &Config) -> Pair {
    let mut pair = opened(config, ms(5));
    pair.server.session = None;
    pair
}

#[test]
fn files_that_cannot_be_are_refused() {
    let b = 1_466;
    for (bytes, words) in [
        (file(b, 1, 5, &[(1, 0, 5), (1, 9, 1)]), "size of a file"),
        (file(b, 9, 5, &[(1, 0, 5)]), "number of blocks"),
        (file(b, 0, 0, &[]), "runs of bytes"),
        (file(64, 1, 5, &[(1, 0, 5)]), "size of a block"),
        (file(b, 1, 5, &[(1, 0, 5), (2, 0, 0)]), "runs of bytes"),
        (file(b, 1, 5, &[(u32::MAX, 0, 5)]), "runs of bytes"),
        (file(b, 1, 5, &[(1, u64::MAX, 5)]), "runs of bytes"),
        (
            file(b, 2_929_687, 1 << 32, &[(1, 0, u64::MAX), (2, 0, u64::MAX)]),
            "number of blocks",
        ),
        (
            file(
                b,
                4_200_000,
                4_200_000 * BLOCK,
                &[(1, 0, 4_200_000 * BLOCK)],
            ),
            "size of a file",
        ),
        (
            file(b, 1, 5, &[(1, 0, 5)])[..21]
                .iter()
                .copied()
                .chain([0xff; 4])
                .collect(),
            "runs of bytes",
        ),
        (vec![2, 0, 0], "permission, out of turn"),
        (vec![2, 180, 144], "port"),
        (vec![4, 0, 0, 0, 1], "end of a file"),
        (vec![9; 30], "type of a control message"),
        (
            vec![3, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            "type of feedback",
        ),
        (
            vec![3, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            "feedback without a file",
        ),
    ] {
        let mut pair = alone(&config(1_000_000));
        control(&mut pair, &bytes);
        refused(&mut pair, words);
    }
    // One at a time, and no end of it beyond its end.
    let good = file(b, 2, 2_000, &[(1, 0, 2_000)]);
    for (next, words) in [
        (&good[..], "out of turn"),
        (&[4, 0, 0, 0, 3], "end of a file"),
        (&[4, 0, 0, 0, 0], "end of a file"),
        (&[4, 0xff, 0, 0, 0], "end of a file"),
    ] {
        let mut pair = alone(&config(1_000_000));
        control(&mut pair, &good);
        control(&mut pair, next);
        refused(&mut pair, words);
    }
}

#[test]
fn feedback_on_what_was_never_sent_is_refused() {
    for (tell, number, words) in [
        (FeedbackKind::Retransmit, 5_000, "never sent"),
        (FeedbackKind::Retransmit, 0, "never sent"),
        (FeedbackKind::Restart, u32::MAX, "never sent"),
        (FeedbackKind::Stop, 0, "before the last block"),
    ] {
        let mut pair = let_come(&config(10_000_000), 1 << 30);
        feedback(&mut pair, tell, number, 0);
        let reason = pair.end(Side::Client, ms(50));
        assert!(reason.to_string().contains(words), "{reason:?}");
    }
}

#[test]
fn a_file_of_one_block_is_not_done_before_it_was_sent() {
    let mut pair = opened(&config(10_000_000), ms(20));
    pair.offer(Side::Client, 9);
    // The permission and the stop come in one turn.
    control(&mut pair, &[&[2, 0, 0, 3, 0, 2][..], &[0; 10]].concat());
    let reason = pair.end(Side::Client, ms(1));
    assert!(
        reason.to_string().contains("before the last block"),
        "{reason:?}"
    );
}

#[test]
fn a_rate_that_cannot_be_reported_on_is_refused() {
    for (rate, max_rate, mtu, fine) in [
        (300_000, None, 1_500, true),
        (299_000, None, 1_500, false),
        (650_000_000, Some(Rate::from_bps(100_000)), 1_500, false),
        (1_000_000, None, 65_535, false),
    ] {
        let config = Config {
            max_rate,
            mtu,
            ..config(rate)
        };
        assert_eq!(server(&config).is_ok(), fine, "{rate} {max_rate:?} {mtu}");
    }
}

#[test]
fn a_flood_of_requests_is_bounded_and_served_at_the_rate() {
    let mut pair = let_come(&config(11_728_000), 1 << 30);
    pair.pass(ms(30));
    let mut flood = Vec::new();
    for _ in 0..100_000 {
        flood.push(3);
        let request = Feedback {
            kind: FeedbackKind::Retransmit,
            block: 1,
            error_rate: 0,
        };
        request.encode(&mut flood);
    }
    control(&mut pair, &flood);
    let before = pair.client.sent;
    pair.pass(secs(3));
    assert!(pair.client.closed().is_none());
    assert!(
        (990..=1_010).contains(&(pair.client.sent - before)),
        "3 ms each"
    );
    // Errors beyond all bounds are believed to be many.
    feedback(&mut pair, FeedbackKind::ErrorRate, 0, u32::MAX);
    pair.pass(secs(70));
}

#[test]
fn blocks_that_are_nobodys_are_dropped_and_counted() {
    let mut pair = alone(&config(1_000_000));
    let drops = |p: &mut Pair| p.client.session().stats().dropped_malformed;
    let feed = |p: &mut Pair, bytes: Vec<u8>| {
        p.inject(Side::Client, bytes);
        p.pass(ms(1));
    };
    // Before any file, and of any length.
    feed(&mut pair, block(1, Kind::Original, BLOCK));
    feed(&mut pair, vec![1; 5]);
    assert_eq!(drops(&mut pair), 2);
    control(&mut pair, &file(1_466, 3, 4_000, &[(1, 0, 4_000)]));
    pair.pass(ms(1));
    pair.client.store.trust();
    for bytes in [
        block(4, Kind::Original, BLOCK),
        block(4, Kind::Last, BLOCK),
        block(1_000_000, Kind::Repair, BLOCK),
        block(1, Kind::Original, BLOCK - 1),
        block(3, Kind::Last, 4_000 - 2 * BLOCK),
    ] {
        feed(&mut pair, bytes);
    }
    assert_eq!(drops(&mut pair), 7);
    assert_eq!(pair.client.store.received(1), 0);
    for number in [3, 1, 1, 2] {
        feed(&mut pair, block(number, Kind::Original, BLOCK));
    }
    assert_eq!(
        pair.client.store.received(1),
        4_000,
        "nothing behind the end"
    );
    let stats = pair.client.session().stats();
    assert_eq!((stats.dropped_malformed, stats.dropped_duplicate), (7, 1));
    assert!(pair.client.closed().is_none());
}

#[test]
fn the_most_that_can_be_missing_costs_a_table_and_one_request() {
    let mut pair = alone(&config(100_000_000));
    let blocks: u32 = 4_000_000;
    let size = u64::from(blocks) * BLOCK;
    pair.client.store.trust();
    control(&mut pair, &file(1_466, blocks, size, &[(1, 0, size)]));
    pair.pass(ms(1));
    let before = pair.client.session().stats().feedback_sent;
    for _ in 0..200 {
        pair.inject(Side::Client, block(blocks, Kind::Last, BLOCK));
        pair.pass(ms(4));
    }
    let said = pair.client.session().stats().feedback_sent - before;
    assert!(said <= 200 * 26, "{said}");
}

#[test]
fn an_announcement_that_is_never_let_come_ends() {
    let mut pair = alone(&config(1_000_000));
    control(&mut pair, &file(1_466, 3, 4_000, &[(1, 0, 4_000)]));
    pair.pass(ms(1));
    let begun = pair.now;
    for _ in 0..8 {
        let mut ping = Vec::new();
        Frame::Ping.encode(&mut ping);
        let now = pair.now;
        pair.inject_event(now, Side::Client, LaneEvent::Bytes(ping));
        pair.pass(secs(5));
    }
    let reason = pair.end(Side::Client, ms(50));
    assert!(
        matches!(&reason, CloseReason::Lane(text) if text.contains("nothing has come")),
        "{reason:?}"
    );
    assert!(pair.now.since(begun) <= secs(45));

    let mut pair = alone(&config(1_000_000));
    pair.offer(Side::Client, 9_000);
    for _ in 0..4 {
        let mut ping = Vec::new();
        Frame::Ping.encode(&mut ping);
        let now = pair.now;
        pair.inject_event(now, Side::Client, LaneEvent::Bytes(ping));
        pair.pass(secs(5));
    }
    let reason = pair.end(Side::Client, ms(50));
    assert!(
        matches!(&reason, CloseReason::Lane(text) if text.contains("not let come")),
        "{reason:?}"
    );
}

#[test]
fn datagrams_that_stop_arriving_are_named_at_both_ends() {
    let mut pair = opened(&config(50_000_000), ms(10));
    pair.offer(Side::Client, 1 << 30);
    pair.run(secs(2), |_| false);
    pair.set_script(|_| Fate::Drop);
    let reason = pair.end(Side::Client, secs(20));
    let words = "no datagram has reached the peer for 15 s";
    assert!(
        matches!(&reason, CloseReason::Lane(text) if text.contains(words)),
        "{reason:?}"
    );
    let reason = pair.end(Side::Server, secs(1));
    assert!(
        matches!(&reason, CloseReason::Peer { text, .. } if text.contains(words)),
        "{reason:?}"
    );
}

#[test]
fn a_greeting_of_another_revision_or_of_nonsense_is_refused() {
    let mut old = REVISION.to_be_bytes().to_vec();
    old[3] ^= 1;
    let mut wanted = Vec::new();
    Parameters {
        rate: 0,
        ..Parameters::default()
    }
    .encode(&mut wanted);
    let mut slow = REVISION.to_be_bytes().to_vec();
    Parameters {
        rate: 280_000,
        ..Parameters::default()
    }
    .encode(&mut slow);
    let zero = [&REVISION.to_be_bytes()[..], &wanted].concat();
    wanted.clear();
    Parameters::default().encode(&mut wanted);
    for (greeting, words) in [
        ([&old[..], &wanted].concat(), "protocol revision"),
        (zero, "parameters"),
        (slow, "too little for reports"),
        (REVISION.to_be_bytes().to_vec(), "truncated"),
    ] {
        let mut bytes = Vec::new();
        Frame::Hello(1_472, &greeting).encode(&mut bytes);
        let mut pair = pair(&config(1_000_000), ms(10));
        pair.connect(Some(1_500));
        pair.run(ms(25), |_| false);
        let now = pair.now;
        pair.inject_event(now, Side::Client, LaneEvent::Bytes(bytes));
        let reason = pair.end(Side::Client, ms(50));
        assert!(
            matches!(&reason, CloseReason::Protocol(text) if text.contains(words)),
            "{words}: {reason:?}"
        );
    }
}
