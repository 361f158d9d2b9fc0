//! The sending half. Segments leave as far as the window goes. Those that are shown to be missing
//! leave again, once in a round trip; and all that are not acknowledged, whenever the timer has run
//! out.
//!
//! Invariant: an acknowledgement of segments never sent changes nothing.

// spec: rudp §3

use std::time::Duration;

use farhaul_congestion::Fixed;
use farhaul_core::{
    send::{Acked, Line, Lost, Permit, Piece, Signals},
    session::earliest,
    shell::Record,
    stats::{Stats, Why},
    time::Instant,
    units::{Rate, Size},
};

use super::{
    config::Agreed,
    connection::Begun,
    wire::{HEAD, low},
};

/// Sent back to back.
const QUANTUM: Size = Size::from_bytes(64 << 10);
/// The protocol has a window and no rate: as fast as any host may.
const MOST: Rate = Rate::gbit(100);
/// Most segments unacknowledged beside a null segment, whose low byte alone distinguishes it from
/// others.
const BESIDE_NULL: u64 = 128;
/// Bytes of a segment around its data.
pub(super) const AROUND: usize = HEAD + Record::LEN;

/// The sending half of a session.
pub(super) struct Sender {
    pub(super) client: bool,
    /// A piece of no bytes is a null segment, which leaves alone: the first of those under way.
    pub(super) line: Line,
    /// Agreement, once the peer has been heard.
    pub(super) agreed: Option<Agreed>,
    /// Time since which the timer of retransmissions runs, and how often it has run out in a row.
    timed: Option<Instant>,
    timeouts: u32,
    /// Time at which the last segment with a number left.
    spoke: Instant,
    null_due: bool,
}

impl Sender {
    /// Segments are numbered from `first`.
    pub(super) fn new(first: u64, begun: &Begun) -> Self {
        let rate = begun.max_rate.map_or(MOST, |rate| rate.min(MOST));
        let law = Box::new(Fixed::new(rate, QUANTUM));
        let interval = Duration::from_millis(begun.syn.ack_delay.into());
        let mut line = Line::new(law, Rate::UNLIMITED, interval);
        line.flight.begin_at(first);
        Self {
            client: begun.client,
            line,
            agreed: None,
            timed: None,
            timeouts: 0,
            spoke: Instant::EPOCH,
            null_due: false,
        }
    }

    /// The opening took `rtt` to be answered.
    pub(super) fn open(&mut self, now: Instant, rtt: Duration) {
        self.spoke = now;
        let datagram = self.agreed.map_or(0, |agreed| agreed.datagram);
        self.line.open(now, datagram.into(), rtt);
        self.line.set_window(self.window());
    }

    fn window(&self) -> u64 {
        self.agreed.map_or(0, |agreed| agreed.window)
    }

    /// Time that the opening took to be answered.
    pub(super) const fn rtt(&self) -> Duration {
        self.line.flight.path.srtt
    }

    pub(super) fn is_idle(&self) -> bool {
        let log = self.line.flight.log();
        let first = log.get(log.first());
        // A null segment carries nothing.
        let null = first.is_some_and(|sent| sent.content.len == 0);
        log.len() == u64::from(null) && self.line.has_nothing()
    }

    /// The number that the next new segment gets.
    pub(super) const fn next(&self) -> u64 {
        self.line.flight.log().next()
    }

    pub(super) fn permit(&mut self, now: Instant) -> Permit {
        if self.null_due {
            return self.line.flight.permit(now, Ok(()));
        }
        self.line.permit(now)
    }

    /// Number and content of the next segment.
    pub(super) fn next_segment(&mut self, room: u32) -> Option<(u64, Piece)> {
        let null = self.null_due.then(|| (self.next(), Piece::default()));
        self.line.next_packet(room).or(null)
    }

    /// Notes that the segment leaves, with `wire` bytes.
    pub(super) fn sent(&mut self, now: Instant, number: u64, piece: Piece, wire: u32) {
        self.spoke = now;
        self.null_due = false;
        if piece.len == 0 {
            self.line.set_window(self.window().min(BESIDE_NULL));
        }
        self.timed.get_or_insert(now);
        self.line.sent(now, number, piece, wire);
    }

    /// One past the number whose low byte is `number`, counted from the last that was acknowledged.
    /// None, if it is that last number, or one that was never sent.
    fn end_of(&self, number: u8) -> Option<u64> {
        let first = self.line.flight.log().first();
        let end = first + u64::from(number.wrapping_sub(low(first - 1)));
        (first < end && end <= self.next()).then_some(end)
    }

    /// All up to the number with this low byte came.
    pub(super) fn on_ack(&mut self, now: Instant, number: u8) {
        let Some(end) = self.end_of(number) else {
            return;
        };
        self.line.ack_below(now, end, Signals::default());
        self.line.set_window(self.window());
        self.timeouts = 0;
        self.timed = (!self.line.is_clear()).then_some(now);
    }

    /// Takes segments that came out of order: those missing before the last of them are sent again.
    pub(super) fn on_named(&mut self, now: Instant, named: &[u8]) {
        let first = self.line.flight.log().first();
        let (mut acked, mut highest) = (Acked::default(), first);
        for number in named {
            if let Some(end) = self.end_of(*number) {
                self.line.flight.ack(end - 1, &mut acked);
                highest = highest.max(end - 1);
            }
        }
        self.line.flight.tell_acks(now, &acked, Signals::default());
        self.line.mark_lost(now, self.rtt(), Some(first..highest));
    }

    fn times_out_at(&self) -> Option<Instant> {
        let timeout = self.agreed?.retransmit;
        self.timed.map(|at| at + timeout)
    }

    /// Time at which a null segment leaves, if it is this end that sends them.
    fn null_at(&self) -> Option<Instant> {
        let idle = self.client && self.line.is_idle() && !self.null_due;
        Some(self.spoke + self.agreed?.null).filter(|_| idle)
    }

    /// Acts on the timer; false if the peer has to be given up.
    pub(super) fn on_timer(&mut self, now: Instant) -> bool {
        self.null_due |= self.null_at().is_some_and(|at| at <= now);
        if self.times_out_at().is_none_or(|at| at > now) {
            return true;
        }
        self.timed = Some(now);
        self.timeouts += 1;
        self.line.flight.on_silence(now, self.timeouts);
        // The first of all, even if it was named: the peer may have forgotten it.
        let (first, next) = (self.line.flight.log().first(), self.next());
        self.line
            .flight
            .mark_lost(first..first + 1, &mut Lost::default());
        self.line.mark_lost(now, Duration::ZERO, Some(first..next));
        let retries = self.agreed.map_or(0, |agreed| agreed.retries);
        retries == 0 || self.timeouts <= retries.into()
    }

    pub(super) fn deadline(&self) -> Option<(Instant, Why)> {
        earliest([
            self.times_out_at().map(|at| (at, Why::Repair)),
            self.line.flight.deadline(),
            self.null_at().map(|at| (at, Why::Liveness)),
        ])
    }

    pub(super) fn fill_stats(&self, stats: &mut Stats) {
        self.line.fill_stats(stats);
        stats.rtt_min = (self.spoke > Instant::EPOCH).then(|| self.rtt());
        stats.rtt_smoothed = stats.rtt_min;
    }
}
