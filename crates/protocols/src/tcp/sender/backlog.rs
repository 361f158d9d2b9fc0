//! Models a sending host whose kernel keeps what is outstanding in one list, as Linux did before
//! 4.15. It remembers the last blocks and the highest byte reported; for news below that it looks
//! through the list from its head. That takes time per segment. Meanwhile acknowledgements wait, and
//! what exceeds the backlog is dropped.
//!
//! Source: Linux 75c119afe14f of 2017, which replaced the list: 40 ns for a line missing in the cache,
//! "burning a cpu and massively dropping packets". One such line per segment, what the list remembers
//! and the bound of the backlog are assumed.

use std::{collections::VecDeque, time::Duration};

use farhaul_core::time::Instant;

use super::Acknowledgement;

/// Packets that wait at most: Linux's default of `net.core.netdev_max_backlog`.
const MOST: usize = 1_000;

/// Acknowledgements between the wire and the sender.
#[derive(Debug)]
pub(super) struct Backlog {
    /// Time per segment looked at; zero: acknowledgements take no time.
    cost: Duration,
    waiting: VecDeque<Acknowledgement>,
    /// Time at which the work on the first of them ends.
    ends: Instant,
}

impl Backlog {
    pub(super) const fn new(cost: Duration) -> Self {
        Self {
            cost,
            waiting: VecDeque::new(),
            ends: Instant::EPOCH,
        }
    }

    /// True if acknowledgements may take time.
    pub(super) const fn is_slow(&self) -> bool {
        !self.cost.is_zero()
    }

    /// Puts `ack` behind those that wait, or drops it.
    pub(super) fn push(&mut self, ack: &Acknowledgement) {
        if self.waiting.len() < MOST {
            self.waiting.push_back(ack.clone());
        }
    }

    /// The acknowledgement that is next.
    pub(super) fn next(&self) -> Option<&Acknowledgement> {
        self.waiting.front()
    }

    /// Begins with the next, for which `segments` are looked at.
    pub(super) fn begin(&mut self, at: Instant, segments: usize) {
        self.ends = at + self.cost * u32::try_from(segments).unwrap_or(u32::MAX);
    }

    /// The acknowledgement with which the host is done at `now`, and the time since which it is.
    pub(super) fn done(&mut self, now: Instant) -> Option<(Instant, Acknowledgement)> {
        let done = self.waiting.pop_front_if(|_| self.ends <= now)?;
        Some((self.ends, done))
    }

    pub(super) fn due(&self) -> Option<Instant> {
        (!self.waiting.is_empty()).then_some(self.ends)
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
        let mut backlog = Backlog::new(Duration::from_nanos(40));
        let now = Instant::EPOCH;
        backlog.push(&plain(2));
        backlog.begin(now, 15_000);
        backlog.push(&plain(3));
        let ends = now + Duration::from_micros(600);
        assert_eq!(backlog.due(), Some(ends), "the second is not looked at yet");
        assert!(backlog.done(now + Duration::from_micros(599)).is_none());
        assert_eq!(
            backlog.done(ends).map(|(at, a)| (at, a.ack)),
            Some((ends, 2))
        );
        assert_eq!(backlog.next().map(|a| a.ack), Some(3));
        backlog.begin(ends, 10_000);
        let ends = ends + Duration::from_micros(400);
        assert_eq!(backlog.due(), Some(ends));
        assert_eq!(
            backlog.done(ends).map(|(at, a)| (at, a.ack)),
            Some((ends, 3))
        );
        assert_eq!(backlog.due(), None);
    }

    #[test]
    fn what_exceeds_the_backlog_is_dropped() {
        let mut backlog = Backlog::new(Duration::from_nanos(40));
        for ack in 0..1_500 {
            backlog.push(&plain(ack));
        }
        backlog.begin(Instant::EPOCH, 100);
        let mut taken = 0;
        while let Some(at) = backlog.due() {
            assert_eq!(
                backlog.done(at).map(|(_, a)| a.ack),
                Some(taken),
                "in order"
            );
            backlog.begin(at, 100);
            taken += 1;
        }
        assert_eq!(taken, 1_000);
    }
}
