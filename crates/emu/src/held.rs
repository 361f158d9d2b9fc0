//! Chooses the run that leaves next: almost always the one that arrived first. So runs wait in a
//! plain queue; only those that overtake, or are overtaken, wait in a heap beside it.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

use farhaul_core::time::Instant;

use crate::slab::Slot;

/// Neighbouring segments of one packet train that leave together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Run {
    /// Time at which its last segment is due.
    pub(crate) due: Instant,
    /// Breaks ties in the order of arrival.
    pub(crate) serial: u64,
    /// The train.
    pub(crate) slot: Slot,
    /// The first segment.
    pub(crate) first: u16,
    /// Count of segments.
    pub(crate) count: u16,
    /// True if its headers are now marked ECN-CE.
    pub(crate) marked: bool,
}

/// Runs waiting for their time.
#[derive(Debug, Default)]
pub(crate) struct Held {
    in_order: VecDeque<Run>,
    strays: BinaryHeap<Reverse<Run>>,
    serial: u64,
}

impl Held {
    /// Adds a run; sets its serial number.
    pub(crate) fn push(&mut self, mut run: Run) {
        self.serial += 1;
        run.serial = self.serial;
        if self.in_order.back().is_none_or(|last| last.due <= run.due) {
            self.in_order.push_back(run);
        } else {
            self.strays.push(Reverse(run));
        }
    }

    /// Time at which the next run is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.next().map(|run| run.due)
    }

    /// The next run if it is due at `now`.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<Run> {
        let run = self.next().filter(|run| run.due <= now)?;
        if self.in_order.front().is_some_and(|front| *front == run) {
            self.in_order.pop_front();
        } else {
            self.strays.pop();
        }
        Some(run)
    }

    fn next(&self) -> Option<Run> {
        let front = self.in_order.front().copied();
        match (front, self.strays.peek()) {
            (Some(front), Some(Reverse(stray))) => Some(front.min(*stray)),
            (front, stray) => front.or(stray.map(|stray| stray.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use farhaul_core::rng::Rng;

    use super::*;

    #[test]
    fn runs_leave_by_time_and_then_by_arrival() {
        let mut rng = Rng::new(9);
        let mut held = Held::default();
        let mut expected = Vec::new();
        for serial in 1..=10_000 {
            let late = if rng.chance(0.1) { rng.below(500) } else { 0 };
            let run = Run {
                due: Instant::from_nanos(1 + serial / 2 + late),
                serial,
                slot: 0,
                first: 0,
                count: 1,
                marked: false,
            };
            held.push(run);
            expected.push(run);
        }
        expected.sort();
        assert_eq!(held.next_due(), Some(expected[0].due));
        assert_eq!(held.pop_due(Instant::EPOCH), None);
        let rest: Vec<_> = std::iter::from_fn(|| held.pop_due(Instant::FAR_FUTURE)).collect();
        assert_eq!(rest, expected);
        assert_eq!(held.next_due(), None);
    }
}
