use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::congestion::Allowance;

struct Law;

impl CongestionController for Law {
    fn name(&self) -> &'static str {
        "law"
    }

    fn on_ack(&mut self, _: &AckEvent) {}

    fn on_loss(&mut self, _: &LossEvent) {}

    fn allowance(&self) -> Allowance {
        Allowance {
            window: Size::from_bytes(1 << 20),
            rate: Rate::gbit(1),
            quantum: Size::from_bytes(1_500),
        }
    }
}

/// Number to state, wire bytes and whether it is to be sent again.
#[derive(Default)]
struct Twin {
    packets: BTreeMap<u64, (State, u64, bool)>,
    next: u64,
    delivered: u64,
    lost: u64,
}

impl Twin {
    fn in_flight(&self) -> u64 {
        let flying = self.packets.values();
        flying
            .filter(|p| p.0 == State::Outstanding)
            .map(|p| p.1)
            .sum()
    }

    fn ack(&mut self, number: u64) -> Option<u64> {
        let packet = self.packets.get_mut(&number)?;
        if packet.0 == State::Acked {
            return None;
        }
        let counts = packet.0 == State::Outstanding;
        (packet.0, packet.2) = (State::Acked, false);
        self.delivered += packet.1;
        counts.then_some(packet.1)
    }

    fn lose(&mut self, number: u64) -> u64 {
        let Some(packet) = self.packets.get_mut(&number) else {
            return 0;
        };
        packet.2 = true;
        if packet.0 == State::Lost {
            return 0;
        }
        packet.0 = State::Lost;
        self.lost += 1;
        packet.1
    }

    fn next_lost(&mut self) -> Option<u64> {
        let (number, packet) = self.packets.iter_mut().find(|(_, p)| p.2)?;
        packet.2 = false;
        Some(*number)
    }
}

fn step(flight: &mut Flight<u64>, twin: &mut Twin, now: Instant, op: u8, x: u64) {
    let number = twin.next.saturating_sub(x);
    match op {
        0..3 => {
            let wire = 100 + u32::try_from(x).unwrap();
            let number = flight.push(now, x, wire, State::Outstanding);
            assert_eq!(number, twin.next);
            twin.packets
                .insert(number, (State::Outstanding, wire.into(), false));
            twin.next += 1;
        }
        3 => {
            let mut acked = Acked::default();
            flight.ack(number, &mut acked);
            assert_eq!(acked.bytes, twin.ack(number).unwrap_or(0));
            assert!(acked.newest.is_none_or(|newest| newest.number == number));
        }
        4 => {
            let (mut acked, mut retired) = (Acked::default(), 0);
            flight.ack_below(number, &mut acked, |_| retired += 1);
            let rest = twin.packets.split_off(&number);
            let (gone, mut bytes) = (twin.packets.len(), 0);
            for number in twin.packets.keys().copied().collect::<Vec<_>>() {
                bytes += twin.ack(number).unwrap_or(0);
            }
            twin.packets = rest;
            assert_eq!((acked.bytes, retired), (bytes, gone));
        }
        5 => {
            let mut lost = Lost::default();
            flight.mark_lost(number..number + 3, &mut lost);
            let bytes: u64 = (number..number + 3).map(|n| twin.lose(n)).sum();
            assert_eq!(lost.bytes, bytes);
            assert_eq!(lost.span().is_some(), bytes > 0);
        }
        6 => {
            let next = flight.next_lost();
            assert_eq!(next.map(|(number, _)| number), twin.next_lost());
            if let Some((number, _)) = next {
                flight.resend(now, number);
                twin.packets.get_mut(&number).unwrap().0 = State::Outstanding;
            }
        }
        _ => flight.batch_sent(now, x, false),
    }
}

proptest! {
    #[test]
    fn equals_a_map(ops in proptest::collection::vec((0_u8..8, 0_u64..40), 0..600)) {
        let mut flight = Flight::keeping(Box::new(Law), Rate::UNLIMITED);
        let mut twin = Twin::default();
        for (i, (op, x)) in ops.into_iter().enumerate() {
            let now = Instant::from_nanos(1_000_000 * i as u64);
            step(&mut flight, &mut twin, now, op, x);
            prop_assert_eq!(flight.count.in_flight, twin.in_flight());
            prop_assert_eq!(flight.count.delivered, twin.delivered);
            prop_assert_eq!(flight.count.lost, twin.lost);
            prop_assert_eq!(flight.has_lost(), twin.packets.values().any(|p| p.2));
            prop_assert_eq!(flight.log().next(), twin.next);
        }
    }
}

#[test]
fn what_was_taken_and_did_not_leave_is_lost_again() {
    let now = Instant::from_nanos(1);
    let mut flight = Flight::keeping(Box::new(Law), Rate::UNLIMITED);
    flight.push(now, 7, 100, State::Outstanding);
    for _ in 0..2 {
        flight.mark_lost(0..1, &mut Lost::default());
        assert_eq!(flight.next_lost(), Some((0, 7)));
        assert!(!flight.has_lost());
    }
    assert_eq!(flight.count.lost, 1);
}

#[test]
fn what_is_to_be_sent_again_is_kept_however_much_leaves() {
    let now = Instant::from_nanos(1);
    let mut flight = Flight::keeping(Box::new(Law), Rate::UNLIMITED);
    for number in 0..10_000 {
        flight.push(now, number, 100, State::Outstanding);
        if number == 5 {
            flight.mark_lost(0..3, &mut Lost::default());
        }
        if number > 5 {
            flight.ack(number, &mut Acked::default());
        }
    }
    assert_eq!(flight.log().len(), 10_000);
    assert_eq!(flight.next_lost(), Some((0, 0)));
    let mut retired = 0;
    flight.ack_below(10_000, &mut Acked::default(), |_| retired += 1);
    assert_eq!((retired, flight.log().len()), (10_000, 0));
}

#[test]
fn a_repair_has_the_snapshot_of_its_last_departure() {
    let at = |ms| Instant::from_nanos(1_000_000_u64 * ms);
    let mut flight = Flight::keeping(Box::new(Law), Rate::UNLIMITED);
    for number in 0..3 {
        flight.push(at(1), number, 100, State::Outstanding);
    }
    flight.batch_sent(at(1), 300, false);
    flight.mark_lost(1..2, &mut Lost::default());
    flight.resend(at(9), 1);
    flight.batch_sent(at(9), 100, false);
    let sent_at = |flight: &Flight<u64>, number| {
        let batch = flight.log().get(number).unwrap().batch;
        flight.snapshots.get(batch).unwrap().sent_at
    };
    assert_eq!(
        [0, 1, 2].map(|n| sent_at(&flight, n)),
        [at(1), at(9), at(1)]
    );
    flight.ack_below(1, &mut Acked::default(), |_| {});
    flight.tell_acks(at(10), &Acked::default(), Signals::default());
    assert_eq!([1, 2].map(|n| sent_at(&flight, n)), [at(9), at(1)]);
}
