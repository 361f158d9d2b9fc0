//! Tests what a receiver says, and when.

use super::*;
use crate::udt::wire::LossList;

const FULL: usize = 1_472;

fn receiver(behaviour: Behaviour) -> (Receiver, Rtt, Instant) {
    let now = Instant::from_nanos(1_000_000_000);
    let rtt = rtt::guess(behaviour, Some(Duration::from_millis(1)));
    let config = UdtConfig {
        behaviour,
        ..UdtConfig::default()
    };
    (Receiver::new(&config, now, seq::MAX, FULL), rtt, now)
}

fn arrive(r: &mut Receiver, now: Instant, seq: u32, rtt: &Rtt) -> Option<u64> {
    let arrival = r.on_data(now, seq & seq::MAX, FULL, 1_000);
    r.on_batch(now, 1, rtt);
    arrival
}

fn reported(r: &mut Receiver, now: Instant, rtt: &Rtt) -> Vec<(u32, u32)> {
    let mut list = [0; MAX_NAK];
    let n = r.nak(now, rtt, &mut list);
    LossList::new(&list[..n]).map_or(Vec::new(), |l| l.runs().collect())
}

#[test]
fn a_gap_is_reported_at_once_and_again_only_by_the_fixed() {
    for behaviour in [Behaviour::Libudt, Behaviour::Fixed] {
        let (mut r, rtt, now) = receiver(behaviour);
        arrive(&mut r, now, seq::MAX, &rtt);
        arrive(&mut r, now, 3, &rtt);
        assert_eq!(reported(&mut r, now, &rtt), [(0, 2)], "runs wrap");
        arrive(&mut r, now, 1, &rtt);
        assert!(reported(&mut r, now, &rtt).is_empty());
        let later = now + Duration::from_secs(1);
        let again = reported(&mut r, later, &rtt);
        match behaviour {
            Behaviour::Libudt => assert!(again.is_empty()),
            Behaviour::Fixed => assert_eq!(again, [(0, 0), (2, 2)]),
        }
        assert_eq!(arrive(&mut r, later, 1, &rtt), None);
    }
}

/// A short packet beyond a gap says nothing new: libudt repeats the number of its last
/// acknowledgement only when its sender has had time to hear of it.
#[test]
fn an_open_gap_is_not_acknowledged_again_for_each_short_packet() {
    for (behaviour, again) in [(Behaviour::Libudt, false), (Behaviour::Fixed, true)] {
        let (mut r, rtt, now) = receiver(behaviour);
        let short = |r: &mut Receiver, now, seq| {
            r.on_data(now, seq, 100, 1_000);
            r.on_batch(now, 1, &rtt);
            r.ack(now, 9, &rtt).is_some()
        };
        assert!(short(&mut r, now, seq::MAX));
        let beside = now + Duration::from_micros(10);
        assert_eq!(
            short(&mut r, beside, 1),
            again,
            "{behaviour:?}: 0 is missing"
        );
        let late = now + rtt::timeout(&rtt);
        assert!(
            short(&mut r, late, 2),
            "{behaviour:?}: nothing was heard of the first"
        );
        assert!(short(&mut r, late, 0), "{behaviour:?}: the gap is closed");
    }
}

#[test]
fn libudt_looks_at_its_clock_late_and_the_fixed_in_time() {
    for (behaviour, after) in [(Behaviour::Libudt, 100), (Behaviour::Fixed, 10)] {
        let (mut r, rtt, now) = receiver(behaviour);
        arrive(&mut r, now, seq::MAX, &rtt);
        assert_eq!(r.ack(now, 9, &rtt), None);
        let due = now + Duration::from_millis(after);
        assert_eq!(r.deadline(&rtt), Some(due));
        let Some(Control::Ack {
            number: 1,
            next: 0,
            state: Some(state),
        }) = r.ack(due, 9, &rtt)
        else {
            panic!("a full acknowledgement is due");
        };
        assert!(state.speed.is_some() && state.window == 9);
        assert_eq!(
            r.on_ack2(due + Duration::from_millis(3), 1),
            Some(Duration::from_millis(3))
        );
        assert_eq!(r.deadline(&rtt), None, "nothing to say");
    }
}

#[test]
fn an_unconfirmed_acknowledgement_is_repeated() {
    let (mut r, rtt, now) = receiver(Behaviour::Fixed);
    arrive(&mut r, now, seq::MAX, &rtt);
    let at = now + SYN;
    assert!(r.ack(at, 9, &rtt).is_some());
    let again = r.deadline(&rtt).unwrap();
    assert!(again > at && r.ack(at, 9, &rtt).is_none());
    assert!(matches!(
        r.ack(again, 9, &rtt),
        Some(Control::Ack { number: 2, .. })
    ));
}

#[test]
fn light_acknowledgements_come_every_64_packets() {
    let (mut r, rtt, now) = receiver(Behaviour::Fixed);
    let mut light = Vec::new();
    for i in 0..200 {
        arrive(&mut r, now, seq::MAX.wrapping_add(i), &rtt);
        if let Some(Control::Ack {
            number,
            next,
            state,
        }) = r.ack(now, 2_000, &rtt)
        {
            assert!(number == 0 && state.is_none());
            light.push(next);
        }
    }
    assert_eq!(light, [63, 127, 191]);
}

#[test]
fn a_short_packet_is_acknowledged_at_once() {
    let (mut r, rtt, now) = receiver(Behaviour::Libudt);
    assert_eq!(
        r.on_data(now, seq::MAX, 40, 1_000),
        Some(seq::initial(seq::MAX))
    );
    assert!(r.ack(now, 9, &rtt).is_some());
}

#[test]
fn what_is_beyond_the_window_is_dropped_and_not_missed() {
    let (mut r, rtt, now) = receiver(Behaviour::Fixed);
    assert_eq!(r.on_data(now, 999, FULL, 1_000), None);
    assert_eq!(r.on_data(now, 0x4000_0000, FULL, 1_000), None, "behind");
    assert!(reported(&mut r, now, &rtt).is_empty());
}

#[test]
fn a_drop_leaves_out_the_surplus_number_and_no_more() {
    let (mut r, rtt, now) = receiver(Behaviour::Fixed);
    arrive(&mut r, now, seq::MAX, &rtt);
    arrive(&mut r, now, 5, &rtt);
    let base = seq::initial(seq::MAX) + 1;
    assert_eq!(r.on_drop(0, 3, 1_000), Some(base..base + 3));
    assert_eq!(r.prefix(), base + 3);
    assert_eq!(r.on_drop(3, 3, 1_000), Some(base + 3..base + 4));
    assert_eq!(
        r.on_drop(0, 0x2000_0000, 1_000),
        None,
        "a range beyond the window"
    );
    assert_eq!(reported(&mut r, now, &rtt), [(4, 4)]);
}
