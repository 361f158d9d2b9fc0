//! Gathers evidence about the link over an epoch, at least 100 ms and a round trip, so that no
//! single late packet counts.

use std::time::Duration;

use farhaul_core::{
    congestion::{AckEvent, RateSample},
    time::Instant,
    units::Rate,
};

/// The least length of an epoch.
pub(super) const EPOCH: Duration = Duration::from_millis(100);
/// A larger share than this is most.
const MOST: f64 = 0.5;

/// Evidence since the epoch began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Epoch {
    pub(super) began: Option<Instant>,
    round: u64,
    received: f64,
    sent: f64,
    loss: f64,
    samples: u32,
    /// Packets acknowledged in the epoch.
    pub(super) packets: u32,
    pub(super) least_queue: Option<Duration>,
    pub(super) least_rtt: Option<Duration>,
    pub(super) marked: bool,
    pub(super) app_limited: bool,
    /// True if a sample of many packets lost most of them.
    lost_most: bool,
}

impl Epoch {
    pub(super) const fn new(began: Option<Instant>, round: u64) -> Self {
        Self {
            began,
            round,
            received: 0.0,
            sent: 0.0,
            loss: 0.0,
            samples: 0,
            packets: 0,
            least_queue: None,
            least_rtt: None,
            marked: false,
            app_limited: false,
            lost_most: false,
        }
    }

    /// Takes a feedback packet's samples, and the queue it shows; how old the epoch is, once it has
    /// seen a round trip.
    pub(super) fn take(&mut self, ack: &AckEvent, queue: Option<Duration>) -> Option<Duration> {
        if let Some(queue) = queue {
            self.least_queue = Some(self.least_queue.map_or(queue, |q| q.min(queue)));
        }
        if let Some(rtt) = ack.rtt {
            self.least_rtt = Some(self.least_rtt.map_or(rtt, |r| r.min(rtt)));
        }
        self.marked |= ack.ce > 0;
        self.packets = self.packets.saturating_add(ack.packets);
        if let Some(sample) = &ack.rate {
            self.sample(sample);
        }
        let began = *self.began.get_or_insert(ack.now);
        (ack.round > self.round).then(|| ack.now.since(began))
    }

    fn sample(&mut self, sample: &RateSample) {
        self.samples += 1;
        self.received += sample.rate.as_f64();
        self.sent += sent(sample);
        self.loss += sample.loss;
        self.lost_most |= sample.is_telling() && sample.loss > MOST;
        self.app_limited |= sample.app_limited;
    }

    pub(super) const fn round(&self) -> u64 {
        self.round
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.samples == 0
    }

    /// Delivered over sent, 0 to 1.
    pub(super) fn delivered(&self) -> f64 {
        if self.sent > 0.0 {
            (self.received / self.sent).min(1.0)
        } else {
            1.0
        }
    }

    /// Mean delivery rate, bit/s.
    pub(super) fn rate(&self) -> f64 {
        self.received / f64::from(self.samples.max(1))
    }

    /// True if most was lost, in samples of many packets.
    pub(super) fn lost_most(&self) -> bool {
        self.lost_most && self.loss() > MOST
    }

    /// Share lost, 0 to 1.
    pub(super) fn loss(&self) -> f64 {
        self.loss / f64::from(self.samples.max(1))
    }
}

/// Rate at which the packets of a sample were sent, bit/s. Packets that left together show none:
/// then packets that are not lost are delivered.
pub(super) fn sent(sample: &RateSample) -> f64 {
    if sample.sent == Rate::UNLIMITED {
        sample.rate.as_f64() / (1.0 - sample.loss).max(0.01)
    } else {
        sample.sent.as_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(packets: u64, sent: Rate, loss: f64) -> RateSample {
        RateSample {
            packets,
            rate: Rate::mbit(10).scale(1.0 - loss),
            sent,
            interval: EPOCH,
            app_limited: false,
            loss,
        }
    }

    #[test]
    fn most_is_more_than_half_of_many() {
        for (packets, loss, most) in [(1_000, 0.6, true), (1_000, 0.4, false), (10, 0.6, false)] {
            let mut epoch = Epoch::new(None, 0);
            epoch.sample(&sample(packets, Rate::mbit(10), loss));
            assert_eq!(epoch.lost_most(), most, "{packets}, {loss}");
        }
    }

    #[test]
    fn what_left_together_shows_no_sending_rate() {
        let mut epoch = Epoch::new(None, 0);
        epoch.sample(&sample(1_000, Rate::UNLIMITED, 0.2));
        assert!((epoch.delivered() - 0.8).abs() < 1e-6);
    }
}
