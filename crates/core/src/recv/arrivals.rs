//! Summarises received packets for reports: the packet numbers seen, and their range-coded summary
//! of alternating runs of arrived and missing numbers, from the highest downwards.

use crate::loss::{Bitmap, Insert};

/// Packet numbers received from one peer.
#[derive(Clone, Debug, Default)]
pub struct Arrivals {
    seen: Bitmap,
}

impl Arrivals {
    /// The peer's numbers begin here; nothing has arrived.
    pub fn begin_at(&mut self, number: u64) {
        self.seen.advance(number);
    }

    /// Notes packet `number`; false if it was seen, settled or too far ahead.
    pub fn insert(&mut self, number: u64) -> bool {
        self.seen.insert(number) == Insert::New
    }

    /// True if [`insert`](Self::insert) would note `number`.
    pub fn is_new(&self, number: u64) -> bool {
        !self.seen.contains(number) && number - self.floor() < Bitmap::MAX_SPAN
    }

    /// Highest number seen plus one.
    pub const fn end(&self) -> u64 {
        self.seen.end()
    }

    /// Numbers below are settled and never reported.
    pub const fn floor(&self) -> u64 {
        self.seen.base()
    }

    /// All packets below `number` are acknowledged or declared lost at the peer.
    pub fn settle(&mut self, number: u64) {
        self.seen.advance(number.min(self.seen.end()));
    }

    /// Writes the runs of `from..=last` into `runs`: arrived, missing, arrived ... downwards, at most
    /// `limit` values. Returns the lowest number covered. `last` must have arrived.
    pub fn runs(&self, from: u64, last: u64, limit: usize, runs: &mut Vec<u64>) -> u64 {
        runs.clear();
        let mut next = last + 1;
        while next > from && runs.len() < limit {
            let run = self.seen.run_down(next - 1, from);
            runs.push(run);
            next -= run;
        }
        next
    }

    /// Highest arrived number such that a report on `from..=number` takes at most `limit` values.
    pub fn reach(&self, from: u64, limit: usize) -> Option<u64> {
        let mut reach = None;
        let mut changes = 0;
        let mut number = from.max(self.floor());
        while number < self.seen.end() && changes < limit {
            let member = self.seen.contains(number);
            number += self.seen.run_up(number, self.seen.end());
            if member {
                reach = Some(number - 1);
            }
            changes += 1;
        }
        reach
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_tell_holes_from_the_top() {
        let mut a = Arrivals::default();
        for n in [0, 1, 2, 4, 5, 9] {
            assert!(a.insert(n));
        }
        assert!(!a.insert(4));
        assert!(a.is_new(3) && a.is_new(10) && !a.is_new(9));
        assert!(a.is_new(Bitmap::MAX_SPAN - 1) && !a.is_new(Bitmap::MAX_SPAN));
        let mut runs = Vec::new();
        assert_eq!(a.runs(0, 9, 100, &mut runs), 0);
        assert_eq!(runs, [1, 3, 2, 1, 3]);
        assert_eq!(a.runs(0, 9, 3, &mut runs), 4);
        assert_eq!(runs, [1, 3, 2]);
        assert_eq!(a.reach(0, 3), Some(5));
        assert_eq!(a.reach(6, 1), None);
        a.settle(4);
        assert!(
            !a.is_new(3) && !a.insert(3),
            "settled numbers are not accepted again"
        );
    }
}
