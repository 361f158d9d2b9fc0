//! Models a sending host whose kernel keeps what is outstanding in one list, as Linux did before
//! 4.15. It remembers the last blocks and the highest byte reported; for news below that it looks
//! through the list from its head. That takes time per segment. Meanwhile acknowledgements wait, and
//! what exceeds the backlog is dropped.
//!
//! Sources: Linux 2.6.25 (SACK blocks and their cache), and 75c119afe14f of 2017, which replaced the
//! list: 40 ns per segment, "burning a cpu and massively dropping packets".

use std::{collections::VecDeque, time::Duration};

use farhaul_core::time::Instant;

use super::Acknowledgement;

/// Packets that wait at most: Linux's default of `net.core.netdev_max_backlog`.
const BACKLOG: usize = 1_000;

/// Acknowledgements between the wire and the sender.
#[derive(Debug)]
pub(super) struct Host {
    /// Time per segment looked at; zero: acknowledgements take no time.
    cost: Duration,
    backlog: VecDeque<Acknowledgement>,
    /// Time at which the work on the first of the backlog ends.
    ends: Instant,
}

impl Host {
    pub(super) const fn new(cost: Duration) -> Self {
        Self {
            cost,
            backlog: VecDeque::new(),
            ends: Instant::EPOCH,
        }
    }

    /// True if acknowledgements may take time.
    pub(super) const fn is_slow(&self) -> bool {
        !self.cost.is_zero()
    }

    /// Puts `ack` behind those that wait, or drops it. `scanned` is the count of segments that it
    /// takes to look at if none waits.
    pub(super) fn keep(&mut self, now: Instant, ack: &Acknowledgement, scanned: usize) {
        if self.backlog.len() < BACKLOG {
            self.backlog.push_back(ack.clone());
        }
        if self.backlog.len() == 1 {
            self.ends = now;
            self.scan(scanned);
        }
    }

    /// The acknowledgement with which the host is done at `now`.
    pub(super) fn done(&mut self, now: Instant) -> Option<Acknowledgement> {
        self.backlog.pop_front_if(|_| self.ends <= now)
    }

    /// The acknowledgement that is next.
    pub(super) fn next(&self) -> Option<&Acknowledgement> {
        self.backlog.front()
    }

    /// Begins with the next, for which `segments` are looked at.
    pub(super) fn scan(&mut self, segments: usize) {
        self.ends += self.cost * u32::try_from(segments).unwrap_or(u32::MAX);
    }

    pub(super) fn due(&self) -> Option<Instant> {
        (!self.backlog.is_empty()).then_some(self.ends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(ack: u64) -> Acknowledgement {
        Acknowledgement {
            ack,
            ..Acknowledgement::default()
        }
    }

    #[test]
    fn an_acknowledgement_waits_for_the_scans_before_it() {
        let mut host = Host::new(Duration::from_nanos(40));
        let now = Instant::EPOCH;
        host.keep(now, &plain(2), 15_000);
        host.keep(now, &plain(3), 15_000);
        let ends = now + Duration::from_micros(600);
        assert_eq!(host.due(), Some(ends), "the second is not looked at yet");
        assert!(host.done(now + Duration::from_micros(599)).is_none());
        assert_eq!(host.done(ends).map(|a| a.ack), Some(2));
        assert_eq!(host.next().map(|a| a.ack), Some(3));
        host.scan(10_000);
        let ends = ends + Duration::from_micros(400);
        assert_eq!(host.due(), Some(ends));
        assert_eq!(host.done(ends).map(|a| a.ack), Some(3));
        assert_eq!(host.due(), None);
    }

    #[test]
    fn what_exceeds_the_backlog_is_dropped() {
        let mut host = Host::new(Duration::from_nanos(40));
        for ack in 0..1_500 {
            host.keep(Instant::EPOCH, &plain(ack), 100);
        }
        let mut taken = 0;
        while let Some(at) = host.due() {
            assert_eq!(host.done(at).map(|a| a.ack), Some(taken), "in order");
            host.scan(100);
            taken += 1;
        }
        assert_eq!(taken, 1_000);
    }
}
