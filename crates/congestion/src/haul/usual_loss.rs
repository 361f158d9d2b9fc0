//! Estimates the loss that happens whatever is sent. The loss of a full link depends on the load:
//! less of it while less is sent. What a full link loses for the sake of others comes and goes.
//! Loss that stays at low load, and from epoch to epoch, is random.

use farhaul_core::{congestion::AckEvent, time::Instant};

use super::epoch::Epoch;

/// The largest random loss that is compensated by sending more.
const MAX_COMPENSATED: f64 = 0.025;
/// The largest loss that is held for usual, and the largest if it is steady.
const MAX_USUAL: f64 = 0.025;
const MAX_STEADY: f64 = 0.1;
/// Epochs remembered, and the least number of them from which loss may be steady.
const EPOCHS: usize = 16;
const LEAST_EPOCHS: usize = 4;
/// Loss is steady if the third quarter of the last epochs lost little more than the best quarter.
/// The bound is this part of the mean of their better half, or a number of standard deviations of a
/// binomial distribution (random loss has 1.4 on average).
const STEADY: f64 = 0.5;
const STEADY_DEVIATIONS: f64 = 2.2;
/// Least packets per epoch, on average, for which steadiness is known.
const LEAST_PACKETS: f64 = 30.0;
/// Weight of an epoch in the mean of their packets.
const WEIGHT: f64 = 0.25;
/// Share of the packets at low load that remains from one such time to the next, and how many
/// packets are evidence.
const DECAY: f64 = 0.875;
const TELLING: f64 = 100.0;
/// Loss beyond the usual that indicates a full link: half of the usual, between these.
const EXCESS: (f64, f64) = (0.01, 0.03);
/// Most of the usual loss without which a probe's outcome is judged. Flows that together fill a
/// link see a steady loss, and raise their rates no further than to this.
const MAX_ALLOWED: f64 = 0.06;
/// Loss from which on times of low load last long enough for samples of them alone.
const DOUBTFUL: f64 = 0.01;
/// Less is next to nothing.
const NEGLIGIBLE: f64 = 0.000_2;
/// Packets per epoch, on average, below which half of the epochs lose nothing whatever the loss.
const MANY: f64 = 125.0;
/// Epochs in a row beyond the usual that indicate a full link; one that lost most of its packets
/// does, too.
const INSISTENT: u32 = 3;

/// Share that is lost whatever is sent: the mean of the better half of the last epochs, if no less
/// is lost at low load.
#[derive(Clone, Debug)]
pub(super) struct UsualLoss {
    recent: [f64; EPOCHS],
    filled: usize,
    /// Packets of an epoch, on average.
    packets: f64,
    /// Mean of the better half, and how much of it is held for usual.
    typical: f64,
    share: f64,
    /// Rate to send over the rate to be delivered.
    factor: f64,
    /// Epochs in a row beyond the usual.
    beyond: u32,
    low_load: LowLoad,
}

impl Default for UsualLoss {
    fn default() -> Self {
        Self {
            recent: [0.0; EPOCHS],
            filled: 0,
            packets: 0.0,
            typical: 0.0,
            share: 0.0,
            factor: 1.0,
            beyond: 0,
            low_load: LowLoad::default(),
        }
    }
}

impl UsualLoss {
    /// Rate to send over the rate to be delivered.
    pub(super) const fn factor(&self) -> f64 {
        self.factor
    }

    /// Loss that is made up for by sending more, 0 to 0.025.
    pub(super) const fn compensated(&self) -> f64 {
        self.share.min(MAX_COMPENSATED)
    }

    /// Share of the usual loss: 0 to 0.025, up to 0.1 if the loss is steady.
    pub(super) const fn share(&self) -> f64 {
        self.share
    }

    /// True if next to nothing is lost.
    pub(super) fn is_negligible(&self) -> bool {
        self.filled == EPOCHS && self.packets >= MANY && self.typical < NEGLIGIBLE
    }

    /// True if the loss is so high that samples at low load must show whether a full link causes
    /// it.
    pub(super) fn is_doubtful(&self) -> bool {
        self.typical > DOUBTFUL
    }

    /// Part of the usual loss without which a probe's outcome is judged.
    pub(super) const fn allowed(&self) -> f64 {
        self.share.min(MAX_ALLOWED)
    }

    /// The mean of the last three epochs, the last included.
    pub(super) fn lately(&self) -> f64 {
        mean(&self.recent[..self.filled.min(INSISTENT as usize)])
    }

    /// True if the last epoch lost more than usual.
    pub(super) const fn is_exceeded(&self) -> bool {
        self.beyond > 0
    }

    /// True if the loss was beyond the usual for longer than twice the time that indicates a full
    /// link.
    pub(super) const fn persists(&self) -> bool {
        self.beyond > 2 * INSISTENT
    }

    /// Less is sent from then until then.
    pub(super) const fn begin_low_load(&mut self, from: Instant, until: Instant) {
        self.low_load.from = from;
        self.low_load.until = until;
        self.low_load.is_new = true;
    }

    /// Takes a report; `queued` says whether it shows a queue.
    pub(super) fn on_ack(&mut self, ack: &AckEvent, queued: bool) {
        self.low_load.on_ack(ack, queued);
    }

    /// Takes an epoch; true when its loss and that of those before were beyond the usual.
    pub(super) fn take(&mut self, epoch: &Epoch) -> bool {
        let loss = epoch.loss();
        let most = self.share + (self.share / 2.0).clamp(EXCESS.0, EXCESS.1);
        self.learn(loss, epoch.packets);
        if loss <= most {
            self.beyond = 0;
            return false;
        }
        self.beyond += if epoch.lost_most() { INSISTENT } else { 1 };
        self.beyond >= INSISTENT
    }

    fn learn(&mut self, loss: f64, packets: u32) {
        self.recent.rotate_right(1);
        self.recent[0] = loss;
        self.filled = EPOCHS.min(self.filled + 1);
        let mut sorted = self.recent;
        let sorted = &mut sorted[..self.filled];
        sorted.sort_unstable_by(f64::total_cmp);
        self.packets += (f64::from(packets) - self.packets) * WEIGHT;
        self.typical = mean(&sorted[..self.filled.div_ceil(2)]);
        let most = if self.is_steady(sorted) {
            MAX_STEADY
        } else {
            MAX_USUAL
        };
        let at_low_load = self.low_load.loss().unwrap_or(MAX_USUAL);
        self.share = self.typical.min(at_low_load).min(most);
        self.factor = 1.0 / (1.0 - self.compensated());
    }

    /// True if the epochs differ by no more than chance lets them.
    fn is_steady(&self, sorted: &[f64]) -> bool {
        let quarter = |n: usize| n * sorted.len() / 4;
        if sorted.len() < LEAST_EPOCHS || self.packets < LEAST_PACKETS {
            return false;
        }
        let spread = mean(&sorted[quarter(2)..quarter(3)]) - mean(&sorted[..quarter(1)]);
        let deviation = (self.typical * (1.0 - self.typical) / self.packets).sqrt();
        spread <= (self.typical * STEADY).max(deviation * STEADY_DEVIATIONS)
    }
}

/// The last time when less was sent, and what became of the packets of all such times.
#[derive(Clone, Copy, Debug, Default)]
struct LowLoad {
    from: Instant,
    until: Instant,
    /// True if no report so far is of this time of low load.
    is_new: bool,
    /// Packets, and the lost ones among them; the older, the less they count.
    packets: f64,
    lost: f64,
}

impl LowLoad {
    /// Takes a sample of packets sent then alone, and not of others' queue.
    fn on_ack(&mut self, ack: &AckEvent, queued: bool) {
        let (Some(sample), Some(newest)) = (&ack.rate, &ack.newest) else {
            return;
        };
        let within = newest.sent_at <= self.until && newest.sent_at >= self.from + sample.interval;
        if queued || !within || sample.app_limited {
            return;
        }
        // Of no packet twice.
        self.from = newest.sent_at;
        if std::mem::take(&mut self.is_new) {
            self.packets *= DECAY;
            self.lost *= DECAY;
        }
        let packets = f64::from(u32::try_from(sample.packets).unwrap_or(u32::MAX));
        self.packets += packets;
        self.lost += packets * sample.loss;
    }

    /// The share lost then, 0 to 1, if enough is known.
    fn loss(&self) -> Option<f64> {
        (self.packets >= TELLING).then(|| self.lost / self.packets)
    }
}

fn mean(losses: &[f64]) -> f64 {
    let counted = losses.iter().zip(1_u32..);
    counted.fold(0.0, |mean, (loss, n)| mean + (loss - mean) / f64::from(n))
}

#[cfg(test)]
mod tests;
