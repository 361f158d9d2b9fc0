//! What do acknowledgements and loss lists change? They retire packets, set the peer's window, feed
//! the estimators, and become the law's events. A light acknowledgement shrinks the window by what it
//! covers; as in libudt it does not reach the law by itself, but the cured sender passes it on.

use std::time::Duration;

use farhaul_core::{
    congestion::{AckEvent, Facts, LossEvent, ReceiverRates},
    rate::Progress,
    time::Instant,
    units::{Rate, Size},
};

use super::{Manner, NeverSent, RoundTrip, Sender, Sent};
use crate::udt::{
    book::State,
    seq,
    wire::{AckState, LossList},
};

impl Sender {
    /// Everything before `next` is with the receiver.
    pub(in crate::udt) fn on_ack(
        &mut self,
        now: Instant,
        next: u32,
        state: Option<&AckState>,
        rtt: &mut RoundTrip,
    ) -> Result<(), NeverSent> {
        let next = seq::expand(next, self.book.first());
        if next > self.book.next() {
            return Err(NeverSent);
        }
        let newly = next.saturating_sub(self.book.first());
        if state.is_some() {
            self.confirmed = self.confirmed.max(next);
        }
        match state {
            Some(state) if next >= self.book.first() => self.peer_window = state.window.into(),
            Some(_) => {}
            None => self.peer_window = self.peer_window.saturating_sub(newly),
        }
        if newly > 0 {
            self.retire(now, next);
            self.calm(now, rtt);
        }
        let mut sample = None;
        if let Some(state) = state {
            sample = self.learn(state, rtt);
        } else if newly > 0 && self.losses.is_empty() {
            sample = self.own_sample(now, rtt);
        }
        if self.pending.packets > 0 && (state.is_some() || self.manner == Manner::Tuned) {
            self.tell_law(now, sample, rtt);
        }
        if state.is_some() && self.manner == Manner::Tuned {
            self.revisit_first(now, rtt);
        }
        Ok(())
    }

    fn retire(&mut self, now: Instant, next: u64) {
        self.losses.remove(0..next);
        loop {
            let number = self.book.first();
            let Some(sent) = self.book.retire(next) else {
                break;
            };
            self.out.retire(&sent.piece);
            self.count.data_acked += u64::from(sent.piece.len);
            if sent.state != State::Arrived {
                self.arrived(number, sent);
            }
        }
        if self.book.is_empty() {
            self.out.settle();
        }
        self.clocks.progress_at = now;
        self.clocks.backoff = 0;
    }

    /// Packet `number` is with the receiver.
    fn arrived(&mut self, number: u64, sent: Sent) {
        let wire = u64::from(sent.wire);
        if self.pending.packets == 0 {
            self.pending.in_flight_before = self.in_flight;
        }
        if sent.state != State::Lost {
            self.in_flight -= wire;
        }
        self.pending.bytes += wire;
        self.pending.packets += 1;
        if self.pending.newest.is_none_or(|(n, _)| n <= number) {
            self.pending.newest = Some((number, sent));
        }
        self.count.acked_bytes += wire;
    }

    /// Everything below `end` that was not missed has arrived, but what was sent again may be missed for
    /// a second time.
    fn infer(&mut self, end: u64) {
        let start = self.clocks.told_below.max(self.book.first());
        for number in start..end {
            if let Some(sent) = self.book.get_mut(number)
                && sent.state == State::InFlight
                && !sent.resent
            {
                let before = *sent;
                sent.state = State::Arrived;
                let sent = before;
                self.arrived(number, sent);
            }
        }
        self.clocks.told_below = self.clocks.told_below.max(end);
    }

    /// Takes what the receiver measured; the round trip it tells, if it has one.
    fn learn(&mut self, state: &AckState, rtt: &mut RoundTrip) -> Option<Duration> {
        if let Some(speed) = state.speed {
            let datagram = u64::from(self.datagram);
            let rate = |packets: u32| Rate::from_bps(u64::from(packets) * datagram * 8);
            self.rates = ReceiverRates {
                arrival: rate(speed.arrival),
                capacity: (speed.capacity > 0).then(|| rate(speed.capacity)),
            };
        }
        // 100 ms to the µs is the value every receiver starts with.
        let told = (state.rtt_us > 0 && state.rtt_us != 100_000)
            .then(|| Duration::from_micros(state.rtt_us.into()));
        match (self.manner, told) {
            (Manner::Libudt, _) => rtt.update(Duration::from_micros(state.rtt_us.into())),
            (Manner::Tuned, Some(told)) => rtt.update(told),
            (Manner::Tuned, None) => {}
        }
        told
    }

    /// A light acknowledgement leaves with the packet it is for: a round trip without waiting.
    fn own_sample(&self, now: Instant, rtt: &mut RoundTrip) -> Option<Duration> {
        let (_, newest) = self.pending.newest?;
        if self.manner == Manner::Libudt || newest.resent {
            return None;
        }
        let sample = now.since(newest.facts.sent_at);
        rtt.update(sample);
        Some(sample)
    }

    fn tell_law(&mut self, now: Instant, sample: Option<Duration>, rtt: &RoundTrip) {
        let pending = std::mem::take(&mut self.pending);
        let Some((number, newest)) = pending.newest else {
            return;
        };
        let round_start = number >= self.clocks.round_end;
        if round_start {
            self.clocks.round += 1;
            self.clocks.round_end = self.book.next();
        }
        let progress = Progress {
            arrived_us: now.as_nanos() / 1_000,
            bytes: self.count.acked_bytes,
            sent: newest.facts.sent_at,
            sent_bytes: newest.bytes_so_far,
            packet: number,
            lost: self.count.lost,
        };
        let window = self
            .law
            .law()
            .sample_window()
            .unwrap_or_else(|| rtt.smoothed());
        let rate = self.delivery.update(progress, window);
        let event = AckEvent {
            now,
            acked: Size::from_bytes(pending.bytes),
            packets: pending.packets,
            round: self.clocks.round,
            round_start,
            in_flight_before: Size::from_bytes(pending.in_flight_before),
            rtt: sample,
            queue_delay: None,
            rate,
            delivered: Size::from_bytes(self.count.acked_bytes),
            lost: Size::from_bytes(self.count.lost_bytes),
            newest: Some(newest.facts),
            receiver: Some(self.rates),
            ce: 0,
            app_limited: !self.out.is_ready(),
            path: self.view(rtt),
        };
        self.law.on_ack(&event);
    }

    /// Takes the packets in `range` out of flight and marks them to be sent again; returns how many
    /// were not marked before.
    pub(super) fn lose(&mut self, range: std::ops::Range<u64>) -> u64 {
        for number in range.clone() {
            if let Some(sent) = self.book.get_mut(number)
                && sent.state != State::Lost
            {
                if sent.state == State::InFlight {
                    self.in_flight -= u64::from(sent.wire);
                }
                sent.state = State::Lost;
                self.count.lost_bytes += u64::from(sent.wire);
            }
        }
        let new = self.losses.insert(range);
        self.count.lost += new;
        new
    }

    /// The receiver misses these.
    pub(in crate::udt) fn on_nak(
        &mut self,
        now: Instant,
        losses: LossList<'_>,
        rtt: &RoundTrip,
    ) -> Result<(), NeverSent> {
        let outstanding = self.outstanding();
        let before = self.in_flight;
        let (mut reported, mut new, mut span) = (0, 0, None);
        let mut floor = outstanding.start;
        for (first, last) in losses.runs() {
            let last = seq::expand(last, outstanding.start);
            let first = seq::expand(first, outstanding.start).max(floor);
            if last >= outstanding.end {
                return Err(NeverSent);
            }
            if first > last {
                continue;
            }
            // Runs ascend; one that does not is not looked at twice.
            floor = last + 1;
            reported += floor - first;
            span = Some((span.map_or(first, |(start, _)| start), last));
            new += match self.manner {
                Manner::Libudt => self.lose(first..floor),
                Manner::Tuned => self.lose_settled(now, first..floor, rtt),
            };
        }
        let Some(span) = span else {
            return Ok(());
        };
        if self.manner == Manner::Tuned {
            self.infer(span.1 + 1);
        }
        // libudt's controller hears of every report, the cured one's of news.
        let told = match self.manner {
            Manner::Libudt => reported,
            Manner::Tuned => new,
        };
        if told == 0 {
            return Ok(());
        }
        self.clocks.progress_at = now;
        let new_episode = span.0 >= self.clocks.episode_end;
        if new_episode {
            self.clocks.episode_end = self.book.next();
        }
        self.law.on_loss(&LossEvent {
            now,
            lost: Size::from_bytes(told * u64::from(self.datagram)),
            packets: u32::try_from(told).unwrap_or(u32::MAX),
            span,
            new_episode,
            oldest: self.facts(span.0),
            newest: self.facts(span.1),
            lost_total: Size::from_bytes(self.count.lost_bytes),
            in_flight_before: Size::from_bytes(before),
            path: self.view(rtt),
        });
        Ok(())
    }

    fn facts(&self, number: u64) -> Facts {
        let sent = self.book.get(number);
        sent.map(|sent| sent.facts).unwrap_or_default()
    }

    /// Like [`Self::lose`], but not what was sent again less than a round trip ago: the report left
    /// before that arrived.
    fn lose_settled(&mut self, now: Instant, range: std::ops::Range<u64>, rtt: &RoundTrip) -> u64 {
        let trip = rtt.min().unwrap_or_else(|| rtt.smoothed());
        let mut new = 0;
        for number in range {
            let fresh = |sent: &Sent| sent.resent && now.since(sent.facts.sent_at) < trip;
            if !self.book.get(number).is_some_and(fresh) {
                new += self.lose(number..number + 1);
            }
        }
        new
    }
}
