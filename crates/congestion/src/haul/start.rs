//! How fast may a connection begin? Bursts at four times the proven rate; what the path delivered of a
//! burst is proven for the next. A burst carries so little that the overshoot on the last one is a few
//! ms of the link, not a round trip of it.

use std::time::Duration;

use farhaul_core::{congestion::RateSample, units::Rate};

use super::train::{MOST_DOUBLINGS, Train};

/// Burst rate over proven rate.
pub(super) const BURST_GAIN: f64 = 4.0;
/// Rate of the first burst: 128 KiB in one burst's time.
const FIRST_BURST: Rate = Rate::mbit(52);
/// Loss in a burst that, with delivery below the sending rate, indicates a full path.
const HEAVY_LOSS: f64 = 0.08;
/// A sample sent at this part of a burst's rate is of the burst.
const HEARD: f64 = 0.5;
/// Bursts without timely feedback are ignored; after so many, the proven rate is kept.
const MAX_UNHEARD: u32 = 8;
/// Packets in a sample needed to conclude that the path is full.
const TELLING: u64 = 200;

/// What the bursts have shown so far.
#[derive(Clone, Debug)]
pub(super) struct Start {
    /// The rate proven so far.
    pub(super) proven: Rate,
    /// Bursts in a row that proved nothing new.
    vain: u32,
    /// Bursts without timely feedback.
    unheard: u32,
    /// Those that were too short for the reports there are.
    short: u32,
    train: Train,
    /// Feedback on the present one was received.
    heard: bool,
    /// Best delivery since the burst began, and the rate at which that was sent.
    seen: Rate,
    sent: Rate,
    /// It covered enough packets to conclude whether the path is full.
    telling: bool,
    /// Largest loss in a sample since then.
    worst_loss: f64,
}

impl Default for Start {
    fn default() -> Self {
        Self {
            proven: FIRST_BURST.scale(1.0 / BURST_GAIN),
            vain: 0,
            unheard: 0,
            short: 0,
            train: Train::default(),
            heard: false,
            seen: Rate::ZERO,
            sent: Rate::ZERO,
            telling: false,
            worst_loss: 0.0,
        }
    }
}

impl From<Rate> for Start {
    /// A start from a rate that is proven.
    fn from(proven: Rate) -> Self {
        Self {
            proven,
            ..Self::default()
        }
    }
}

impl Start {
    /// How many times longer bursts are than usual: there is no feedback on one that is shorter than the
    /// time between reports, and a busy receiver reports as often as it gets a processor.
    pub(super) fn stretch(&self) -> u32 {
        1 << self.short.min(MOST_DOUBLINGS)
    }

    /// A burst begins, of such a length.
    pub(super) fn burst(&mut self, lasts: Duration) {
        *self = Self {
            train: Train::new(lasts),
            short: self.short,
            proven: self.proven,
            vain: self.vain,
            unheard: self.unheard,
            ..Self::default()
        };
    }

    /// Takes a sample; returns whether the burst is practically delivered.
    pub(super) fn sample(&mut self, sample: &RateSample, datagram: u32) -> bool {
        let burst = self.proven.scale(BURST_GAIN);
        self.train.sample(sample.interval);
        self.heard |= sample.sent >= burst.scale(HEARD);
        if sample.rate > self.seen {
            self.seen = sample.rate;
            self.sent = sample.sent.min(burst);
            let packets = sample.sent.bytes_in(sample.interval) / u64::from(datagram.max(1));
            self.telling = packets >= TELLING;
        }
        self.worst_loss = self.worst_loss.max(sample.loss);
        !sample.app_limited && sample.rate >= burst.scale(0.9)
    }

    /// The outcome of a burst is known: is the path full?
    pub(super) fn is_full(&mut self) -> bool {
        if !self.heard && self.unheard < MAX_UNHEARD {
            self.unheard += 1;
            self.short += u32::from(self.train.was_too_short());
            return false;
        }
        let grew = self.seen >= self.proven.scale(1.3);
        let short = self.seen < self.sent.scale(0.8);
        self.vain = if grew && !short { 0 } else { self.vain + 1 };
        if short && self.telling && self.worst_loss > HEAVY_LOSS {
            // The best of many samples on a full path flatters it; probing finds the rest.
            self.proven = self.proven.max(self.seen.scale(0.85)).min(self.seen);
            return true;
        }
        self.proven = self.proven.max(self.seen);
        self.vain >= 2
    }
}
