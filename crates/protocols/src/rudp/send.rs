//! The sending half: segments leave as far as the window goes; those that are shown to be missing again, once in a
//! round trip; and all that are not acknowledged, whenever the timer has run out.
//!
//! Invariant: an acknowledgement of what was never sent changes nothing.

// spec: rudp §3

use std::time::Duration;

use farhaul_congestion::Fixed;
use farhaul_core::{
    send::{Acked, Flight, Lost, Outbox, Permit, Piece, STREAM, Sent, Signals, State},
    session::earliest,
    shell::Record,
    stats::{Stats, Why},
    store::ObjectId,
    stream::Outgoing,
    time::Instant,
    units::{Rate, Size},
};

use super::{config::Agreed, wire::HEAD};

/// Sent back to back.
const QUANTUM: Size = Size::from_bytes(64 << 10);
/// The protocol has a window and no rate: as fast as any host may.
const MOST: Rate = Rate::gbit(100);
/// While a null segment is unacknowledged no more may be: nothing but its low byte tells it from others.
const BESIDE_NULL: u64 = 128;

/// The sending half of a session.
pub(super) struct Sender {
    /// A piece of no bytes is a null segment.
    flight: Flight<Piece>,
    out: Outbox,
    stream: Outgoing,
    agreed: Option<Agreed>,
    rtt: Duration,
    /// The timer of retransmissions runs since then, and has run out so often in a row.
    timed: Option<Instant>,
    timeouts: u32,
    /// The last segment with a number left then.
    spoke: Instant,
    null_due: bool,
    /// A null segment is unacknowledged.
    null: Option<u64>,
}

impl Sender {
    /// Segments are numbered from `first`.
    pub(super) fn new(first: u64, max_rate: Option<Rate>) -> Self {
        let rate = max_rate.map_or(MOST, |rate| rate.min(MOST));
        let law = Box::new(Fixed::new(rate, QUANTUM));
        let mut flight = Flight::keeping(law, Rate::UNLIMITED);
        flight.begin_at(first);
        Self {
            flight,
            out: Outbox::default(),
            stream: Outgoing::default(),
            agreed: None,
            rtt: Duration::ZERO,
            timed: None,
            timeouts: 0,
            spoke: Instant::EPOCH,
            null_due: false,
            null: None,
        }
    }

    pub(super) fn open(&mut self, now: Instant, agreed: Agreed, rtt: Duration) {
        self.rtt = rtt;
        self.spoke = now;
        self.flight.path.datagram = agreed.datagram.into();
        (self.flight.path.srtt, self.flight.path.min_rtt) = (rtt, rtt);
        self.flight.start(now);
        self.agreed = Some(agreed);
    }

    pub(super) fn send(&mut self, object: ObjectId, offset: u64, len: u64) {
        self.out.push(object, offset, len);
    }

    pub(super) fn write(&mut self, bytes: &[u8]) {
        self.stream.write(bytes);
        self.queue();
    }

    fn queue(&mut self) {
        while let Some((offset, len)) = self.stream.take_queueable() {
            self.out.push(STREAM, offset, len);
        }
    }

    /// Copies bytes of the stream.
    pub(super) fn copy(&self, offset: u64, into: &mut [u8]) {
        self.stream.copy(offset, into);
    }

    /// How long the opening took to be answered.
    pub(super) const fn rtt(&self) -> Duration {
        self.rtt
    }

    pub(super) const fn unsent(&self) -> u64 {
        self.out.unsent()
    }

    pub(super) fn cancel_unsent(&mut self) {
        self.out.cancel_unsent();
    }

    pub(super) fn unwritten(&self) -> usize {
        self.stream.pending()
    }

    pub(super) fn is_idle(&self) -> bool {
        // A null segment carries nothing; it leaves alone.
        let quiet = self.flight.log().len() == u64::from(self.null.is_some());
        quiet && self.out.is_empty() && self.stream.pending() == 0
    }

    /// The number that the next new segment gets.
    pub(super) const fn next(&self) -> u64 {
        self.flight.log().next()
    }

    fn may_send_new(&self) -> Result<(), Why> {
        let window = self.agreed.map_or(0, |agreed| agreed.window);
        let most = window.min(self.null.map_or(window, |_| BESIDE_NULL));
        if self.out.is_empty() && !self.null_due {
            Err(Why::Application)
        } else if self.flight.log().len() >= most {
            Err(Why::Peer)
        } else {
            Ok(())
        }
    }

    pub(super) fn permit(&mut self, now: Instant) -> Permit {
        self.flight.permit(now, self.may_send_new())
    }

    /// What goes next: its number and what it carries.
    pub(super) fn next_segment(&mut self, room: u32) -> Option<(u64, Piece)> {
        if let Some(lost) = self.flight.next_lost() {
            return Some(lost);
        }
        self.may_send_new().ok()?;
        if let Some(piece) = self.out.next(room) {
            return Some((self.next(), piece));
        }
        self.null_due.then(|| (self.next(), Piece::default()))
    }

    /// It leaves, with so many bytes.
    pub(super) fn sent(&mut self, now: Instant, number: u64, piece: Piece, wire: u32) {
        let len = if piece.object == STREAM { 0 } else { piece.len };
        self.spoke = now;
        self.null_due = false;
        if piece.len == 0 && number == self.next() {
            self.null = Some(number);
        }
        self.timed.get_or_insert(now);
        self.flight.send(now, number, piece, (len, wire));
    }

    pub(super) fn batch_sent(&mut self, now: Instant, bytes: u64) {
        let idle = self.out.is_empty();
        self.flight.batch_sent(now, bytes, idle);
    }

    /// One past the number whose low byte this is, counted from the last that was acknowledged; none, if that was
    /// never sent.
    #[expect(clippy::cast_possible_truncation, reason = "the low byte is meant")]
    fn end_of(&self, low: u8) -> Option<u64> {
        let first = self.flight.log().first();
        let end = first + u64::from(low.wrapping_sub((first - 1) as u8));
        (end <= self.next()).then_some(end)
    }

    /// All up to the number with this low byte came; returns whether that is news.
    pub(super) fn on_ack(&mut self, now: Instant, low: u8) -> bool {
        let first = self.flight.log().first();
        let Some(end) = self.end_of(low).filter(|end| *end > first) else {
            return false;
        };
        let (mut acked, mut data, mut stream) = (Acked::default(), 0, None);
        self.flight.ack_below(end, &mut acked, |sent| {
            let piece = &sent.content;
            if piece.object == STREAM && piece.len > 0 {
                stream = Some(piece.offset + u64::from(piece.len));
            } else {
                data += u64::from(piece.len);
            }
        });
        if let Some(end) = stream {
            self.stream.on_acked(end);
            // What came and is not read soon is not acknowledged: so what was is as good as read.
            self.stream.on_credit(end);
            self.queue();
        }
        self.null.take_if(|null| *null < end);
        self.flight.count.data_acked += data;
        let signals = Signals {
            round_start: self.flight.round(end - 1),
            app_limited: self.out.is_empty(),
            ..Signals::default()
        };
        self.flight.tell_acks(now, &acked, signals);
        self.timeouts = 0;
        self.timed = (!self.flight.log().is_empty()).then_some(now);
        true
    }

    /// These came out of order: what is missing before the last of them is sent again.
    pub(super) fn on_named(&mut self, now: Instant, named: &[u8]) {
        let (mut acked, mut highest) = (Acked::default(), self.flight.log().first());
        for low in named {
            if let Some(end) = self
                .end_of(*low)
                .filter(|end| *end > self.flight.log().first())
            {
                self.flight.ack(end - 1, &mut acked);
                highest = highest.max(end - 1);
            }
        }
        self.flight.tell_acks(now, &acked, Signals::default());
        let rtt = self.rtt;
        self.lose(now, highest, |resent, at| !resent || now.since(at) >= rtt);
    }

    /// Those before `end` are to be sent again that did not come, if `which` says so.
    fn lose(&mut self, now: Instant, end: u64, which: impl Fn(bool, Instant) -> bool) {
        let before = self.flight.count.in_flight;
        let mut lost = Lost::default();
        for number in self.flight.log().first()..end {
            let is_lost =
                |sent: &Sent<Piece>| sent.state != State::Acked && which(sent.resent, sent.at);
            if self.flight.log().get(number).is_some_and(is_lost) {
                self.flight.mark_lost(number..number + 1, &mut lost);
            }
        }
        if let Some((_, last)) = lost.span() {
            self.flight.tell_losses(now, before, &lost, last);
        }
    }

    fn times_out_at(&self) -> Option<Instant> {
        let timeout = self.agreed?.retransmit;
        self.timed.map(|at| at + timeout)
    }

    /// When a null segment leaves, if it is this end that sends them.
    fn null_at(&self) -> Option<Instant> {
        let null = self.agreed?.null;
        let idle = self.flight.log().is_empty() && self.out.is_empty() && !self.null_due;
        idle.then(|| self.spoke + null)
    }

    /// False, if the peer has to be given up.
    pub(super) fn on_timer(&mut self, now: Instant, client: bool) -> bool {
        self.null_due |= client && self.null_at().is_some_and(|at| at <= now);
        if self.times_out_at().is_none_or(|at| at > now) {
            return true;
        }
        self.timed = Some(now);
        self.timeouts += 1;
        self.flight.on_silence(now, self.timeouts);
        // The first of all, even if it was named: the peer may have forgotten it.
        let (first, next) = (self.flight.log().first(), self.next());
        let mut lost = Lost::default();
        self.flight.mark_lost(first..first + 1, &mut lost);
        self.lose(now, next, |_, _| true);
        let retries = self.agreed.map_or(0, |agreed| agreed.retries);
        retries == 0 || self.timeouts <= retries.into()
    }

    pub(super) fn deadline(&self, client: bool) -> Option<(Instant, Why)> {
        let null = self.null_at().filter(|_| client);
        earliest([
            self.times_out_at().map(|at| (at, Why::Repair)),
            self.flight.deadline(),
            null.map(|at| (at, Why::Liveness)),
        ])
    }

    pub(super) fn fill_stats(&self, stats: &mut Stats) {
        self.flight.fill_stats(stats);
        let window = self.agreed.map(|agreed| agreed.window);
        stats.peer_window = window.map(|window| window * u64::from(stats.datagram_size));
        stats.rtt_min = Some(self.rtt).filter(|rtt| !rtt.is_zero());
        stats.rtt_smoothed = stats.rtt_min;
    }
}

/// Bytes of a segment around its data.
pub(super) const AROUND: usize = HEAD + Record::LEN;
