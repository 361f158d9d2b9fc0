//! How long is the round trip, in libudt's reckoning? Integers of µs from 100 ms on, 7 old to 1 new;
//! the receiver measures and the sender filters what it is told once more.
//!
//! Source: UDT 4.11 `core.cpp`, `processCtrl`.

use std::time::Duration;

use super::Behaviour;

/// Smoothed round-trip time and its variation.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundTrip {
    rtt_us: u32,
    var_us: u32,
    min_us: Option<u32>,
    /// The first sample replaces the guess.
    replace: bool,
}

impl RoundTrip {
    /// libudt starts from 100 ms whatever the handshake took; the fixed one from what it took.
    pub(super) fn new(behaviour: Behaviour, handshake: Option<Duration>) -> Self {
        let tuned = behaviour == Behaviour::Fixed;
        let guess = handshake.filter(|_| tuned).map_or(100_000, us);
        Self {
            rtt_us: guess.max(1),
            var_us: guess / 2,
            min_us: None,
            replace: tuned,
        }
    }

    /// Takes a sample.
    pub(super) fn update(&mut self, sample: Duration) {
        let sample = us(sample).max(1);
        self.min_us = Some(self.min_us.map_or(sample, |m| m.min(sample)));
        if std::mem::take(&mut self.replace) {
            (self.rtt_us, self.var_us) = (sample, sample / 2);
            return;
        }
        let deviation = u64::from(self.rtt_us.abs_diff(sample));
        let var = (3 * u64::from(self.var_us) + deviation) >> 2;
        let rtt = (7 * u64::from(self.rtt_us) + u64::from(sample)) >> 3;
        self.var_us = u32::try_from(var).unwrap_or(u32::MAX);
        self.rtt_us = u32::try_from(rtt).unwrap_or(u32::MAX);
    }

    pub(super) const fn words(&self) -> (u32, u32) {
        (self.rtt_us, self.var_us)
    }

    pub(super) const fn smoothed(&self) -> Duration {
        Duration::from_micros(self.rtt_us as u64)
    }

    pub(super) fn min(&self) -> Option<Duration> {
        self.min_us.map(|us| Duration::from_micros(us.into()))
    }

    /// RTT + 4 variations: how long an answer may take.
    pub(super) const fn patience(&self) -> Duration {
        Duration::from_micros(self.rtt_us as u64 + 4 * self.var_us as u64)
    }
}

/// µs of at most about an hour.
fn us(d: Duration) -> u32 {
    u32::try_from(d.as_micros()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_gives_what_was_captured_from_libudt() {
        let mut rtt = RoundTrip::new(Behaviour::Libudt, Some(Duration::from_millis(3)));
        assert_eq!(rtt.words(), (100_000, 50_000));
        rtt.update(Duration::from_micros(290));
        assert_eq!(rtt.words(), (87_536, 62_427));
    }

    #[test]
    fn the_fixed_one_believes_its_first_sample() {
        let mut rtt = RoundTrip::new(Behaviour::Fixed, Some(Duration::from_millis(3)));
        assert_eq!(rtt.words(), (3_000, 1_500));
        rtt.update(Duration::from_millis(2));
        assert_eq!(rtt.words(), (2_000, 1_000));
        assert_eq!(rtt.min(), Some(Duration::from_millis(2)));
    }
}
