//! The receiving half: which segments came, and when they are acknowledged. An acknowledgement
//! leaves after a few segments, or a while after the first that was not acknowledged. Segments that
//! came out of order are named, once there are some.
//!
//! Invariant: segments beyond the window, and bytes of the stream that have no room, are as if they had not come.

// spec: rudp §3

use farhaul_core::{
    codec::DecodeError,
    loss::Ranges,
    protocol::CloseReason,
    recv::{Arrival, Gaps, Schedule},
    send::STREAM,
    seq::Wrap,
    shell::{Record, Refusal, SessionState},
    store::Extent,
    stream::Incoming,
    time::Instant,
};

use super::{
    config::Agreed,
    send::AROUND,
    wire::{HEAD, Kind, MOST_NAMED, low},
};

/// The full numbers of segments with data.
pub(super) type Full = Wrap<{ 1 << 32 }>;
/// Numbers after which one may be that of another segment again; a first one's place among numbers that do not wrap.
pub(super) const TURN: u64 = 256;

/// The receiving half of a session.
#[derive(Debug)]
pub(super) struct Receiver {
    gaps: Gaps,
    /// Numbers of null segments, of those that may still come.
    nulls: Ranges,
    pub(super) stream: Incoming,
    window: u64,
    /// Time at which the next acknowledgement leaves. Its holes are segments that came out of
    /// order.
    acks: Schedule,
    named: [u8; MOST_NAMED],
}

impl Receiver {
    /// The peer's first segment had the number before `first`; `window` are taken.
    pub(super) fn new(first: u64, window: u64, agreed: &Agreed) -> Self {
        let mut acks = Schedule::new(agreed.ack_delay, agreed.eak_after);
        acks.set_packets(Some(agreed.ack_every));
        Self {
            gaps: Gaps::new(first),
            nulls: Ranges::default(),
            stream: Incoming::default(),
            window,
            acks,
            named: [0; MOST_NAMED],
        }
    }

    /// One past the last number that came in order.
    pub(super) fn next(&self) -> u64 {
        self.gaps.prefix()
    }

    /// The last number that came in order, as an acknowledgement has it.
    pub(super) fn acked(&self) -> u8 {
        low(self.next() - 1)
    }

    /// A segment with data, which is at `at` in its batch.
    pub(super) fn on_data(
        &mut self,
        now: Instant,
        state: &mut SessionState,
        (number, segment): (u8, &[u8]),
        at: usize,
    ) -> Result<(), Refusal> {
        let record = Record::decode(&segment[HEAD..])?;
        let data = segment.get(AROUND..).filter(|data| !data.is_empty());
        let data = data.ok_or(DecodeError::Malformed("data"))?;
        let extent = Extent::new(record.object, record.offset, data.len(), at + AROUND)?;
        let full = Full::expand(record.number, self.gaps.next());
        if low(full) != number {
            return Err(DecodeError::Malformed("number of a segment").into());
        }
        let taken = match self.gaps.sees(full, self.window) {
            Arrival::Beyond => return Err(Refusal::Drop),
            Arrival::Again if self.nulls.containing(full).is_some() => {
                let text = "data with the number of a null segment".into();
                return Err(Refusal::End(CloseReason::Protocol(text)));
            }
            Arrival::Again => {
                state.app.stats.dropped_duplicate += 1;
                true
            }
            Arrival::New if record.object == STREAM => {
                let inserted = self.stream.insert(record.offset, data);
                if inserted == Some(true) {
                    state.app.readable();
                }
                state.app.stats.dropped_full += u64::from(inserted.is_none());
                inserted.is_some()
            }
            Arrival::New => state.place(extent),
        };
        if taken {
            self.on_segment(now, full);
        } else {
            // As if it had not come; the sender hears that somebody is there.
            self.ack_by(now + self.acks.interval());
        }
        Ok(())
    }

    /// A segment with this number came, which is not beyond the window.
    fn on_segment(&mut self, now: Instant, number: u64) {
        let before = self.next();
        self.gaps.on_packet(number);
        let ahead = number > before && self.next() == before;
        // A gap is closed: the sender waits for nothing else.
        let closed = self.next() > number + 1;
        self.acks.on_packet(now, ahead.into(), closed);
    }

    /// A null segment: none but the one with the expected number is taken.
    pub(super) fn on_null(&mut self, now: Instant, number: u8) {
        let next = self.next();
        if number == low(next) {
            self.nulls.remove(0..next.saturating_sub(TURN));
            self.nulls.insert(next..next + 1);
            self.on_segment(now, next);
        }
        self.ack_by(now);
    }

    /// The peer is to be acknowledged then at the latest.
    pub(super) fn ack_by(&mut self, at: Instant) {
        self.acks.hurry(at);
    }

    /// Time at which something is to be said.
    pub(super) const fn deadline(&self) -> Option<Instant> {
        self.acks.due()
    }

    /// An acknowledgement leaves with a segment of data.
    pub(super) fn on_ack_sent(&mut self) {
        // Nothing but an acknowledgement of its own names segments.
        if self.gaps.is_complete() {
            self.acks.clear();
        }
    }

    /// The acknowledgement that is due.
    pub(super) fn take_ack(&mut self, now: Instant) -> Option<Kind<'_>> {
        self.deadline().filter(|at| *at <= now)?;
        self.acks.clear();
        let mut count = 0;
        for (place, number) in self.named.iter_mut().zip(self.gaps.ahead().flatten()) {
            *place = low(number);
            count += 1;
        }
        Some(match &self.named[..count] {
            [] => Kind::Ack,
            named => Kind::Eak(named),
        })
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

    /// Tests numbers of the ports: the third segment, or 300 ms after the first.
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
        receiver.on_ack_sent();
        assert_eq!(receiver.deadline(), None, "it went with data");
    }

    #[test]
    fn three_out_of_order_are_named_and_a_closed_gap_is_told_at_once() {
        let mut receiver = receiver(20);
        for number in [301, 303] {
            receiver.on_segment(at(1), number);
            assert_eq!(receiver.take_ack(at(1)), None);
        }
        receiver.on_ack_sent();
        assert_eq!(receiver.deadline(), Some(at(301)), "data name nothing");
        receiver.on_segment(at(2), 304);
        assert_eq!(receiver.take_ack(at(2)), Some(Kind::Eak(&[45, 47, 48])));
        assert_eq!(receiver.acked(), 43);
        let seen = [299, 300, 301, 302, 305, 319, 320].map(|n| receiver.gaps.sees(n, 20));
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
