//! Begins a connection with short bursts well above the proven rate, one per round trip. The rate
//! at which the path delivered a burst is proven for the next. A burst carries so little that the
//! overshoot on the last one is a few ms of the link, not a round trip of it. A burst that arrives
//! more spread out than it was sent shows what the link carries (packet-train dispersion, Dovrolis
//! et al., 2001).

use std::time::Duration;

use farhaul_core::{
    congestion::RateSample,
    units::{Rate, Size},
};

use super::{
    BARE, LEAST,
    loss_count::LossCount,
    train::{MOST_DOUBLINGS, Train},
};

/// Shape of a burst.
#[derive(Debug)]
struct Shape {
    /// Rate of the burst over the proven rate.
    gain: f64,
    /// Least length of the burst in time and in datagrams.
    lasts: Duration,
    datagrams: u64,
    /// Spread on arrival beyond which a burst was spread by more than hosts do.
    spread: Duration,
}

/// The one that confirms what an earlier connection proved, at all of it from half of it, and those
/// above [`FAST`].
const DOUBLE: Shape = Shape {
    gain: 2.0,
    ..GENTLE
};
/// The first burst of a connection: what 1 Gbit/s carries in a millisecond.
const FIRST: Shape = Shape {
    gain: 64.0,
    lasts: Duration::from_micros(1_250),
    datagrams: 12,
    spread: Duration::from_millis(4),
};
/// The second, which on most paths is the last.
const STEEP: Shape = Shape {
    gain: 20.0,
    lasts: Duration::from_millis(4),
    datagrams: 32,
    spread: Duration::from_micros(1_250),
};
/// All others.
const GENTLE: Shape = Shape {
    gain: 4.0,
    lasts: Duration::from_millis(20),
    datagrams: 32,
    spread: Duration::from_micros(1_250),
};
/// Bursts are steep while less than this is proven.
const STEEP_BELOW: Rate = Rate::gbit(1);
/// Rate from which on bursts only double it: hosts hardly send faster.
const FAST: Rate = Rate::gbit(5);
/// The longest burst.
const LONGEST: Duration = Duration::from_millis(250);
/// The most that a burst carries, and one that is lengthened.
const LARGEST: u64 = 32 << 20;
const LENGTHENED: u64 = 16 << 20;
/// Held for proven before anything is: the first burst is sent at 832 Mbit/s, 130 KB in all.
const UNPROVEN: Rate = Rate::mbit(13);
/// See [`Start::confirming_gain`].
const PAUSE: f64 = 1.0 / 16.0;
/// Loss in a burst that, with delivery below the sending rate, indicates a full path.
const HEAVY_LOSS: f64 = 0.08;
/// A burst that arrived at this part of its rate was delivered.
const DELIVERED: f64 = 0.9;
/// Part of the sending rate below which an arriving burst has found the link's rate.
const DISPERSED: f64 = 0.85;
/// Part of the best of many samples on a full path that is taken for proven: the best flatters the
/// path.
const FLATTERED: f64 = 0.85;
/// Divisor of the part of a burst that must have left for a conclusion from the burst.
const LEAST_PART: u64 = 4;
/// A sample sent at this part of a burst's rate is of the burst.
const HEARD: f64 = 0.5;
/// Rates that differ by less are alike.
const ALIKE: f64 = 0.05;
/// Factor on the proven rate that only bursts exceed.
const ABOVE: f64 = 1.2;
/// Bursts without timely feedback are ignored; after this many, the proven rate is kept.
const MAX_UNHEARD: u32 = 8;

/// Knowledge before the bursts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// Nothing, and nothing has been found full or short so far.
    Nothing,
    /// The path was measured before.
    Measured,
    /// An earlier connection proved this.
    Saved,
}

/// Findings of the bursts so far.
#[derive(Clone, Debug)]
pub(super) struct Start {
    /// The rate proven so far.
    pub(super) proven: Rate,
    known: Known,
    /// Bursts in a row that proved nothing new.
    vain: u32,
    /// Bursts without timely feedback.
    unheard: u32,
    /// Bursts in a row that were too short for the reports there are.
    short: u32,
    train: Train,
    /// Bytes of the present one that left.
    left: u64,
    /// True if feedback on the present one was received.
    heard: bool,
    /// The most bytes in a sample, and whether more were awaited for longer than usual.
    arrived: u64,
    waited: bool,
    /// Best delivery since the burst began, the rate at which that was sent, and what of it was
    /// lost.
    seen: Rate,
    sent: Rate,
    lost: f64,
    /// True if the best sample covered enough packets to conclude whether the path is full.
    telling: bool,
    /// Largest loss in a sample since then.
    worst_loss: f64,
    /// Counts of the packets since feedback last covered most of a burst.
    losses: LossCount,
    /// Least estimate at which the start may end.
    pub(super) least: Rate,
}

impl Default for Start {
    fn default() -> Self {
        Self {
            proven: UNPROVEN,
            known: Known::Nothing,
            vain: 0,
            unheard: 0,
            short: 0,
            train: Train::default(),
            left: 0,
            heard: false,
            arrived: 0,
            waited: false,
            seen: Rate::ZERO,
            sent: Rate::ZERO,
            lost: 0.0,
            telling: false,
            worst_loss: 0.0,
            losses: LossCount::default(),
            least: LEAST,
        }
    }
}

impl From<Rate> for Start {
    /// A start from a rate that is proven, on a path that was measured before.
    fn from(proven: Rate) -> Self {
        Self {
            proven,
            known: Known::Measured,
            least: LEAST.min(proven),
            ..Self::default()
        }
    }
}

impl Start {
    /// A start from half of what an earlier connection proved.
    pub(super) fn resume(capacity: Rate) -> Self {
        Self {
            known: Known::Saved,
            ..Self::from(capacity.scale(1.0 / DOUBLE.gain))
        }
    }

    fn shape(&self) -> &'static Shape {
        match self.known {
            Known::Saved => &DOUBLE,
            // Where reports are rare it takes longer ones.
            Known::Nothing if self.is_first() => &FIRST,
            Known::Nothing if self.short > 1 => &GENTLE,
            Known::Nothing if self.proven < STEEP_BELOW => &STEEP,
            Known::Nothing | Known::Measured if self.proven >= FAST => &DOUBLE,
            Known::Nothing | Known::Measured => &GENTLE,
        }
    }

    /// True if nothing is known of the path, nor that reports on it are rare.
    fn is_first(&self) -> bool {
        self.known == Known::Nothing && self.proven <= UNPROVEN && self.short <= 1
    }

    /// Bytes that a whole burst carries.
    fn bytes(&self) -> u64 {
        let burst = self.proven.scale(self.gain());
        burst.bytes_in(self.train.lasts())
    }

    /// `bytes` of the burst leave.
    pub(super) const fn on_sent(&mut self, bytes: u64) {
        self.left = self.left.saturating_add(bytes);
    }

    /// Packets were lost.
    pub(super) fn on_loss(&mut self, packets: u32) {
        self.losses.lose(packets);
    }

    /// Packets arrived.
    pub(super) fn on_ack(&mut self, packets: u32, bytes: Size) {
        self.losses.arrive(packets, bytes);
    }

    /// True if there was enough to send to make a burst of it.
    fn has_left(&self) -> bool {
        self.left >= self.bytes() / LEAST_PART
    }

    /// Rate over the proven one while the outcome of a burst is awaited. It is next to nothing
    /// after the first, for packets sent then would be in the same reports.
    pub(super) fn confirming_gain(&self) -> f64 {
        if self.is_first() && self.has_left() {
            PAUSE
        } else {
            1.0
        }
    }

    /// Rate of a burst over the proven rate.
    pub(super) fn gain(&self) -> f64 {
        self.shape().gain
    }

    /// Duration of a burst over `base`.
    pub(super) fn length(&self, base: Rate, datagram: u32) -> Duration {
        let shape = self.shape();
        let rate = base.scale(shape.gain);
        let usual = rate
            .time_for(shape.datagrams * u64::from(datagram))
            .max(shape.lasts.min(rate.time_for(LARGEST)));
        let lengthened = usual.saturating_mul(self.stretch());
        usual
            .max(lengthened.min(rate.time_for(LENGTHENED)))
            .min(LONGEST)
    }

    /// Factor by which bursts are longer than usual. There is no feedback on a burst that is
    /// shorter than the time between reports. A busy receiver reports as often as it gets a
    /// processor.
    pub(super) fn stretch(&self) -> u32 {
        1 << self.short.saturating_sub(1).min(MOST_DOUBLINGS)
    }

    /// A burst begins, of such a length.
    pub(super) fn burst(&mut self, lasts: Duration) {
        *self = Self {
            train: Train::new(lasts),
            short: self.short,
            proven: self.proven,
            known: self.known,
            vain: self.vain,
            unheard: self.unheard,
            losses: self.losses,
            least: self.least,
            ..Self::default()
        };
    }

    /// Takes a sample; returns whether the burst is practically delivered.
    pub(super) fn sample(&mut self, sample: &RateSample) -> bool {
        let burst = self.proven.scale(self.gain());
        self.train.sample(sample.interval);
        self.heard |= sample.sent >= burst.scale(HEARD);
        self.arrived = self.arrived.max(sample.rate.bytes_in(sample.interval));
        // What arrived sooner than it was sent was held up before, and proves no more than was
        // sent.
        let rate = sample.rate.min(burst);
        let telling = sample.is_telling();
        // Of samples that arrived alike, the one that was sent fastest shows most.
        let alike = rate >= self.seen.scale(1.0 - ALIKE) && sample.sent > self.sent;
        if rate > self.seen.scale(1.0 + ALIKE) || alike {
            self.seen = self.seen.max(rate);
            self.sent = sample.sent.min(burst);
            self.lost = sample.loss;
            self.telling = telling;
        }
        if telling {
            self.worst_loss = self.worst_loss.max(sample.loss);
        }
        let delivered = rate >= burst.scale(DELIVERED);
        delivered && !(self.known == Known::Saved && sample.app_limited)
    }

    /// True if there was data to send in the burst, and feedback on it.
    pub(super) const fn is_heard(&self) -> bool {
        self.heard
    }

    /// Takes the arrived part of a resumed rate for proven, and no more (safe retreat, RFC 9959).
    /// Without data in any of the bursts the path is as good as new.
    fn is_confirmed(&mut self) -> bool {
        if !self.heard {
            *self = Self::default();
            return false;
        }
        let burst = self.proven.scale(self.gain());
        self.proven = if self.seen >= burst.scale(DELIVERED) {
            burst
        } else if self.seen >= self.proven {
            self.seen
        } else {
            self.seen.scale(FLATTERED)
        };
        true
    }

    /// True once, while a resumed rate is not refuted: some of its burst has to arrive first, which
    /// a busy host may hold up.
    pub(super) fn waits(&mut self) -> bool {
        let some = self.bytes() / 16;
        let waits = self.known == Known::Saved && self.heard && self.arrived < some && !self.waited;
        self.waited |= waits;
        waits
    }

    /// True if the burst, or as much of it as this host sends, arrived spread out by more than
    /// hosts do.
    fn is_dispersed(&self, overran: bool, reordering: Duration) -> bool {
        // Both ends of a sample that is heard are within the burst, however long that took. A busy
        // receiver loses little.
        let blended = !self.heard && !overran && self.train.was_too_short();
        if blended || !self.has_left() || self.sent < self.proven.scale(ABOVE) {
            return false;
        }
        self.seen < self.sent.scale(DISPERSED * (1.0 - self.lost))
            && self.spread() >= self.shape().spread + reordering
    }

    /// Time by which the burst arrived later than it was sent.
    fn spread(&self) -> Duration {
        let longer = self.sent.as_f64() / self.seen.as_f64().max(1.0) - 1.0;
        self.train.lasts().mul_f64(longer.max(0.0))
    }

    /// The outcome of a burst is known: is the path full, which spreads what it reorders by as
    /// much?
    pub(super) fn is_full(&mut self, reordering: Duration) -> bool {
        let overran = self.losses.is_most_lost() && !self.heard;
        let dispersed = self.is_dispersed(overran, reordering);
        if !self.heard && !dispersed && self.unheard < MAX_UNHEARD {
            self.unheard += 1;
            self.short += u32::from(self.train.was_too_short());
            if overran {
                // No more than before is sent next.
                let part = self.proven.scale(1.0 / GENTLE.gain);
                self.proven = self.proven.min(part.max(self.seen));
                self.known = Known::Measured;
                self.least = BARE;
            } else if self.known != Known::Saved {
                self.proven = self.proven.max(self.seen);
            }
            return false;
        }
        if self.known == Known::Saved {
            return self.is_confirmed();
        }
        let grew = self.seen >= self.proven.scale(1.3);
        let short = self.seen < self.sent.scale(0.8) && self.spread() > reordering;
        if dispersed && self.is_first() {
            // Less than what was assumed.
            self.least = if overran { BARE } else { LEAST };
            self.proven = self.seen;
            return true;
        }
        if short && !self.is_first() {
            self.known = Known::Measured;
        }
        self.vain = if grew && !short { 0 } else { self.vain + 1 };
        if short && self.telling && self.worst_loss > HEAVY_LOSS {
            // Probing finds the rest.
            self.proven = self.proven.max(self.seen.scale(FLATTERED)).min(self.seen);
            return true;
        }
        self.proven = self.proven.max(self.seen);
        dispersed || self.vain >= 2
    }
}

#[cfg(test)]
mod tests;
