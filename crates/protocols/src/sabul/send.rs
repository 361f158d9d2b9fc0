//! The sending half: which packet goes next and when, and what reports change. What was lost goes
//! first, the smallest number first; then new packets, as far as the window goes. A second without any
//! acknowledgement or report, and everything unacknowledged is sent again.
//!
//! Source: SABUL 2.x as read, 2003. Other than there: packets that leave together share a system call;
//! the sender sleeps between them and does not spin.

use std::time::Duration;

use farhaul_congestion::SABUL_SIGNAL;
use farhaul_core::{
    codec::DecodeError,
    congestion::{CongestionController, ReceiverRates},
    send::{Acked, Flight, Lost, Outbox, Permit, Piece, Signals, State},
    stats::{Stats, Why},
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
    flight: Flight<Piece>,
    out: Outbox,
    /// Packets the peer takes beyond the last acknowledged.
    window: u64,
    /// The last acknowledgement, report, or beginning.
    heard_at: Instant,
    /// The last time that packets were seen to arrive.
    passed_at: Instant,
    /// Expiries in a row.
    backoff: u32,
    arrival: Option<Rate>,
    /// Why nothing was sent last.
    held: Option<Why>,
}

impl Sender {
    pub(super) fn new(law: Box<dyn CongestionController>, max_rate: Rate) -> Self {
        let mut flight = Flight::keeping(law, max_rate);
        flight.begin_at(seq::FIRST);
        flight.path.feedback_interval = ACK;
        Self {
            flight,
            out: Outbox::default(),
            window: 0,
            heard_at: Instant::EPOCH,
            passed_at: Instant::EPOCH,
            backoff: 0,
            arrival: None,
            held: None,
        }
    }

    /// The peer takes so many unacknowledged packets.
    pub(super) fn set_window(&mut self, window: u32) {
        self.window = window.into();
    }

    /// Packets of `datagram` bytes; there and back takes `exchange`: the law begins, or begins anew.
    pub(super) fn open(&mut self, now: Instant, datagram: u32, exchange: Duration) {
        let exchange = exchange.max(Duration::from_micros(100));
        self.flight.path.datagram = datagram;
        self.flight.path.srtt = exchange;
        self.flight.path.min_rtt = exchange;
        self.flight.start(now);
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

    /// May a new packet leave, as far as windows go?
    fn may_send_new(&self) -> Result<(), Why> {
        if self.out.is_empty() {
            Err(Why::Application)
        } else if self.flight.log().len() >= self.window {
            Err(Why::Peer)
        } else {
            self.flight.fits(self.flight.count.in_flight)
        }
    }

    /// May anything leave at `now`?
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
            self.heard_at = now;
            self.passed_at = now;
        }
        self.flight.count.data_sent += len;
        self.flight.push(now, piece, wire, State::Outstanding);
    }

    /// A batch of `bytes` left.
    pub(super) fn batch_sent(&mut self, now: Instant, bytes: u64) {
        self.flight.batch_sent(now, bytes, self.out.is_empty());
    }

    fn heard(&mut self, now: Instant) {
        self.heard_at = now;
        self.backoff = 0;
    }

    /// Everything before `sequence` has arrived.
    pub(super) fn on_ack(&mut self, now: Instant, sequence: u32) -> Result<(), DecodeError> {
        let log = self.flight.log();
        let next = seq::expand(sequence, log.first());
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
        let (mut acked, mut data) = (Acked::default(), 0);
        self.flight.ack_below(next, &mut acked, |sent| {
            data += u64::from(sent.content.len);
        });
        self.flight.count.data_acked += data;
        let signals = Signals {
            receiver: self.rates(),
            round_start: self.flight.round(next - 1),
            app_limited: self.out.is_empty(),
            ..Signals::default()
        };
        self.flight.tell_acks(now, &acked, signals);
        Ok(())
    }

    fn rates(&self) -> Option<ReceiverRates> {
        self.arrival.map(|arrival| ReceiverRates {
            arrival,
            capacity: None,
        })
    }

    /// These are missing.
    pub(super) fn on_losses(
        &mut self,
        now: Instant,
        losses: Losses<'_>,
    ) -> Result<(), DecodeError> {
        self.heard(now);
        let before = self.flight.count.in_flight;
        let mut lost = Lost::default();
        for word in losses.iter() {
            let number = seq::expand(word, self.flight.log().first());
            if number >= self.flight.log().next() {
                return Err(DecodeError::Malformed("a report of packets never sent"));
            }
            self.flight.mark_lost(number..number + 1, &mut lost);
        }
        self.tell_losses(now, before, &lost);
        Ok(())
    }

    fn tell_losses(&mut self, now: Instant, before: u64, lost: &Lost) {
        if let Some((_, last)) = lost.span() {
            self.flight.tell_losses(now, before, lost, last);
        }
    }

    /// A period of the receiver is over, in which `received` packets came.
    pub(super) fn on_signal(&mut self, now: Instant, received: u32) {
        if received > 0 {
            self.passed_at = now;
        }
        let bytes = u64::from(received) * u64::from(self.flight.path.datagram);
        self.arrival = Some(Rate::of(bytes, SYN));
        self.flight
            .governor
            .tell(now, |law| law.on_message(now, SABUL_SIGNAL));
    }

    /// Why the session must end, if the law has failed.
    pub(super) fn failure(&self) -> Option<String> {
        self.flight.governor.failure()
    }

    /// Sends again what nobody speaks of, and lets the law's timer run.
    pub(super) fn on_timer(&mut self, now: Instant) {
        self.flight.governor.on_timer(now);
        if self.expiry().is_none_or(|at| at > now) {
            return;
        }
        self.heard_at = now;
        let before = self.flight.count.in_flight;
        let mut lost = Lost::default();
        let all = self.flight.log().first()..self.flight.log().next();
        self.flight.mark_lost(all, &mut lost);
        self.tell_losses(now, before, &lost);
        self.backoff += 1;
        self.flight.on_silence(now, self.backoff);
    }

    fn expiry(&self) -> Option<Instant> {
        let patience = EXPIRY.max(self.flight.path.srtt * 3);
        (!self.flight.log().is_empty()).then(|| self.heard_at + patience)
    }

    /// Since when packets leave and none arrives.
    pub(super) fn blocked_since(&self) -> Option<Instant> {
        (!self.flight.log().is_empty()).then_some(self.passed_at)
    }

    pub(super) fn deadline(&self) -> Option<(Instant, Why)> {
        let governor = &self.flight.governor;
        let paced = self.held == Some(Why::Pacing);
        let pacing = paced.then(|| governor.wake()).flatten();
        [
            self.expiry().map(|at| (at, Why::Repair)),
            governor.next_tick().map(|at| (at, Why::Law)),
            pacing.map(|at| (at, Why::Pacing)),
        ]
        .into_iter()
        .flatten()
        .min_by_key(|(at, _)| *at)
    }

    pub(super) fn fill_stats(&self, stats: &mut Stats) {
        self.flight.fill_stats(stats);
        stats.peer_window = Some(self.window * u64::from(stats.datagram_size));
    }
}
