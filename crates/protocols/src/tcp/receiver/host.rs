//! Models what the host does to segments before its TCP sees them. Interrupts are moderated: the
//! host wakes now and then and works off what has arrived, up to a bound.

use std::{collections::VecDeque, time::Duration};

use farhaul_core::time::Instant;

use super::Arrival;
use crate::tcp::Profile;

/// Segments that wait at most, whatever the window.
const MAX_WAITING: usize = 1 << 20;

/// Segments between the wire and TCP.
#[derive(Debug)]
pub(super) struct Host {
    interval: Duration,
    /// Per wake; 0 for all.
    most: u32,
    waiting: VecDeque<Arrival>,
    bytes: u64,
    wakes: Option<Instant>,
    /// Segments left of this wake.
    budget: u32,
    woke: Option<Instant>,
}

impl Host {
    pub(super) const fn new(profile: &Profile) -> Self {
        Self {
            interval: profile.batch_interval,
            most: profile.batch_max,
            waiting: VecDeque::new(),
            bytes: 0,
            wakes: None,
            budget: 0,
            woke: None,
        }
    }

    /// True if there is no room for another segment behind a window of `window` bytes.
    pub(super) fn is_full(&self, arrival: &Arrival, window: u64) -> bool {
        !self.interval.is_zero()
            && (self.bytes + u64::from(arrival.len) > window.saturating_mul(2)
                || self.waiting.len() >= MAX_WAITING)
    }

    /// Takes a segment that arrives; returns it if nothing holds it.
    pub(super) fn pass(&mut self, now: Instant, arrival: Arrival) -> Option<Arrival> {
        if self.interval.is_zero() {
            return Some(arrival);
        }
        self.bytes += u64::from(arrival.len);
        self.waiting.push_back(arrival);
        if self.wakes.is_none() {
            // Not sooner after the last wake than wakes are apart.
            let rested = self.woke.map_or(now, |at| at + self.interval);
            self.wakes = Some(rested.max(now + self.interval / 2));
        }
        None
    }

    /// The next segment for TCP, if the host is awake.
    pub(super) fn work(&mut self, now: Instant) -> Option<Arrival> {
        if self.wakes.is_some_and(|at| at <= now) && self.woke != self.wakes {
            self.woke = self.wakes;
            self.budget = if self.most == 0 { u32::MAX } else { self.most };
        }
        if self.woke.is_none() || self.woke != self.wakes {
            return None;
        }
        if self.budget > 0
            && let Some(arrival) = self.waiting.pop_front()
        {
            self.budget -= 1;
            self.bytes -= u64::from(arrival.len);
            return Some(arrival);
        }
        self.wakes = (!self.waiting.is_empty()).then_some(now + self.interval);
        None
    }

    pub(super) const fn due(&self) -> Option<Instant> {
        self.wakes
    }
}

#[cfg(test)]
mod tests {
    use farhaul_core::datagram::Ecn;

    use super::*;
    use crate::tcp::profile;

    #[test]
    fn a_host_that_takes_32_per_wake_has_a_ceiling() {
        let mut host = Host::new(profile("windows-xp-x64").unwrap());
        let (mut now, mut done, mut sent) = (Instant::EPOCH, 0_u64, 0);
        while now < Instant::from_nanos(1_000_000_000) {
            now += Duration::from_micros(12);
            let arrival = Arrival {
                seq: sent,
                len: 1_448,
                stamp: None,
                rtt_us: None,
                ecn: Ecn::NotEct,
                reduced: false,
            };
            sent += 1;
            assert!(host.pass(now, arrival).is_none());
            while let Some(arrival) = host.work(now) {
                assert_eq!(arrival.seq, done, "in order");
                done += 1;
            }
        }
        let ceiling = 32.0 / 1.5e-3;
        let rate = f64::from(u32::try_from(done).unwrap());
        assert!((0.98..=1.01).contains(&(rate / ceiling)), "{rate}");
        assert!(host.due().is_some_and(|at| at > now));
    }
}
