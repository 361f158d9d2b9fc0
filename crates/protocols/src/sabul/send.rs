//! The sending half: which packet goes next and when, and what reports change. What was lost goes
//! first, the smallest number first; then new packets, as far as the window goes. A second without any
//! acknowledgement or report, and everything unacknowledged is sent again.
//!
//! Source: SABUL 2.x as read, 2003. Other than there: packets that leave together share a system call;
//! the sender sleeps between them and does not spin.

use std::{collections::VecDeque, time::Duration};

use farhaul_congestion::SABUL_SIGNAL;
use farhaul_core::{
    congestion::{
        AckEvent, CongestionController, Facts, Guard, LossEvent, PathView, ReceiverRates,
    },
    loss::Ranges,
    send::{Outbox, Pacer, Piece},
    stats::{Stats, Why},
    time::Instant,
    units::{Rate, Size},
};

use super::{
    recv::{ACK, SYN},
    seq,
    wire::{HEADER, Losses},
};

/// Silence after which everything is sent again.
const EXPIRY: Duration = Duration::from_secs(1);

/// What the peer said that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NeverSent(pub(super) &'static str);

#[derive(Clone, Copy, Debug)]
struct Sent {
    piece: Piece,
    facts: Facts,
    wire: u32,
    lost: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    data_sent: u64,
    repaired: u64,
    retransmits: u64,
    data_acked: u64,
    wire_acked: u64,
    wire_lost: u64,
    lost: u64,
    episodes: u64,
    timeouts: u64,
}

/// The sending half of a session.
pub(super) struct Sender {
    law: Guard,
    max_rate: Rate,
    out: Outbox,
    /// Packets from `first` on.
    book: VecDeque<Sent>,
    first: u64,
    losses: Ranges,
    pacer: Pacer,
    /// Packets the peer takes beyond the last acknowledged.
    window: u64,
    datagram: u32,
    exchange: Duration,
    in_flight: u64,
    /// The last acknowledgement, report, or beginning.
    heard_at: Instant,
    /// The last time that packets were seen to arrive.
    passed_at: Instant,
    /// Expiries in a row.
    backoff: u32,
    round: u64,
    round_end: u64,
    episode_end: u64,
    arrival: Option<Rate>,
    /// Why nothing was sent last.
    held: Option<Why>,
    count: Counters,
}

impl Sender {
    pub(super) fn new(law: Box<dyn CongestionController>, max_rate: Rate) -> Self {
        Self {
            law: Guard::new(law),
            max_rate,
            out: Outbox::default(),
            book: VecDeque::new(),
            first: seq::FIRST,
            losses: Ranges::default(),
            pacer: Pacer::new(),
            window: 0,
            datagram: 0,
            exchange: Duration::ZERO,
            in_flight: 0,
            heard_at: Instant::EPOCH,
            passed_at: Instant::EPOCH,
            backoff: 0,
            round: 0,
            round_end: seq::FIRST,
            episode_end: seq::FIRST,
            arrival: None,
            held: None,
            count: Counters::default(),
        }
    }

    /// Packets of `datagram` bytes, `window` of them unacknowledged.
    pub(super) fn start(&mut self, datagram: u32, window: u32) {
        self.datagram = datagram;
        self.window = window.into();
    }

    /// There and back takes `exchange`: the law begins, or begins anew.
    pub(super) fn time_path(&mut self, now: Instant, exchange: Duration) {
        self.exchange = exchange.max(Duration::from_micros(100));
        let view = self.view();
        self.law.on_start(now, &view);
    }

    fn view(&self) -> PathView {
        PathView {
            datagram: self.datagram,
            srtt: self.exchange,
            min_rtt: self.exchange,
            feedback_interval: ACK,
            in_flight: Size::from_bytes(self.in_flight),
        }
    }

    fn next(&self) -> u64 {
        self.first + self.book.len() as u64
    }

    fn sent_mut(&mut self, number: u64) -> Option<&mut Sent> {
        let at = number.checked_sub(self.first)?;
        self.book.get_mut(usize::try_from(at).ok()?)
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
        self.book.is_empty() && self.out.is_empty()
    }

    /// May a new packet leave, as far as windows go?
    fn may_send_new(&self) -> Result<(), Why> {
        let window = self.law.allowance().window.bytes();
        if self.out.is_empty() {
            Err(Why::Application)
        } else if self.book.len() as u64 >= self.window {
            Err(Why::Peer)
        } else if self.in_flight + u64::from(self.datagram) > window.max(self.datagram.into()) {
            Err(Why::Window)
        } else {
            Ok(())
        }
    }

    /// How many bytes may leave at `now`; none for a reason that is remembered. What is sent again is
    /// held up by nothing but the pace: it may be what everything waits for.
    pub(super) fn permit(&mut self, now: Instant) -> Option<u64> {
        if self.losses.is_empty()
            && let Err(why) = self.may_send_new()
        {
            self.held = Some(why);
            return None;
        }
        let allowance = self.law.allowance();
        let rate = allowance.rate.min(self.max_rate);
        let granted = self.pacer.grant(now, rate, allowance.quantum.bytes());
        self.held = granted.is_none().then_some(Why::Pacing);
        granted
    }

    pub(super) const fn held(&self) -> Option<Why> {
        self.held
    }

    /// What goes next: its number and what it carries.
    pub(super) fn next_packet(&mut self) -> Option<(u64, Piece)> {
        if let Some(number) = self.losses.first() {
            self.losses.remove(number..number + 1);
            let sent = self.sent_mut(number)?;
            return Some((number, sent.piece));
        }
        self.may_send_new().ok()?;
        let room = self.datagram.saturating_sub(HEADER_U32);
        Some((self.next(), self.out.next(room)?))
    }

    /// It leaves.
    pub(super) fn sent(&mut self, now: Instant, number: u64, piece: Piece) {
        let wire = piece.len + HEADER_U32;
        self.in_flight += u64::from(wire);
        let facts = Facts {
            sent_at: now,
            in_flight: Size::from_bytes(self.in_flight),
            delivered: Size::from_bytes(self.count.wire_acked),
            lost: Size::from_bytes(self.count.wire_lost),
            app_limited: self.out.is_empty(),
        };
        if let Some(sent) = self.sent_mut(number) {
            sent.facts = facts;
            sent.lost = false;
            self.count.repaired += u64::from(piece.len);
            self.count.retransmits += 1;
            return;
        }
        if self.book.is_empty() {
            self.heard_at = now;
            self.passed_at = now;
        }
        self.count.data_sent += u64::from(piece.len);
        self.book.push_back(Sent {
            piece,
            facts,
            wire,
            lost: false,
        });
    }

    /// A batch of `bytes` left.
    pub(super) fn batch_sent(&mut self, now: Instant, bytes: u64) {
        let rate = self.law.allowance().rate.min(self.max_rate);
        self.pacer.charge(now, bytes, rate);
        let view = self.view();
        self.law.on_sent(now, Size::from_bytes(bytes), &view);
    }

    fn heard(&mut self, now: Instant) {
        self.heard_at = now;
        self.backoff = 0;
    }

    /// Everything before `sequence` has arrived.
    pub(super) fn on_ack(&mut self, now: Instant, sequence: u32) -> Result<(), NeverSent> {
        let next = seq::expand(sequence, self.first);
        if next > self.next() {
            return Err(NeverSent("an acknowledgement of packets never sent"));
        }
        self.heard(now);
        let in_flight_before = Size::from_bytes(self.in_flight);
        let (mut bytes, mut packets, mut newest) = (0_u64, 0_u32, None);
        while self.first < next
            && let Some(sent) = self.book.pop_front()
        {
            self.first += 1;
            packets += 1;
            bytes += u64::from(sent.wire);
            self.count.data_acked += u64::from(sent.piece.len);
            newest = Some(sent.facts);
            if !sent.lost {
                self.in_flight -= u64::from(sent.wire);
            }
        }
        if packets == 0 {
            return Ok(());
        }
        self.passed_at = now;
        self.losses.remove(0..next);
        self.count.wire_acked += bytes;
        let round_start = next > self.round_end;
        if round_start {
            self.round += 1;
            self.round_end = self.next();
        }
        let ack = AckEvent {
            now,
            acked: Size::from_bytes(bytes),
            packets,
            round: self.round,
            round_start,
            in_flight_before,
            delivered: Size::from_bytes(self.count.wire_acked),
            lost: Size::from_bytes(self.count.wire_lost),
            newest,
            receiver: self.rates(),
            app_limited: self.out.is_empty(),
            path: self.view(),
            ..AckEvent::default()
        };
        self.law.on_ack(&ack);
        Ok(())
    }

    fn rates(&self) -> Option<ReceiverRates> {
        self.arrival.map(|arrival| ReceiverRates {
            arrival,
            capacity: None,
        })
    }

    /// These are missing.
    pub(super) fn on_losses(&mut self, now: Instant, losses: Losses<'_>) -> Result<(), NeverSent> {
        self.heard(now);
        let before = self.in_flight;
        let mut told = Told::default();
        for word in losses.iter() {
            let number = seq::expand(word, self.first);
            if number >= self.next() {
                return Err(NeverSent("a report of packets never sent"));
            }
            self.lose(number, &mut told);
        }
        self.tell_losses(now, before, &told);
        Ok(())
    }

    /// Believes packet `number` lost, if it is on its way.
    fn lose(&mut self, number: u64, told: &mut Told) {
        let Some(sent) = self.sent_mut(number).filter(|sent| !sent.lost) else {
            return;
        };
        sent.lost = true;
        let (wire, facts) = (u64::from(sent.wire), sent.facts);
        self.in_flight -= wire;
        self.losses.insert(number..number + 1);
        let (first, _) = told.ends.unwrap_or(((number, facts), (number, facts)));
        told.ends = Some((first, (number, facts)));
        told.packets += 1;
        told.bytes += wire;
    }

    fn tell_losses(&mut self, now: Instant, before: u64, told: &Told) {
        let Some((oldest, newest)) = told.ends else {
            return;
        };
        self.count.lost += u64::from(told.packets);
        self.count.wire_lost += told.bytes;
        let new_episode = newest.0 >= self.episode_end;
        if new_episode {
            self.episode_end = self.next();
            self.count.episodes += 1;
        }
        let loss = LossEvent {
            now,
            lost: Size::from_bytes(told.bytes),
            packets: told.packets,
            span: (oldest.0, newest.0),
            new_episode,
            oldest: oldest.1,
            newest: newest.1,
            lost_total: Size::from_bytes(self.count.wire_lost),
            in_flight_before: Size::from_bytes(before),
            path: self.view(),
        };
        self.law.on_loss(&loss);
    }

    /// A period of the receiver is over, in which `received` packets came.
    pub(super) fn on_signal(&mut self, now: Instant, received: u32) {
        if received > 0 {
            self.passed_at = now;
        }
        let bytes = u64::from(received) * u64::from(self.datagram);
        self.arrival = Some(Rate::of(bytes, SYN));
        self.law.tell(now, |law| law.on_message(now, SABUL_SIGNAL));
    }

    /// Why the session must end, if the law has failed.
    pub(super) fn failure(&self) -> Option<String> {
        self.law.failure()
    }

    /// Sends again what nobody speaks of, and lets the law's timer run.
    pub(super) fn on_timer(&mut self, now: Instant) {
        if self.law.next_tick().is_some_and(|at| at <= now) {
            self.law.tell(now, |law| law.on_tick(now));
        }
        if self.expiry().is_none_or(|at| at > now) {
            return;
        }
        self.heard_at = now;
        let before = self.in_flight;
        let mut told = Told::default();
        for number in self.first..self.next() {
            self.lose(number, &mut told);
        }
        self.tell_losses(now, before, &told);
        self.backoff += 1;
        self.count.timeouts += 1;
        let backoff = self.backoff;
        self.law.tell(now, |law| law.on_timeout(now, backoff));
    }

    fn expiry(&self) -> Option<Instant> {
        (!self.book.is_empty()).then(|| self.heard_at + EXPIRY)
    }

    /// Since when packets leave and none arrives.
    pub(super) fn blocked_since(&self) -> Option<Instant> {
        (!self.book.is_empty()).then_some(self.passed_at)
    }

    pub(super) fn deadline(&self) -> Option<(Instant, Why)> {
        let allowance = self.law.allowance();
        let rate = allowance.rate.min(self.max_rate);
        let pacing = (self.held == Some(Why::Pacing))
            .then(|| self.pacer.wake(rate, allowance.quantum.bytes()))
            .flatten();
        [
            self.expiry().map(|at| (at, Why::Repair)),
            self.law.next_tick().map(|at| (at, Why::Law)),
            pacing.map(|at| (at, Why::Pacing)),
        ]
        .into_iter()
        .flatten()
        .min_by_key(|(at, _)| *at)
    }

    pub(super) fn fill_stats(&self, stats: &mut Stats) {
        let allowance = self.law.allowance();
        stats.data_sent = self.count.data_sent;
        stats.repaired = self.count.repaired;
        stats.retransmits = self.count.retransmits;
        stats.data_acked = self.count.data_acked;
        stats.packets_lost = self.count.lost;
        stats.episodes = self.count.episodes;
        stats.timeouts = self.count.timeouts;
        stats.datagram_size = self.datagram;
        stats.pacing_rate = allowance.rate.min(self.max_rate);
        stats.window = allowance.window.bytes();
        stats.peer_window = Some(self.window * u64::from(self.datagram));
        stats.in_flight = self.in_flight;
        (stats.law_faults, stats.law_fault) = self.law.faults();
        stats.phase = self.law.law().observe().phase;
    }
}

/// Bytes before a packet's data.
#[expect(clippy::cast_possible_truncation, reason = "sixteen")]
const HEADER_U32: u32 = HEADER as u32;

/// A packet with what was so when it left.
type Known = (u64, Facts);

/// The packets of one report.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    packets: u32,
    bytes: u64,
    ends: Option<(Known, Known)>,
}
