//! Tests Reliable UDP against itself, with nothing in between but a script.

use std::{cell::RefCell, rc::Rc, time::Duration};

use farhaul_core::{
    protocol::{CloseReason, Protocol},
    time::Instant,
};
use farhaul_protocols::rudp::{
    Config, Rudp,
    wire::{ACK, EAK, Kind, NUL, RST, SYN, Segment},
};
use farhaul_testkit::{Fate, Pair, Side, assert_live, seeds};

use crate::shared::{self, ms};

fn config() -> Config {
    Config {
        mtu: 1_500,
        ..Config::default()
    }
}

fn ends(config: &Config) -> (Box<dyn Protocol>, Box<dyn Protocol>) {
    (
        Box::new(Rudp::client(config)),
        Box::new(Rudp::server(config)),
    )
}

fn new(config: &Config, delay: Duration) -> Pair {
    let (client, server) = ends(config);
    Pair::new(client, server, delay, 7)
}

fn open(config: &Config, delay: Duration) -> Pair {
    let mut pair = new(config, delay);
    pair.connect(Some(1_500));
    pair.open();
    pair
}

/// A segment that crossed: its sender, its time, its flags, and its bytes.
type Seen = Rc<RefCell<Vec<(Side, Instant, u8, Vec<u8>)>>>;

fn watched(pair: &mut Pair, mut fate: impl FnMut(u64, Side, &[u8]) -> Fate + 'static) -> Seen {
    let seen = Seen::default();
    let noted = Rc::clone(&seen);
    pair.set_script(move |d| {
        let mut noted = noted.borrow_mut();
        noted.push((d.from, d.at, d.bytes[0], d.bytes.to_vec()));
        let data = |bytes: &[u8]| bytes[0] == ACK && bytes.len() > 6;
        let nth = noted.iter().filter(|(.., bytes)| data(bytes)).count() as u64;
        fate(nth, d.from, d.bytes)
    });
    seen
}

fn flags(seen: &Seen, side: Side, flags: u8) -> usize {
    let seen = seen.borrow();
    seen.iter().filter(|s| s.0 == side && s.2 == flags).count()
}

#[test]
fn either_end_sends_and_a_stream_goes_beside() {
    let mut pair = open(&config(), ms(20));
    shared::both_ends_send(&mut pair, 1_234_567, Duration::from_secs(9));
    let stats = pair.client.session().stats();
    let all = 1_234_567 + b"words beside".len() as u64;
    assert_eq!((stats.data_sent, stats.data_acked), (all, all));
    assert_eq!((stats.repaired, stats.in_flight), (0, 0));
}

/// Tests numbers of the ports: SYN, SYN with ACK, ACK; numbers begin behind those of the SYNs.
#[test]
fn three_segments_open_it_and_one_ends_it() {
    let mut pair = new(&config(), ms(20));
    let seen = watched(&mut pair, |_, _, _| Fate::Deliver);
    pair.connect(Some(1_500));
    pair.open();
    pair.run(ms(100), |_| false);
    let kinds: Vec<_> = seen.borrow().iter().map(|s| (s.0, s.2)).collect();
    let (client, server) = (Side::Client, Side::Server);
    assert_eq!(kinds, [(client, SYN), (server, SYN | ACK), (client, ACK)]);
    {
        let seen = seen.borrow();
        let segments: Vec<_> = seen
            .iter()
            .map(|s| Segment::decode(&s.3).unwrap())
            .collect();
        assert_eq!(seen[0].3.len(), 28);
        assert_eq!(segments[1].acked, Some(segments[0].number));
        assert_eq!(segments[2].acked, Some(segments[1].number));
        assert_eq!(segments[2].number, segments[0].number.wrapping_add(1));
    }
    let now = pair.now;
    pair.client.session().close(now, 0, "done");
    pair.settle(Side::Client);
    pair.until(ms(200), |p| p.server.closed().is_some());
    let reason = pair.server.closed().cloned();
    assert!(matches!(reason, Some(CloseReason::Peer { code: 0, .. })));
    assert!(flags(&seen, client, RST | ACK) >= 1);
}

/// Tests numbers of the ports: an acknowledgement for three segments; and 300 ms after one that
/// came alone.
#[test]
fn three_segments_are_acknowledged_at_once_and_one_after_300_ms() {
    let mut pair = open(&config(), ms(20));
    let seen = watched(&mut pair, |_, _, _| Fate::Deliver);
    pair.offer(Side::Client, 1_450 * 99);
    pair.deliver(Side::Client, ms(100));
    // Those that arrive together are acknowledged together.
    let acks = flags(&seen, Side::Server, ACK);
    assert!((1..=33).contains(&acks), "{acks}");
    let start = pair.now;
    pair.offer(Side::Client, 1_000);
    let all = 1_450 * 99 + 1_000;
    pair.until(ms(500), |p| p.client.session().stats().data_acked == all);
    assert_eq!(pair.now.since(start), ms(340));
}

/// Derived: a window in a round trip, here with numbers that wrap 30 times.
#[test]
fn the_rate_is_the_window_in_a_round_trip() {
    for window in [30, 128, 255] {
        let config = Config { window, ..config() };
        let mut pair = open(&config, ms(50));
        let (start, turns) = (pair.now, 30_u32);
        let segments = u64::from(window) * u64::from(turns);
        pair.offer(Side::Client, segments * 1_450);
        pair.deliver(Side::Client, Duration::from_secs(9));
        let took = pair.now.since(start).as_secs_f64();
        let expected = f64::from(turns) * 0.1;
        // The last may have been left to the timer.
        assert!(
            (expected - 0.01..expected + 0.4).contains(&took),
            "{window}: {took}"
        );
        assert_eq!(pair.client.session().stats().retransmits, 0);
    }
}

/// Tests numbers of the ports, the repair recalled: named after three out of order, and sent again
/// at once.
#[test]
fn what_is_missing_is_named_and_sent_again_once() {
    let mut pair = open(&config(), ms(20));
    let seen = watched(&mut pair, |n, _, bytes| {
        Fate::drop_if(bytes.len() > 6 && bytes[0] == ACK && [10, 12].contains(&n))
    });
    pair.offer(Side::Client, 1_450 * 60);
    pair.deliver(Side::Client, ms(500));
    assert!(pair.server.store.has(1, 1_450 * 60));
    assert!(flags(&seen, Side::Server, ACK | EAK) >= 1);
    let stats = pair.client.session().stats();
    assert_eq!((stats.retransmits, stats.timeouts), (2, 0));
}

/// Recalled: one timer of 600 ms.
#[test]
fn what_nothing_shows_is_sent_again_after_600_ms() {
    let mut pair = open(&config(), ms(20));
    watched(&mut pair, |n, _, bytes| {
        Fate::drop_if(bytes.len() > 6 && n == 1)
    });
    let start = pair.now;
    pair.offer(Side::Client, 1_000);
    pair.deliver(Side::Client, Duration::from_secs(2));
    assert_eq!(pair.now.since(start), ms(600 + 20 + 300 + 20));
    assert_eq!(pair.client.session().stats().timeouts, 1);
}

#[test]
fn a_peer_that_answers_no_retransmission_is_given_up_if_that_is_asked_for() {
    let config = Config {
        retries: 3,
        ..config()
    };
    let mut pair = open(&config, ms(20));
    pair.set_script(|d| Fate::drop_if(d.from == Side::Server));
    let start = pair.now;
    pair.offer(Side::Client, 1_000);
    pair.until(Duration::from_secs(9), |p| p.client.closed().is_some());
    assert_eq!(pair.client.closed(), Some(&CloseReason::TimedOut));
    assert_eq!(pair.now.since(start), ms(4 * 600));
}

/// Tests numbers of the ports: 2 s; each is acknowledged.
#[test]
fn null_segments_keep_a_silent_session_alive() {
    let mut pair = open(&config(), ms(20));
    let seen = watched(&mut pair, |_, _, _| Fate::Deliver);
    pair.run(Duration::from_mins(1), |_| false);
    let nulls = flags(&seen, Side::Client, NUL | ACK);
    assert!((28..=30).contains(&nulls), "{nulls}");
    assert_eq!(flags(&seen, Side::Server, NUL | ACK), 0);
    assert!(flags(&seen, Side::Server, ACK) >= nulls);
    pair.offer(Side::Client, 500_000);
    pair.deliver(Side::Client, Duration::from_secs(2));
    assert!(pair.server.store.has(1, 500_000));
}

/// A null segment that is lost does not stand for data that are.
#[test]
fn data_behind_a_lost_null_segment_are_delivered_when_they_are_there() {
    let mut pair = open(&config(), ms(20));
    let mut nulls = 0;
    watched(&mut pair, move |n, _, bytes| {
        let null = bytes[0] == NUL | ACK;
        nulls += u32::from(null);
        Fate::drop_if(null && nulls == 1 || (bytes.len() > 6 && matches!(n, 5 | 6)))
    });
    pair.run(ms(2_100), |_| false);
    pair.offer(Side::Client, 1_450 * 20);
    pair.deliver(Side::Client, Duration::from_secs(5));
    assert!(pair.server.store.has(1, 1_450 * 20));
}

/// One SYN, perhaps in another's name, is answered twice at most.
#[test]
fn a_syn_is_not_answered_for_seconds() {
    let mut pair = new(&config(), ms(20));
    let mut syns = 0;
    let seen = watched(&mut pair, move |_, side, _| {
        syns += u32::from(side == Side::Client);
        Fate::drop_if(side == Side::Server || syns > 1)
    });
    pair.connect(Some(1_500));
    pair.run(Duration::from_secs(7), |_| false);
    assert_eq!(flags(&seen, Side::Server, SYN | ACK), 2);
}

fn written(segment: &Segment<'_>) -> Vec<u8> {
    let mut out = [0; 255];
    let mut w = farhaul_core::codec::Writer::new(&mut out);
    segment.encode(&mut w).expect("room");
    let len = w.len();
    out[..len].to_vec()
}

/// Number of the next segment after one of data, and the number that it acknowledges.
fn after_one(pair: &mut Pair) -> (u8, u8) {
    let seen = watched(pair, |_, _, _| Fate::Deliver);
    pair.offer(Side::Client, 1_450);
    pair.deliver(Side::Client, Duration::from_secs(2));
    let seen = seen.borrow();
    let data = seen.iter().find(|s| s.2 == ACK && s.3.len() > 6);
    let data = data.expect("it crossed");
    (data.3[2].wrapping_add(1), data.3[3])
}

#[test]
fn a_reset_has_a_number_of_the_window() {
    let mut pair = open(&config(), ms(20));
    let (next, _) = after_one(&mut pair);
    let reset = |number| {
        written(&Segment {
            number,
            acked: None,
            kind: Kind::Rst,
        })
    };
    for off in [129, 200, 255] {
        pair.inject(Side::Server, reset(next.wrapping_add(off)));
    }
    pair.run(ms(1), |_| false);
    assert_eq!(pair.server.closed(), None);
    pair.inject(Side::Server, reset(next));
    pair.run(ms(1), |_| false);
    assert!(pair.server.closed().is_some());
}

/// 8 bits are guessed; that data are missing is noticed.
#[test]
fn a_null_segment_in_the_place_of_data_ends_the_session() {
    let mut pair = open(&config(), ms(20));
    let (number, acked) = after_one(&mut pair);
    let null = Segment {
        number,
        acked: Some(acked),
        kind: Kind::Nul,
    };
    pair.inject(Side::Server, written(&null));
    pair.run(ms(50), |_| false);
    pair.offer(Side::Client, 1_450);
    let reason = pair.end(Side::Server, Duration::from_secs(2));
    assert!(matches!(reason, CloseReason::Protocol(_)), "{reason}");
    pair.end(Side::Client, Duration::from_secs(2));
    assert_eq!(pair.client.session().stats().data_acked, 1_450, "the first");
}

#[test]
fn what_was_never_sent_or_is_damaged_changes_nothing() {
    let mut pair = open(&config(), ms(50));
    let seen = watched(&mut pair, |_, _, _| Fate::Deliver);
    pair.offer(Side::Client, 1_450 * 10);
    pair.run(ms(20), |_| false);
    let data = seen.borrow()[0].3.clone();
    let segment = Segment::decode(&data).unwrap();
    let lie = |acked, kind| {
        written(&Segment {
            number: 0,
            acked: Some(acked),
            kind,
        })
    };
    let beyond = segment.number.wrapping_add(100);
    pair.inject(Side::Client, lie(beyond, Kind::Ack));
    pair.inject(Side::Client, lie(beyond, Kind::Eak(&[beyond, beyond])));
    pair.run(ms(1), |_| false);
    assert_eq!(pair.client.session().stats().data_acked, 0);
    let mut damaged = data.clone();
    damaged[2] ^= 1;
    // The number in the record is another than the header's.
    let mut other = data.clone();
    other[9] ^= 1;
    pair.inject(Side::Server, damaged);
    pair.inject(Side::Server, other);
    pair.run(ms(1), |_| false);
    assert_eq!(pair.server.session().stats().dropped_malformed, 2);
    pair.deliver(Side::Client, Duration::from_secs(2));
    assert!(pair.server.store.has(1, 1_450 * 10));
}

#[test]
fn nobody_there_is_said_after_five_seconds() {
    let mut pair = new(&config(), ms(20));
    pair.set_script(|_| Fate::Drop);
    pair.connect(Some(1_500));
    pair.until(Duration::from_secs(6), |p| p.client.closed().is_some());
    assert_eq!(pair.client.closed(), Some(&CloseReason::NoAnswer));
}

#[test]
fn any_pattern_of_loss_that_stops_lets_the_transfer_end() {
    let narrow = Config {
        window: 5,
        ..config()
    };
    for config in [config(), narrow] {
        assert_live(|_| ends(&config), seeds(40));
    }
    shared::three_tenths_may_be_lost(&mut open(&config(), ms(20)), 300_000);
}
