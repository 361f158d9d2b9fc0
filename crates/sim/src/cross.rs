//! Sends cross traffic that does not listen: a packet, a gap, the next packet; in bursts if so
//! configured; between two moments.

use std::time::Duration;

use farhaul_core::{
    rng::Rng,
    time::{Instant, nanos},
};

use crate::{
    report::{CrossPoint, CrossReport, rate, ratio},
    scenario::{Bursts, CrossConfig},
};

/// One source.
#[derive(Debug)]
pub(crate) struct Cross {
    pub(crate) packet: u32,
    /// Mean gap between packets while on, ns.
    gap: u64,
    jitter: f64,
    bursts: Option<Bursts>,
    start: Duration,
    /// Time from which on nothing is sent.
    stop: Instant,
    /// Time at which the present burst ends.
    silent_at: Instant,
    rng: Rng,
    pub(crate) sent: u64,
    pub(crate) arrived: u64,
    pub(crate) dropped: u64,
    series: Vec<CrossPoint>,
    /// Packets sent and dropped at the last point of the series.
    sampled: (u64, u64),
}

impl Cross {
    pub(crate) fn new(config: &CrossConfig, mut rng: Rng) -> Self {
        let start = Instant::EPOCH + config.start;
        let silent_at = match config.bursts {
            Some(bursts) => start + lasts(bursts.on, bursts.random, &mut rng),
            None => Instant::FAR_FUTURE,
        };
        Self {
            packet: config.packet,
            gap: nanos(config.rate.time_for(u64::from(config.packet))).max(1),
            jitter: config.jitter,
            bursts: config.bursts,
            start: config.start,
            stop: config
                .stop
                .map_or(Instant::FAR_FUTURE, |stop| Instant::EPOCH + stop),
            silent_at,
            rng,
            sent: 0,
            arrived: 0,
            dropped: 0,
            series: Vec::new(),
            sampled: (0, 0),
        }
    }

    /// Time at which the packet after the one at `now` is due, if there is one.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "at most twice a gap, which is a positive number of ns"
    )]
    pub(crate) fn next(&mut self, now: Instant) -> Option<Instant> {
        let gap = if self.jitter > 0.0 {
            let factor = 1.0 + self.jitter * (2.0 * self.rng.unit() - 1.0);
            (self.gap as f64 * factor) as u64
        } else {
            self.gap
        };
        let mut at = now + Duration::from_nanos(gap.max(1));
        if let Some(bursts) = self.bursts {
            while at >= self.silent_at {
                at = self.silent_at + lasts(bursts.off, bursts.random, &mut self.rng);
                let on = lasts(bursts.on, bursts.random, &mut self.rng);
                self.silent_at = at + on.max(Duration::from_nanos(1));
            }
        }
        (at < self.stop).then_some(at)
    }

    pub(crate) fn sample(&mut self, now: Instant, interval: Duration) {
        let (sent, dropped) = (self.sent - self.sampled.0, self.dropped - self.sampled.1);
        self.sampled = (self.sent, self.dropped);
        self.series.push(CrossPoint {
            at: now.since(Instant::EPOCH).as_secs_f64(),
            bits_per_second: rate(sent * u64::from(self.packet), interval.as_secs_f64()),
            sent,
            dropped,
        });
    }

    pub(crate) fn report(self) -> CrossReport {
        CrossReport {
            start: self.start.as_secs_f64(),
            sent: self.sent,
            arrived: self.arrived,
            dropped: self.dropped,
            loss: ratio(self.dropped, self.sent),
            bytes: self.sent * u64::from(self.packet),
            series: self.series,
        }
    }
}

/// The length of a time that is on or off.
fn lasts(mean: Duration, random: bool, rng: &mut Rng) -> Duration {
    if random {
        mean.mul_f64(-(1.0 - rng.unit()).ln())
    } else {
        mean
    }
}

#[cfg(test)]
mod tests {
    use farhaul_core::units::Rate;

    use super::*;

    fn config() -> CrossConfig {
        CrossConfig {
            links: vec![0],
            // A packet per ms.
            rate: Rate::mbit(8),
            packet: 1_000,
            start: Duration::from_millis(10),
            stop: Some(Duration::from_millis(1_010)),
            bursts: None,
            jitter: 0.0,
        }
    }

    fn times(config: &CrossConfig) -> Vec<u64> {
        let mut cross = Cross::new(config, Rng::new(1));
        let mut at = Instant::EPOCH + config.start;
        let mut times = vec![at.as_nanos()];
        while let Some(next) = cross.next(at) {
            at = next;
            times.push(at.as_nanos());
        }
        times
    }

    #[test]
    fn a_constant_rate_is_even_and_ends_on_time() {
        let times = times(&config());
        assert_eq!(times.len(), 1_000);
        assert!(times.windows(2).all(|w| w[1] - w[0] == 1_000_000));
    }

    #[test]
    fn jitter_moves_packets_and_keeps_the_rate() {
        let times = times(&CrossConfig {
            jitter: 0.5,
            ..config()
        });
        assert!((960..1_040).contains(&times.len()), "{}", times.len());
        let gaps = || times.windows(2).map(|w| w[1] - w[0]);
        assert!(gaps().all(|g| (499_999..=1_500_000).contains(&g)));
        assert!(gaps().any(|g| g < 600_000) && gaps().any(|g| g > 1_400_000));
    }

    #[test]
    fn bursts_are_full_and_pauses_empty() {
        let bursts = Bursts {
            on: Duration::from_millis(20),
            off: Duration::from_millis(80),
            random: false,
        };
        let regular = times(&CrossConfig {
            bursts: Some(bursts),
            ..config()
        });
        assert_eq!(regular.len(), 200);
        assert!(
            regular
                .iter()
                .all(|t| (t - 10_000_000) % 100_000_000 < 20_000_000)
        );
        let random = times(&CrossConfig {
            bursts: Some(Bursts {
                random: true,
                ..bursts
            }),
            stop: Some(Duration::from_secs(200)),
            ..config()
        });
        // 200 s, on a fifth of the time, some 2,000 bursts: a few per cent of it.
        assert!((36_000..44_000).contains(&random.len()), "{}", random.len());
    }
}
