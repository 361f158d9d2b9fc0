//! The sending half: which packet goes next and when, what acknowledgements and loss lists change,
//! and when a silence means that something has to be sent again.
//!
//! Order: what is to be sent again first, smallest number first; then new packets as far as the
//! peer's flow window and the law's window go. After a new packet whose number is a multiple of 16 the
//! next one leaves at once: the receiver measures capacity by such pairs. Source: UDT 4.11 `core.cpp`.

mod acked;
mod silence;

use std::{collections::VecDeque, ops::Range, time::Duration};

use farhaul_core::{
    congestion::{CongestionController, ReceiverRates},
    send::{Acked, Flight, Permit, State},
    stats::{Stats, Why},
    time::Instant,
    units::Rate,
};

use super::{
    Behaviour,
    config::UdtConfig,
    outflow::{Outflow, Piece},
    rtt::RoundTrip,
    seq,
};

/// Rate control and acknowledgement period.
pub(super) const SYN: Duration = Duration::from_millis(10);

/// What the peer said that cannot be: it acknowledged or missed what was never sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NeverSent;

/// A packet's data.
#[derive(Clone, Copy, Debug, Default)]
struct Packet {
    piece: Piece,
    /// Its message is given up.
    dropped: bool,
}

type Sent = farhaul_core::send::Sent<Packet>;

/// Silence and overdue repairs.
#[derive(Clone, Copy, Debug)]
struct Clocks {
    progress_at: Instant,
    backoff: u32,
    /// Of what is below it is known whether it arrived.
    told_below: u64,
    /// Packets sent again where a repair is overdue, and the last at which that was so.
    stride: u64,
    revisited: u64,
}

/// A message that will not be completed: its number, its first and last packet given up.
pub(super) type GivenUp = (u32, u64, u64);

/// The sending half of a session.
pub(super) struct Sender {
    behaviour: Behaviour,
    flight: Flight<Packet>,
    pub(super) out: Outflow,
    /// The next packet is the second of a probe pair.
    pair_due: bool,
    /// Packets beyond the last acknowledged that the peer takes.
    peer_window: u64,
    /// Everything before is in the peer's hands: a full acknowledgement said so. What only a light
    /// one covers libudt has, but not yet given to its reader; at a shutdown it throws that away.
    confirmed: u64,
    /// What the receiver measured last.
    rates: ReceiverRates,
    /// What acknowledgements have told that the law does not know yet.
    pending: Acked,
    clocks: Clocks,
    given_up: VecDeque<GivenUp>,
}

impl Sender {
    pub(super) fn new(
        config: &UdtConfig,
        law: Box<dyn CongestionController>,
        now: Instant,
    ) -> Self {
        let mut flight = Flight::keeping(law, config.max_rate.unwrap_or(Rate::UNLIMITED));
        flight.path.feedback_interval = SYN;
        Self {
            behaviour: config.behaviour,
            flight,
            out: Outflow::new(config.framing),
            pair_due: false,
            peer_window: 0,
            confirmed: 0,
            rates: ReceiverRates {
                arrival: Rate::ZERO,
                capacity: None,
            },
            pending: Acked::default(),
            clocks: Clocks {
                progress_at: now,
                backoff: 0,
                told_below: 0,
                stride: 1,
                revisited: 0,
            },
            given_up: VecDeque::new(),
        }
    }

    /// The connection is made: packets of `datagram` bytes of UDP payload, numbered from `isn`, of
    /// which the peer takes `window`.
    pub(super) fn start(
        &mut self,
        now: Instant,
        (isn, datagram, window): (u32, u32, u32),
        rtt: &RoundTrip,
    ) {
        let first = seq::initial(isn);
        self.flight.begin_at(first);
        self.confirmed = first;
        self.flight.path.datagram = datagram;
        self.peer_window = window.into();
        self.see(rtt);
        self.flight.start(now);
    }

    /// The law sees this round trip.
    fn see(&mut self, rtt: &RoundTrip) {
        self.flight.path.srtt = rtt.smoothed();
        self.flight.path.min_rtt = rtt.min().unwrap_or_else(|| rtt.smoothed());
    }

    /// The oldest number that is not acknowledged; the next one if all are.
    const fn first(&self) -> u64 {
        self.flight.log().first()
    }

    /// The number of the next new packet.
    const fn next(&self) -> u64 {
        self.flight.log().next()
    }

    fn get(&self, number: u64) -> Option<&Sent> {
        self.flight.log().get(number)
    }

    /// May a new packet leave, as far as windows go?
    fn may_send_new(&self) -> Result<(), Why> {
        if !self.out.is_ready() {
            return Err(Why::Application);
        }
        if self.flight.log().len() >= self.peer_window {
            return Err(Why::Peer);
        }
        // For libudt everything up to the newest packet counts.
        self.flight.fits(match self.behaviour {
            Behaviour::Libudt => self.flight.log().len() * u64::from(self.flight.path.datagram),
            Behaviour::Fixed => self.flight.count.in_flight,
        })
    }

    /// May anything leave at `now`?
    pub(super) fn permit(&mut self, now: Instant) -> Permit {
        let permit = self.flight.permit(now, self.may_send_new());
        match permit {
            Permit::Hold(Why::Application) => self.flight.delivery.app_limited(self.next()),
            Permit::Hold(Why::Pacing) if self.pair_due && !self.has_repairs() => {
                return Permit::Send { bytes: 1 };
            }
            _ => {}
        }
        permit
    }

    /// When pacing lets the next packet go.
    pub(super) fn wake(&self) -> Option<Instant> {
        self.flight.governor.wake()
    }

    /// The smallest number to be sent again, with what it carried. Messages whose time is over are
    /// given up instead.
    pub(super) fn next_repair(&mut self, now: Instant) -> Option<(u64, Piece)> {
        while let Some((number, packet)) = self.flight.next_lost() {
            let piece = packet.piece;
            if packet.dropped || piece.expires.is_some_and(|at| at <= now) {
                self.give_up(number, piece.message);
                continue;
            }
            return Some((number, piece));
        }
        None
    }

    /// Gives up the message of packet `first`, from it to its last packet sent.
    fn give_up(&mut self, first: u64, message: u32) {
        let mut last = first;
        while let Some(sent) = self.flight.get_mut(last)
            && sent.content.piece.message == message
        {
            sent.content.dropped = true;
            last += 1;
        }
        self.flight.unmark(first..last);
        self.out.give_up(message);
        let known = self.given_up.back().is_some_and(|g| g.1 == first);
        if !known {
            self.given_up.push_back((message, first, last - 1));
        }
    }

    /// The last packet of a message that is given up is to be named by itself.
    pub(super) fn give_up_last(&mut self, message: u32, last: u64) {
        self.given_up.push_front((message, last, last));
    }

    /// A message to tell the peer not to wait for.
    pub(super) fn take_given_up(&mut self) -> Option<GivenUp> {
        self.given_up.pop_front()
    }

    /// The next new packet of at most `max` bytes of data, if the windows allow it.
    pub(super) fn next_new(&mut self, max: u32) -> Option<(u64, Piece)> {
        self.may_send_new().ok()?;
        Some((self.next(), self.out.next(max)?))
    }

    /// Something is to be sent again.
    pub(super) fn has_repairs(&self) -> bool {
        self.flight.has_lost()
    }

    /// Packet `number` leaves with `wire` bytes of UDP payload.
    pub(super) fn sent(&mut self, now: Instant, number: u64, piece: Piece, wire: u32) {
        let len = u64::from(piece.len);
        if number < self.next() {
            self.flight.resend(now, number);
            self.flight.count.repaired += len;
            self.flight.count.retransmits += 1;
            return;
        }
        if self.is_idle() {
            self.clocks.progress_at = now;
        }
        self.flight.count.data_sent += len;
        self.pair_due = number.is_multiple_of(16);
        let packet = Packet {
            piece,
            dropped: false,
        };
        self.flight.push(now, packet, wire, State::Outstanding);
    }

    /// A batch of `bytes` left.
    pub(super) fn batch_sent(&mut self, now: Instant, bytes: u64, rtt: &RoundTrip) {
        self.see(rtt);
        self.flight.batch_sent(now, bytes, !self.out.is_ready());
    }

    /// The second packet of a pair should be in the batch that ends with the first.
    pub(super) const fn is_pair_due(&self) -> bool {
        self.pair_due
    }

    /// Everything given has been acknowledged, and in full.
    pub(super) fn delivered_all(&self) -> bool {
        self.is_idle() && self.out.is_empty() && self.confirmed == self.next()
    }

    /// Nothing is unacknowledged.
    pub(super) fn is_idle(&self) -> bool {
        self.flight.log().is_empty()
    }

    /// The numbers that are neither acknowledged nor unsent.
    fn outstanding(&self) -> Range<u64> {
        self.first()..self.next()
    }

    /// Why the session must end, if the law has failed.
    pub(super) fn failure(&self) -> Option<String> {
        self.flight.governor.failure()
    }

    /// The law's own timer.
    pub(super) fn tick(&mut self, now: Instant) {
        self.flight.governor.on_timer(now);
    }

    pub(super) fn next_tick(&self) -> Option<Instant> {
        self.flight.governor.next_tick()
    }

    /// Adds this half's counters.
    pub(super) fn fill_stats(&self, stats: &mut Stats) {
        self.flight.fill_stats(stats);
    }
}
