//! Sets the sender's gap between blocks, and measures errors. The gap is three times the least at
//! first; each report of errors makes it longer, if there are more than wanted, or shorter. The
//! receiver smooths the share of requests among what it saw.
//!
//! Source: Tsunami v1.1 as read, 2006. Other than there: a block takes at least a microsecond (the original
//! rounds down to nothing, and then does not pace at all).

use std::time::Duration;

use farhaul_core::units::Rate;

use super::wire::{HEADER, Parameters, WHOLE};

/// The longest gap that reports lead to, microseconds.
const LONGEST: f64 = 10_000.0;
/// Error rate that a sender assumes without feedback.
pub const NO_FEEDBACK: u32 = WHOLE;
/// Worth of an error rate of [`WHOLE`], as a share of requests.
const WORTH: f64 = 50_000.0;
/// Weight of the previous error rate.
const HISTORY: f64 = 0.25;

/// The sender's gap between blocks.
#[derive(Clone, Copy, Debug)]
pub struct Gap {
    /// Microseconds.
    now: f64,
    least: f64,
}

impl Gap {
    /// The gap for blocks of `block` bytes at `rate` bits per second, rounded as the original does,
    /// and no more than `most` with their headers.
    pub fn new(block: u32, rate: u32, most: Rate) -> Self {
        let least = (8e6 * f64::from(block) / f64::from(rate.max(1))).trunc();
        let bound = 8e6 * f64::from(block + HEADER) / most.as_f64().max(1.0);
        let least = least.max(1.0).max(bound);
        Self {
            now: 3.0 * least,
            least,
        }
    }

    /// Microseconds.
    pub const fn micros(self) -> f64 {
        self.now
    }

    /// The gap as a time.
    pub fn get(self) -> Duration {
        Duration::from_secs_f64(self.now / 1e6)
    }

    /// Notes that the receiver sees `errors` of [`WHOLE`]; true if they are too many.
    pub fn on_errors(&mut self, errors: u32, wanted: &Parameters) -> bool {
        let (errors, bearable) = (f64::from(errors), f64::from(wanted.error_rate));
        let bad = errors > bearable;
        if bad {
            let share = (1.0 + errors - bearable) / (f64::from(WHOLE) - bearable);
            self.now *= 1.0 + (wanted.slower.value() - 1.0) * share;
        } else {
            self.now *= wanted.faster.value();
        }
        self.now = self.now.min(LONGEST).max(self.least);
        bad
    }
}

/// The receiver's error rate.
#[derive(Clone, Copy, Debug, Default)]
pub struct Errors(f64);

impl Errors {
    /// Takes an interval in which `requested` blocks were asked for and `came` arrived; returns the
    /// error rate, of [`WHOLE`].
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "between 0 and WORTH; counts of an interval"
    )]
    pub fn on_interval(&mut self, requested: u64, came: u64) -> u32 {
        let share = requested as f64 / (1 + requested + came) as f64;
        self.0 = HISTORY * self.0 + (1.0 - HISTORY) * WORTH * share;
        self.0 as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: f64 = 0.35;

    fn parameters(rate: u32) -> Parameters {
        Parameters {
            rate,
            ..Parameters::default()
        }
    }

    /// Reports of `errors` until the gap is `times` as long, and how long that takes.
    fn time(mut gap: Gap, errors: u32, times: f64) -> f64 {
        let (wanted, first) = (Parameters::default(), gap.micros());
        let mut reports = 0;
        while (times > 1.0) == (gap.micros() < times * first) {
            gap.on_errors(errors, &wanted);
            reports += 1;
        }
        f64::from(reports) * REPORT
    }

    #[test]
    fn it_begins_at_three_times_the_least_and_is_at_the_rate_after_seven_reports() {
        let mut gap = Gap::new(1_000, 8_000_000, Rate::UNLIMITED);
        assert_eq!(gap.get(), Duration::from_millis(3));
        let mut reports = 0;
        while gap.get() > Duration::from_millis(1) {
            assert!(!gap.on_errors(0, &parameters(8_000_000)));
            reports += 1;
        }
        assert_eq!(reports, 7);
        assert!((f64::from(reports) * REPORT - 2.45).abs() < 1e-9);
        // In whole microseconds, and never none.
        assert_eq!(
            Gap::new(1_024, 4_000_000_000, Rate::UNLIMITED).get(),
            Duration::from_micros(6)
        );
        assert_eq!(
            Gap::new(64, u32::MAX, Rate::UNLIMITED).get(),
            Duration::from_micros(3)
        );
        // A bound counts in fractions, and headers too.
        let bound = Gap::new(94, u32::MAX, Rate::mbit(400)).micros() / 3.0;
        assert!((bound - 2.0).abs() < 1e-9, "{bound}");
        // The most that 32 bits can ask for is 4.29 Gbit/s.
        let most =
            65_501.0 * 8.0 / (Gap::new(65_501, u32::MAX, Rate::UNLIMITED).micros() / 3.0 * 1e-6);
        assert!((most / 4.295e9 - 1.0).abs() < 1e-3, "{most}");
    }

    #[test]
    fn too_many_errors_slow_down_as_measured_of_the_original() {
        let mut gap = Gap::new(1_000, 8_000_000, Rate::UNLIMITED);
        assert!(gap.on_errors(20_000, &Parameters::default()));
        assert!((gap.micros() - 3_016.9).abs() < 0.05, "{}", gap.micros());
        assert!((gap.micros() / 3_000.0 - 1.005_63).abs() < 1e-5);
        // Far below the longest gap.
        let short = Gap::new(1_000, 800_000_000, Rate::UNLIMITED);
        for (errors, published) in [(100_000, 5.9), (50_000, 12.8), (20_000, 43.0)] {
            let took = time(short, errors, 2.0);
            assert!((took / published - 1.0).abs() < 0.02, "{errors}: {took}");
        }
        // Doubling takes 1.33 s, from a gap that may become shorter.
        let mut long = short;
        (0..200).for_each(|_| _ = long.on_errors(100_000, &Parameters::default()));
        assert!((time(long, 0, 0.5) - 4.0 * REPORT).abs() < 1e-9);
    }

    #[test]
    fn the_gap_stays_within_its_bounds() {
        let mut gap = Gap::new(1_000, 8_000_000, Rate::UNLIMITED);
        (0..100_000).for_each(|_| _ = gap.on_errors(NO_FEEDBACK, &Parameters::default()));
        assert_eq!(gap.get(), Duration::from_millis(10));
        // One that is slower anyway is not made faster by that.
        let mut slow = Gap::new(1_000, 8_000, Rate::UNLIMITED);
        slow.on_errors(NO_FEEDBACK, &Parameters::default());
        assert_eq!(slow.get(), Duration::from_secs(1));
    }

    #[test]
    fn errors_are_three_quarters_of_half_the_share_of_requests() {
        let mut errors = Errors::default();
        // 37 of 183 are a share of 0.2022; 7582 is what it is rounded down.
        assert_eq!(errors.on_interval(37, 145), 7_581);
        let mut errors = Errors::default();
        let q = 20_222;
        assert_eq!(errors.on_interval(q, 100_000 - q - 1), 7_583);
        assert_eq!(errors.on_interval(0, 100), 1_895);
        // Requests alone never say more than half.
        let most = (0..50).map(|_| errors.on_interval(1_000_000, 0)).max();
        assert!(most.is_some_and(|most| (49_990..=50_000).contains(&most)));
        // 15 % of requests are what trips the threshold of 7.5 %.
        let wanted = Parameters::default().error_rate;
        let settled = |requested, came| {
            let mut errors = Errors::default();
            (0..50).map(|_| errors.on_interval(requested, came)).last()
        };
        assert!(settled(14_900, 85_100) < Some(wanted));
        assert!(settled(15_100, 84_900) > Some(wanted));
    }
}
