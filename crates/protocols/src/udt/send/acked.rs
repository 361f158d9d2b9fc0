//! Applies acknowledgements and loss lists. They retire packets, set the peer's window, feed the
//! estimators, and become the law's events. A light acknowledgement shrinks the window by what it
//! covers. As in libudt it does not reach the law by itself, but the fixed sender passes it on.

use std::{ops::Range, time::Duration};

use farhaul_core::{
    codec::DecodeError,
    congestion::ReceiverRates,
    send::{Lost, Signals, State},
    time::Instant,
    units::Rate,
};

use super::{Behaviour, Sender};
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
    ) -> Result<(), DecodeError> {
        let Range { start: first, end } = self.outstanding();
        let next = seq::Number::expand(next, first);
        if next > end {
            return Err(DecodeError::Malformed(
                "acknowledgement of what was never sent",
            ));
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
            self.calm(now);
        }
        let mut sample = None;
        if let Some(state) = state {
            sample = self.learn(now, state);
        } else if newly > 0 && !self.flight.has_lost() {
            sample = self.own_sample(now);
        }
        if self.pending.packets > 0 && (state.is_some() || self.behaviour == Behaviour::Fixed) {
            self.tell_law(now, sample);
        }
        if state.is_some() && self.behaviour == Behaviour::Fixed {
            self.repair_first(now);
        }
        Ok(())
    }

    fn retire(&mut self, now: Instant, next: u64) {
        let (out, mut data) = (&mut self.out, 0);
        self.flight.ack_below(next, &mut self.pending, |sent| {
            out.retire(now, &sent.content);
            data += u64::from(sent.content.len);
        });
        self.flight.count.data_acked += data;
        if self.is_idle() {
            self.out.settle();
        }
        self.clocks.progress_at = now;
        self.clocks.backoff = 0;
    }

    /// Infers that everything below `end` that was not missed has arrived, but repairs may be
    /// missed for a second time.
    fn infer(&mut self, end: u64) {
        for number in self.clocks.reported_below.max(self.outstanding().start)..end {
            let sent = self.get(number);
            if sent.is_some_and(|sent| sent.state == State::Outstanding && !sent.resent) {
                self.flight.ack(number, &mut self.pending);
            }
        }
        self.clocks.reported_below = self.clocks.reported_below.max(end);
    }

    /// Takes what the receiver measured; the round trip it reports, if it has one.
    fn learn(&mut self, now: Instant, state: &AckState) -> Option<Duration> {
        if let Some(speed) = state.speed {
            let datagram = u64::from(self.flight.path.datagram);
            let rate = |packets: u32| Rate::from_bps(u64::from(packets) * datagram * 8);
            self.rates = ReceiverRates {
                arrival: rate(speed.arrival),
                capacity: (speed.capacity > 0).then(|| rate(speed.capacity)),
            };
        }
        // 100 ms to the µs is the value every receiver starts with.
        let reported = Duration::from_micros(state.rtt_us.into());
        let measured = state.rtt_us > 0 && state.rtt_us != 100_000;
        if measured || self.behaviour == Behaviour::Libudt {
            self.on_rtt(now, reported);
        }
        measured.then_some(reported)
    }

    /// A light acknowledgement leaves with the packet it is for: a round trip without waiting.
    fn own_sample(&mut self, now: Instant) -> Option<Duration> {
        let newest = self.pending.newest?;
        if self.behaviour == Behaviour::Libudt || newest.resent {
            return None;
        }
        let sample = now.since(newest.at);
        self.on_rtt(now, sample);
        Some(sample)
    }

    fn tell_law(&mut self, now: Instant, sample: Option<Duration>) {
        let pending = std::mem::take(&mut self.pending);
        let newest = pending.newest;
        let arrived = (now.as_nanos() / 1_000, self.flight.count.delivered);
        let signals = Signals {
            rtt: sample,
            rate: newest
                .and_then(|newest| self.flight.sample(&newest, arrived, self.rtt.smoothed())),
            receiver: Some(self.rates),
            round_start: self.flight.round(newest.map_or(0, |newest| newest.number)),
            app_limited: !self.out.is_ready(),
            ..Signals::default()
        };
        self.flight.tell_acks(now, &pending, signals);
    }

    /// Takes the packets that the receiver misses.
    pub(in crate::udt) fn on_nak(
        &mut self,
        now: Instant,
        losses: LossList<'_>,
    ) -> Result<(), DecodeError> {
        let outstanding = self.outstanding();
        let before = self.flight.count.in_flight;
        let (mut lost, mut span) = (Lost::default(), None);
        let mut floor = outstanding.start;
        for (first, last) in losses.runs() {
            let last = seq::Number::expand(last, outstanding.start);
            let first = seq::Number::expand(first, outstanding.start).max(floor);
            if last >= outstanding.end {
                return Err(DecodeError::Malformed("report of what was never sent"));
            }
            if first > last {
                continue;
            }
            // Runs ascend; one that does not is not taken twice.
            floor = last + 1;
            span = Some((span.map_or(first, |(start, _)| start), last));
            match self.behaviour {
                Behaviour::Libudt => self.lose_reported(first..floor, &mut lost),
                Behaviour::Fixed => self.lose_settled(now, first..floor, &mut lost),
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
            self.flight.tell_losses(now, before, &lost, span.0);
        }
        Ok(())
    }

    /// libudt's controller gets every report, not news alone.
    fn lose_reported(&mut self, range: Range<u64>, lost: &mut Lost) {
        for number in range {
            let known = self.get(number).copied();
            self.flight.mark_lost(number..number + 1, lost);
            if let Some(sent) = known.filter(|sent| sent.state == State::Lost) {
                lost.add(number, &sent);
            }
        }
    }

    /// Skips packets sent again less than a round trip ago: the report left before they arrived.
    fn lose_settled(&mut self, now: Instant, range: Range<u64>, lost: &mut Lost) {
        let trip = self.least_rtt();
        self.flight
            .mark_lost_if(range, lost, |sent| sent.is_settled(now, trip));
    }
}
