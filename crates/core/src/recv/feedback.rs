//! When does the receiver speak? Time-based: the first packet worth acknowledging starts the clock;
//! after the interval the sender wished for, or earlier when many holes have opened, feedback is due.

use std::time::Duration;

use crate::time::Instant;

/// Decides when feedback is due.
#[derive(Clone, Debug)]
pub struct Schedule {
    interval: Duration,
    holes_at_once: u32,
    due: Option<Instant>,
    /// Feedback after so many packets, if wished for.
    packets_at_once: Option<u32>,
    packets: u32,
    holes: u32,
    /// Holes hurry no report before: where packets are reordered they open all the time.
    patient_until: Instant,
}

impl Schedule {
    /// The interval before the sender wishes for another.
    pub const DEFAULT_INTERVAL: Duration = Duration::from_millis(2);
    /// The longest interval that a sender may wish for.
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
            patient_until: Instant::EPOCH,
        }
    }

    /// The sender wishes for feedback every `interval`.
    pub fn set_interval(&mut self, interval: Duration) {
        self.interval = interval.min(Self::MAX_INTERVAL);
    }

    /// And after every `packets` packets.
    pub fn set_packets(&mut self, packets: Option<u32>) {
        self.packets_at_once = packets.map(|n| n.max(1));
    }

    /// A packet arrived that opened `new_holes` holes.
    pub fn on_packet(&mut self, now: Instant, new_holes: u32, at_once: bool) {
        self.holes += new_holes;
        self.packets += 1;
        let at_once = at_once || self.packets_at_once.is_some_and(|n| self.packets >= n);
        let due = if at_once {
            now
        } else if self.holes >= self.holes_at_once {
            self.patient_until.max(now)
        } else {
            now + self.interval
        };
        self.due = Some(self.due.map_or(due, |d| d.min(due)));
    }

    /// The interval wished for.
    pub const fn interval(&self) -> Duration {
        self.interval
    }

    /// When feedback is due.
    pub const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Feedback was sent.
    pub fn reset(&mut self, now: Instant) {
        self.patient_until = now + self.interval / 4;
        self.due = None;
        self.packets = 0;
        self.holes = 0;
    }
}

impl Default for Schedule {
    fn default() -> Self {
        Self::new(Self::DEFAULT_INTERVAL, 256)
    }
}
