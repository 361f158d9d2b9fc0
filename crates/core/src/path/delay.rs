//! Estimates queueing on the forward path. The receiver's clock at arrival minus our clock at
//! sending is the one-way delay plus an unknown constant. Its excess over the least seen is
//! queueing on the forward path alone. Rtt cannot distinguish that from queueing on the reverse
//! path.

use std::time::Duration;

use super::WindowedMin;
use crate::time::Instant;

/// Forward queueing delay.
#[derive(Clone, Debug)]
pub struct QueueDelay {
    least: WindowedMin<i64>,
}

impl Default for QueueDelay {
    fn default() -> Self {
        Self {
            least: WindowedMin::new(Duration::from_secs(5)),
        }
    }
}

impl QueueDelay {
    /// The next packet shows the least delay, whatever was before.
    pub fn forget_least(&mut self) {
        self.least.forget();
    }

    /// A packet sent at `sent` arrived when the receiver's clock said `arrived_us`. Returns the delay
    /// above the least of the last 5 to 10 s (clock drift of 100 ppm adds at most 1 ms).
    pub fn update(&mut self, now: Instant, sent: Instant, arrived_us: u64) -> Duration {
        let sent_us = i64::try_from(sent.as_nanos() / 1_000).unwrap_or(i64::MAX);
        let offset = i64::try_from(arrived_us)
            .unwrap_or(i64::MAX)
            .saturating_sub(sent_us);
        let least = self.least.update(now, offset);
        Duration::from_micros(offset.abs_diff(least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_need_not_agree() {
        let mut queue = QueueDelay::default();
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        let skew = 77_000_000;
        assert_eq!(queue.update(at(100), at(0), skew + 50_000), Duration::ZERO);
        assert_eq!(
            queue.update(at(110), at(10), skew + 63_000),
            Duration::from_millis(3)
        );
        assert_eq!(queue.update(at(120), at(20), skew + 69_000), Duration::ZERO);
        assert_eq!(
            queue.update(at(130), at(30), skew + 80_000),
            Duration::from_millis(1)
        );
    }
}
