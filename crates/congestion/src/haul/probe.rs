//! Probes how much more could be had. A probe is a short train above the base rate. When the link
//! is full, a train that adds a share `s` of the *link's* rate gets `1 / (1 + s)` of itself
//! delivered, whatever the mix of flows. The shortfall shows what part of the link the train was.
//! The probe's gain is steered so that this part is the same for a flow with much and a flow with
//! little. That makes the steps additive, and equal among flows, without anyone knowing the link's
//! rate.

use std::time::Duration;

use farhaul_core::{congestion::RateSample, units::Rate};

use super::{
    epoch::sent,
    train::{MOST_DOUBLINGS, Train},
};

/// The part of the link that a probe should add.
const PART: f64 = 0.1;
/// Gain of a probe over the base rate, least and most.
const GAIN: (f64, f64) = (0.125, 1.0);
/// Factor by which the gain changes from probe to probe.
const STEP: f64 = 1.5;
/// A flow with this share of the link is alone on it.
pub(super) const ALONE: f64 = 0.85;
/// Least length in time and in datagrams, and the longest.
const LENGTH: (Duration, u64, Duration) =
    (Duration::from_millis(40), 64, Duration::from_millis(250));

/// Least datagrams of the longest.
const LEAST_DATAGRAMS: u64 = 12;
/// The queue has no room for a train that lost more than this part beyond the usual, and a number
/// of standard deviations of that. The next train is half as long, down to a sixteenth. A longer
/// one is tried after [`CLEAN`] others.
const EXCESS_LOSS: f64 = 0.01;
const EXCESS_DEVIATIONS: f64 = 3.0;
const MOST_HALVINGS: u32 = 4;
const CLEAN: u32 = 16;
/// Probes become longer from the second on that was too short. This many others then come until a
/// shorter one is tried.
const FORGET: u32 = 8;

/// Outcome of a probe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Outcome {
    /// Delivery above the base rate, as a share of the base rate; negative if less was delivered.
    pub(super) found: f64,
    /// True if nearly all of the probe got through.
    pub(super) free: bool,
    /// Share of this flow in the link, if the link was full.
    pub(super) share: Option<f64>,
    /// True if the link seems to be this flow's alone.
    pub(super) alone: bool,
}

/// The present or next probe.
#[derive(Clone, Debug)]
pub(super) struct Probe {
    /// Rate that the probe adds to the base rate, as a share of the base rate.
    pub(super) gain: f64,
    /// Share of this flow in the link while the link was full, smoothed.
    pub(super) share: f64,
    /// Grows by [`FORGET`] with a probe that was too short to be measured, shrinks by one with
    /// another.
    deaf: u32,
    /// Halvings of the usual length (a power of two), and how many probes in a row did not overflow
    /// a short queue.
    halvings: u32,
    clean: u32,
    train: Train,
    /// The base rate, bit/s, while a train is on its way.
    base: Option<f64>,
    samples: f64,
    sent: f64,
    received: f64,
    /// Sums of the samples' losses, and the packets of the largest.
    lost: f64,
    packets: f64,
}

impl Default for Probe {
    fn default() -> Self {
        Self {
            gain: GAIN.0,
            share: 1.0,
            deaf: 0,
            halvings: 0,
            clean: 0,
            train: Train::default(),
            base: None,
            samples: 0.0,
            sent: 0.0,
            received: 0.0,
            lost: 0.0,
            packets: 0.0,
        }
    }
}

impl Probe {
    /// Duration of a train over `base`.
    pub(super) fn length(&self, base: Rate, datagram: u32) -> Duration {
        self.length_from(self.shortened(LENGTH.0), base, datagram)
    }

    /// Duration for the queue that there is, from `usual` where queues are long.
    pub(super) fn shortened(&self, usual: Duration) -> Duration {
        usual / (1 << self.halvings)
    }

    #[cfg(test)]
    pub(super) const fn set_halvings(&mut self, halvings: u32) {
        self.halvings = halvings;
        // The next that is clean is the last that is so short.
        self.clean = CLEAN - 1;
    }

    /// True if a train over `base` is shorter than usual. Where so few datagrams take as long, none
    /// is.
    pub(super) fn is_shortened(&self, base: Rate, datagram: u32) -> bool {
        self.halvings > 0 && self.length(base, datagram) < self.usual_length(base, datagram)
    }

    /// Duration of a train over `base` if queues were not short.
    pub(super) fn usual_length(&self, base: Rate, datagram: u32) -> Duration {
        self.length_from(LENGTH.0, base, datagram)
    }

    fn length_from(&self, least: Duration, base: Rate, datagram: u32) -> Duration {
        let (_, datagrams, most) = LENGTH;
        let rate = base.scale(1.0 + self.gain);
        let takes = |datagrams| rate.time_for(datagrams * u64::from(datagram));
        takes(datagrams)
            .max(least)
            .saturating_mul(self.stretch())
            .min(most.max(takes(LEAST_DATAGRAMS)))
    }

    /// Factor by which trains are longer than usual, for the sake of receivers that report rarely.
    pub(super) fn stretch(&self) -> u32 {
        1 << (self.deaf.saturating_sub(1) / FORGET)
    }

    /// True if the probe adds as much as a probe may.
    pub(super) fn is_widest(&self) -> bool {
        self.gain >= GAIN.1
    }

    /// A train begins above `base`.
    pub(super) fn begin(&mut self, base: Rate, lasts: Duration) {
        *self = Self {
            gain: self.gain,
            share: self.share,
            deaf: self.deaf,
            halvings: self.halvings,
            clean: self.clean,
            train: Train::new(lasts),
            base: Some(base.as_f64()),
            ..Self::default()
        };
    }

    /// Takes a sample, which may or may not be of the train.
    pub(super) fn sample(&mut self, sample: &RateSample) {
        self.train.sample(sample.interval);
        let sent = sent(sample);
        let within = |base: f64| sent >= base * (1.0 + self.gain / 2.0);
        if self.base.is_some_and(within) {
            self.samples += 1.0;
            self.sent += sent;
            self.received += sample.rate.as_f64();
            self.lost += sample.loss;
            let packets = u32::try_from(sample.packets).unwrap_or(u32::MAX);
            self.packets = self.packets.max(f64::from(packets));
        }
    }

    /// A train that overflows the queue takes from others, and shows no more than a shorter one.
    pub(super) fn adapt_length(&mut self, usual_loss: f64, short: bool) {
        // Reports may be too far apart for so short a train.
        let loss = self.lost / self.samples.max(1.0);
        // One packet is no evidence.
        let packets = self.packets.max(1.0);
        let chance = usual_loss.max(1.0 / packets);
        let deviation = (chance * (1.0 - chance) / packets).sqrt();
        let most = usual_loss + EXCESS_LOSS + deviation * EXCESS_DEVIATIONS;
        if loss > most && short {
            self.halvings = MOST_HALVINGS.min(self.halvings + 1);
            self.clean = 0;
        } else {
            self.clean += 1;
            if self.clean >= CLEAN {
                self.halvings = self.halvings.saturating_sub(1);
                self.clean = 0;
            }
        }
    }

    /// The end; `None` if no sample fell within the train.
    pub(super) fn judge(&mut self, usual_loss: f64) -> Option<Outcome> {
        let base = self.base.take()?;
        if self.received <= 0.0 {
            if self.train.was_too_short() {
                self.deaf = (self.deaf + FORGET).min(FORGET * (MOST_DOUBLINGS + 1));
            }
            return None;
        }
        self.deaf = self.deaf.saturating_sub(1);
        let delivered = (self.received / self.sent / (1.0 - usual_loss)).min(1.0);
        let sent = self.sent / self.samples / base;
        // A sample may reach beyond the train.
        let part = (1.0 / delivered - 1.0) * self.gain / (sent - 1.0);
        let free = part < PART / 4.0;
        let share = (!free).then(|| (part / self.gain).min(1.0));
        if let Some(share) = share {
            // Unused capacity makes the share appear smaller, so that the larger one has more
            // weight.
            let weight = if share > self.share { 0.5 } else { 0.25 };
            self.share += (share - self.share) * weight;
        }
        if part > PART * 3.0 {
            self.gain /= STEP * STEP;
        } else if part > PART {
            self.gain /= STEP;
        } else if free {
            self.gain *= STEP * STEP;
        } else if part < PART / 2.0 {
            self.gain *= STEP;
        }
        self.gain = self.gain.clamp(GAIN.0, GAIN.1);
        Some(Outcome {
            found: sent.min(1.0 + self.gain) * delivered - 1.0,
            free,
            share,
            alone: self.share > ALONE,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Rate = Rate::mbit(400);

    /// Length of the next probe after one that lost `loss`, of a queue that is short or not.
    fn next(probe: &mut Probe, loss: f64, short: bool) -> Duration {
        let lasts = probe.length(BASE, 1_250);
        probe.begin(BASE, lasts);
        let sent = BASE.scale(1.0 + probe.gain);
        probe.sample(&RateSample {
            packets: 1_000,
            rate: sent.scale(1.0 - loss),
            sent,
            interval: lasts / 2,
            app_limited: false,
            loss,
        });
        probe.adapt_length(0.0, short);
        probe.judge(0.0).expect("a sample is of it");
        // The gain is not what is tested.
        probe.gain = GAIN.0;
        probe.length(BASE, 1_250)
    }

    #[test]
    fn a_probe_that_overflows_a_short_queue_is_shortened() {
        let ms = Duration::from_millis;
        let mut probe = Probe::default();
        assert_eq!(next(&mut probe, 0.05, false), ms(40), "a long queue");
        assert_eq!(next(&mut probe, 0.005, true), ms(40), "a small loss");
        assert_eq!(next(&mut probe, 0.05, true), ms(20));
        for _ in 1..CLEAN {
            assert_eq!(next(&mut probe, 0.0, true), ms(20));
        }
        assert_eq!(next(&mut probe, 0.0, true), ms(40));
        for _ in 0..2 * MOST_HALVINGS {
            next(&mut probe, 0.05, true);
        }
        assert_eq!(next(&mut probe, 0.05, true), ms(40) / 16);
    }

    #[test]
    fn what_is_lost_at_random_shortens_no_probe() {
        let mut probe = Probe::default();
        probe.begin(BASE, Duration::from_millis(40));
        probe.samples = 1.0;
        probe.packets = 200.0;
        // Of 200 packets, 5 % +- 1.5.
        for (lost, halvings) in [(0.06, 0), (0.1, 0), (0.12, 1)] {
            probe.lost = lost;
            probe.adapt_length(0.05, true);
            assert_eq!(probe.halvings, halvings, "{lost}");
        }
        // One of 32, where nothing was lost before.
        probe.halvings = 0;
        (probe.lost, probe.packets) = (1.0 / 32.0, 32.0);
        probe.adapt_length(0.0, true);
        assert_eq!(probe.halvings, 0);
    }

    #[test]
    fn probes_too_short_for_the_reports_become_longer() {
        let mut probe = Probe {
            halvings: MOST_HALVINGS,
            ..Probe::default()
        };
        for _ in 0..CLEAN * MOST_HALVINGS {
            probe.begin(BASE, Duration::from_millis(3));
            probe.adapt_length(0.0, true);
            assert_eq!(probe.judge(0.0), None);
        }
        assert_eq!(probe.halvings, 0);
    }
}
