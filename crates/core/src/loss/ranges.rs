//! A set of numbers as sorted, disjoint, non-adjacent half-open ranges ("record loss events, not
//! lost packets", Gu and Grossman §III-D). Appending to the last range is O(1).

use std::{collections::BTreeMap, ops::Range};

/// A set of numbers kept as ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    /// start → end
    map: BTreeMap<u64, u64>,
    total: u64,
}

impl Ranges {
    /// Adds `range`; returns how many of its numbers were new.
    pub fn insert(&mut self, range: Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        if let Some(mut last) = self.map.last_entry()
            && *last.get() == range.start
        {
            *last.get_mut() = range.end;
            self.total += range.end - range.start;
            return range.end - range.start;
        }
        let (mut start, mut end, mut known) = (range.start, range.end, 0);
        while let Some((&s, &e)) = self.map.range(..=end).next_back() {
            if e < start {
                break;
            }
            self.map.remove(&s);
            known += e - s;
            start = start.min(s);
            end = end.max(e);
        }
        self.map.insert(start, end);
        let new = end - start - known;
        self.total += new;
        new
    }

    /// Count of numbers in the set.
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// True if all of `range` is in the set.
    pub fn covers(&self, range: Range<u64>) -> bool {
        range.is_empty()
            || self
                .map
                .range(..=range.start)
                .next_back()
                .is_some_and(|(_, e)| *e >= range.end)
    }

    /// End of the run that starts at 0, or 0.
    pub fn prefix(&self) -> u64 {
        self.map
            .first_key_value()
            .filter(|(s, _)| **s == 0)
            .map_or(0, |(_, e)| *e)
    }

    /// The ranges, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Range<u64>> {
        self.map.iter().map(|(s, e)| *s..*e)
    }

    /// Ranges of `within` that are not in the set, ascending.
    pub fn gaps(&self, within: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let from = self
            .map
            .range(..=within.start)
            .next_back()
            .map_or(within.start, |(s, _)| *s);
        let tail = std::iter::once(within.end..within.end);
        let mut at = within.start;
        self.map
            .range(from..within.end.max(from))
            .map(|(s, e)| *s..*e)
            .chain(tail)
            .filter_map(move |known| {
                let gap = at..known.start.min(within.end);
                at = at.max(known.end);
                (!gap.is_empty()).then_some(gap)
            })
    }

    /// The range that `n` is in.
    pub fn containing(&self, n: u64) -> Option<Range<u64>> {
        let (s, e) = self.map.range(..=n).next_back()?;
        (*e > n).then_some(*s..*e)
    }

    /// Removes `range`; returns how many of its numbers were there.
    pub fn remove(&mut self, range: Range<u64>) -> u64 {
        let mut taken = 0;
        while let Some((&s, &e)) = self.map.range(..range.end).next_back() {
            if e <= range.start || range.is_empty() {
                break;
            }
            self.map.remove(&s);
            if s < range.start {
                self.map.insert(s, range.start);
            }
            if e > range.end {
                self.map.insert(range.end, e);
            }
            taken += e.min(range.end) - s.max(range.start);
        }
        self.total -= taken;
        taken
    }

    /// The smallest number.
    pub fn first(&self) -> Option<u64> {
        self.map.first_key_value().map(|(s, _)| *s)
    }

    /// The smallest number that is at least `n`.
    pub fn next_from(&self, n: u64) -> Option<u64> {
        self.within(n..u64::MAX).next().map(|range| range.start)
    }

    /// Takes out the `count` smallest numbers, or all.
    #[must_use]
    pub fn take(&mut self, count: u64) -> Self {
        if self.total <= count {
            return std::mem::take(self);
        }
        let mut taken = Self::default();
        while taken.total < count
            && let Some((start, end)) = self.map.pop_first()
        {
            let cut = end.min(start + (count - taken.total));
            if cut < end {
                self.map.insert(cut, end);
            }
            self.total -= taken.insert(start..cut);
        }
        taken
    }

    /// Takes out the smallest number.
    pub fn pop_first(&mut self) -> Option<u64> {
        let (start, end) = self.map.pop_first()?;
        if start + 1 < end {
            self.map.insert(start + 1, end);
        }
        self.total -= 1;
        Some(start)
    }

    /// The parts of `range` in the set, ascending.
    pub fn within(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let before = self.map.range(..=range.start).next_back();
        let from = before.map_or(range.start, |(s, _)| *s);
        self.map
            .range(from..range.end.max(from))
            .map(move |(s, e)| (*s).max(range.start)..(*e).min(range.end))
            .filter(|part| !part.is_empty())
    }

    /// Removes everything below `floor`.
    pub fn trim(&mut self, floor: u64) {
        while let Some(first) = self.map.first_entry()
            && *first.key() < floor
        {
            let (start, end) = first.remove_entry();
            self.total -= end.min(floor) - start;
            if end > floor {
                self.map.insert(floor, end);
            }
        }
    }

    /// Number of separate ranges.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// True when nothing is in the set.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn equals_a_naive_set(ops in proptest::collection::vec((0_u64..200, 0_u64..30), 0..60), a in 0_u64..220, n in 0_u64..60) {
            let (mut ranges, mut twin) = (Ranges::default(), vec![false; 300]);
            for (start, len) in ops {
                let (i, j) = (usize::try_from(start).unwrap(), usize::try_from(start + len).unwrap());
                let new = twin[i..j].iter().filter(|b| !**b).count() as u64;
                twin[i..j].fill(true);
                prop_assert_eq!(ranges.insert(start..start + len), new);
            }
            prop_assert_eq!(ranges.total(), twin.iter().filter(|b| **b).count() as u64);
            let (i, j) = (usize::try_from(a).unwrap(), usize::try_from(a + n).unwrap());
            prop_assert_eq!(ranges.covers(a..a + n), twin[i..j].iter().all(|b| *b));
            let missing: Vec<u64> = ranges.gaps(a..a + n).flatten().collect();
            let expect: Vec<u64> = (a..a + n).filter(|k| !twin[usize::try_from(*k).unwrap()]).collect();
            prop_assert_eq!(missing, expect);
            let ends: Vec<_> = ranges.iter().collect();
            prop_assert!(ends.windows(2).all(|w| w[0].end < w[1].start));
            let around = ranges.containing(a);
            let known = twin[usize::try_from(a).unwrap()];
            prop_assert_eq!(around.is_some_and(|r| r.contains(&a)), known);
            let parts: Vec<u64> = ranges.within(a..a + n).flatten().collect();
            let has: Vec<u64> = (a..a + n).filter(|k| twin[usize::try_from(*k).unwrap()]).collect();
            prop_assert_eq!(&parts, &has);
            prop_assert_eq!(ranges.first(), (0..300).find(|k| twin[usize::try_from(*k).unwrap()]));
            let mut without = ranges.clone();
            prop_assert_eq!(without.remove(a..a + n), has.len() as u64);
            prop_assert_eq!(without.within(a..a + n).count(), 0);
            prop_assert_eq!(without.iter().flatten().count() as u64, without.total());
            prop_assert_eq!(without.total() + has.len() as u64, ranges.total());
            prop_assert_eq!(ranges.next_from(a), (a..300).find(|k| twin[usize::try_from(*k).unwrap()]));
            let mut rest = ranges.clone();
            let taken = rest.take(n);
            prop_assert_eq!((taken.total(), rest.total()), (n.min(ranges.total()), ranges.total().saturating_sub(n)));
            prop_assert!(taken.iter().chain(rest.iter()).flatten().eq(ranges.iter().flatten()));
            let mut above = ranges.clone();
            above.trim(a);
            let left = above.iter().flatten().count() as u64;
            prop_assert!(above.iter().all(|r| r.start >= a) && left == above.total());
            let kept = twin[i..].iter().filter(|b| **b).count() as u64;
            prop_assert_eq!(left, kept);
            prop_assert_eq!(ranges.prefix(), twin.iter().take_while(|b| **b).count() as u64);
        }
    }
}
