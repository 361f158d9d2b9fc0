//! The sending half: which packet goes next and when, and what reports change. Lost packets go
//! first, the smallest number first; then new packets, as far as the window goes. A second without
//! any acknowledgement or report, and everything unacknowledged is sent again.
//!
//! Source: SABUL 2.x as read, 2003. Other than there: packets that leave together share a system call;
//! the sender sleeps between them and does not spin.

use std::time::Duration;

use farhaul_congestion::SABUL_SIGNAL;
use farhaul_core::{
    codec::DecodeError,
    congestion::{CongestionController, ReceiverRates},
    send::{Line, Piece, Signals},
    session::earliest,
    stats::Why,
    time::Instant,
    units::Rate,
};

use super::{
    recv::{ACK, SYN},
    seq,
    wire::Losses,
};

/// Silence after which everything is sent again.
const EXPIRY: Duration = Duration::from_secs(1);

/// The sending half of a session.
pub(super) struct Sender {
    pub(super) line: Line,
    /// Time of the last acknowledgement, report, or beginning.
    heard_at: Instant,
    /// The last time that packets were seen to arrive.
    passed_at: Instant,
    /// Expiries in a row.
    backoff: u32,
    arrival: Option<Rate>,
}

impl Sender {
    pub(super) fn new(law: Box<dyn CongestionController>, max_rate: Rate) -> Self {
        let mut line = Line::new(law, max_rate, ACK);
        line.flight.begin_at(seq::FIRST);
        Self {
            line,
            heard_at: Instant::EPOCH,
            passed_at: Instant::EPOCH,
            backoff: 0,
            arrival: None,
        }
    }

    /// A packet leaves.
    pub(super) fn sent(&mut self, now: Instant, number: u64, piece: Piece, wire: u32) {
        if self.line.is_clear() {
            (self.heard_at, self.passed_at) = (now, now);
        }
        self.line.sent(now, number, piece, wire);
    }

    fn heard(&mut self, now: Instant) {
        self.heard_at = now;
        self.backoff = 0;
    }

    /// Everything before `sequence` has arrived.
    pub(super) fn on_ack(&mut self, now: Instant, sequence: u32) -> Result<(), DecodeError> {
        let log = self.line.flight.log();
        let next = seq::Number::expand(sequence, log.first());
        if next > log.next() {
            return Err(DecodeError::Malformed(
                "an acknowledgement of packets never sent",
            ));
        }
        let news = next > log.first();
        self.heard(now);
        if !news {
            return Ok(());
        }
        self.passed_at = now;
        let signals = Signals {
            receiver: self.rates(),
            ..Signals::default()
        };
        self.line.ack_below(now, next, signals);
        Ok(())
    }

    fn rates(&self) -> Option<ReceiverRates> {
        self.arrival.map(|arrival| ReceiverRates {
            arrival,
            capacity: None,
        })
    }

    /// Takes the packets that are missing.
    pub(super) fn on_losses(
        &mut self,
        now: Instant,
        losses: Losses<'_>,
    ) -> Result<(), DecodeError> {
        self.heard(now);
        let (first, next) = (
            self.line.flight.log().first(),
            self.line.flight.log().next(),
        );
        let mut numbers = losses.iter().map(|word| seq::Number::expand(word, first));
        if numbers.any(|number| number >= next) {
            return Err(DecodeError::Malformed("a report of packets never sent"));
        }
        let numbers = losses.iter().map(|word| seq::Number::expand(word, first));
        self.line.mark_lost(
            now,
            Duration::ZERO,
            numbers.map(|number| number..number + 1),
        );
        Ok(())
    }

    /// A period of the receiver is over, in which `received` packets came.
    pub(super) fn on_signal(&mut self, now: Instant, received: u32) {
        if received > 0 {
            self.passed_at = now;
        }
        let bytes = u64::from(received) * u64::from(self.line.flight.path.datagram);
        self.arrival = Some(Rate::of(bytes, SYN));
        self.line
            .flight
            .governor
            .notify(now, |law| law.on_message(now, SABUL_SIGNAL));
    }

    /// Reason why the session must end, if the law has failed.
    pub(super) fn failure(&self) -> Option<String> {
        self.line.flight.governor.failure()
    }

    /// Sends again what nobody speaks of, and lets the law's timer run.
    pub(super) fn on_timer(&mut self, now: Instant) {
        self.line.flight.governor.on_timer(now);
        if self.expiry().is_none_or(|at| at > now) {
            return;
        }
        self.heard_at = now;
        let all = self.line.flight.log().first()..self.line.flight.log().next();
        self.line.mark_lost(now, Duration::ZERO, [all]);
        self.backoff += 1;
        self.line.flight.on_silence(now, self.backoff);
    }

    fn expiry(&self) -> Option<Instant> {
        let timeout = EXPIRY.max(self.line.flight.path.srtt * 3);
        (!self.line.is_clear()).then(|| self.heard_at + timeout)
    }

    /// Time since which packets leave and none arrives.
    pub(super) fn blocked_since(&self) -> Option<Instant> {
        (!self.line.is_clear()).then_some(self.passed_at)
    }

    pub(super) fn deadline(&self) -> Option<(Instant, Why)> {
        let expiry = self.expiry().map(|at| (at, Why::Repair));
        earliest([expiry, self.line.flight.deadline()])
    }
}
