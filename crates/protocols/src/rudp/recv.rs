//! The receiving half: which segments came, and when is that said? After a few segments, or a while after the first
//! that was not acknowledged; what came out of order is named, once there are some.
//!
//! Invariant: segments beyond the window, and bytes of the stream that have no room, are as if they had not come.

// spec: rudp §3

use std::time::Duration;

use farhaul_core::{
    loss::Ranges,
    recv::{Arrival, Gaps},
    stream::Incoming,
    time::Instant,
};

use super::{
    config::Agreed,
    wire::{Kind, MOST_NAMED, Numbers},
};

/// Numbers after which one may be that of another segment again.
const TURN: u64 = 256;

/// The receiving half of a session.
#[derive(Debug)]
pub(super) struct Receiver {
    gaps: Gaps,
    /// Numbers of null segments, of those that may still come.
    nulls: Ranges,
    pub(super) stream: Incoming,
    window: u64,
    ack_delay: Duration,
    ack_every: u32,
    eak_after: u32,
    /// Segments since the last acknowledgement, and those of them that were out of order.
    came: u32,
    out_of_order: u32,
    /// The next acknowledgement leaves then.
    ack_at: Option<Instant>,
    named: [u8; MOST_NAMED],
}

impl Receiver {
    /// The peer's first segment had the number before `first`; `window` are taken.
    pub(super) fn new(first: u64, window: u64, agreed: &Agreed) -> Self {
        Self {
            gaps: Gaps::new(first),
            nulls: Ranges::default(),
            stream: Incoming::default(),
            window,
            ack_delay: agreed.ack_delay,
            ack_every: agreed.ack_every,
            eak_after: agreed.eak_after,
            came: 0,
            out_of_order: 0,
            ack_at: None,
            named: [0; MOST_NAMED],
        }
    }

    /// One past the last number that came in order.
    pub(super) fn next(&self) -> u64 {
        self.gaps.prefix()
    }

    /// The last number that came in order, as an acknowledgement has it.
    #[expect(clippy::cast_possible_truncation, reason = "less than 256")]
    pub(super) fn acked(&self) -> u8 {
        Numbers::wrap(self.next() - 1) as u8
    }

    /// One past the highest number that came.
    pub(super) const fn reached(&self) -> u64 {
        self.gaps.next()
    }

    /// What a segment with this number would be.
    pub(super) fn sees(&self, number: u64) -> Arrival {
        if number >= self.next().saturating_add(self.window) {
            return Arrival::Beyond;
        }
        let missing = self.gaps.within(number..number + 1).next().is_some();
        if number >= self.gaps.next() || missing {
            Arrival::New
        } else {
            Arrival::Again
        }
    }

    /// A segment with this number came, which is not beyond the window.
    pub(super) fn on_segment(&mut self, now: Instant, number: u64) {
        let before = self.next();
        self.gaps.on_packet(number);
        self.came += 1;
        let ahead = self.gaps.prefix() == before;
        self.out_of_order += u32::from(ahead && number > before);
        // A gap is closed: the sender waits for nothing else.
        let closed = self.gaps.prefix() > number + 1;
        let due = self.came >= self.ack_every || self.out_of_order >= self.eak_after;
        self.ack_by(if due || closed {
            now
        } else {
            now + self.ack_delay
        });
    }

    /// The null segment with the expected number came.
    pub(super) fn on_null(&mut self, now: Instant, number: u64) {
        self.nulls.remove(0..number.saturating_sub(TURN));
        self.nulls.insert(number..number + 1);
        self.on_segment(now, number);
    }

    /// The segment with this number was a null segment.
    pub(super) fn is_null(&self, number: u64) -> bool {
        self.nulls.containing(number).is_some()
    }

    /// What came has no room and counts as if it had not; the sender hears that somebody is there.
    pub(super) fn ack_later(&mut self, now: Instant) {
        self.ack_by(now + self.ack_delay);
    }

    fn ack_by(&mut self, at: Instant) {
        self.ack_at = Some(self.ack_at.map_or(at, |due| due.min(at)));
    }

    /// The peer is to be acknowledged at once.
    pub(super) fn ack_now(&mut self, now: Instant) {
        self.ack_by(now);
    }

    /// When something is to be said.
    pub(super) const fn deadline(&self) -> Option<Instant> {
        self.ack_at
    }

    /// An acknowledgement leaves with a segment of data.
    pub(super) fn told(&mut self) {
        // Nothing but an acknowledgement of its own names segments.
        if self.gaps.is_complete() {
            (self.came, self.out_of_order, self.ack_at) = (0, 0, None);
        }
    }

    /// The acknowledgement that is due.
    pub(super) fn take_ack(&mut self, now: Instant) -> Option<Kind<'_>> {
        self.ack_at.filter(|at| *at <= now)?;
        (self.came, self.out_of_order, self.ack_at) = (0, 0, None);
        if self.gaps.is_complete() {
            return Some(Kind::Ack);
        }
        let (mut count, mut at) = (0, self.gaps.prefix());
        for gap in self.gaps.within(at..self.gaps.next()) {
            for number in at..gap.start {
                count = name(&mut self.named, count, number);
            }
            at = gap.end;
        }
        for number in at..self.gaps.next() {
            count = name(&mut self.named, count, number);
        }
        Some(Kind::Eak(&self.named[..count]))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "less than 256")]
fn name(named: &mut [u8; MOST_NAMED], count: usize, number: u64) -> usize {
    match named.get_mut(count) {
        Some(place) => {
            *place = Numbers::wrap(number) as u8;
            count + 1
        }
        None => count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rudp::{Config, config::agree};

    fn receiver(window: u64) -> Receiver {
        let syn = Config::default().syn(1, 1_472);
        Receiver::new(300, window, &agree(&syn, &syn, true).unwrap())
    }

    const fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    /// Of the ports: the third segment, or 300 ms after the first.
    #[test]
    fn the_third_segment_is_acknowledged_at_once_and_fewer_after_300_ms() {
        let mut receiver = receiver(128);
        for (number, acked) in [(300, None), (301, None), (302, Some(Kind::Ack))] {
            receiver.on_segment(at(1), number);
            assert_eq!(receiver.take_ack(at(1)), acked);
        }
        receiver.on_segment(at(5), 303);
        assert_eq!(receiver.deadline(), Some(at(305)));
        assert_eq!(receiver.take_ack(at(305)), Some(Kind::Ack));
        assert_eq!(receiver.acked(), 47, "303 of 256");
        receiver.on_segment(at(400), 304);
        receiver.told();
        assert_eq!(receiver.deadline(), None, "it went with data");
    }

    #[test]
    fn three_out_of_order_are_named_and_a_closed_gap_is_told_at_once() {
        let mut receiver = receiver(20);
        for number in [301, 303] {
            receiver.on_segment(at(1), number);
            assert_eq!(receiver.take_ack(at(1)), None);
        }
        receiver.told();
        assert_eq!(receiver.deadline(), Some(at(301)), "data name nothing");
        receiver.on_segment(at(2), 304);
        assert_eq!(receiver.take_ack(at(2)), Some(Kind::Eak(&[45, 47, 48])));
        assert_eq!(receiver.acked(), 43);
        let seen = [299, 300, 301, 302, 305, 319, 320].map(|n| receiver.sees(n));
        let (new, again) = (Arrival::New, Arrival::Again);
        assert_eq!(seen, [again, new, again, new, new, new, Arrival::Beyond]);
        receiver.on_segment(at(3), 300);
        assert_eq!(receiver.take_ack(at(3)), Some(Kind::Eak(&[47, 48])));
        receiver.on_segment(at(4), 302);
        assert_eq!(receiver.take_ack(at(4)), Some(Kind::Ack));
        assert_eq!(receiver.next(), 305);
    }

    #[test]
    fn no_more_numbers_are_named_than_a_header_holds() {
        let mut receiver = receiver(1_000);
        (301..700).for_each(|n| receiver.on_segment(at(1), n));
        let Some(Kind::Eak(named)) = receiver.take_ack(at(1)) else {
            panic!("nothing named");
        };
        assert_eq!(named.len(), MOST_NAMED);
    }
}
