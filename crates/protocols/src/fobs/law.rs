//! Sets the rate at which the next segment leaves. Up to the tolerated loss the rate is a little
//! faster than before; with more, slower by the loss; with more for the third segment in a row, by
//! much.
//!
//! Chosen: the papers have three states with steps of their own, whose numbers are not known.

// spec: fobs §1

use farhaul_core::{rounds::Judged, units::Rate};

const FASTER: f64 = 1.05;
const PERSISTENT: f64 = 0.7;
/// Segments in a row with more loss than is tolerated that make it persistent.
const PERSISTENT_AFTER: u32 = 3;
/// The rate is never less than the highest through this.
const SPAN: f64 = 100.0;
/// Nor less than this, unless that is so low.
const LEAST: Rate = Rate::from_bps(64_000);

/// The rate of segments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Law {
    highest: Rate,
    rate: Rate,
    tolerance: f64,
    /// Segments in a row that lost more.
    bad: u32,
    /// Segments that began earlier left at a rate that was given up.
    since: u64,
}

impl Law {
    pub(super) const fn new(highest: Rate, tolerance: f64) -> Self {
        Self {
            highest,
            rate: highest,
            tolerance,
            bad: 0,
            since: 0,
        }
    }

    pub(super) const fn rate(&self) -> Rate {
        self.rate
    }

    /// Segments were judged; those from `next` on have not begun.
    #[expect(clippy::cast_precision_loss, reason = "counts of packets")]
    pub(super) fn on_judged(&mut self, judged: Judged, next: u64) {
        if judged.sent == 0 || judged.serial < self.since {
            return;
        }
        let loss = judged.missing as f64 / judged.sent as f64;
        let factor = if loss <= self.tolerance {
            self.bad = 0;
            FASTER
        } else {
            self.bad += 1;
            self.since = next;
            if self.bad >= PERSISTENT_AFTER {
                PERSISTENT
            } else {
                1.0 - loss
            }
        };
        let lowest = self.highest.scale(1.0 / SPAN).max(LEAST.min(self.highest));
        self.rate = self.rate.scale(factor).clamp(lowest, self.highest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(law: &mut Law, serial: u64, missing: u64) -> u64 {
        let judged = Judged {
            serial,
            sent: 10_000,
            missing,
        };
        law.on_judged(judged, serial + 2);
        (law.rate().bps() + 50_000) / 100_000
    }

    /// Tests the numbers of §1, which are chosen: 5 % more, the loss less, 30 % less.
    #[test]
    fn loss_beyond_the_tolerated_slows_down_and_much_when_it_persists() {
        let mut law = Law::new(Rate::mbit(1_000), 0.01);
        assert_eq!(judge(&mut law, 0, 100), 10_000, "the highest");
        assert_eq!(judge(&mut law, 1, 2_000), 8_000);
        assert_eq!(judge(&mut law, 2, 2_000), 8_000, "it left before");
        assert_eq!(judge(&mut law, 3, 1_000), 7_200);
        assert_eq!(judge(&mut law, 5, 101), 5_040, "the third in a row");
        assert_eq!(judge(&mut law, 7, 101), 3_528);
        assert_eq!(judge(&mut law, 9, 100), 3_704);
        assert_eq!(judge(&mut law, 10, 1_000), 3_334);
        for serial in (12..100).step_by(2) {
            judge(&mut law, serial, 10_000);
        }
        assert_eq!(law.rate(), Rate::mbit(10), "a hundredth");
    }
}
