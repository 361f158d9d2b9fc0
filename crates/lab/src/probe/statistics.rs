//! Statistics of samples: exact intervals of shares (Clopper and Pearson, Biometrika 26, 1934),
//! through the incomplete beta function, and quantiles by rank.

use serde::{Deserialize, Serialize};

/// Confidence of every interval here.
pub const CONFIDENCE: f64 = 0.99;
/// The standard normal distribution's quantile for [`CONFIDENCE`], two-sided.
const Z: f64 = 2.575_829;

/// A closed interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// True if `value` is within.
    pub fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

/// `a / b`, 0 if `b` is.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts far below 2^52, for people"
)]
pub(super) fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}

/// Nanoseconds in microseconds.
#[expect(
    clippy::cast_precision_loss,
    reason = "differences of at most hours, for people"
)]
pub(super) fn micros(ns: i64) -> f64 {
    ns as f64 / 1e3
}

/// The value that the share `q` of `sorted` does not exceed (nearest rank); 0 of nothing.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a rank within a slice"
)]
pub(super) fn quantile(sorted: &[i64], q: f64) -> i64 {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    let at = rank.clamp(1, sorted.len().max(1)) - 1;
    sorted.get(at).copied().unwrap_or(0)
}

/// The interval that contains the probability behind `hits` of `trials` with `confidence`, whatever the
/// probability is.
pub(super) fn clopper_pearson(hits: f64, trials: f64, confidence: f64) -> Interval {
    let tail = (1.0 - confidence) / 2.0;
    let misses = trials - hits;
    Interval {
        low: if hits <= 0.0 {
            0.0
        } else {
            beta_quantile(tail, hits, misses + 1.0)
        },
        high: if misses <= 0.0 {
            1.0
        } else {
            beta_quantile(1.0 - tail, hits + 1.0, misses)
        },
    }
}

/// Interval of a share whose trials come in runs. With two states of a Markov chain, `correlation`
/// is their eigenvalue, and n trials weigh as much as n (1 - c) / (1 + c) independent ones.
pub(super) fn share_interval(hits: u64, trials: u64, correlation: f64) -> Interval {
    let weight = (1.0 - correlation) / (1.0 + correlation);
    let share = ratio(hits, trials);
    let trials = ratio(trials, 1) * weight;
    clopper_pearson(share * trials, trials, CONFIDENCE)
}

/// Interval of the mean of a geometric distribution (1, 2, ...) by the normal distribution. `runs`
/// samples have the mean `mean`, and the variance is that of the true mean `truth`.
pub(super) fn run_length_interval(mean: f64, truth: f64, runs: u64) -> Interval {
    let spread = (truth * (truth - 1.0)).max(0.0).sqrt();
    let half = Z * spread / ratio(runs, 1).sqrt().max(1.0);
    Interval {
        low: mean - half,
        high: mean + half,
    }
}

/// Point at which the regularised incomplete beta function reaches `share`, by bisection.
fn beta_quantile(share: f64, a: f64, b: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    // Each halves the interval; a double has no more digits.
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if beta(middle, a, b) < share {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

/// The regularised incomplete beta function.
fn beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    let front = (a * x.ln() + b * (-x).ln_1p() + ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b)).exp();
    // The fraction converges fast on this side of the mean only.
    if x < (a + 1.0) / (a + b + 2.0) {
        front * fraction(x, a, b) / a
    } else {
        1.0 - front * fraction(1.0 - x, b, a) / b
    }
}

/// The continued fraction of the incomplete beta function (NIST DLMF 8.17.22), evaluated from the front
/// (Lentz's way).
fn fraction(x: f64, a: f64, b: f64) -> f64 {
    const TINY: f64 = 1e-300;
    const TERMS: u32 = 10_000;
    let away = |v: f64| if v.abs() < TINY { TINY } else { v };
    let mut above = 1.0;
    let mut below = 1.0 / away(1.0 - (a + b) * x / (a + 1.0));
    let mut value = below;
    for term in (1..=TERMS).map(f64::from) {
        let at = a + 2.0 * term;
        let even = term * (b - term) * x / ((at - 1.0) * at);
        let odd = -(a + term) * (a + b + term) * x / (at * (at + 1.0));
        let mut change = 1.0;
        for step in [even, odd] {
            below = 1.0 / away(1.0 + step * below);
            above = away(1.0 + step / above);
            change = above * below;
            value *= change;
        }
        if (change - 1.0).abs() < 1e-14 {
            break;
        }
    }
    value
}

/// The logarithm of the gamma function for positive `x` (Stirling's series, NIST DLMF 5.11.1).
fn ln_gamma(x: f64) -> f64 {
    const HALF_LN_TWO_PI: f64 = 0.918_938_533_204_672_7;
    let (mut x, mut below) = (x, 0.0);
    while x < 10.0 {
        below += x.ln();
        x += 1.0;
    }
    let inverse = 1.0 / (x * x);
    let series =
        1.0 / 12.0 - inverse * (1.0 / 360.0 - inverse * (1.0 / 1_260.0 - inverse / 1_680.0));
    (x - 0.5) * x.ln() - x + HALF_LN_TWO_PI + series / x - below
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, table: f64) {
        assert!((found - table).abs() < 6e-5, "{found} is not {table}");
    }

    /// Values as in the tables of exact binomial limits, to four digits.
    #[test]
    fn exact_intervals_are_those_of_the_tables() {
        let rows = [
            (0.0, 10.0, 0.95, 0.0, 0.3085),
            (1.0, 10.0, 0.95, 0.0025, 0.4450),
            (5.0, 10.0, 0.95, 0.1871, 0.8129),
            (10.0, 10.0, 0.95, 0.6915, 1.0),
            (1.0, 20.0, 0.95, 0.0013, 0.2487),
            (10.0, 100.0, 0.95, 0.0490, 0.1762),
            (5.0, 10.0, 0.99, 0.1283, 0.8717),
        ];
        for (hits, trials, confidence, low, high) in rows {
            let interval = clopper_pearson(hits, trials, confidence);
            close(interval.low, low);
            close(interval.high, high);
        }
    }

    #[test]
    fn an_interval_of_nothing_lost_has_the_closed_form() {
        for trials in [10.0, 1_000.0, 1_000_000.0_f64] {
            let high = 1.0 - 0.005_f64.powf(1.0 / trials);
            let found = clopper_pearson(0.0, trials, 0.99).high;
            assert!((found / high - 1.0).abs() < 1e-6, "{found} {high}");
        }
    }

    /// Each end leaves half of the error probability: summed from the definition, for every count.
    #[test]
    fn both_ends_leave_half_of_one_in_a_hundred() {
        let below = |k: u32, n: u32, p: f64| -> f64 {
            let mut term = (1.0 - p).powi(i32::try_from(n).unwrap());
            let mut sum = 0.0;
            for i in 0..=k {
                sum += term;
                term *= f64::from(n - i) / f64::from(i + 1) * p / (1.0 - p);
            }
            sum
        };
        for hits in 1..40 {
            let interval = clopper_pearson(f64::from(hits), 40.0, 0.99);
            assert!((below(hits, 40, interval.high) - 0.005).abs() < 1e-9);
            assert!((1.0 - below(hits - 1, 40, interval.low) - 0.005).abs() < 1e-9);
        }
    }

    #[test]
    fn large_counts_approach_the_normal_interval() {
        let interval = share_interval(10_000, 1_000_000, 0.0);
        let half = Z * (0.01 * 0.99 / 1e6_f64).sqrt();
        // The exact one is wider by about 3 trials at each end.
        assert!((interval.low - (0.01 - half)).abs() < 4e-6);
        assert!((interval.high - (0.01 + half)).abs() < 4e-6);
        // Bursts of 8 packets say as much as 1/15 of the packets.
        let bursts = share_interval(10_000, 1_000_000, 0.875);
        let wider = (bursts.high - bursts.low) / (interval.high - interval.low);
        assert!((wider - 15_f64.sqrt()).abs() < 0.05, "{wider}");
    }

    #[test]
    fn quantiles_are_ranks() {
        let sorted: Vec<i64> = (1..=100).collect();
        let at = |q| quantile(&sorted, q);
        assert_eq!((at(0.0), at(0.5), at(0.99), at(1.0)), (1, 50, 99, 100));
        assert_eq!(quantile(&[], 0.5), 0);
    }

    #[test]
    fn run_lengths_have_the_variance_of_a_geometric_distribution() {
        let ones = run_length_interval(1.0, 1.0, 50);
        assert!(ones.contains(1.0) && !ones.contains(1.01));
        let interval = run_length_interval(8.0, 8.0, 5_600);
        assert!((interval.high - 8.0 - Z * 0.1).abs() < 1e-9);
    }
}
