//! When does silence mean that something has to be sent again? libudt waits for its long timer and
//! then sends everything again. The fixed sender sends the first missing and the newest packet again
//! after a round trip and its variations: the one fills the hole that holds everything up, the other
//! lets the receiver see what else it lacks.

use std::{ops::Range, time::Duration};

use farhaul_core::{
    send::{Lost, State},
    time::Instant,
};

use super::{Behaviour, RoundTrip, SYN, Sender, Sent};

/// The longest pause between such repeats.
const MAX_PAUSE: Duration = Duration::from_secs(1);
const MAX_BACKOFF: u32 = 8;
/// The most packets sent again because the first of them is overdue.
const MAX_STRIDE: u64 = 4_096;
/// As many times more of them each time that the next first one is overdue too.
const GROWTH: u64 = 8;

/// Left longer ago than an answer takes.
fn is_overdue(sent: &Sent, now: Instant, rtt: &RoundTrip) -> bool {
    now.since(sent.at) >= rtt.patience() + SYN
}

impl Sender {
    /// The packets of `range` are sent again; the law does not hear of it.
    fn mark(&mut self, range: Range<u64>) {
        self.flight.mark_lost(range, &mut Lost::default());
    }

    /// When the fixed sender sends something again.
    pub(in crate::udt) fn again_at(&self, rtt: &RoundTrip) -> Option<Instant> {
        if self.behaviour == Behaviour::Libudt || self.is_idle() {
            return None;
        }
        let times = [self.revisit_at(rtt), self.repeat_at(rtt)];
        times.into_iter().flatten().min()
    }

    /// Does so if it is time to.
    pub(in crate::udt) fn send_again(&mut self, now: Instant, rtt: &RoundTrip) {
        if self.again_at(rtt).is_none_or(|at| at > now) {
            return;
        }
        if self.repeat_at(rtt).is_some_and(|at| at <= now) {
            self.repeat(now);
        } else {
            self.revisit_first(now, rtt);
        }
    }

    /// When the first packet is overdue while new ones leave; when they do not, there is silence.
    fn revisit_at(&self, rtt: &RoundTrip) -> Option<Instant> {
        let first = self.get(self.first())?;
        let newest = self.get(self.next() - 1)?;
        let flows = !newest.resent && newest.at > first.at;
        let due = first.at + rtt.patience() + SYN;
        // Even if it seemed to have arrived, for a report of what came after it did not name it: the
        // report that did was lost.
        (flows && first.state != State::Lost).then_some(due)
    }

    /// Acknowledgements have come further: to what is on its way, or to what is missing too?
    pub(super) fn calm(&mut self, now: Instant, rtt: &RoundTrip) {
        let first = self.get(self.first());
        if first.is_none_or(|sent| !sent.resent && !is_overdue(sent, now, rtt)) {
            self.clocks.stride = 1;
        }
    }

    /// The acknowledgements stop at a packet that is overdue: it is missing, and the receiver will not
    /// say so again. Where they stop at one after another, many repairs or reports were lost: each time
    /// eight times as many are sent again, so that they are not made good packet by packet. libudt says
    /// nothing more while they stop, so that new packets do not put this off.
    pub(super) fn revisit_first(&mut self, now: Instant, rtt: &RoundTrip) {
        let first = self.first();
        let sent = self.get(first);
        if sent.is_none_or(|sent| !is_overdue(sent, now, rtt)) {
            return;
        }
        if self.clocks.revisited > 0 && first > self.clocks.revisited {
            self.clocks.stride = (self.clocks.stride * GROWTH).min(MAX_STRIDE);
        }
        self.clocks.revisited = first;
        self.mark(first..first + 1);
        for number in first + 1..first + self.clocks.stride {
            let Some(sent) = self.get(number) else {
                return;
            };
            if sent.state == State::Outstanding && is_overdue(sent, now, rtt) {
                self.mark(number..number + 1);
            }
        }
    }

    /// When the fixed sender repeats.
    fn repeat_at(&self, rtt: &RoundTrip) -> Option<Instant> {
        if self.has_repairs() {
            return None;
        }
        let sent_at = |number| self.get(number).map(|sent| sent.at);
        let newest = sent_at(self.next() - 1);
        let since = self.clocks.progress_at.max(sent_at(self.first())?);
        let since = since.max(newest.unwrap_or(since));
        let pause = (rtt.patience() + SYN * 2) * (1 << self.clocks.backoff.min(MAX_BACKOFF));
        Some(since + pause.min(MAX_PAUSE.max(rtt.smoothed() * 2)))
    }

    fn repeat(&mut self, now: Instant) {
        let (first, next) = (self.first(), self.next());
        self.mark(first..first + 1);
        self.mark(next - 1..next);
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
        if !self.has_repairs() {
            let all = self.outstanding();
            self.mark(all);
        }
        self.flight.on_silence(now, expired);
    }
}
