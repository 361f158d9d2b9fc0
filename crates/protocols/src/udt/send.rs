//! The sending half: which packet goes next and when, and what acknowledgements and loss lists
//! change. It also decides when a silence means that something has to be sent again.
//!
//! Order: repairs first, smallest number first; then new packets as far as the peer's flow window
//! and the law's window go. After a new packet whose number is a multiple of 16 the next one leaves
//! at once: the receiver measures capacity by such pairs. Source: UDT 4.11 `core.cpp`.

mod acked;
mod silence;

use std::{collections::VecDeque, ops::Range, time::Duration};

use farhaul_core::{
    congestion::{CongestionController, ReceiverRates},
    path::Rtt,
    send::{Acked, Flight, Permit},
    stats::Why,
    time::Instant,
    units::Rate,
};

use super::{
    Behaviour,
    config::UdtConfig,
    outflow::{Outflow, Piece},
    rtt, seq,
};

/// Rate control and acknowledgement period.
pub(super) const SYN: Duration = Duration::from_millis(10);

type Sent = farhaul_core::send::Sent<Piece>;

/// Silence and overdue repairs.
#[derive(Clone, Copy, Debug, Default)]
struct Clocks {
    progress_at: Instant,
    backoff: u32,
    /// Number below which it is known which packets arrived.
    reported_below: u64,
    /// Packets sent again where a repair is overdue, and the last at which that was so.
    stride: u64,
    overdue: u64,
}

/// A message that will not be completed: its number, its first and last packet given up.
pub(super) type GivenUp = (u32, u64, u64);

/// The sending half of a session.
pub(super) struct Sender {
    behaviour: Behaviour,
    pub(super) flight: Flight<Piece>,
    pub(super) out: Outflow,
    pub(super) rtt: Rtt,
    /// True if the next packet is the second of a probe pair.
    pair_due: bool,
    /// Packets beyond the last acknowledged that the peer takes.
    peer_window: u64,
    /// Everything before is in the peer's hands: a full acknowledgement said so. What only a light
    /// one covers libudt has, but not yet given to its reader; at a shutdown it throws that away.
    confirmed: u64,
    /// Rates that the receiver measured last.
    rates: ReceiverRates,
    /// Packets acknowledged that the law does not know of yet.
    pending: Acked,
    clocks: Clocks,
    /// Messages that the peer need not wait for.
    pub(super) given_up: VecDeque<GivenUp>,
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
            rtt: rtt::guess(config.behaviour, None),
            pair_due: false,
            peer_window: 0,
            confirmed: 0,
            rates: ReceiverRates::default(),
            pending: Acked::default(),
            clocks: Clocks {
                progress_at: now,
                stride: 1,
                ..Clocks::default()
            },
            given_up: VecDeque::new(),
        }
    }

    /// Starts with the connection made: packets of `datagram` bytes of UDP payload, numbered from
    /// `isn`, `window` of which the peer takes. An answer took `rtt`.
    pub(super) fn start(
        &mut self,
        now: Instant,
        (isn, datagram, window): (u32, u32, u32),
        rtt: Option<Duration>,
    ) {
        let first = seq::initial(isn);
        self.flight.begin_at(first);
        self.confirmed = first;
        self.flight.path.datagram = datagram;
        self.peer_window = window.into();
        self.rtt = rtt::guess(self.behaviour, rtt);
        self.show_rtt();
        self.flight.start(now);
    }

    /// A round trip took `sample`.
    pub(super) fn on_rtt(&mut self, now: Instant, sample: Duration) {
        self.rtt.update(now, sample.max(Duration::from_micros(1)));
        self.show_rtt();
    }

    fn show_rtt(&mut self) {
        self.flight.path.srtt = self.rtt.smoothed();
        self.flight.path.min_rtt = self.least_rtt();
    }

    fn least_rtt(&self) -> Duration {
        self.rtt.min_ever().unwrap_or(self.rtt.smoothed())
    }

    /// The numbers that are neither acknowledged nor unsent.
    const fn outstanding(&self) -> Range<u64> {
        self.flight.log().first()..self.flight.log().next()
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
            Permit::Hold(Why::Application) => {
                let next = self.flight.log().next();
                self.flight.delivery.app_limited(next);
            }
            Permit::Hold(Why::Pacing) if self.is_pair_due() => return Permit::Send { bytes: 1 },
            _ => {}
        }
        permit
    }

    /// Takes the next packet, with at most `max` bytes of data if it is new. Messages whose time is
    /// over are given up instead of sent again.
    pub(super) fn next_packet(&mut self, now: Instant, max: u32) -> Option<(u64, Piece)> {
        while let Some((number, piece)) = self.flight.next_lost() {
            if piece.expires.is_none_or(|at| at > now) {
                return Some((number, piece));
            }
            self.give_up(number, piece.message);
        }
        self.may_send_new().ok()?;
        Some((self.flight.log().next(), self.out.next(max)?))
    }

    /// Gives up the message of packet `first`, from it to its last packet sent.
    fn give_up(&mut self, first: u64, message: u32) {
        let mut last = first;
        while let Some(sent) = self.flight.get_mut(last)
            && sent.content.message == message
        {
            sent.content.expires = Some(Instant::EPOCH);
            last += 1;
        }
        self.flight.unmark(first..last);
        self.out.give_up(message);
        let known = self.given_up.back().is_some_and(|g| g.1 == first);
        if !known {
            self.given_up.push_back((message, first, last - 1));
        }
    }

    /// Packet `number` leaves with `wire` bytes of UDP payload.
    pub(super) fn sent(&mut self, now: Instant, number: u64, piece: Piece, wire: u32) {
        if self.is_idle() {
            self.clocks.progress_at = now;
        }
        if number == self.flight.log().next() {
            self.pair_due = number.is_multiple_of(16);
        }
        self.flight.send(now, number, piece, (piece.len, wire));
    }

    /// True if the second packet of a pair should be in the batch that ends with the first.
    pub(super) fn is_pair_due(&self) -> bool {
        self.pair_due && !self.flight.has_lost()
    }

    /// A batch of `bytes` left.
    pub(super) fn batch_sent(&mut self, now: Instant, bytes: u64) {
        self.flight.batch_sent(now, bytes, !self.out.is_ready());
    }

    /// True if everything given has been acknowledged, and in full.
    pub(super) fn delivered_all(&self) -> bool {
        self.is_idle() && self.out.is_empty() && self.confirmed == self.flight.log().next()
    }

    /// True if nothing is unacknowledged.
    pub(super) const fn is_idle(&self) -> bool {
        self.flight.log().is_empty()
    }
}
