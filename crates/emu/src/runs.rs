//! Groups segments of a train that may leave together: neighbours that survived, with the same
//! mark, in order, and due within [`MAX_SPAN`] of each other.

use std::time::Duration;

use farhaul_core::time::Instant;

use crate::{
    held::{Held, Run},
    slab::{Slab, Slot},
};

/// Segments that leave together were due within this time.
pub(crate) const MAX_SPAN: Duration = Duration::from_micros(64);

/// The runs of one train, while its segments are being decided in order.
#[derive(Debug)]
pub(crate) struct Runs<'a> {
    slot: Slot,
    /// Run that may still grow, and the time at which its first segment is due.
    open: Option<(Instant, Run)>,
    held: &'a mut Held,
    slab: &'a mut Slab,
}

impl<'a> Runs<'a> {
    /// Runs of the train in `slot`, whose holder is passed to the result.
    pub(crate) fn new(slot: Slot, held: &'a mut Held, slab: &'a mut Slab) -> Self {
        Self {
            slot,
            open: None,
            held,
            slab,
        }
    }

    /// The train.
    pub(crate) fn packet_mut(&mut self) -> &mut [u8] {
        self.slab.packet_mut(self.slot)
    }

    /// Segment `index` is due at `at`.
    pub(crate) fn add(&mut self, index: u16, at: Instant, marked: bool) {
        if let Some((opened, run)) = &mut self.open
            && run.first + run.count == index
            && run.marked == marked
            && at >= run.due
            && at - *opened <= MAX_SPAN
        {
            run.count += 1;
            run.due = at;
            return;
        }
        let run = self.run(index, at, marked);
        if let Some((_, done)) = self.open.replace((at, run)) {
            self.push(done);
        }
    }

    /// A second copy of segment `index` is due at `at`.
    pub(crate) fn add_copy(&mut self, index: u16, at: Instant, marked: bool) {
        let run = self.run(index, at, marked);
        self.push(run);
    }

    /// All segments are decided.
    pub(crate) fn finish(mut self) {
        if let Some((_, run)) = self.open.take() {
            self.push(run);
        }
        self.slab.release(self.slot);
    }

    const fn run(&self, first: u16, due: Instant, marked: bool) -> Run {
        Run {
            due,
            serial: 0,
            slot: self.slot,
            first,
            count: 1,
            marked,
        }
    }

    fn push(&mut self, run: Run) {
        self.slab.hold(run.slot);
        self.held.push(run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The (first, count) of the runs made from (index, due in us, marked).
    fn runs(segments: &[(u16, u64, bool)]) -> Vec<(u16, u16)> {
        let (mut held, mut slab) = (Held::default(), Slab::new(1 << 20));
        let slot = slab.take_largest().unwrap();
        let mut runs = Runs::new(slot, &mut held, &mut slab);
        for (index, us, marked) in segments {
            runs.add(*index, Instant::from_nanos(us * 1_000), *marked);
        }
        runs.finish();
        std::iter::from_fn(|| held.pop_due(Instant::FAR_FUTURE))
            .map(|run| (run.first, run.count))
            .collect()
    }

    #[test]
    fn a_gap_a_mark_a_long_wait_and_a_step_back_each_end_a_run() {
        let whole = [(0, 10, false), (1, 17, false), (2, 24, false)];
        assert_eq!(runs(&whole), [(0, 3)]);
        let gap = [(0, 10, false), (2, 17, false), (3, 24, false)];
        assert_eq!(runs(&gap), [(0, 1), (2, 2)]);
        let mark = [(0, 10, false), (1, 17, true), (2, 24, false)];
        assert_eq!(runs(&mark), [(0, 1), (1, 1), (2, 1)]);
        let slow = [(0, 10, false), (1, 75, false), (2, 140, false)];
        assert_eq!(runs(&slow), [(0, 1), (1, 1), (2, 1)]);
        let back = [(0, 10, false), (1, 5, false)];
        assert_eq!(runs(&back), [(1, 1), (0, 1)]);
        assert!(runs(&[]).is_empty());
    }
}
