//! Does the other end still answer? What one of the two ends has not heard of the other for a while, although an answer or
//! content was due, is silence: people are told of it long before the session gives up.

use std::time::Duration;

use farhaul_core::{stats::Stats, time::Instant};

/// Shorter pauses are none.
const SILENT: Duration = Duration::from_secs(5);
/// What is sent later than that after the last datagram of the other end does not answer it, and asks for something.
const ASKS: Duration = Duration::from_secs(1);
/// Between two looks at a silence.
const AGAIN: Duration = Duration::from_secs(1);

/// When the other end was heard last, and what it has not answered since.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    /// Datagrams received and sent.
    counts: (u64, u64),
    heard: Instant,
    /// The first datagram that asks for something after that was sent by then.
    asked: Option<Instant>,
    /// Content of the other end is due, whether or not it was asked.
    due: bool,
}

impl Silence {
    /// Takes note of what a session has counted; `due` if the other end is the one that has to send. For how long it
    /// has been silent, if that is long.
    pub(crate) fn look(&mut self, now: Instant, stats: &Stats, due: bool) -> Option<Duration> {
        let (received, sent) = (stats.datagrams_received, stats.datagrams_sent);
        if received != self.counts.0 || self.heard == Instant::EPOCH || due && !self.due {
            (self.heard, self.asked) = (now, None);
        } else if sent != self.counts.1 && now.since(self.heard) >= ASKS {
            self.asked.get_or_insert(now);
        }
        self.counts = (received, sent);
        self.due = due;
        let since = self.since()?;
        let lasts = now.since(since);
        (lasts >= SILENT).then_some(lasts)
    }

    /// When to look again.
    pub(crate) fn next(&self, now: Instant) -> Option<Instant> {
        let at = self.since()? + SILENT;
        Some(if at > now { at } else { now + AGAIN })
    }

    const fn since(&self) -> Option<Instant> {
        if self.due {
            Some(self.heard)
        } else {
            self.asked
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::EPOCH + Duration::from_secs(seconds)
    }

    fn counted(received: u64, sent: u64) -> Stats {
        Stats {
            datagrams_received: received,
            datagrams_sent: sent,
            ..Stats::default()
        }
    }

    #[test]
    fn who_sends_and_is_not_answered_meets_silence() {
        let mut silence = Silence::default();
        assert_eq!(silence.look(at(1), &counted(1, 1), false), None);
        assert_eq!(silence.next(at(1)), None, "nothing is due");
        // Nothing was sent: nothing is to be answered.
        assert_eq!(silence.look(at(60), &counted(1, 1), false), None);
        assert_eq!(silence.look(at(61), &counted(1, 2), false), None);
        assert_eq!(silence.next(at(61)), Some(at(66)));
        assert_eq!(silence.look(at(64), &counted(1, 9), false), None);
        let lasts = silence.look(at(66), &counted(1, 9), false);
        assert_eq!(lasts, Some(Duration::from_secs(5)));
        assert_eq!(silence.next(at(66)), Some(at(67)));
        assert_eq!(silence.look(at(67), &counted(2, 9), false), None);
        assert_eq!(silence.look(at(90), &counted(2, 9), false), None);
    }

    #[test]
    fn what_was_heard_is_confirmed_and_nobody_confirms_that() {
        let mut silence = Silence::default();
        assert_eq!(silence.look(at(1), &counted(1, 1), false), None);
        let soon = at(1) + Duration::from_millis(25);
        assert_eq!(silence.look(soon, &counted(1, 2), false), None);
        // A server lets a copy wait for a place that is in use.
        assert_eq!(silence.look(at(7), &counted(1, 2), false), None);
    }

    #[test]
    fn who_receives_meets_silence_when_nothing_comes() {
        let mut silence = Silence::default();
        assert_eq!(silence.look(at(1), &counted(5, 1), true), None);
        assert_eq!(silence.next(at(1)), Some(at(6)));
        let lasts = silence.look(at(7), &counted(5, 1), true);
        assert_eq!(lasts, Some(Duration::from_secs(6)));
        // This end works, and then waits anew.
        assert_eq!(silence.look(at(8), &counted(5, 1), false), None);
        assert_eq!(silence.look(at(30), &counted(5, 1), true), None);
        assert!(silence.look(at(35), &counted(5, 1), true).is_some());
    }
}
