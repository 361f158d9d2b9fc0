//! Schedules the receiver's feedback by time. The first ack-eliciting packet starts the timer.
//! Feedback is due after the interval that the sender requested, or earlier when many holes have
//! opened; feedback waits while its [`Budget`] is spent.

use std::time::Duration;

use crate::time::Instant;

/// New holes that hurry a report. Three times as many fit into one.
const MANY_HOLES: u32 = 160;

/// Decides when feedback is due.
#[derive(Clone, Debug)]
pub struct Schedule {
    interval: Duration,
    holes_at_once: u32,
    due: Option<Instant>,
    /// Feedback after this many packets, if requested.
    packets_at_once: Option<u32>,
    packets: u32,
    holes: u32,
    reported_at: Instant,
}

impl Schedule {
    /// The interval before the sender requests another.
    pub const DEFAULT_INTERVAL: Duration = Duration::from_millis(2);
    /// The longest interval that a sender may request.
    pub const MAX_INTERVAL: Duration = Duration::from_millis(250);

    /// Feedback at the latest `interval` after the first unreported packet, at once after
    /// `holes_at_once` new holes.
    pub const fn new(interval: Duration, holes_at_once: u32) -> Self {
        Self {
            interval,
            holes_at_once,
            due: None,
            packets_at_once: None,
            packets: 0,
            holes: 0,
            reported_at: Instant::EPOCH,
        }
    }

    /// The sender requests feedback every `interval`.
    pub fn set_interval(&mut self, interval: Duration) {
        self.interval = interval.min(Self::MAX_INTERVAL);
    }

    /// Sets the number of packets after which feedback is due at once.
    pub fn set_packets(&mut self, packets: Option<u32>) {
        self.packets_at_once = packets.map(|n| n.max(1));
    }

    /// A packet arrived that opened `new_holes` holes.
    pub fn on_packet(&mut self, now: Instant, new_holes: u32, at_once: bool) {
        self.holes += new_holes;
        self.packets += 1;
        let at_once = at_once || self.packets_at_once.is_some_and(|n| self.packets >= n);
        // What was read late arrived before the last report, which does not bring the next one nearer.
        let due = if at_once {
            now
        } else if self.has_many_holes() {
            // Where packets are reordered holes open all the time.
            now.max(self.reported_at + self.interval / 4)
        } else {
            now.max(self.reported_at) + self.interval
        };
        self.hurry(due);
    }

    /// True if enough holes have opened since the last report to hurry the next.
    pub const fn has_many_holes(&self) -> bool {
        self.holes >= self.holes_at_once
    }

    /// The interval requested.
    pub const fn interval(&self) -> Duration {
        self.interval
    }

    /// Time at which feedback is due.
    pub const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Makes feedback due at `at` at the latest.
    pub fn hurry(&mut self, at: Instant) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// Feedback was sent.
    pub fn reset(&mut self, now: Instant) {
        self.reported_at = now;
        self.clear();
    }

    /// Everything is reported, and gaps may hasten the next feedback again.
    pub const fn clear(&mut self) {
        (self.due, self.packets, self.holes) = (None, 0, 0);
    }
}

/// Budget of feedback, whatever is lost and whatever is requested. It is a hundredth of the bytes
/// that arrive and, beside, ten datagrams a second, ten of them at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Budget {
    /// Hundredths of a byte earned and not spent; below zero by one datagram at the most.
    balance: i64,
    /// Time at which all datagrams that are free of charge will have been earned again (the generic
    /// cell rate algorithm).
    full_at: Instant,
}

impl Budget {
    /// Between datagrams that are free of charge.
    const PAUSE: Duration = Duration::from_millis(100);
    /// Datagrams that may leave at once.
    const BURST: u32 = 10;
    /// The most that can be saved: a few datagrams.
    const MOST: i64 = 100 * (16 << 10);

    /// `wire` bytes arrived.
    pub fn earn(&mut self, wire: u32) {
        self.balance = (self.balance + i64::from(wire)).min(Self::MOST);
    }

    /// Time at which a datagram may leave at the earliest; the epoch: at once.
    pub fn ready_at(&self) -> Instant {
        if self.balance > 0 {
            return Instant::EPOCH;
        }
        self.full_at.earlier_by(Self::PAUSE * (Self::BURST - 1))
    }

    /// A datagram of `bytes` was sent.
    pub fn spend(&mut self, now: Instant, bytes: usize) {
        if self.balance > 0 {
            let cost = i64::try_from(bytes).unwrap_or(i64::MAX).saturating_mul(100);
            self.balance = self.balance.saturating_sub(cost);
        } else {
            self.full_at = self.full_at.max(now) + Self::PAUSE;
        }
    }
}

impl Default for Schedule {
    fn default() -> Self {
        Self::new(Self::DEFAULT_INTERVAL, MANY_HOLES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A busy host reads packets late, and knows when each arrived.
    #[test]
    fn packets_that_are_read_late_make_no_report_early() {
        let ms = Duration::from_millis;
        let at = |n| Instant::EPOCH + ms(n);
        let mut schedule = Schedule::new(ms(12), 3);
        schedule.on_packet(at(100), 0, false);
        assert_eq!(schedule.due(), Some(at(112)));
        schedule.reset(at(115));
        // It lay unread when that report was made.
        schedule.on_packet(at(108), 0, false);
        assert_eq!(schedule.due(), Some(at(127)));
        schedule.on_packet(at(109), 3, false);
        assert_eq!(
            schedule.due(),
            Some(at(118)),
            "a quarter of an interval later"
        );
        schedule.on_packet(at(110), 0, true);
        assert_eq!(schedule.due(), Some(at(110)));
    }

    #[test]
    fn feedback_is_bounded_by_what_arrives_and_by_time() {
        let start = Instant::from_nanos(5_000_000_000);
        for wire in [0, 100, 1_400, 9_000] {
            let mut budget = Budget::default();
            let (mut now, mut arrived, mut sent, mut free) = (start, 0, 0, 0);
            // As often as it may, for ten seconds.
            for _ in 0..100_000 {
                now += Duration::from_micros(100);
                budget.earn(wire);
                arrived += u64::from(wire);
                while budget.ready_at() <= now {
                    free += u64::from(budget.balance <= 0);
                    sent += u64::from(budget.balance > 0) * 1_200;
                    budget.spend(now, 1_200);
                }
            }
            assert!(sent <= arrived / 100 + 1_200, "{wire}: {sent} of {arrived}");
            assert!((100..=110).contains(&free), "{wire}: {free}");
            assert!(
                sent + 1_200 >= arrived / 100,
                "{wire}: what may be sent, is"
            );
        }
    }

    #[test]
    fn what_was_earned_in_silence_is_limited() {
        let mut budget = Budget::default();
        for _ in 0..1_000_000 {
            budget.earn(9_000);
        }
        let mut bytes = 0;
        while budget.balance > 0 {
            budget.spend(Instant::EPOCH, 1_000);
            bytes += 1_000;
        }
        assert!(bytes <= 17 << 10, "{bytes}");
    }
}
