//! When does silence mean that something has to be sent again? libudt waits for its long timer and
//! then sends everything again. The cured sender sends the first missing and the newest packet again
//! after a round trip and its variations: the one fills the hole that holds everything up, the other
//! lets the receiver see what else it lacks.

use std::time::Duration;

use farhaul_core::time::Instant;

use super::{Manner, RoundTrip, SYN, Sender};

/// The longest pause between such repeats.
const MAX_PAUSE: Duration = Duration::from_secs(1);
const MAX_BACKOFF: u32 = 8;

impl Sender {
    /// When the cured sender repeats.
    pub(in crate::udt) fn repeat_at(&self, rtt: &RoundTrip) -> Option<Instant> {
        if self.manner == Manner::Libudt || self.book.is_empty() || self.has_repairs() {
            return None;
        }
        let sent_at = |number| self.book.get(number).map(|sent| sent.facts.sent_at);
        let newest = sent_at(self.book.next() - 1);
        let since = self.clocks.progress_at.max(sent_at(self.book.first())?);
        let since = since.max(newest.unwrap_or(since));
        let pause = (rtt.patience() + SYN * 2) * (1 << self.clocks.backoff.min(MAX_BACKOFF));
        Some(since + pause.min(MAX_PAUSE.max(rtt.smoothed() * 2)))
    }

    /// Repeats if it is time to.
    pub(in crate::udt) fn repeat(&mut self, now: Instant, rtt: &RoundTrip) {
        if self.repeat_at(rtt).is_none_or(|at| at > now) {
            return;
        }
        let (first, next) = (self.book.first(), self.book.next());
        self.lose(first..first + 1);
        self.lose(next - 1..next);
        self.clocks.progress_at = now;
        self.clocks.backoff += 1;
        self.count.timeouts += 1;
        if self.clocks.backoff > 1 {
            let backoff = self.clocks.backoff;
            self.law.tell(now, |law| law.on_timeout(now, backoff));
        }
    }

    /// libudt's long timer expired for the `expired`th time: without anything marked as lost,
    /// everything is.
    pub(in crate::udt) fn expire(&mut self, now: Instant, expired: u32) {
        if self.manner == Manner::Tuned {
            return;
        }
        self.count.timeouts += 1;
        if self.losses.is_empty() {
            let all = self.outstanding();
            self.lose(all);
        }
        self.law.tell(now, |law| law.on_timeout(now, expired));
    }
}
