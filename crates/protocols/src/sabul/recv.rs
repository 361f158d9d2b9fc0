//! The receiving half: which packets are missing, and what is reported, when. A gap is reported at
//! once, number by number, and again as long as it lasts, a "round trip" later each time. Packets
//! that have arrived in order are reported every 100 ms, and at once when a run of data is complete
//! or the window is overrun. A signal every 10 ms counts arrivals.
//!
//! Invariants: packets beyond the window are dropped, so that there are never more gaps than
//! packets in it. Nothing is sent while nothing comes.
//!
//! Source: SABUL 2.x as read, 2003. Other than there: acknowledgements are sent only if something
//! came since the last, signals for a second after it. A gap is reported again on its own time and
//! not at the next of a 20 ms timer's.

use std::time::Duration;

use farhaul_core::{
    recv::{Arrival, Gaps},
    time::Instant,
};

use super::{
    seq,
    wire::{MAX_LOSSES, Message, put_losses},
};

/// Between acknowledgements.
pub(super) const ACK: Duration = Duration::from_millis(100);
/// Between signals.
pub(super) const SYN: Duration = Duration::from_millis(10);
/// Signals go on so long after the last packet.
const QUIET: Duration = Duration::from_secs(1);
/// Least time until a gap is reported again.
const LEAST_REPEAT: Duration = Duration::from_millis(20);

/// The receiving half of a session.
#[derive(Debug)]
pub(super) struct Receiver {
    window: u64,
    /// Between reports of the same gap.
    repeat: Duration,
    gaps: Gaps,
    /// Everything below was acknowledged.
    acked: u64,
    ack_at: Option<Instant>,
    syn_at: Option<Instant>,
    last_packet: Instant,
    counted: u32,
    /// True if something that is due did not fit.
    stalled: bool,
}

impl Receiver {
    /// The receiver of a sender that may have `window` packets under way.
    pub(super) fn new(window: u32) -> Self {
        Self {
            window: window.into(),
            repeat: LEAST_REPEAT,
            gaps: Gaps::new(seq::FIRST),
            acked: seq::FIRST,
            ack_at: None,
            syn_at: None,
            last_packet: Instant::EPOCH,
            counted: 0,
            stalled: false,
        }
    }

    /// Opens the receiver; a round trip takes `exchange`.
    pub(super) fn open(&mut self, exchange: Duration) {
        self.repeat = (exchange * 3 / 2).max(LEAST_REPEAT);
    }

    /// A packet with this number on the wire, the last of a run of data or not.
    pub(super) fn on_packet(&mut self, now: Instant, sequence: u32, last: bool) -> Arrival {
        let number = seq::Number::expand(sequence, self.gaps.prefix());
        self.last_packet = now;
        self.counted = self.counted.saturating_add(1);
        self.syn_at.get_or_insert(now + SYN);
        let ack_at = *self.ack_at.get_or_insert(now + ACK);
        let arrival = self.gaps.on_packet_within(number, self.window);
        if arrival == Arrival::Beyond {
            self.ack_at = Some(now);
        }
        if last && self.gaps.is_complete() {
            self.ack_at = Some(ack_at.min(now));
        }
        arrival
    }

    /// Time at which something is to be said.
    pub(super) fn deadline(&self) -> Option<Instant> {
        if self.stalled {
            // There is room again when the world asks again.
            return None;
        }
        if self.gaps.has_fresh() {
            return Some(self.last_packet);
        }
        [self.ack_at, self.syn_at, self.gaps.due(self.repeat)]
            .into_iter()
            .flatten()
            .min()
    }

    /// Appends the messages that are due now, at most `room` bytes.
    pub(super) fn report(&mut self, now: Instant, room: usize, into: &mut Vec<u8>) {
        let most = into.len() + room;
        self.stalled = !(self.report_gaps(now, most, into) && self.report_counts(now, most, into));
    }

    /// Reports gaps; false if not everything fitted.
    fn report_gaps(&mut self, now: Instant, most: usize, into: &mut Vec<u8>) -> bool {
        loop {
            // One report for each new gap, unless it is too long for one.
            let room = most.saturating_sub(into.len() + 8) / 4;
            let told = self
                .gaps
                .report(now, self.repeat, room.min(MAX_LOSSES) as u64);
            if told.is_empty() {
                return !self.gaps.has_fresh();
            }
            put_losses(into, told.into_iter().flatten().map(seq::Number::wrap));
        }
    }

    /// Writes acknowledgement and signal, if they are due; false if they did not fit.
    fn report_counts(&mut self, now: Instant, most: usize, into: &mut Vec<u8>) -> bool {
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if due(self.ack_at) {
            if into.len() + 8 > most {
                return false;
            }
            self.ack_at = None;
            self.acked = self.gaps.prefix();
            Message::Ack(seq::Number::wrap(self.acked)).encode(into);
        }
        if due(self.syn_at) {
            if into.len() + 8 > most {
                return false;
            }
            Message::Syn(std::mem::take(&mut self.counted)).encode(into);
            let goes_on = now.since(self.last_packet) < QUIET;
            self.syn_at = goes_on.then(|| now + SYN);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::EPOCH + Duration::from_millis(ms)
    }

    fn receiver() -> Receiver {
        let mut receiver = Receiver::new(1_000);
        receiver.open(Duration::from_millis(40));
        receiver
    }

    /// Types and attributes, and the numbers of reports.
    fn said(receiver: &mut Receiver, now: Instant, room: usize) -> Vec<Vec<u32>> {
        let mut bytes = Vec::new();
        receiver.report(now, room, &mut bytes);
        assert!(bytes.len() <= room);
        let (mut used, mut all) = (0, Vec::new());
        while let Some((message, len)) = Message::decode(&bytes[used..]).unwrap() {
            all.push(match message {
                Message::Ack(next) => vec![1, next],
                Message::Err(losses) => [2].into_iter().chain(losses.iter()).collect(),
                Message::Syn(n) => vec![4, n],
            });
            used += len;
        }
        assert_eq!(used, bytes.len());
        all
    }

    #[test]
    fn a_gap_is_told_at_once_and_again_until_it_is_filled() {
        let mut receiver = receiver();
        for sequence in [0, 1, 5, 6, 8] {
            assert_eq!(receiver.on_packet(at(0), sequence, false), Arrival::New);
        }
        assert_eq!(
            said(&mut receiver, at(0), 999),
            [vec![2, 2, 3, 4], vec![2, 7]]
        );
        assert_eq!(said(&mut receiver, at(9), 999), Vec::<Vec<u32>>::new());
        assert_eq!(said(&mut receiver, at(10), 999), [[4, 5]]);
        receiver.on_packet(at(11), 3, false);
        assert_eq!(receiver.on_packet(at(11), 3, false), Arrival::Again);
        let again = said(&mut receiver, at(60), 999);
        assert_eq!(again[0], [2, 2, 4, 7], "one and a half exchanges later");
        assert_eq!(said(&mut receiver, at(100), 999)[0], [1, 2]);
    }

    #[test]
    fn the_end_of_a_run_and_an_overrun_are_acknowledged_at_once() {
        let mut receiver = receiver();
        receiver.on_packet(at(0), 0, false);
        assert_eq!(receiver.deadline(), Some(at(10)));
        receiver.on_packet(at(1), 1, true);
        assert_eq!(said(&mut receiver, at(1), 999), [[1, 2]]);
        assert_eq!(receiver.on_packet(at(2), 1_002, false), Arrival::Beyond);
        assert_eq!(said(&mut receiver, at(2), 999), [[1, 2]]);
        let late = said(&mut receiver, at(1_500), 999);
        assert_eq!(late, [[4, 3]]);
        assert_eq!(receiver.deadline(), None, "silence is not told");
    }

    #[test]
    fn without_room_nothing_is_due_and_nothing_forgotten() {
        let mut receiver = receiver();
        receiver.on_packet(at(0), 900, false);
        assert_eq!(said(&mut receiver, at(0), 20), [[2, 0, 1, 2]]);
        assert_eq!(receiver.deadline(), None);
        let rest = said(&mut receiver, at(1), 1 << 16);
        assert_eq!(
            rest.iter().map(|r| r.len() - 1).collect::<Vec<_>>(),
            [366, 366, 165]
        );
        assert_eq!(receiver.deadline(), Some(at(10)));
    }
}
