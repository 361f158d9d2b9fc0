//! Models what the host does to segments before its TCP sees them. Interrupts are moderated: the
//! host wakes now and then and works off all that has arrived.

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
    waiting: VecDeque<Arrival>,
    bytes: u64,
    wakes: Option<Instant>,
    woke: Option<Instant>,
}

impl Host {
    pub(super) const fn new(profile: &Profile) -> Self {
        Self {
            interval: profile.wakes_every,
            waiting: VecDeque::new(),
            bytes: 0,
            wakes: None,
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
            // At once after a pause; otherwise not sooner than interrupts are apart.
            let rested = self.woke.map_or(now, |at| at + self.interval);
            self.wakes = Some(rested.max(now));
        }
        None
    }

    /// The next segment for TCP, if the host is awake.
    pub(super) fn work(&mut self, now: Instant) -> Option<Arrival> {
        self.wakes.filter(|at| *at <= now)?;
        let arrival = self.waiting.pop_front();
        match &arrival {
            Some(arrival) => self.bytes -= u64::from(arrival.len),
            None => self.woke = self.wakes.take(),
        }
        arrival
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
    fn a_host_wakes_4_000_times_a_second_and_passes_everything_on_in_order() {
        let mut host = Host::new(profile("windows-xp-x64").unwrap());
        let (mut now, mut done, mut sent, mut wakes) = (Instant::EPOCH, 0_u64, 0, 0);
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
            let before = done;
            while let Some(arrival) = host.work(now) {
                assert_eq!(arrival.seq, done, "in order");
                done += 1;
            }
            wakes += u32::from(done > before);
        }
        assert!((3_950..=4_001).contains(&wakes), "{wakes}");
        assert!(sent - done <= 21, "{sent} arrived, {done} were passed on");
    }
}
