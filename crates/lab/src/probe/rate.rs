//! Measures the rate at which a stream arrived: bytes on the wire over the kernel's times of
//! arrival, without start and end.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::statistics::ratio;

/// Arrivals are counted by such times, ns.
const WINDOW: u64 = 1_000_000;
/// Time not measured at the start: queues fill, processors wake up.
const START: u64 = 200_000_000;
/// Rates are also reported by such times.
const REPORTED: u64 = 100_000_000;

/// A rate beside the configured one.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct RateFigures {
    /// Bits per second at the receiver, IP and UDP headers included.
    pub bits_per_second: f64,
    /// Seconds over which the rate was measured.
    pub seconds: f64,
    /// The slowest and the fastest 100 ms.
    pub slowest_bits_per_second: f64,
    /// See above.
    pub fastest_bits_per_second: f64,
    /// Datagrams of the stream that arrived.
    pub packets: u64,
    /// Packets that did not arrive.
    pub lost: u64,
    /// The configured rate.
    pub expected_bits_per_second: Option<f64>,
    /// Measured less configured, per cent of the configured.
    pub error_percent: Option<f64>,
}

/// Counts of a stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Windows(BTreeMap<u64, u64>);

impl Windows {
    /// `bytes` arrived at `at` ns.
    pub(super) fn add(&mut self, at: u64, bytes: u64) {
        *self.0.entry(at / WINDOW).or_default() += bytes;
    }

    /// The rate without the start and the last window; `None` if too little is left.
    pub(super) fn figures(&self) -> Option<RateFigures> {
        let (first, _) = self.0.first_key_value()?;
        let (last, _) = self.0.last_key_value()?;
        let from = first + START / WINDOW;
        // Whole reported windows only.
        let step = REPORTED / WINDOW;
        let count = last.checked_sub(from)? / step;
        let rates: Vec<f64> = (0..count)
            .map(|i| from + i * step)
            .map(|from| rate(self.bytes(from, from + step), step))
            .collect();
        let total = rate(self.bytes(from, from + count * step), count * step);
        let slowest = rates.iter().copied().reduce(f64::min)?;
        let fastest = rates.iter().copied().reduce(f64::max)?;
        Some(RateFigures {
            bits_per_second: total,
            seconds: ratio(count * REPORTED, 1) / 1e9,
            slowest_bits_per_second: slowest,
            fastest_bits_per_second: fastest,
            ..RateFigures::default()
        })
    }

    fn bytes(&self, from: u64, to: u64) -> u64 {
        self.0.range(from..to).map(|(_, bytes)| bytes).sum()
    }
}

fn rate(bytes: u64, windows: u64) -> f64 {
    ratio(bytes * 8, windows * WINDOW) * 1e9
}

impl RateFigures {
    /// Adds the configured rate of `expected` bit/s, and the error.
    pub(super) fn beside(mut self, expected: Option<u64>) -> Self {
        let expected = expected.map(|bps| ratio(bps, 1));
        self.expected_bits_per_second = expected;
        self.error_percent = expected.map(|bps| 100.0 * (self.bits_per_second / bps - 1.0));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_stream_has_its_rate_and_a_start_does_not_count() {
        let mut windows = Windows::default();
        // 1 Gbit/s in packets of 1,250 bytes every 10 us, at first twice as fast.
        for i in 0..70_000_u64 {
            windows.add(1_000_000_000 + i * 10_000, 1_250);
            if i < 10_000 {
                windows.add(1_000_000_000 + i * 10_000, 1_250);
            }
        }
        let figures = windows.figures().unwrap().beside(Some(1_000_000_000));
        assert!((figures.bits_per_second - 1e9).abs() < 1.0);
        assert!(figures.error_percent.unwrap().abs() < 1e-6);
        assert!((figures.seconds - 0.4).abs() < 1e-9, "{figures:?}");
    }

    #[test]
    fn a_gap_shows_in_the_slowest_window() {
        let mut windows = Windows::default();
        for i in (0..60_000_u64).filter(|i| !(40_000..45_000).contains(i)) {
            windows.add(i * 10_000, 1_250);
        }
        let figures = windows.figures().unwrap();
        assert!((figures.slowest_bits_per_second - 5e8).abs() < 1.0);
        assert!((figures.fastest_bits_per_second - 1e9).abs() < 1.0);
    }

    #[test]
    fn too_little_is_no_rate() {
        let mut windows = Windows::default();
        assert!(windows.figures().is_none());
        windows.add(5, 1_000);
        assert!(windows.figures().is_none());
    }
}
