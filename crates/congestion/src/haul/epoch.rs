//! What does a period show about the link? Evidence is gathered over an epoch, at least 100 ms
//! and a round trip, so that no single late packet counts.

use std::time::Duration;

use farhaul_core::{
    congestion::{AckEvent, RateSample},
    time::Instant,
    units::Rate,
};

/// The least length of an epoch.
pub(super) const EPOCH: Duration = Duration::from_millis(100);
/// The largest random loss that is compensated by sending more.
const MAX_COMPENSATED: f64 = 0.025;
/// The largest loss that is held for usual, unless it proves to be.
const MAX_USUAL: f64 = 0.025;
/// Epochs over which the usual loss is the least.
const MEMORY: usize = 16;
/// Loss beyond the usual that indicates a full link.
const EXCESS: f64 = 0.01;
/// When the estimate fell below this part of what it was, and loss did not, loss is usual.
const YIELDED: f64 = 0.25;
/// That much of the loss must have stayed.
const STAYED: f64 = 0.7;
/// And no more than this of what was delivered: a path that delivers as much as before was overrun.
const FELL: f64 = 0.5;
/// The largest loss that can prove to be usual: many flows that fill a link by themselves see the same.
const MAX_PROVEN: f64 = 0.1;
/// In so many epochs in a row, or in one that lost most of what was sent.
const INSISTENT: u32 = 3;
const MOST: f64 = 0.5;

/// What was seen since the epoch began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Epoch {
    pub(super) began: Option<Instant>,
    round: u64,
    received: f64,
    sent: f64,
    loss: f64,
    samples: u32,
    pub(super) least_queue: Option<Duration>,
    pub(super) least_rtt: Option<Duration>,
    pub(super) marked: bool,
    pub(super) app_limited: bool,
    /// A sample of many packets lost most of them.
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
            least_queue: None,
            least_rtt: None,
            marked: false,
            app_limited: false,
            lost_most: false,
        }
    }

    /// Takes a feedback packet's samples, and the queue it shows; how old the epoch is, once it has seen
    /// a round trip.
    pub(super) fn take(&mut self, ack: &AckEvent, queue: Option<Duration>) -> Option<Duration> {
        if let Some(queue) = queue {
            self.least_queue = Some(self.least_queue.map_or(queue, |q| q.min(queue)));
        }
        if let Some(rtt) = ack.rtt {
            self.least_rtt = Some(self.least_rtt.map_or(rtt, |r| r.min(rtt)));
        }
        self.marked |= ack.ce > 0;
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

    /// Share lost, 0 to 1.
    pub(super) fn loss(&self) -> f64 {
        self.loss / f64::from(self.samples.max(1))
    }
}

/// At what rate the packets of a sample were sent, bit/s. Those that left together show none: then what is not lost is delivered.
pub(super) fn sent(sample: &RateSample) -> f64 {
    if sample.sent == Rate::UNLIMITED {
        sample.rate.as_f64() / (1.0 - sample.loss).max(0.01)
    } else {
        sample.sent.as_f64()
    }
}

/// The share that is lost whatever is sent: the mean of the better half of the last epochs.
#[derive(Clone, Debug)]
pub(super) struct UsualLoss {
    recent: [f64; MEMORY],
    filled: usize,
    share: f64,
    /// What must be sent for so much to be delivered.
    factor: f64,
    /// Epochs in a row beyond the usual.
    beyond: u32,
    /// Estimate, loss and delivery rate when that began.
    began: Option<(f64, f64, f64)>,
    /// Loss that stayed although much less was sent.
    proven: f64,
}

impl Default for UsualLoss {
    fn default() -> Self {
        Self {
            recent: [0.0; MEMORY],
            filled: 0,
            share: 0.0,
            factor: 1.0,
            beyond: 0,
            began: None,
            proven: 0.0,
        }
    }
}

impl UsualLoss {
    /// What must be sent over what is to be delivered.
    pub(super) const fn factor(&self) -> f64 {
        self.factor
    }

    /// What is made up for by sending more, 0 to 0.025.
    pub(super) const fn compensated(&self) -> f64 {
        self.share.min(MAX_COMPENSATED)
    }

    /// 0 to 0.025, or what proved to be usual.
    pub(super) const fn share(&self) -> f64 {
        self.share
    }

    /// The mean of the last three epochs, the last included.
    pub(super) fn lately(&self) -> f64 {
        let last = self.recent.iter().take(self.filled).zip(1..=INSISTENT);
        last.fold(0.0, |mean, (loss, n)| mean + (loss - mean) / f64::from(n))
    }

    /// The last epoch lost more.
    pub(super) const fn is_exceeded(&self) -> bool {
        self.beyond > 0
    }

    /// Takes an epoch, and the estimate then; true when its loss and that of those before were beyond
    /// the usual.
    pub(super) fn take(&mut self, epoch: &Epoch, bandwidth: f64) -> bool {
        let (loss, rate) = (epoch.loss(), epoch.rate());
        let usual = self.share;
        self.proven = self.proven.min(loss * 2.0 + EXCESS);
        self.recent.rotate_right(1);
        self.recent[0] = loss;
        self.filled = MEMORY.min(self.filled + 1);
        let mut sorted = self.recent;
        let sorted = &mut sorted[..self.filled];
        sorted.sort_unstable_by(f64::total_cmp);
        let half = &sorted[..self.filled.div_ceil(2)];
        let mean = half
            .iter()
            .zip(1_u32..)
            .fold(0.0, |mean, (loss, n)| mean + (loss - mean) / f64::from(n));
        self.share = mean.min(MAX_USUAL.max(self.proven));
        self.factor = 1.0 / (1.0 - self.compensated());
        if loss <= usual + EXCESS.max(usual / 2.0) {
            self.beyond = 0;
            self.began = None;
            return false;
        }
        let (then, before, delivered) = *self.began.get_or_insert((bandwidth, loss, rate));
        if bandwidth < then * YIELDED {
            if loss > before * STAYED && rate < delivered * FELL {
                self.proven = loss.min(MAX_PROVEN);
            }
            self.began = None;
        }
        let at_once = epoch.lost_most && loss > MOST;
        self.beyond += if at_once { INSISTENT } else { 1 };
        self.beyond >= INSISTENT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share held for usual after a flow yielded to 0.01 of what it had, while `loss` stayed.
    fn usual_after(loss: f64) -> f64 {
        let mut usual = UsualLoss::default();
        let mut bandwidth = 1e9;
        for _ in 0..40 {
            let epoch = Epoch {
                received: bandwidth * (1.0 - loss),
                sent: bandwidth,
                loss,
                samples: 1,
                ..Epoch::new(None, 0)
            };
            if usual.take(&epoch, bandwidth) {
                bandwidth = (bandwidth * 0.7).max(1e7);
            }
        }
        usual.share()
    }

    /// An epoch in which so much was lost, in samples of many packets.
    fn lost(loss: f64) -> Epoch {
        let mut epoch = Epoch::new(None, 0);
        epoch.sample(&sample(Rate::mbit(10), loss));
        epoch
    }

    fn sample(sent: Rate, loss: f64) -> RateSample {
        RateSample {
            packets: 1_000,
            rate: Rate::mbit(10).scale(1.0 - loss),
            sent,
            interval: EPOCH,
            app_limited: false,
            loss,
        }
    }

    #[test]
    fn one_epoch_beyond_the_usual_exceeds_it_and_three_insist() {
        let mut usual = UsualLoss::default();
        assert!(!usual.is_exceeded());
        for insists in [false, false, true, true] {
            assert_eq!(usual.take(&lost(0.2), 1e7), insists);
            assert!(usual.is_exceeded());
        }
        assert!(!usual.take(&lost(0.0), 1e7));
        assert!(!usual.is_exceeded(), "it is over");
        assert!(!usual.take(&lost(0.2), 1e7), "and counted anew");
    }

    #[test]
    fn loss_that_is_usual_exceeds_nothing() {
        let mut usual = UsualLoss::default();
        for _ in 0..MEMORY {
            usual.take(&lost(0.02), 1e7);
        }
        assert!((usual.share() - 0.02).abs() < 1e-9);
        for (loss, exceeded) in [(0.0, false), (0.02, false), (0.0299, false), (0.0301, true)] {
            let mut usual = usual.clone();
            usual.take(&lost(loss), 1e7);
            assert_eq!(usual.is_exceeded(), exceeded, "{loss}");
        }
    }

    #[test]
    fn an_epoch_that_lost_most_insists_alone() {
        let mut usual = UsualLoss::default();
        assert!(usual.take(&lost(0.6), 1e7));
        assert!(usual.is_exceeded());
        // Not if few packets tell.
        let mut few = Epoch::new(None, 0);
        few.sample(&RateSample {
            packets: 10,
            ..sample(Rate::mbit(10), 0.6)
        });
        let mut usual = UsualLoss::default();
        assert!(!usual.take(&few, 1e7));
        assert!(usual.is_exceeded());
    }

    #[test]
    fn three_epochs_tell_what_is_lost_lately() {
        let mut usual = UsualLoss::default();
        for (loss, lately) in [(0.4, 0.4), (0.2, 0.3), (0.6, 0.4), (0.1, 0.3)] {
            usual.take(&lost(loss), 1e7);
            assert!((usual.lately() - lately).abs() < 1e-9, "{loss}");
        }
    }

    #[test]
    fn what_left_together_shows_no_sending_rate() {
        let mut epoch = Epoch::new(None, 0);
        epoch.sample(&sample(Rate::UNLIMITED, 0.2));
        assert!((epoch.delivered() - 0.8).abs() < 1e-6);
    }

    #[test]
    fn loss_that_stays_is_usual_up_to_a_tenth() {
        for (loss, expected) in [(0.01, 0.01), (0.08, 0.08), (0.3, MAX_PROVEN)] {
            let share = usual_after(loss);
            assert!((share - expected).abs() < 1e-9, "{loss}: {share}");
        }
    }
}
