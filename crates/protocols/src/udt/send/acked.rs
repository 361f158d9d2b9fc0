//! What do acknowledgements and loss lists change? They retire packets, set the peer's window, feed
//! the estimators, and become the law's events. A light acknowledgement shrinks the window by what it
//! covers; as in libudt it does not reach the law by itself, but the fixed sender passes it on.

use std::time::Duration;

use farhaul_core::{
    congestion::ReceiverRates,
    send::{Lost, Signals, State},
    time::Instant,
    units::Rate,
};

use super::{Behaviour, NeverSent, RoundTrip, Sender, Sent};
use crate::udt::{
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
        let first = self.first();
        let next = seq::expand(next, first);
        if next > self.next() {
            return Err(NeverSent);
        }
        let newly = next.saturating_sub(first);
        if state.is_some() {
            self.confirmed = self.confirmed.max(next);
        }
        match state {
            Some(state) if next >= first => self.peer_window = state.window.into(),
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
        } else if newly > 0 && !self.has_repairs() {
            sample = self.own_sample(now, rtt);
        }
        if self.pending.packets > 0 && (state.is_some() || self.behaviour == Behaviour::Fixed) {
            self.tell_law(now, sample, rtt);
        }
        if state.is_some() && self.behaviour == Behaviour::Fixed {
            self.revisit_first(now, rtt);
        }
        Ok(())
    }

    fn retire(&mut self, now: Instant, next: u64) {
        let (out, mut data) = (&mut self.out, 0);
        self.flight.ack_below(next, &mut self.pending, |sent| {
            out.retire(&sent.content.piece);
            data += u64::from(sent.content.piece.len);
        });
        self.flight.count.data_acked += data;
        if self.is_idle() {
            self.out.settle();
        }
        self.clocks.progress_at = now;
        self.clocks.backoff = 0;
    }

    /// Everything below `end` that was not missed has arrived, but what was sent again may be missed for
    /// a second time.
    fn infer(&mut self, end: u64) {
        for number in self.clocks.told_below.max(self.first())..end {
            let sent = self.get(number);
            if sent.is_some_and(|sent| sent.state == State::Outstanding && !sent.resent) {
                self.flight.ack(number, &mut self.pending);
            }
        }
        self.clocks.told_below = self.clocks.told_below.max(end);
    }

    /// Takes what the receiver measured; the round trip it tells, if it has one.
    fn learn(&mut self, state: &AckState, rtt: &mut RoundTrip) -> Option<Duration> {
        if let Some(speed) = state.speed {
            let datagram = u64::from(self.flight.path.datagram);
            let rate = |packets: u32| Rate::from_bps(u64::from(packets) * datagram * 8);
            self.rates = ReceiverRates {
                arrival: rate(speed.arrival),
                capacity: (speed.capacity > 0).then(|| rate(speed.capacity)),
            };
        }
        // 100 ms to the µs is the value every receiver starts with.
        let told = (state.rtt_us > 0 && state.rtt_us != 100_000)
            .then(|| Duration::from_micros(state.rtt_us.into()));
        match (self.behaviour, told) {
            (Behaviour::Libudt, _) => rtt.update(Duration::from_micros(state.rtt_us.into())),
            (Behaviour::Fixed, Some(told)) => rtt.update(told),
            (Behaviour::Fixed, None) => {}
        }
        told
    }

    /// A light acknowledgement leaves with the packet it is for: a round trip without waiting.
    fn own_sample(&self, now: Instant, rtt: &mut RoundTrip) -> Option<Duration> {
        let newest = self.pending.newest?;
        if self.behaviour == Behaviour::Libudt || newest.resent {
            return None;
        }
        let sample = now.since(newest.at);
        rtt.update(sample);
        Some(sample)
    }

    fn tell_law(&mut self, now: Instant, sample: Option<Duration>, rtt: &RoundTrip) {
        let pending = std::mem::take(&mut self.pending);
        let Some(newest) = pending.newest else {
            return;
        };
        self.see(rtt);
        let arrived = (now.as_nanos() / 1_000, self.flight.count.delivered);
        let signals = Signals {
            rtt: sample,
            rate: self.flight.sample(&pending, arrived, rtt.smoothed()),
            receiver: Some(self.rates),
            round_start: self.flight.round(newest.number),
            app_limited: !self.out.is_ready(),
            ..Signals::default()
        };
        self.flight.tell_acks(now, &pending, signals);
    }

    /// The receiver misses these.
    pub(in crate::udt) fn on_nak(
        &mut self,
        now: Instant,
        losses: LossList<'_>,
        rtt: &RoundTrip,
    ) -> Result<(), NeverSent> {
        let outstanding = self.outstanding();
        let before = self.flight.count.in_flight;
        let (mut lost, mut span) = (Lost::default(), None);
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
            span = Some((span.map_or(first, |(start, _)| start), last));
            match self.behaviour {
                Behaviour::Libudt => self.lose_reported(first..floor, &mut lost),
                Behaviour::Fixed => self.lose_settled(now, first..floor, rtt, &mut lost),
            }
        }
        let Some(span) = span else {
            return Ok(());
        };
        if self.behaviour == Behaviour::Fixed {
            self.infer(span.1 + 1);
        }
        if lost.span().is_some() {
            self.clocks.progress_at = now;
            self.see(rtt);
            self.flight.tell_losses(now, before, &lost, span.0);
        }
        Ok(())
    }

    /// libudt's controller hears of every report, not of news alone.
    fn lose_reported(&mut self, range: std::ops::Range<u64>, lost: &mut Lost) {
        for number in range {
            let known = self.get(number).copied();
            self.flight.mark_lost(number..number + 1, lost);
            if let Some(sent) = known.filter(|sent| sent.state == State::Lost) {
                lost.add(number, &sent);
            }
        }
    }

    /// Not what was sent again less than a round trip ago: the report left before that arrived.
    fn lose_settled(
        &mut self,
        now: Instant,
        range: std::ops::Range<u64>,
        rtt: &RoundTrip,
        lost: &mut Lost,
    ) {
        let trip = rtt.min().unwrap_or_else(|| rtt.smoothed());
        for number in range {
            let fresh = |sent: &Sent| sent.resent && now.since(sent.at) < trip;
            if !self.get(number).is_some_and(fresh) {
                self.flight.mark_lost(number..number + 1, lost);
            }
        }
    }
}
