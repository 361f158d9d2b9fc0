//! The sending half: packets leave at the preset rate, missing ones first, as far as the peer's buffer goes.
//! What is told of as missing is sent again, once in a round trip. Each such message keeps the sender from
//! sending for a while.

// spec: rwtp §1

use std::time::Duration;

use farhaul_congestion::Fixed;
use farhaul_core::{
    codec::DecodeError,
    send::{Acked, Flight, Lost, Outbox, Permit, Piece, Signals, State},
    stats::{Stats, Why},
    time::Instant,
    units::{Rate, Size},
};

use super::{
    recv::TICK,
    wire::{Numbers, Status},
};

/// Sent back to back.
const QUANTUM: Size = Size::from_bytes(64 << 10);
/// Messages keep the sender from sending for so much of a tick; what is left over waits for the next. Without that,
/// who is late with repairs would be told of ever more and never send again.
const LONGEST: Duration = Duration::from_micros(9_500);
/// The rest of the tick.
const REST: Duration = Duration::from_micros(500);
/// Silence after which what nobody spoke of is sent again: two round trips and this.
const SILENCE: Duration = Duration::from_millis(100);

/// The sending half of a session.
pub(super) struct Sender {
    flight: Flight<Piece>,
    out: Outbox,
    /// Packets that fit the peer's buffer.
    window: u64,
    /// For each missing packet told of.
    blocked: Duration,
    /// The time for which it is still to be kept from sending, and when of that some is taken next.
    owed: Duration,
    pay_at: Instant,
    /// Nothing has left since the last part: whoever is woken late would else be kept again, for ever.
    paid: bool,
    /// One past the highest packet known to have arrived.
    highest: u64,
    /// When the last news came, or was waited for in vain.
    news_at: Instant,
    /// Why nothing was sent last.
    held: Option<Why>,
}

impl Sender {
    pub(super) fn new(rate: Rate, blocked: Duration) -> Self {
        let law = Box::new(Fixed::new(rate, QUANTUM));
        let mut flight = Flight::keeping(law, Rate::UNLIMITED);
        flight.path.feedback_interval = TICK;
        Self {
            flight,
            out: Outbox::default(),
            window: 0,
            blocked,
            owed: Duration::ZERO,
            pay_at: Instant::EPOCH,
            paid: false,
            highest: 0,
            news_at: Instant::EPOCH,
            held: None,
        }
    }

    pub(super) fn open(&mut self, now: Instant, datagram: u32, rtt: Duration, window: u64) {
        self.flight.path.datagram = datagram;
        self.flight.path.srtt = rtt;
        self.flight.path.min_rtt = rtt;
        self.flight.start(now);
        self.window = window;
    }

    pub(super) fn push(&mut self, object: u32, offset: u64, len: u64) {
        self.out.push(object, offset, len);
    }

    pub(super) const fn unsent(&self) -> u64 {
        self.out.unsent()
    }

    pub(super) fn cancel_unsent(&mut self) {
        self.out.cancel_unsent();
    }

    /// Everything given has been acknowledged.
    pub(super) fn is_idle(&self) -> bool {
        self.flight.log().is_empty() && self.out.is_empty()
    }

    /// May a new packet leave, as far as the buffer goes?
    fn may_send_new(&self) -> Result<(), Why> {
        if self.out.is_empty() {
            Err(Why::Application)
        } else if self.flight.log().len() >= self.window {
            Err(Why::Peer)
        } else {
            Ok(())
        }
    }

    pub(super) fn permit(&mut self, now: Instant) -> Permit {
        let permit = self.flight.permit(now, self.may_send_new());
        self.held = match permit {
            Permit::Hold(why) => Some(why),
            Permit::Send { .. } => None,
        };
        permit
    }

    /// What goes next: its number and what it carries.
    pub(super) fn next_packet(&mut self, room: u32) -> Option<(u64, Piece)> {
        if let Some(lost) = self.flight.next_lost() {
            return Some(lost);
        }
        self.may_send_new().ok()?;
        Some((self.flight.log().next(), self.out.next(room)?))
    }

    /// It leaves.
    pub(super) fn sent(&mut self, now: Instant, number: u64, piece: Piece, wire: u32) {
        let len = u64::from(piece.len);
        if number < self.flight.log().next() {
            self.flight.resend(now, number);
            self.flight.count.repaired += len;
            self.flight.count.retransmits += 1;
            return;
        }
        if self.flight.log().is_empty() {
            self.news_at = now;
        }
        self.flight.count.data_sent += len;
        self.flight.push(now, piece, wire, State::Outstanding);
    }

    pub(super) fn batch_sent(&mut self, now: Instant, bytes: u64) {
        if std::mem::take(&mut self.paid) {
            self.pay_at = self.pay_at.max(now + REST);
        }
        self.flight.batch_sent(now, bytes, self.out.is_empty());
    }

    /// A number on the wire that was sent.
    fn known(&self, number: u32) -> Result<u64, DecodeError> {
        let number = Numbers::expand(number, self.flight.log().next());
        if number <= self.flight.log().next() {
            Ok(number)
        } else {
            Err(DecodeError::Malformed("a report of packets never sent"))
        }
    }

    pub(super) fn on_status(&mut self, now: Instant, status: Status) -> Result<(), DecodeError> {
        let (prefix, next) = (self.known(status.prefix)?, self.known(status.next)?);
        if prefix > next {
            return Err(DecodeError::Malformed("status"));
        }
        let mut signals = Signals::default();
        if next > self.highest {
            signals.rtt = self.measured(now, next - 1, status.held);
            self.highest = next;
            self.news_at = now;
        }
        if prefix > self.flight.log().first() {
            self.news_at = now;
            let (mut acked, mut data) = (Acked::default(), 0);
            self.flight.ack_below(prefix, &mut acked, |sent| {
                data += u64::from(sent.content.len);
            });
            self.flight.count.data_acked += data;
            signals.round_start = self.flight.round(prefix - 1);
            signals.app_limited = self.out.is_empty();
            self.flight.tell_acks(now, &acked, signals);
        }
        Ok(())
    }

    /// The round-trip time by packet `number`, which arrived so many us before it was told of.
    fn measured(&mut self, now: Instant, number: u64, held: u32) -> Option<Duration> {
        let sent = self.flight.log().get(number).filter(|sent| !sent.resent)?;
        let there = now.since(sent.at);
        let rtt = there.checked_sub(Duration::from_micros(held.into()))?;
        let path = &mut self.flight.path;
        path.srtt = (path.srtt * 7 + rtt) / 8;
        path.min_rtt = path.min_rtt.min(rtt);
        Some(rtt)
    }

    /// A packet is missing.
    pub(super) fn on_loss(&mut self, now: Instant, number: u32) -> Result<(), DecodeError> {
        let number = self.known(number)?;
        if number == self.flight.log().next() {
            return Err(DecodeError::Malformed("a report of packets never sent"));
        }
        self.owed = self.owed.saturating_add(self.blocked);
        self.pay(now);
        let srtt = self.flight.path.srtt;
        let under_way = |at: Instant| now.since(at) < srtt;
        let sent = self.flight.log().get(number);
        if sent.is_some_and(|sent| !(sent.resent && under_way(sent.at))) {
            self.mark(now, number..number + 1);
        }
        Ok(())
    }

    /// Keeps the sender from sending for what is owed of a tick.
    fn pay(&mut self, now: Instant) {
        if self.pay_at <= now && !self.paid && !self.owed.is_zero() {
            let part = self.owed.min(LONGEST);
            self.owed -= part;
            self.flight.governor.delay(now, part);
            self.pay_at = now + TICK;
            self.paid = true;
        }
    }

    fn mark(&mut self, now: Instant, range: std::ops::Range<u64>) {
        let before = self.flight.count.in_flight;
        let mut lost = Lost::default();
        self.flight.mark_lost(range, &mut lost);
        if let Some((_, last)) = lost.span() {
            self.flight.tell_losses(now, before, &lost, last);
        }
    }

    fn silence_at(&self) -> Option<Instant> {
        let patience = self.flight.path.srtt * 2 + SILENCE;
        (!self.flight.log().is_empty()).then(|| self.news_at + patience)
    }

    /// Without news: what is at the end may be lost, with nothing behind it that would show it; and so may what
    /// was said.
    pub(super) fn on_timer(&mut self, now: Instant) {
        self.pay(now);
        if self.silence_at().is_none_or(|at| at > now) {
            return;
        }
        self.news_at = now;
        let (first, next) = (self.flight.log().first(), self.flight.log().next());
        self.mark(now, first..first + 1);
        self.mark(now, self.highest.max(first)..next);
        self.flight.count.timeouts += 1;
    }

    pub(super) fn deadline(&self) -> Option<(Instant, Why)> {
        let paced = self.held == Some(Why::Pacing);
        let pacing = paced.then(|| self.flight.governor.wake()).flatten();
        let silence = self.silence_at().map(|at| (at, Why::Repair));
        let owes = !self.owed.is_zero() && !self.paid;
        let owed = owes.then_some((self.pay_at, Why::Pacing));
        let pacing = pacing.map(|at| (at, Why::Pacing));
        let deadlines = [silence, owed, pacing];
        deadlines.into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    pub(super) fn fill_stats(&self, stats: &mut Stats) {
        self.flight.fill_stats(stats);
        stats.peer_window = Some(self.window * u64::from(stats.datagram_size));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_that_is_woken_late_sends_before_it_is_kept_again() {
        let mut sender = Sender::new(Rate::gbit(1), Duration::from_micros(48));
        let mut now = Instant::from_nanos(1 << 40);
        sender.open(now, 1_472, Duration::from_millis(1), 10_000);
        sender.push(1, 0, 10_000_000);
        let mut left = 0;
        for _ in 0..100 {
            // Messages come first in each turn, and each turn is late.
            now += TICK + Duration::from_millis(3);
            if left > 0 {
                (0..300).for_each(|_| sender.on_loss(now, 0).expect("it was sent"));
            }
            if matches!(sender.permit(now), Permit::Send { .. })
                && let Some((number, piece)) = sender.next_packet(1_400)
            {
                sender.sent(now, number, piece, 1_472);
                sender.batch_sent(now, 1_472);
                left += 1;
            }
        }
        assert!(left >= 49, "{left} of 100 turns");
    }
}
