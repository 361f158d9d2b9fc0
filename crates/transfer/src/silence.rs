//! Notices that the other end is silent: an answer or content was due, and nothing arrived for a
//! while. People hear of the silence long before the session gives up.

use std::time::Duration;

use farhaul_core::{stats::Stats, time::Instant};

/// Shorter pauses are none.
const SILENT: Duration = Duration::from_secs(5);
/// Time after the last datagram of the other end from which a datagram sent does not answer it, and
/// asks for something.
const ASKS: Duration = Duration::from_secs(1);
/// Time between two looks at a silence.
const AGAIN: Duration = Duration::from_secs(1);

/// Silence of the other end: when it was heard last, and what it has not answered since.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    /// Datagrams received and sent.
    counts: (u64, u64),
    /// Bytes that were acknowledged, and sent.
    data: (u64, u64),
    heard: Instant,
    /// Time by which the first datagram after that was sent that asks for something.
    asked: Option<Instant>,
    /// Time by which the first byte since the last acknowledgement of any was sent. Where only what
    /// this end sends is lost, the other end is still heard.
    unacked: Option<Instant>,
    /// True if content of the other end is due, whether or not it was asked.
    due: bool,
    /// Duration of this silence, and of those before it.
    lasts: Duration,
    before: Duration,
}

impl Silence {
    /// Takes note of what a session has counted; `due` if the other end is the one that has to send. For how long it
    /// has been silent, if that is long.
    pub(crate) fn look(&mut self, now: Instant, stats: &Stats, due: bool) -> Option<Duration> {
        let (received, sent) = (stats.datagrams_received, stats.datagrams_sent);
        let data = (stats.data_acked, stats.data_sent + stats.repaired);
        // One that has no room does not acknowledge what it drops, and says so.
        if data.0 != self.data.0 || stats.peer_window == Some(0) {
            self.unacked = None;
        } else if data.1 != self.data.1 {
            self.unacked.get_or_insert(now);
        }
        if received != self.counts.0 || self.heard == Instant::EPOCH || due && !self.due {
            (self.heard, self.asked) = (now, None);
        } else if sent != self.counts.1 && now.since(self.heard) >= ASKS {
            self.asked.get_or_insert(now);
        }
        (self.counts, self.data, self.due) = ((received, sent), data, due);
        let lasts = self.since().map(|since| now.since(since));
        let silent = lasts.filter(|lasts| *lasts >= SILENT);
        if silent.is_none() {
            self.before += self.lasts;
        }
        self.lasts = silent.unwrap_or_default();
        silent
    }

    /// Time for which the other end has been silent in all.
    pub(crate) const fn total(&self) -> Duration {
        self.before.saturating_add(self.lasts)
    }

    /// Time to look again.
    pub(crate) fn next(&self, now: Instant) -> Option<Instant> {
        let at = self.since()? + SILENT;
        Some(if at > now { at } else { now + AGAIN })
    }

    fn since(&self) -> Option<Instant> {
        if self.due {
            return Some(self.heard);
        }
        self.asked.into_iter().chain(self.unacked).min()
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
    fn who_sends_and_is_not_acknowledged_meets_silence_though_the_other_end_is_heard() {
        let moved = |received, sent, acked| Stats {
            data_sent: sent,
            data_acked: acked,
            ..counted(received, sent)
        };
        let mut silence = Silence::default();
        assert_eq!(silence.look(at(1), &moved(1, 9, 5), false), None);
        assert_eq!(silence.look(at(2), &moved(2, 9, 9), false), None);
        // All was acknowledged: nothing is to be.
        assert_eq!(silence.look(at(20), &moved(9, 9, 9), false), None);
        assert_eq!(silence.look(at(21), &moved(10, 12, 9), false), None);
        assert_eq!(silence.next(at(21)), Some(at(26)));
        assert_eq!(silence.look(at(24), &moved(11, 30, 9), false), None);
        let lasts = silence.look(at(26), &moved(12, 30, 9), false);
        assert_eq!(lasts, Some(Duration::from_secs(5)));
        assert!(silence.look(at(28), &moved(13, 31, 9), false).is_some());
        assert_eq!(silence.look(at(29), &moved(14, 31, 10), false), None);
        assert_eq!(silence.total(), Duration::from_secs(7));
        // No room is no silence.
        let full = |received, sent| Stats {
            peer_window: Some(0),
            ..moved(received, sent, 10)
        };
        assert_eq!(silence.look(at(30), &full(15, 32), false), None);
        assert_eq!(silence.look(at(60), &full(16, 33), false), None);
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
