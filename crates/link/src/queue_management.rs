//! Signals congestion before the queue is full: `CoDel` (RFC 8289) and RED (RFC 2309, the gentle
//! variant) over the virtual queue. That queue knows on arrival when the packet will be served. So
//! `CoDel` sees exactly the sojourn times and dequeue instants that a real queue would show. A
//! packet dropped by `CoDel` takes no service time, so the next one is dequeued at the same
//! instant.

use std::time::Duration;

use farhaul_core::{rng::Rng, time::nanos};

use crate::{bottleneck::Arrival, config::Aqm};

/// Action on the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    None,
    /// Mark the packet, or drop it if it cannot be marked.
    Congested,
    /// Drop the packet even if it could be marked.
    Overloaded,
}

#[derive(Clone, Debug)]
pub(crate) enum QueueManagement {
    Codel(Codel),
    Red(Red),
}

impl QueueManagement {
    pub(crate) fn new(aqm: Aqm, mtu: u32) -> Self {
        match aqm {
            Aqm::Codel { target, interval } => Self::Codel(Codel::new(target, interval, mtu)),
            Aqm::Red { min, max, share } => Self::Red(Red::new(min, max, share)),
        }
    }

    pub(crate) fn judge(&mut self, arrival: &Arrival, rng: &mut Rng) -> Signal {
        match self {
            Self::Codel(codel) => codel.judge(arrival),
            Self::Red(red) => red.judge(arrival.wait, arrival.start, rng),
        }
    }
}

/// RFC 8289 §5, with the virtual queue's dequeue instants.
#[derive(Clone, Debug)]
pub(crate) struct Codel {
    target: u64,
    interval: u64,
    mtu: u64,
    /// Time at which the sojourn time will have been above target for an interval.
    above_at: Option<u64>,
    dropping: bool,
    next: u64,
    count: u64,
    last_count: u64,
}

impl Codel {
    fn new(target: Duration, interval: Duration, mtu: u32) -> Self {
        Self {
            target: nanos(target),
            interval: nanos(interval),
            mtu: u64::from(mtu),
            above_at: None,
            dropping: false,
            next: 0,
            count: 0,
            last_count: 0,
        }
    }

    fn judge(&mut self, arrival: &Arrival) -> Signal {
        let now = arrival.start;
        let standing = self.standing(arrival, now);
        if !standing {
            self.dropping = false;
            return Signal::None;
        }
        if self.dropping {
            if now < self.next {
                return Signal::None;
            }
            self.count += 1;
            self.next = self.control(self.next);
            return Signal::Congested;
        }
        self.dropping = true;
        let fresh = self.count - self.last_count;
        let recent = now.saturating_sub(self.next) < 16 * self.interval;
        self.count = if fresh > 1 && recent { fresh } else { 1 };
        self.last_count = self.count;
        self.next = self.control(now);
        Signal::Congested
    }

    /// True if the queue has stood above target for a whole interval.
    fn standing(&mut self, arrival: &Arrival, now: u64) -> bool {
        if arrival.wait < self.target || arrival.queued().bytes() <= self.mtu {
            self.above_at = None;
            return false;
        }
        let above_at = *self.above_at.get_or_insert(now + self.interval);
        now >= above_at
    }

    /// `from` + interval / sqrt(count).
    fn control(&self, from: u64) -> u64 {
        from + (self.interval << 10) / (self.count << 20).isqrt().max(1)
    }
}

/// Random early detection on the average waiting time.
#[derive(Clone, Debug)]
pub(crate) struct Red {
    min: u64,
    max: u64,
    /// Share of packets signalled at `max`, in 2^-32.
    share: u64,
    /// Average wait in ns, times 2^9.
    average: u64,
    /// Time at which the last packet seen began its service.
    last_start: u64,
    /// Packets since the last signal.
    since: u64,
}

/// The average follows a new value with weight 2^-9, as in the original paper.
const WEIGHT: u32 = 9;
/// While the link idles, the average halves in the time of 355 packets (0.002 per packet). Without
/// a packet size at hand, each of them is taken to be 1.2 us, a full packet at 10 Gbit/s.
const HALVING_NS: u64 = 355 * 1_200;

impl Red {
    fn new(min: Duration, max: Duration, share: f64) -> Self {
        Self {
            min: nanos(min),
            max: nanos(max).max(nanos(min) + 1),
            share: fixed(share),
            average: 0,
            last_start: 0,
            since: 0,
        }
    }

    fn judge(&mut self, wait: u64, start: u64, rng: &mut Rng) -> Signal {
        if wait == 0 {
            let halvings = start.saturating_sub(self.last_start) / HALVING_NS;
            self.average >>= halvings.min(63);
        }
        self.last_start = start;
        self.average = self.average - (self.average >> WEIGHT) + wait;
        let average = self.average >> WEIGHT;
        if average < self.min {
            self.since = 0;
            return Signal::None;
        }
        let base = if average < self.max {
            scaled(self.share, average - self.min, self.max - self.min)
        } else if average < 2 * self.max {
            self.share + scaled((1 << 32) - self.share, average - self.max, self.max)
        } else {
            return Signal::Overloaded;
        };
        // Spread the signals evenly: base / (1 - packets since the last one * base).
        self.since += 1;
        let left = (1_u64 << 32).saturating_sub(self.since.saturating_mul(base));
        let hit = left == 0 || rng.below(left) < base;
        if hit {
            self.since = 0;
            Signal::Congested
        } else {
            Signal::None
        }
    }
}

/// `whole * part / of`; a millionth of the last two is precise enough.
fn scaled(whole: u64, part: u64, of: u64) -> u64 {
    let product = u128::from(whole) * u128::from(part) / u128::from(of.max(1));
    u64::try_from(product).unwrap_or(u64::MAX)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float-to-int `as` saturates"
)]
fn fixed(share: f64) -> u64 {
    ((share * 4_294_967_296.0) as u64).min(1 << 32)
}

#[cfg(test)]
mod tests;
