//! Tests a line against a sender that looks through all it has.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::{
    codec::Writer,
    congestion::{AckEvent, Allowance, LossEvent},
    stream::WINDOW,
    units::Size,
};

const DATAGRAM: u32 = 1_000;
const LAW: u64 = 20_000;
/// Bytes of a packet around its data.
const AROUND: u32 = 30;

struct Law;

impl CongestionController for Law {
    fn name(&self) -> &'static str {
        "law"
    }

    fn on_ack(&mut self, _: &AckEvent) {}

    fn on_loss(&mut self, _: &LossEvent) {}

    fn allowance(&self) -> Allowance {
        Allowance {
            window: Size::from_bytes(LAW),
            rate: Rate::UNLIMITED,
            quantum: Size::from_bytes(LAW),
        }
    }
}

struct Packet {
    object: ObjectId,
    offset: u64,
    len: u32,
    at: Instant,
    state: State,
    resent: bool,
}

/// Bytes of objects one by one, packets one by one.
struct Twin {
    objects: VecDeque<(ObjectId, u64)>,
    written: u64,
    cut: u64,
    taken: u64,
    packets: BTreeMap<u64, Packet>,
    next: u64,
    window: u64,
    lost: u64,
    data_acked: u64,
}

impl Twin {
    fn in_flight(&self) -> u64 {
        let packets = self.packets.values();
        let flying = packets.filter(|p| p.state == State::Outstanding);
        flying.map(|p| u64::from(p.len + AROUND)).sum()
    }

    /// Bytes of the stream that may leave now.
    fn stream(&self) -> u64 {
        self.written.min(self.taken + WINDOW) - self.cut
    }

    /// Number, object, offset and length of what goes next.
    fn send(&mut self, now: Instant, room: u32) -> Option<(u64, ObjectId, u64, u32)> {
        let lost = self
            .packets
            .iter_mut()
            .find(|(_, p)| p.state == State::Lost);
        if let Some((number, p)) = lost {
            (p.at, p.state, p.resent) = (now, State::Outstanding, true);
            return Some((*number, p.object, p.offset, p.len));
        }
        let full = self.in_flight() + u64::from(DATAGRAM) > LAW;
        if full || self.packets.len() as u64 >= self.window {
            return None;
        }
        let (object, offset, len) = if self.stream() > 0 {
            let len = self.stream().min(room.into());
            self.cut += len;
            (STREAM, self.cut - len, u32::try_from(len).unwrap())
        } else {
            let (object, offset) = *self.objects.front()?;
            let mut len = 0;
            while len < room && self.objects.front() == Some(&(object, offset + u64::from(len))) {
                self.objects.pop_front();
                len += 1;
            }
            (object, offset, len)
        };
        let packet = Packet {
            object,
            offset,
            len,
            at: now,
            state: State::Outstanding,
            resent: false,
        };
        self.packets.insert(self.next, packet);
        self.next += 1;
        Some((self.next - 1, object, offset, len))
    }

    fn ack_below(&mut self, end: u64) {
        let rest = self.packets.split_off(&end);
        for p in std::mem::replace(&mut self.packets, rest).values() {
            self.data_acked += u64::from(p.len);
            if p.object == STREAM {
                self.taken = p.offset + u64::from(p.len);
            }
        }
    }

    fn lose(&mut self, now: Instant, trip: Duration, range: Range<u64>) {
        for (_, p) in self.packets.range_mut(range) {
            let young = p.resent && now.since(p.at) < trip;
            if p.state == State::Outstanding && !young {
                p.state = State::Lost;
                self.lost += 1;
            }
        }
    }

    fn check(&self, line: &Line) -> Result<(), TestCaseError> {
        let flight = &line.flight;
        prop_assert_eq!(flight.count.in_flight, self.in_flight());
        prop_assert_eq!(flight.count.lost, self.lost);
        prop_assert_eq!(flight.count.data_acked, self.data_acked);
        prop_assert_eq!(
            (flight.log().len(), flight.log().next()),
            (self.packets.len() as u64, self.next)
        );
        prop_assert_eq!(line.unsent(), self.objects.len() as u64);
        prop_assert_eq!(line.unwritten() as u64, self.written - self.taken);
        prop_assert_eq!(line.is_clear(), self.packets.is_empty());
        let waits = self.written > self.taken || !self.objects.is_empty();
        prop_assert_eq!(line.has_nothing(), !waits);
        prop_assert_eq!(line.is_idle(), !waits && self.packets.is_empty());
        Ok(())
    }
}

/// The byte of the stream at `offset`.
fn byte(offset: u64) -> u8 {
    u8::try_from(offset % 251).unwrap()
}

fn write(line: &mut Line, twin: &mut Twin, len: u64) {
    let bytes: Vec<u8> = (twin.written..twin.written + len).map(byte).collect();
    line.write(&bytes);
    twin.written += len;
}

/// One packet, if any may leave; its bytes are those that were written.
fn send(line: &mut Line, twin: &mut Twin, now: Instant, room: u32) -> Result<bool, TestCaseError> {
    let may = matches!(line.permit(now), Permit::Send { .. });
    let next = line.next_packet(room);
    let said = next.map(|(number, p)| (number, p.object, p.offset, p.len));
    prop_assert_eq!(said, twin.send(now, room));
    prop_assert_eq!(next.is_some(), may);
    let Some((number, piece)) = next else {
        return Ok(false);
    };
    let (mut buffer, mut extents) = (vec![0; piece.len as usize], Vec::new());
    let writer = Writer::new(&mut buffer);
    let mut packet = crate::shell::Packet::new(writer, 0, piece.len, &mut extents);
    line.fill(piece, &mut packet).unwrap();
    if piece.object == STREAM {
        let bytes = (piece.offset..).map(byte).take(buffer.len());
        prop_assert!(buffer.iter().copied().eq(bytes) && extents.is_empty());
    } else {
        prop_assert_eq!(extents[0].end(), piece.offset + u64::from(piece.len));
    }
    line.sent(now, number, piece, piece.len + AROUND);
    Ok(true)
}

fn step(
    line: &mut Line,
    twin: &mut Twin,
    now: Instant,
    (op, x, y): (u8, u64, u32),
) -> Result<(), TestCaseError> {
    let first = twin.next - twin.packets.len() as u64;
    match op {
        0 => {
            let offset = x * u64::from(y % 3);
            line.push(y, offset, x);
            twin.objects.extend((offset..offset + x).map(|at| (y, at)));
        }
        1 => write(line, twin, x),
        2 => {
            line.set_window(x);
            twin.window = x;
        }
        3 => {
            let end = twin.next.min(first + x / 8);
            if end > first {
                line.ack_below(now, end, Signals::default());
                twin.ack_below(end);
            }
        }
        4 => {
            let ranges = [first + x / 4..first + x / 3, first + x / 2..first + x];
            let trip = Duration::from_millis(u64::from(y) * 20);
            for range in ranges.clone() {
                twin.lose(now, trip, range);
            }
            line.mark_lost(now, trip, ranges);
        }
        5 => {
            // It is known to have come, out of order.
            let number = first + x / 4;
            if let Some(p) = twin.packets.get_mut(&number) {
                p.state = State::Acked;
            }
            line.flight.ack(number, &mut Acked::default());
        }
        6 if y == 0 => {
            line.cancel_unsent();
            twin.objects.clear();
        }
        _ => {
            for _ in 0..x {
                if !send(line, twin, now, 1 + y * 77)? {
                    break;
                }
            }
            line.batch_sent(now, 0);
        }
    }
    twin.check(line)
}

fn line(first: u64) -> (Line, Twin) {
    let mut line = Line::new(Box::new(Law), Rate::UNLIMITED, Duration::ZERO);
    line.flight.begin_at(first);
    line.open(Instant::EPOCH, DATAGRAM, Duration::from_millis(1));
    let twin = Twin {
        objects: VecDeque::new(),
        written: 0,
        cut: 0,
        taken: 0,
        packets: BTreeMap::new(),
        next: first,
        window: 0,
        lost: 0,
        data_acked: 0,
    };
    (line, twin)
}

proptest! {
    #[test]
    fn equals_a_sender_that_looks_through_all_it_has(
        steps in proptest::collection::vec((0_u8..10, 0_u64..60, 0_u32..9), 1..200),
    ) {
        let (mut line, mut twin) = line(77);
        for (i, op) in (0..).zip(steps) {
            step(&mut line, &mut twin, Instant::from_nanos(i * 10_000_000), op)?;
        }
    }
}

#[test]
fn no_more_of_the_stream_is_under_way_than_its_window() {
    let (mut line, mut twin) = line(1);
    line.set_window(8);
    write(&mut line, &mut twin, WINDOW + 9);
    let now = Instant::EPOCH;
    // As one packet, which counts as a datagram's bytes.
    let (number, piece) = line.next_packet(u32::MAX).expect("a window");
    assert_eq!((number, u64::from(piece.len)), (1, WINDOW));
    line.sent(now, number, piece, 1);
    assert_eq!(
        (line.permit(now), line.next_packet(99)),
        (Permit::Hold(Why::Application), None)
    );
    line.ack_below(now, 2, Signals::default());
    assert_eq!(
        line.next_packet(99).map(|(_, p)| (p.offset, p.len)),
        Some((WINDOW, 9))
    );
}
