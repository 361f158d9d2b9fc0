//! Counts durations, and keeps their distribution.

use std::time::Duration;

use serde::{Deserialize, Serialize};

const STEPS: usize = 64;
const OCTAVES: usize = 32;

/// A histogram of durations from 1 µs to over an hour, about 1 % fine.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Box<[u32]>,
    total: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: vec![0; STEPS * OCTAVES].into_boxed_slice(),
            total: 0,
        }
    }
}

impl Histogram {
    /// Counts `d`.
    pub fn add(&mut self, d: Duration) {
        let us = u64::try_from(d.as_micros()).unwrap_or(u64::MAX).max(1);
        let octave = us.ilog2() as usize;
        let below = us - (1 << octave);
        let step = usize::try_from((u128::from(below) * STEPS as u128) >> octave).unwrap_or(0);
        let at = (octave * STEPS + step).min(self.counts.len() - 1);
        self.counts[at] = self.counts[at].saturating_add(1);
        self.total += 1;
    }

    /// The duration below which `per_mille` of all counted ones are; none if nothing was counted.
    pub fn quantile(&self, per_mille: u64) -> Option<Duration> {
        let wanted = (self.total * per_mille).div_ceil(1000).max(1);
        let mut seen = 0;
        let at = self.counts.iter().position(|n| {
            seen += u64::from(*n);
            seen >= wanted
        })?;
        let (octave, step) = (at / STEPS, (at % STEPS) as u64);
        let low = 1u64 << octave;
        Some(Duration::from_micros(
            low + (low * (2 * step + 1)) / (2 * STEPS as u64),
        ))
    }
}

/// Round-trip times of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RttMs {
    /// The least ever seen, ms.
    pub min: Option<f64>,
    /// Median of the smoothed rtt, sampled every 10 ms, ms.
    pub p50: Option<f64>,
    /// 99th percentile of the same, ms.
    pub p99: Option<f64>,
}

impl RttMs {
    /// Figures of the least rtt and the sampled ones.
    pub fn new(min: Option<Duration>, sampled: &Histogram) -> Self {
        let ms = |d: Duration| d.as_secs_f64() * 1e3;
        Self {
            min: min.map(ms),
            p50: sampled.quantile(500).map(ms),
            p99: sampled.quantile(990).map(ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_one_per_cent_fine() {
        let mut h = Histogram::default();
        assert_eq!(h.quantile(500), None);
        for ms in 1..=1000 {
            h.add(Duration::from_millis(ms));
        }
        for (per_mille, expected) in [(500, 0.5), (990, 0.99), (1000, 1.0), (0, 0.001)] {
            let found = h.quantile(per_mille).unwrap().as_secs_f64();
            assert!(
                (found / expected - 1.0).abs() < 0.02,
                "{per_mille}: {found}"
            );
        }
        h.add(Duration::MAX);
        h.add(Duration::ZERO);
        assert!(h.quantile(1000).unwrap() > Duration::from_hours(1));
    }
}
