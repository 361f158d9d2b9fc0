//! Measures the round-trip time: smoothed rtt and its variation (RFC 6298 §2), and the minimum.

use std::time::Duration;

use super::WindowedMin;
use crate::time::Instant;

/// Round-trip time of one path.
#[derive(Clone, Debug)]
pub struct Rtt {
    smoothed: Duration,
    variation: Duration,
    min: WindowedMin<Duration>,
    min_ever: Option<Duration>,
    latest: Option<Duration>,
    samples: u64,
    sampled: bool,
}

impl Rtt {
    /// Starts from a guess.
    pub fn new(initial: Duration) -> Self {
        Self {
            smoothed: initial,
            variation: initial / 2,
            min: WindowedMin::new(Duration::from_secs(5)),
            min_ever: None,
            latest: None,
            samples: 0,
            sampled: false,
        }
    }

    /// Remembers the minimum for `memory`, at most twice that, instead of 5 to 10 s.
    #[must_use]
    pub const fn with_memory(mut self, memory: Duration) -> Self {
        self.min = WindowedMin::new(memory);
        self
    }

    /// The guess counts as the first sample.
    #[must_use]
    pub const fn assumed(mut self) -> Self {
        self.sampled = true;
        self
    }

    /// Takes a sample without the receiver's holding time.
    pub fn update(&mut self, now: Instant, sample: Duration) {
        self.min.update(now, sample);
        self.latest = Some(sample);
        self.samples += 1;
        self.min_ever = Some(self.min_ever.map_or(sample, |m| m.min(sample)));
        if self.sampled {
            let deviation = self.smoothed.abs_diff(sample);
            self.variation = (self.variation * 3 + deviation) / 4;
            self.smoothed = (self.smoothed * 7 + sample) / 8;
        } else {
            self.sampled = true;
            self.smoothed = sample;
            self.variation = sample / 2;
        }
    }

    /// The next sample is the minimum, whatever was before.
    pub fn forget_min(&mut self) {
        self.min.forget();
    }

    /// Smoothed rtt.
    pub const fn smoothed(&self) -> Duration {
        self.smoothed
    }

    /// Smoothed rtt, if there was a sample.
    pub fn sampled(&self) -> Option<Duration> {
        self.sampled.then_some(self.smoothed)
    }

    /// Variation of the rtt (RFC 6298 §2).
    pub const fn variation(&self) -> Duration {
        self.variation
    }

    /// The smallest of the last 5 to 10 s, or the smoothed guess.
    pub fn min(&self) -> Duration {
        self.min.get().unwrap_or(self.smoothed)
    }

    /// The smallest ever, if any.
    pub const fn min_ever(&self) -> Option<Duration> {
        self.min_ever
    }

    /// The latest sample, if any.
    pub const fn latest(&self) -> Option<Duration> {
        self.latest
    }

    /// Samples taken so far.
    pub const fn samples(&self) -> u64 {
        self.samples
    }

    /// Least silence that means something (RFC 9002 §6.2.1): smoothed rtt, four variations, and
    /// `held`, the longest time that the receiver keeps feedback back.
    pub fn timeout(&self, held: Duration) -> Duration {
        self.smoothed + (self.variation * 4).max(Duration::from_millis(2)) + held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guess_that_is_believed_is_not_replaced() {
        let ms = Duration::from_millis;
        let mut rtt = Rtt::new(ms(80)).assumed();
        rtt.update(Instant::EPOCH, ms(160));
        assert_eq!((rtt.smoothed(), rtt.variation()), (ms(90), ms(50)));
    }

    #[test]
    fn first_sample_replaces_the_guess_and_old_minima_are_forgotten() {
        let ms = Duration::from_millis;
        let at = |s: u64| Instant::from_nanos(s * 1_000_000_000);
        let mut rtt = Rtt::new(ms(250));
        assert_eq!(rtt.timeout(ms(0)), ms(750));
        rtt.update(at(0), ms(100));
        assert_eq!((rtt.smoothed(), rtt.timeout(ms(0))), (ms(100), ms(300)));
        rtt.update(at(1), ms(180));
        assert_eq!(rtt.smoothed(), ms(110));
        assert_eq!(rtt.min(), ms(100));
        rtt.update(at(6), ms(180));
        assert_eq!(rtt.min(), ms(100));
        rtt.update(at(12), ms(180));
        assert_eq!(rtt.min(), ms(180), "a longer route is accepted in the end");
        assert_eq!(rtt.min_ever(), Some(ms(100)));
        assert_eq!((rtt.latest(), rtt.samples()), (Some(ms(180)), 4));
    }
}
