//! What is lost whatever is sent? What a full link loses depends on the load: less of it while less is sent, and what it
//! loses for the sake of others comes and goes. What stays at rest, and from epoch to epoch, is random.

use farhaul_core::{congestion::RateSample, time::Instant};

use super::epoch::Epoch;

/// The largest random loss that is compensated by sending more.
const MAX_COMPENSATED: f64 = 0.025;
/// The largest loss that is held for usual, and the largest if it is steady.
const MAX_USUAL: f64 = 0.025;
const MAX_PROVEN: f64 = 0.1;
/// Epochs over which the usual loss is the least, and from how many on it may be steady.
const MEMORY: usize = 16;
const LEAST_EPOCHS: usize = 4;
/// Loss is steady if the third quarter of the last epochs lost no more above the best quarter than this part of what is usual,
/// or than this many standard deviations of a binomial distribution (1.6 are expected of random loss).
const STEADY: f64 = 0.5;
const DEVIATIONS: f64 = 2.2;
/// Of fewer packets per epoch that is not known.
const ENOUGH: u32 = 30;
/// What remains of the packets at rest from one rest to the next, and how many tell.
const KEPT: f64 = 0.875;
const TELLING: f64 = 100.0;
/// Loss beyond the usual that indicates a full link: at least this, and this part of the usual.
const EXCESS: (f64, f64) = (0.01, 0.5);
/// In so many epochs in a row, or in one that lost most of what was sent.
const INSISTENT: u32 = 3;

/// The share that is lost whatever is sent: the mean of the better half of the last epochs, if no less is lost at rest.
#[derive(Clone, Debug)]
pub(super) struct UsualLoss {
    recent: [f64; MEMORY],
    filled: usize,
    /// That mean, and how much of it is held for usual.
    typical: f64,
    share: f64,
    /// What must be sent for so much to be delivered.
    factor: f64,
    /// Epochs in a row beyond the usual.
    beyond: u32,
    rest: Rest,
}

impl Default for UsualLoss {
    fn default() -> Self {
        Self {
            recent: [0.0; MEMORY],
            filled: 0,
            typical: 0.0,
            share: 0.0,
            factor: 1.0,
            beyond: 0,
            rest: Rest::default(),
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

    /// 0 to 0.025, if it is steady to 0.1.
    pub(super) const fn share(&self) -> f64 {
        self.share
    }

    /// So much that it takes a rest to tell whether a full link causes it.
    pub(super) fn is_doubtful(&self) -> bool {
        self.typical > EXCESS.0
    }

    /// The mean of the last three epochs, the last included.
    pub(super) fn lately(&self) -> f64 {
        mean(&self.recent[..self.filled.min(INSISTENT as usize)])
    }

    /// The last epoch lost more.
    pub(super) const fn is_exceeded(&self) -> bool {
        self.beyond > 0
    }

    /// Less is sent for a while.
    pub(super) fn rest(&mut self, from: Instant, until: Instant) {
        self.rest.from = from;
        self.rest.until = until;
        self.rest.is_new = true;
    }

    /// Takes a sample of a path without a queue, the newest packet of which was sent then.
    pub(super) fn sample(&mut self, sample: &RateSample, sent_at: Instant) {
        self.rest.sample(sample, sent_at);
    }

    /// Takes an epoch; true when its loss and that of those before were beyond the usual.
    pub(super) fn take(&mut self, epoch: &Epoch) -> bool {
        let loss = epoch.loss();
        let most = self.share + EXCESS.0.max(self.share * EXCESS.1);
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
        self.filled = MEMORY.min(self.filled + 1);
        let mut sorted = self.recent;
        let sorted = &mut sorted[..self.filled];
        sorted.sort_unstable_by(f64::total_cmp);
        self.typical = mean(&sorted[..self.filled.div_ceil(2)]);
        let most = if self.is_steady(sorted, packets) {
            MAX_PROVEN
        } else {
            MAX_USUAL
        };
        let at_rest = self.rest.loss().unwrap_or(MAX_USUAL);
        self.share = self.typical.min(at_rest).min(most);
        self.factor = 1.0 / (1.0 - self.compensated());
    }

    /// Epochs of so many packets differ by no more than chance lets them.
    fn is_steady(&self, sorted: &[f64], packets: u32) -> bool {
        let mut quarters = sorted.chunks(sorted.len().div_ceil(4)).map(mean);
        let (Some(best), Some(third)) = (quarters.next(), quarters.nth(1)) else {
            return false;
        };
        let deviation = || (self.typical * (1.0 - self.typical) / f64::from(packets)).sqrt();
        sorted.len() >= LEAST_EPOCHS
            && packets >= ENOUGH
            && third - best <= (self.typical * STEADY).max(deviation() * DEVIATIONS)
    }
}

/// The last time when less was sent, and what was lost in all of them.
#[derive(Clone, Copy, Debug)]
struct Rest {
    from: Instant,
    until: Instant,
    /// No sample so far is of it.
    is_new: bool,
    /// Packets, and those of them that were lost; the older, the less they count.
    packets: f64,
    lost: f64,
}

impl Default for Rest {
    fn default() -> Self {
        Self {
            from: Instant::EPOCH,
            until: Instant::EPOCH,
            is_new: false,
            packets: 0.0,
            lost: 0.0,
        }
    }
}

impl Rest {
    fn sample(&mut self, sample: &RateSample, sent_at: Instant) {
        if sent_at > self.until || sent_at < self.from + sample.interval {
            return;
        }
        if std::mem::take(&mut self.is_new) {
            self.packets *= KEPT;
            self.lost *= KEPT;
        }
        let packets = f64::from(u32::try_from(sample.packets).unwrap_or(u32::MAX));
        self.packets += packets;
        self.lost += packets * sample.loss;
    }

    /// The share lost at rest, 0 to 1, if enough is known.
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
