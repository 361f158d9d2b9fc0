//! Sets of disjoint half-open ranges over 64-bit offsets.
//!
//! - Keyed by end: bytes taken from the front of a range (in-order arrival) change a value in place
//!   and touch no node of the tree.
//! - Ranges never touch: neighbours are merged.

use std::{
    collections::BTreeMap,
    ops::{Bound, Range},
};

/// Disjoint ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeSet {
    /// end -> start.
    by_end: BTreeMap<u64, u64>,
    total: u64,
}

impl RangeSet {
    /// Bytes in the set.
    pub(crate) const fn total(&self) -> u64 {
        self.total
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_end.is_empty()
    }

    /// The ranges in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.by_end.iter().map(|(end, start)| *start..*end)
    }

    /// Adds `range`.
    pub(crate) fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        // A range that ends exactly where this one starts is a neighbour.
        while let Some((&e, &s)) = self.by_end.range(start..).next()
            && s <= end
        {
            self.by_end.remove(&e);
            self.total -= e - s;
            start = start.min(s);
            end = end.max(e);
        }
        self.by_end.insert(end, start);
        self.total += end - start;
    }

    /// Removes `range` and appends to `out` the parts of it that were in the set.
    pub(crate) fn take(&mut self, range: Range<u64>, out: &mut Vec<Range<u64>>) {
        let mut at = range.start;
        while at < range.end {
            let after = (Bound::Excluded(at), Bound::Unbounded);
            let Some((&e, s)) = self.by_end.range_mut(after).next() else {
                return;
            };
            let start = *s;
            if start >= range.end {
                return;
            }
            let from = start.max(at);
            let to = e.min(range.end);
            if from == start && to < e {
                *s = to;
            } else {
                self.by_end.remove(&e);
                if from > start {
                    self.by_end.insert(from, start);
                }
                if to < e {
                    self.by_end.insert(e, to);
                }
            }
            self.total -= to - from;
            out.push(from..to);
            at = to;
        }
    }

    /// Removes `range`.
    pub(crate) fn remove(&mut self, range: Range<u64>) {
        self.take(range, &mut Vec::new());
    }

    /// The first range.
    pub(crate) fn first(&self) -> Option<Range<u64>> {
        self.by_end
            .first_key_value()
            .map(|(end, start)| *start..*end)
    }

    /// Separate ranges.
    pub(crate) fn len(&self) -> usize {
        self.by_end.len()
    }

    /// True if any byte of `range` is in the set.
    pub(crate) fn overlaps(&self, range: Range<u64>) -> bool {
        let after = (Bound::Excluded(range.start), Bound::Unbounded);
        !range.is_empty()
            && self
                .by_end
                .range(after)
                .next()
                .is_some_and(|(_, s)| *s < range.end)
    }

    /// The range that `at` is in.
    pub(crate) fn around(&self, at: u64) -> Option<Range<u64>> {
        let after = (Bound::Excluded(at), Bound::Unbounded);
        let (end, start) = self.by_end.range(after).next()?;
        (*start <= at).then_some(*start..*end)
    }

    /// True if every byte of `range` is in the set.
    pub(crate) fn contains(&self, range: &Range<u64>) -> bool {
        let after = (Bound::Excluded(range.start), Bound::Unbounded);
        range.is_empty()
            || self
                .by_end
                .range(after)
                .next()
                .is_some_and(|(e, s)| *s <= range.start && *e >= range.end)
    }
}

impl FromIterator<Range<u64>> for RangeSet {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(ranges: I) -> Self {
        let mut set = Self::default();
        for range in ranges {
            set.insert(range);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn naive(set: &RangeSet) -> BTreeSet<u64> {
        set.iter().flatten().collect()
    }

    proptest! {
        #[test]
        fn behaves_like_a_set_of_numbers(
            steps in proptest::collection::vec((any::<bool>(), 0u64..60, 0u64..20), 1..60)
        ) {
            let mut set = RangeSet::default();
            let mut twin = BTreeSet::new();
            for (add, start, len) in steps {
                let r = start..start + len;
                if add {
                    set.insert(r.clone());
                    twin.extend(r.clone());
                } else {
                    let mut out = Vec::new();
                    set.take(r.clone(), &mut out);
                    let taken: BTreeSet<u64> = out.into_iter().flatten().collect();
                    let expected: BTreeSet<u64> = r.clone().filter(|n| twin.remove(n)).collect();
                    prop_assert_eq!(taken, expected);
                }
                prop_assert_eq!(naive(&set), twin.clone());
                prop_assert_eq!(set.total(), twin.len() as u64);
                prop_assert_eq!(set.overlaps(10..30), twin.range(10..30).next().is_some());
                prop_assert_eq!(set.contains(&(10..14)), (10..14).all(|n| twin.contains(&n)));
                prop_assert_eq!(set.around(12).is_some(), twin.contains(&12));
                prop_assert!(set.around(12).is_none_or(|r| r.contains(&12) && set.contains(&r)));
                let ranges: Vec<_> = set.iter().collect();
                prop_assert!(ranges.windows(2).all(|w| w[0].end < w[1].start));
            }
        }
    }
}
