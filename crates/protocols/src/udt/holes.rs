//! Which packets are missing? A set of sequence numbers kept as runs, from which single numbers are
//! taken again. Both ends have one: what the receiver lacks and what the sender is to send again.

use std::{collections::BTreeMap, ops::Range};

/// A set of numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Holes {
    /// Start to end; runs neither touch nor overlap.
    runs: BTreeMap<u64, u64>,
    total: u64,
}

impl Holes {
    /// Adds a run; returns how many of its numbers were new.
    pub(super) fn insert(&mut self, range: Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let (mut start, mut end, mut known) = (range.start, range.end, 0);
        while let Some((&s, &e)) = self.runs.range(..=end).next_back() {
            if e < start {
                break;
            }
            self.runs.remove(&s);
            known += e - s;
            start = start.min(s);
            end = end.max(e);
        }
        self.runs.insert(start, end);
        let new = end - start - known;
        self.total += new;
        new
    }

    /// Takes out `range`; returns how many of its numbers were there.
    pub(super) fn remove(&mut self, range: Range<u64>) -> u64 {
        let mut taken = 0;
        while let Some((&s, &e)) = self.runs.range(..range.end).next_back() {
            if e <= range.start {
                break;
            }
            self.runs.remove(&s);
            if s < range.start {
                self.runs.insert(s, range.start);
            }
            if e > range.end {
                self.runs.insert(range.end, e);
            }
            taken += e.min(range.end) - s.max(range.start);
        }
        self.total -= taken;
        taken
    }

    /// The smallest number.
    pub(super) fn first(&self) -> Option<u64> {
        self.runs.first_key_value().map(|(s, _)| *s)
    }

    /// Takes out the smallest number.
    pub(super) fn pop_first(&mut self) -> Option<u64> {
        let (start, end) = self.runs.pop_first()?;
        if start + 1 < end {
            self.runs.insert(start + 1, end);
        }
        self.total -= 1;
        Some(start)
    }

    /// The parts of `range` in the set, ascending.
    pub(super) fn within(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let from = self
            .runs
            .range(..=range.start)
            .next_back()
            .map_or(range.start, |(s, _)| *s);
        self.runs
            .range(from..range.end.max(from))
            .map(move |(s, e)| (*s).max(range.start)..(*e).min(range.end))
            .filter(|r| !r.is_empty())
    }

    /// How many numbers there are.
    #[cfg(test)]
    pub(super) const fn total(&self) -> u64 {
        self.total
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.total == 0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_like_a_set(steps in proptest::collection::vec((0_u64..120, 0_u64..20, 0_u8..3), 1..80)) {
            let (mut holes, mut set) = (Holes::default(), BTreeSet::new());
            for (start, len, what) in steps {
                let range = start..start + len;
                match what {
                    0 => {
                        let before = set.len();
                        set.extend(range.clone());
                        prop_assert_eq!(holes.insert(range), (set.len() - before) as u64);
                    }
                    1 => {
                        let before = set.len();
                        set.retain(|n| !range.contains(n));
                        prop_assert_eq!(holes.remove(range), (before - set.len()) as u64);
                    }
                    _ => prop_assert_eq!(holes.pop_first(), set.pop_first()),
                }
                prop_assert_eq!(holes.first(), set.first().copied());
                prop_assert_eq!(holes.total(), set.len() as u64);
                let all: Vec<u64> = holes.within(0..200).flatten().collect();
                prop_assert_eq!(&all, &set.iter().copied().collect::<Vec<_>>());
                let some: Vec<u64> = holes.within(30..60).flatten().collect();
                prop_assert_eq!(some, set.range(30..60).copied().collect::<Vec<_>>());
                prop_assert!(holes.runs.len() as u64 <= holes.total());
            }
        }
    }
}
