//! The sending half: packets leave at the preset rate, missing ones first, as far as the peer's
//! buffer goes. A packet reported missing is sent again, once in a round trip. Each such message
//! keeps the sender from sending for a while.

// spec: rwtp §1

use std::time::Duration;

use farhaul_congestion::Fixed;
use farhaul_core::{
    codec::DecodeError,
    send::{Line, Piece, Signals},
    session::earliest,
    stats::Why,
    time::Instant,
    units::{Rate, Size},
};

use super::{
    recv::TICK,
    wire::{Numbers, Status},
};

/// Sent back to back.
const QUANTUM: Size = Size::from_bytes(64 << 10);
/// Longest part of a tick for which messages keep the sender from sending; the rest waits for the
/// next tick. Without that, a sender that is late with repairs would get ever more reports and
/// never send again.
const LONGEST: Duration = Duration::from_micros(9_500);
/// The rest of the tick.
const REST: Duration = Duration::from_micros(500);
/// Silence after which what nobody spoke of is sent again: two round trips and this.
const NO_FEEDBACK: Duration = Duration::from_millis(100);

/// The sending half of a session.
pub(super) struct Sender {
    pub(super) line: Line,
    /// Time for which each reported packet blocks the sender.
    blocked: Duration,
    /// Time for which the sender is still to be kept from sending, and when some of that time is
    /// taken next.
    owed: Duration,
    pay_at: Instant,
    /// True if nothing has left since the last part: a sender that is woken late would else be kept
    /// again, for ever.
    paid: bool,
    /// One past the highest packet known to have arrived.
    highest: u64,
    /// Time at which the last news came, or was waited for in vain.
    news_at: Instant,
}

impl Sender {
    pub(super) fn new(rate: Rate, blocked: Duration) -> Self {
        let law = Box::new(Fixed::new(rate, QUANTUM));
        Self {
            line: Line::new(law, Rate::UNLIMITED, TICK),
            blocked,
            owed: Duration::ZERO,
            pay_at: Instant::EPOCH,
            paid: false,
            highest: 0,
            news_at: Instant::EPOCH,
        }
    }

    /// A packet leaves.
    pub(super) fn sent(&mut self, now: Instant, number: u64, piece: Piece, wire: u32) {
        if self.line.is_clear() {
            self.news_at = now;
        }
        self.line.sent(now, number, piece, wire);
    }

    pub(super) fn batch_sent(&mut self, now: Instant, bytes: u64) {
        if std::mem::take(&mut self.paid) {
            self.pay_at = self.pay_at.max(now + REST);
        }
        self.line.batch_sent(now, bytes);
    }

    /// A number on the wire that was sent.
    fn known(&self, number: u32) -> Result<u64, DecodeError> {
        let number = Numbers::expand(number, self.line.flight.log().next());
        if number <= self.line.flight.log().next() {
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
        if prefix > self.line.flight.log().first() {
            self.news_at = now;
            self.line.ack_below(now, prefix, signals);
        }
        Ok(())
    }

    /// Round-trip time by packet `number`, which arrived `held` us before its report.
    fn measured(&mut self, now: Instant, number: u64, held: u32) -> Option<Duration> {
        let sent = self
            .line
            .flight
            .log()
            .get(number)
            .filter(|sent| !sent.resent)?;
        let there = now.since(sent.at);
        let rtt = there.checked_sub(Duration::from_micros(held.into()))?;
        let path = &mut self.line.flight.path;
        path.srtt = (path.srtt * 7 + rtt) / 8;
        path.min_rtt = path.min_rtt.min(rtt);
        Some(rtt)
    }

    /// A packet is missing.
    pub(super) fn on_loss(&mut self, now: Instant, number: u32) -> Result<(), DecodeError> {
        let number = self.known(number)?;
        if number == self.line.flight.log().next() {
            return Err(DecodeError::Malformed("a report of packets never sent"));
        }
        self.owed = self.owed.saturating_add(self.blocked);
        self.pay(now);
        let srtt = self.line.flight.path.srtt;
        self.line.mark_lost(now, srtt, Some(number..number + 1));
        Ok(())
    }

    /// Keeps the sender from sending for the part of a tick that is due.
    fn pay(&mut self, now: Instant) {
        if self.pay_at <= now && !self.paid && !self.owed.is_zero() {
            let part = self.owed.min(LONGEST);
            self.owed -= part;
            self.line.flight.governor.delay(now, part);
            self.pay_at = now + TICK;
            self.paid = true;
        }
    }

    fn silence_at(&self) -> Option<Instant> {
        let timeout = self.line.flight.path.srtt * 2 + NO_FEEDBACK;
        (!self.line.is_clear()).then(|| self.news_at + timeout)
    }

    /// Repeats without news: packets at the end may be lost, with nothing behind them that would
    /// show it; and so may messages.
    pub(super) fn on_timer(&mut self, now: Instant) {
        self.pay(now);
        if self.silence_at().is_none_or(|at| at > now) {
            return;
        }
        self.news_at = now;
        let (first, next) = (
            self.line.flight.log().first(),
            self.line.flight.log().next(),
        );
        for range in [first..first + 1, self.highest.max(first)..next] {
            self.line.mark_lost(now, Duration::ZERO, Some(range));
        }
        self.line.flight.count.timeouts += 1;
    }

    pub(super) fn deadline(&self) -> Option<(Instant, Why)> {
        let silence = self.silence_at().map(|at| (at, Why::Repair));
        let owes = !self.owed.is_zero() && !self.paid;
        let owed = owes.then_some((self.pay_at, Why::Pacing));
        earliest([silence, owed, self.line.flight.deadline()])
    }
}

#[cfg(test)]
mod tests {
    use farhaul_core::send::Permit;

    use super::*;

    #[test]
    fn a_sender_that_is_woken_late_sends_before_it_is_kept_again() {
        let mut sender = Sender::new(Rate::gbit(1), Duration::from_micros(48));
        let mut now = Instant::from_nanos(1 << 40);
        sender.line.set_window(10_000);
        sender.line.open(now, 1_472, Duration::from_millis(1));
        sender.line.push(1, 0, 10_000_000);
        let mut left = 0;
        for _ in 0..100 {
            // Messages come first in each turn, and each turn is late.
            now += TICK + Duration::from_millis(3);
            if left > 0 {
                (0..300).for_each(|_| sender.on_loss(now, 0).expect("it was sent"));
            }
            if matches!(sender.line.permit(now), Permit::Send { .. })
                && let Some((number, piece)) = sender.line.next_packet(1_400)
            {
                sender.sent(now, number, piece, 1_472);
                sender.batch_sent(now, 1_472);
                left += 1;
            }
        }
        assert!(left >= 49, "{left} of 100 turns");
    }
}
