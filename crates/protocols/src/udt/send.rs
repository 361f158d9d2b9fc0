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
    congestion::{Allowance, CongestionController, Facts, Guard, PathView, ReceiverRates},
    rate::Delivery,
    send::{Pacer, Permit},
    stats::{Stats, Why},
    time::Instant,
    units::{Rate, Size},
};

use super::{
    Manner,
    book::{Book, Sent, State},
    config::UdtConfig,
    holes::Holes,
    outflow::{Outflow, Piece},
    rtt::RoundTrip,
    seq,
};

/// Rate control and acknowledgement period.
pub(super) const SYN: Duration = Duration::from_millis(10);

/// What the peer said that cannot be: it acknowledged or missed what was never sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NeverSent;

/// What acknowledgements have told that the law does not know yet.
#[derive(Clone, Copy, Debug, Default)]
struct Pending {
    bytes: u64,
    packets: u32,
    in_flight_before: u64,
    newest: Option<(u64, Sent)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    sent_bytes: u64,
    acked_bytes: u64,
    data_sent: u64,
    repaired: u64,
    data_acked: u64,
    lost: u64,
    lost_bytes: u64,
    timeouts: u64,
}

/// Rounds, episodes of loss and silence.
#[derive(Clone, Copy, Debug)]
struct Clocks {
    round: u64,
    round_end: u64,
    episode_end: u64,
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
    manner: Manner,
    law: Guard,
    max_rate: Rate,
    pub(super) out: Outflow,
    book: Book,
    losses: Holes,
    pacer: Pacer,
    /// The next packet is the second of a probe pair.
    pair_due: bool,
    /// Packets beyond the last acknowledged that the peer takes.
    peer_window: u64,
    /// Everything before is in the peer's hands: a full acknowledgement said so. What only a light
    /// one covers libudt has, but not yet given to its reader; at a shutdown it throws that away.
    confirmed: u64,
    /// UDP payload of a full datagram.
    datagram: u32,
    /// What the receiver measured last.
    rates: ReceiverRates,
    delivery: Delivery,
    pending: Pending,
    /// UDP payload bytes of packets that are neither acknowledged nor believed lost.
    in_flight: u64,
    clocks: Clocks,
    count: Counters,
    given_up: VecDeque<GivenUp>,
}

impl Sender {
    pub(super) fn new(
        config: &UdtConfig,
        law: Box<dyn CongestionController>,
        now: Instant,
    ) -> Self {
        let manner = config.manner;
        Self {
            manner,
            law: Guard::new(law),
            max_rate: config.max_rate.unwrap_or(Rate::UNLIMITED),
            out: Outflow::new(config.framing),
            book: Book::default(),
            losses: Holes::default(),
            pacer: Pacer::new(),
            pair_due: false,
            peer_window: 0,
            confirmed: 0,
            datagram: 0,
            rates: ReceiverRates {
                arrival: Rate::ZERO,
                capacity: None,
            },
            delivery: Delivery::default(),
            pending: Pending::default(),
            in_flight: 0,
            clocks: Clocks {
                round: 0,
                round_end: 0,
                episode_end: 0,
                progress_at: now,
                backoff: 0,
                told_below: 0,
                stride: 1,
                revisited: 0,
            },
            count: Counters::default(),
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
        self.book.start(seq::initial(isn));
        self.clocks.round_end = self.book.first();
        self.clocks.episode_end = self.book.first();
        self.confirmed = self.book.first();
        self.datagram = datagram;
        self.peer_window = window.into();
        let view = self.view(rtt);
        self.law.on_start(now, &view);
    }

    fn view(&self, rtt: &RoundTrip) -> PathView {
        PathView {
            datagram: self.datagram,
            srtt: rtt.smoothed(),
            min_rtt: rtt.min().unwrap_or_else(|| rtt.smoothed()),
            feedback_interval: SYN,
            in_flight: Size::from_bytes(self.in_flight),
        }
    }

    fn allowance(&self) -> Allowance {
        let mut allowance = self.law.allowance();
        allowance.rate = allowance.rate.min(self.max_rate);
        allowance
    }

    /// Packets between the oldest unacknowledged and the newest.
    fn span(&self) -> u64 {
        self.book.next() - self.book.first()
    }

    /// May a new packet leave, as far as windows go?
    fn may_send_new(&self, window: u64) -> Result<(), Why> {
        if !self.out.is_ready() {
            return Err(Why::Application);
        }
        if self.span() >= self.peer_window {
            return Err(Why::Peer);
        }
        if self.used() + u64::from(self.datagram) > window.max(self.datagram.into()) {
            return Err(Why::Window);
        }
        Ok(())
    }

    /// Bytes that count against the law's window: for libudt everything up to the newest packet.
    fn used(&self) -> u64 {
        match self.manner {
            Manner::Libudt => self.span() * u64::from(self.datagram),
            Manner::Tuned => self.in_flight,
        }
    }

    /// May anything leave at `now`?
    pub(super) fn permit(&mut self, now: Instant) -> Permit {
        let allowance = self.allowance();
        let window = allowance.window.bytes();
        if self.losses.is_empty()
            && let Err(why) = self.may_send_new(window)
        {
            if why == Why::Application {
                self.delivery.app_limited(self.book.next());
            }
            return Permit::Hold(why);
        }
        // What is sent again is held up by nothing but the pace: it may be what everything waits for.
        let quantum = allowance.quantum.bytes();
        match self.pacer.grant(now, allowance.rate, quantum) {
            Some(bytes) => Permit::Send { bytes },
            None if self.pair_due && self.losses.is_empty() => Permit::Send { bytes: 1 },
            None => Permit::Hold(Why::Pacing),
        }
    }

    /// When pacing lets the next packet go.
    pub(super) fn wake(&self) -> Option<Instant> {
        let allowance = self.allowance();
        self.pacer.wake(allowance.rate, allowance.quantum.bytes())
    }

    /// The smallest number to be sent again, with what it carried. Messages whose time is over are
    /// given up instead.
    pub(super) fn next_repair(&mut self, now: Instant) -> Option<(u64, Piece)> {
        while let Some(number) = self.losses.pop_first() {
            let Some(sent) = self.book.get(number) else {
                continue;
            };
            let piece = sent.piece;
            if sent.dropped || piece.expires.is_some_and(|at| at <= now) {
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
        while let Some(sent) = self.book.get_mut(last)
            && sent.piece.message == message
        {
            sent.dropped = true;
            last += 1;
        }
        self.losses.remove(first..last);
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
        let window = self.law.allowance().window.bytes();
        self.may_send_new(window).ok()?;
        Some((self.book.next(), self.out.next(max)?))
    }

    /// Something is to be sent again.
    pub(super) fn has_repairs(&self) -> bool {
        !self.losses.is_empty()
    }

    /// Packet `number` leaves with `wire` bytes of UDP payload.
    pub(super) fn sent(&mut self, now: Instant, number: u64, piece: Piece, wire: u32) {
        self.count.sent_bytes += u64::from(wire);
        self.in_flight += u64::from(wire);
        let facts = Facts {
            sent_at: now,
            in_flight: Size::from_bytes(self.in_flight),
            delivered: Size::from_bytes(self.count.acked_bytes),
            lost: Size::from_bytes(self.count.lost_bytes),
            app_limited: !self.out.is_ready(),
        };
        if let Some(sent) = self.book.get_mut(number) {
            sent.facts = facts;
            sent.resent = true;
            sent.state = State::InFlight;
            self.count.repaired += u64::from(piece.len);
            return;
        }
        if self.book.is_empty() {
            self.clocks.progress_at = now;
        }
        self.count.data_sent += u64::from(piece.len);
        self.pair_due = number.is_multiple_of(16);
        self.book.push(Sent {
            piece,
            facts,
            bytes_so_far: self.count.sent_bytes,
            wire,
            resent: false,
            state: State::InFlight,
            dropped: false,
        });
    }

    /// A batch of `bytes` left.
    pub(super) fn batch_sent(&mut self, now: Instant, bytes: u64, rtt: &RoundTrip) {
        let rate = self.allowance().rate;
        self.pacer.charge(now, bytes, rate);
        let view = self.view(rtt);
        self.law.on_sent(now, Size::from_bytes(bytes), &view);
    }

    /// The second packet of a pair should be in the batch that ends with the first.
    pub(super) const fn is_pair_due(&self) -> bool {
        self.pair_due
    }

    /// Everything given has been acknowledged, and in full.
    pub(super) fn delivered_all(&self) -> bool {
        self.book.is_empty() && self.out.is_empty() && self.confirmed == self.book.next()
    }

    /// Nothing is unacknowledged.
    pub(super) fn is_idle(&self) -> bool {
        self.book.is_empty()
    }

    /// The numbers that are neither acknowledged nor unsent.
    fn outstanding(&self) -> Range<u64> {
        self.book.first()..self.book.next()
    }

    /// Why the session must end, if the law has failed.
    pub(super) fn failure(&self) -> Option<String> {
        self.law.failure()
    }

    /// The law's own timer.
    pub(super) fn tick(&mut self, now: Instant) {
        if self.law.next_tick().is_some_and(|at| at <= now) {
            self.law.tell(now, |law| law.on_tick(now));
        }
    }

    pub(super) fn next_tick(&self) -> Option<Instant> {
        self.law.next_tick()
    }

    /// Adds this half's counters.
    pub(super) fn fill_stats(&self, stats: &mut Stats) {
        let allowance = self.allowance();
        stats.data_sent = self.count.data_sent;
        stats.repaired = self.count.repaired;
        stats.data_acked = self.count.data_acked;
        stats.packets_lost = self.count.lost;
        stats.timeouts = self.count.timeouts;
        stats.datagram_size = self.datagram;
        stats.pacing_rate = allowance.rate;
        stats.window = allowance.window.bytes();
        stats.in_flight = self.in_flight;
    }
}
