//! Decides when silence means that something has to be sent again. libudt waits for its long timer
//! and then sends everything again. The fixed sender sends the first missing and the newest packet
//! again after a round trip and its variations. The first fills the hole that holds everything up,
//! the newest lets the receiver see what else it lacks.

use std::{ops::Range, time::Duration};

use farhaul_core::{
    send::{Lost, State},
    time::Instant,
};

use super::{Behaviour, SYN, Sender, Sent, rtt};

/// The longest pause between such repeats.
const MAX_PAUSE: Duration = Duration::from_secs(1);
const MAX_BACKOFF: u32 = 8;
/// The most packets sent again because the first of them is overdue.
const MAX_STRIDE: u64 = 4_096;
/// Factor on their number each time that the next first one is overdue too.
const GROWTH: u64 = 8;

impl Sender {
    /// Longest time that an answer takes.
    fn timeout(&self) -> Duration {
        rtt::timeout(&self.rtt) + SYN
    }

    fn is_overdue(&self, sent: &Sent, now: Instant) -> bool {
        now.since(sent.at) >= self.timeout()
    }

    /// Marks the packets of `range` to be sent again, without the law.
    fn mark(&mut self, range: Range<u64>) {
        self.flight.mark_lost(range, &mut Lost::default());
    }

    /// Time at which the fixed sender sends something again.
    pub(in crate::udt) fn again_at(&self) -> Option<Instant> {
        if self.behaviour == Behaviour::Libudt || self.is_idle() {
            return None;
        }
        let times = [self.first_overdue_at(), self.repeat_at()];
        times.into_iter().flatten().min()
    }

    /// Sends again if it is time to.
    pub(in crate::udt) fn send_again(&mut self, now: Instant) {
        if self.again_at().is_none_or(|at| at > now) {
            return;
        }
        if self.repeat_at().is_some_and(|at| at <= now) {
            self.repeat(now);
        } else {
            self.repair_first(now);
        }
    }

    /// Time at which the first packet is overdue while new ones leave; when they do not, there is
    /// silence.
    fn first_overdue_at(&self) -> Option<Instant> {
        let Range { start, end } = self.outstanding();
        let (first, newest) = (self.get(start)?, self.get(end - 1)?);
        let flows = !newest.resent && newest.at > first.at;
        let due = first.at + self.timeout();
        // Even if it seemed to have arrived, for a report of what came after it did not name it: the
        // report that did was lost.
        (flows && first.state != State::Lost).then_some(due)
    }

    /// Notes that acknowledgements have come further: to packets on their way, or to missing ones,
    /// too.
    pub(super) fn calm(&mut self, now: Instant) {
        let first = self.get(self.outstanding().start);
        if first.is_none_or(|sent| !sent.resent && !self.is_overdue(sent, now)) {
            self.clocks.stride = 1;
        }
    }

    /// The acknowledgements stop at a packet that is overdue: it is missing, and the receiver will
    /// not say so again. Where they stop at one after another, many repairs or reports were lost.
    /// Each time eight times as many are sent again, so that they are not made good packet by
    /// packet. Meanwhile libudt says nothing more, so new packets do not put this off.
    pub(super) fn repair_first(&mut self, now: Instant) {
        let first = self.outstanding().start;
        let sent = self.get(first);
        if sent.is_none_or(|sent| !self.is_overdue(sent, now)) {
            return;
        }
        if self.clocks.overdue > 0 && first > self.clocks.overdue {
            self.clocks.stride = (self.clocks.stride * GROWTH).min(MAX_STRIDE);
        }
        self.clocks.overdue = first;
        self.mark(first..first + 1);
        let (others, timeout) = (first + 1..first + self.clocks.stride, self.timeout());
        let overdue =
            |sent: &Sent| sent.state == State::Outstanding && now.since(sent.at) >= timeout;
        self.flight
            .mark_lost_if(others, &mut Lost::default(), overdue);
    }

    /// Time at which the fixed sender repeats.
    fn repeat_at(&self) -> Option<Instant> {
        if self.flight.has_lost() {
            return None;
        }
        let Range { start, end } = self.outstanding();
        let (first, newest) = (self.get(start)?, self.get(end - 1)?);
        let since = self.clocks.progress_at.max(first.at).max(newest.at);
        let pause = (self.timeout() + SYN) * (1 << self.clocks.backoff.min(MAX_BACKOFF));
        Some(since + pause.min(MAX_PAUSE.max(self.rtt.smoothed() * 2)))
    }

    fn repeat(&mut self, now: Instant) {
        let Range { start, end } = self.outstanding();
        self.mark(start..start + 1);
        self.mark(end - 1..end);
        self.clocks.progress_at = now;
        self.clocks.backoff += 1;
        if self.clocks.backoff > 1 {
            self.flight.on_silence(now, self.clocks.backoff);
        } else {
            self.flight.count.timeouts += 1;
        }
    }

    /// libudt's long timer expired for the `expired`th time: without anything marked as lost,
    /// everything is.
    pub(in crate::udt) fn expire(&mut self, now: Instant, expired: u32) {
        if self.behaviour == Behaviour::Fixed {
            return;
        }
        if !self.flight.has_lost() {
            let all = self.outstanding();
            self.mark(all);
        }
        self.flight.on_silence(now, expired);
    }
}
