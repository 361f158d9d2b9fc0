//! How long is the round trip, and how long may silence last? RFC 6298, with the floor where the
//! settings want it.

use std::time::Duration;

use farhaul_core::{path::WindowedMin, time::Instant};

/// Before any sample (RFC 6298 §2.1).
const INITIAL_RTO: Duration = Duration::from_secs(1);
/// RFC 6298 §2.5 allows no less.
const MAX_RTO: Duration = Duration::from_mins(1);
/// Memory of the minimum.
const MEMORY: Duration = Duration::from_secs(10);

/// Round-trip time and timeout.
#[derive(Debug)]
pub(super) struct Rtt {
    smoothed: Option<Duration>,
    variation: Duration,
    min: WindowedMin<Duration>,
    min_ever: Option<Duration>,
    floor: Duration,
    /// The floor is on the whole, not on the variation.
    whole: bool,
    backoff: u32,
}

impl Rtt {
    pub(super) const fn new(floor: Duration, whole: bool) -> Self {
        Self {
            smoothed: None,
            variation: Duration::ZERO,
            min: WindowedMin::new(MEMORY),
            min_ever: None,
            floor,
            whole,
            backoff: 0,
        }
    }

    /// Takes a sample of a segment that was sent once, or by its timestamp (Karn).
    pub(super) fn update(&mut self, now: Instant, sample: Duration) {
        self.min.update(now, sample);
        self.min_ever = Some(self.min_ever.map_or(sample, |m| m.min(sample)));
        if let Some(smoothed) = self.smoothed {
            let deviation = smoothed.abs_diff(sample);
            self.variation = (self.variation * 3 + deviation) / 4;
            self.smoothed = Some((smoothed * 7 + sample) / 8);
        } else {
            self.smoothed = Some(sample);
            self.variation = sample / 2;
        }
    }

    /// Smoothed rtt, if there was a sample.
    pub(super) const fn sampled(&self) -> Option<Duration> {
        self.smoothed
    }

    /// Smoothed rtt or a guess.
    pub(super) fn smoothed(&self) -> Duration {
        self.smoothed.unwrap_or(Duration::from_millis(100))
    }

    /// The smallest lately, or the guess.
    pub(super) fn min(&self) -> Duration {
        self.min.get().unwrap_or_else(|| self.smoothed())
    }

    /// The smallest ever.
    pub(super) const fn min_ever(&self) -> Option<Duration> {
        self.min_ever
    }

    /// The timeout in force.
    pub(super) fn rto(&self) -> Duration {
        let base = match self.smoothed {
            None => INITIAL_RTO,
            Some(smoothed) if self.whole => (smoothed + self.variation * 4).max(self.floor),
            Some(smoothed) => smoothed + (self.variation * 4).max(self.floor),
        };
        (base * (1 << self.backoff.min(10))).min(MAX_RTO)
    }

    /// Timeouts in a row.
    pub(super) const fn backoff(&self) -> u32 {
        self.backoff
    }

    /// One more of them.
    pub(super) const fn back_off(&mut self) {
        self.backoff = self.backoff.saturating_add(1);
    }

    /// Something was acknowledged.
    pub(super) const fn progress(&mut self) {
        self.backoff = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_of_rfc_6298() {
        let ms = Duration::from_millis;
        let now = Instant::EPOCH;
        let mut rtt = Rtt::new(ms(1_000), true);
        assert_eq!(rtt.rto(), ms(1_000));
        rtt.update(now, ms(500));
        assert_eq!(rtt.rto(), ms(1_500), "three times the first sample");
        rtt.update(now, ms(100));
        assert_eq!(
            (rtt.smoothed(), rtt.variation),
            (ms(450), Duration::from_micros(287_500))
        );
        rtt.back_off();
        assert_eq!(rtt.rto(), ms(3_200));
        for _ in 0..20 {
            rtt.back_off();
        }
        assert_eq!(rtt.rto(), MAX_RTO);
        rtt.progress();
        assert_eq!(rtt.rto(), ms(1_600));
    }

    #[test]
    fn linux_keeps_its_floor_on_the_variation() {
        let ms = Duration::from_millis;
        let mut rtt = Rtt::new(ms(200), false);
        for _ in 0..100 {
            rtt.update(Instant::EPOCH, ms(100));
        }
        assert_eq!(rtt.rto(), ms(300));
    }
}
