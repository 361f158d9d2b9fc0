//! Tracks which units a receiver has and which it requests. A unit beyond the one expected shows
//! that those between are missing: a table notes them until they have come. The table is a list in
//! the order found; the same unit may be noted twice.

use std::ops::Range;

use crate::{
    loss::{Bitmap, Insert},
    recv::Arrival,
};

/// Received units, and a bounded list of those found missing.
#[derive(Clone, Debug)]
pub struct Wanted {
    units: u64,
    got: Bitmap,
    /// Units neither received nor given up.
    left: u64,
    /// The unit expected next.
    next: u64,
    /// Noted as missing; some may have come since.
    asked: Vec<u64>,
    /// No more are noted.
    most: usize,
}

impl Wanted {
    /// Maximum number of units.
    pub const MAX_UNITS: u64 = Bitmap::MAX_SPAN;

    /// A receiver of `units` units, at most [`Self::MAX_UNITS`], that has none; at most `most` are
    /// noted as missing at a time.
    pub fn new(units: u64, most: usize) -> Self {
        let units = units.min(Self::MAX_UNITS);
        Self {
            units,
            got: Bitmap::default(),
            left: units,
            next: 0,
            asked: Vec::new(),
            most,
        }
    }

    /// Units in all.
    pub const fn units(&self) -> u64 {
        self.units
    }

    /// Units neither received nor given up.
    pub const fn left(&self) -> u64 {
        self.left
    }

    /// The unit expected next.
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Units noted as missing, in the order found.
    pub fn asked(&self) -> &[u64] {
        &self.asked
    }

    /// The first unit that is neither here nor given up, if there is one.
    pub fn first_missing(&self) -> Option<u64> {
        let base = self.got.base();
        (self.left > 0).then_some(base)
    }

    /// Records a received unit.
    pub fn on_unit(&mut self, unit: u64) -> Arrival {
        if unit >= self.units {
            return Arrival::Beyond;
        }
        if self.got.insert(unit) != Insert::New {
            return Arrival::Again;
        }
        self.left -= 1;
        self.settle();
        Arrival::New
    }

    /// Drops units that came in order from the set: they need not be remembered one by one.
    fn settle(&mut self) {
        let base = self.got.base();
        if base < self.units && self.got.contains(base) {
            let run = self.got.run_up(base, self.units);
            self.got.advance(base + run);
        }
    }

    /// `unit` was sent in its turn: those before it that did not come are noted as missing.
    pub fn expect(&mut self, unit: u64) {
        let unit = unit.min(self.units);
        if unit > self.next {
            self.note(self.next..unit);
        }
        self.next = self.next.max(unit + 1);
    }

    /// Notes all that is missing.
    pub fn note_all(&mut self) {
        self.note(0..self.units);
    }

    fn note(&mut self, range: Range<u64>) {
        for missing in self.got.missing(range) {
            let room = (self.most - self.asked.len()) as u64;
            let end = missing.end.min(missing.start + room);
            self.asked.extend(missing.start..end);
            if room == 0 {
                return;
            }
        }
    }

    /// Removes list entries that have arrived since.
    pub fn sweep(&mut self) {
        let (got, units) = (&self.got, self.units);
        self.asked
            .retain(|unit| *unit < units && !got.contains(*unit));
    }

    /// The sender goes back to `unit`: nothing is noted any more, and that is what comes next.
    pub fn rewind(&mut self, unit: u64) {
        self.asked.clear();
        self.next = unit.min(self.units);
    }

    /// Units of `range` that are neither here nor given up.
    fn missing(&self, range: Range<u64>) -> u64 {
        self.got
            .missing(range)
            .map(|missing| missing.end - missing.start)
            .sum()
    }

    /// Gives up the units below `unit`; returns how many were missing.
    pub fn give_up_below(&mut self, unit: u64) -> u64 {
        let end = unit.min(self.units);
        let lost = self.missing(0..end);
        self.got.advance(end);
        self.left -= lost;
        self.settle();
        lost
    }

    /// Truncates the total to `units`.
    pub fn cut(&mut self, units: u64) {
        self.left -= self.missing(units..self.units);
        self.units = self.units.min(units);
        self.next = self.next.min(self.units);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_table_that_is_full_takes_no_more() {
        let mut wanted = Wanted::new(Wanted::MAX_UNITS, 1_000);
        assert_eq!(wanted.on_unit(Wanted::MAX_UNITS), Arrival::Beyond);
        assert_eq!(wanted.on_unit(Wanted::MAX_UNITS - 1), Arrival::New);
        wanted.expect(Wanted::MAX_UNITS - 1);
        wanted.note_all();
        assert_eq!(wanted.asked().len(), 1_000);
        assert_eq!(wanted.first_missing(), Some(0));
        wanted.rewind(5);
        assert_eq!((wanted.next(), wanted.asked().len()), (5, 0));
    }

    proptest! {
        #[test]
        fn equals_a_naive_twin(
            units in 1_u64..200,
            ops in proptest::collection::vec((0_u8..30, 0_u64..220), 0..200),
        ) {
            let (mut wanted, mut units) = (Wanted::new(units, 40), units);
            let mut missing: BTreeSet<u64> = (0..units).collect();
            let (mut asked, mut next) = (Vec::new(), 0);
            for (op, n) in ops {
                match op {
                    0 => {
                        let before = missing.len();
                        missing.retain(|m| *m >= n);
                        prop_assert_eq!(wanted.give_up_below(n), (before - missing.len()) as u64);
                    }
                    1 if n > 0 => {
                        wanted.cut(n);
                        units = units.min(n);
                        missing.retain(|m| *m < units);
                        next = next.min(units);
                    }
                    2 => {
                        wanted.rewind(n);
                        asked.clear();
                        next = n.min(units);
                    }
                    3 | 4 => {
                        wanted.sweep();
                        asked.retain(|u| missing.contains(u));
                    }
                    5 => {
                        wanted.note_all();
                        asked.extend(missing.iter().copied());
                    }
                    _ => {
                        let arrival = if n >= units {
                            Arrival::Beyond
                        } else if missing.remove(&n) {
                            Arrival::New
                        } else {
                            Arrival::Again
                        };
                        prop_assert_eq!(wanted.on_unit(n), arrival);
                        if op % 2 == 0 && n < units {
                            wanted.expect(n);
                            asked.extend(missing.iter().copied().filter(|m| (next..n).contains(m)));
                            next = next.max(n + 1);
                        }
                    }
                }
                asked.truncate(40);
                prop_assert_eq!(wanted.asked(), &asked[..]);
                prop_assert_eq!(wanted.left(), missing.len() as u64);
                prop_assert_eq!(wanted.first_missing(), missing.first().copied());
                prop_assert_eq!((wanted.next(), wanted.units()), (next, units));
            }
        }
    }
}
