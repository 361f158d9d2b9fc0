//! A set of numbers, as a bitmap over a moving base. Everything below the base is settled,
//! everything above the highest number seen is unknown. Insertion and look-up are O(1); memory is
//! one bit per number in between, bounded by [`Bitmap::MAX_SPAN`].

use std::{collections::VecDeque, ops::Range};

/// Result of an insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insert {
    /// The number was not in the set.
    New,
    /// The number was in the set.
    Duplicate,
    /// The number is below the base.
    Settled,
    /// The number is too far above the base to be tracked.
    TooFar,
}

/// A set of numbers at or above a base.
#[derive(Clone, Debug, Default)]
pub struct Bitmap {
    /// Bit `i` of word `w` is number `first_word * 64 + w * 64 + i`.
    words: VecDeque<u64>,
    first_word: u64,
    base: u64,
    end: u64,
}

impl Bitmap {
    /// The most numbers between base and highest (512 KiB of bits).
    pub const MAX_SPAN: u64 = 1 << 22;

    /// The set of numbers below `end`, at most [`Self::MAX_SPAN`], whose bits are set in `bytes`,
    /// least significant first.
    pub fn from_bytes(bytes: &[u8], end: u64) -> Self {
        let end = end.min(Self::MAX_SPAN);
        let len = usize::try_from(end.div_ceil(8)).unwrap_or(usize::MAX);
        let bytes = &bytes[..len.min(bytes.len())];
        let word = |bytes: &[u8]| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(word)
        };
        let mut words: VecDeque<u64> = bytes.chunks(8).map(word).collect();
        if let Some(last) = words.get_mut(usize::try_from(end / 64).unwrap_or(usize::MAX)) {
            *last &= (1 << (end % 64)) - 1;
        }
        let highest = words.iter().rposition(|word| *word != 0);
        let end = highest.map_or(0, |i| {
            (i as u64 + 1) * 64 - u64::from(words[i].leading_zeros())
        });
        Self {
            words,
            first_word: 0,
            base: 0,
            end,
        }
    }

    /// Shifts each number up by `by`, a multiple of 64, with everything below settled.
    #[must_use]
    pub const fn above(mut self, by: u64) -> Self {
        self.first_word += by / 64;
        self.base += by;
        self.end += by;
        self
    }

    /// Fills `into` with the bits of the numbers from `first` on, a multiple of 64, least significant first.
    pub fn write(&self, first: u64, into: &mut [u8]) {
        for (i, bytes) in into.chunks_mut(8).enumerate() {
            let word = self.word(first + 64 * i as u64).to_le_bytes();
            bytes.copy_from_slice(&word[..bytes.len()]);
        }
    }

    /// Everything below is settled.
    pub const fn base(&self) -> u64 {
        self.base
    }

    /// One past the highest number inserted; at least the base.
    pub const fn end(&self) -> u64 {
        self.end
    }

    /// Adds `n`.
    pub fn insert(&mut self, n: u64) -> Insert {
        if n < self.base {
            return Insert::Settled;
        }
        if n - self.base >= Self::MAX_SPAN {
            return Insert::TooFar;
        }
        let index = self.index(n);
        if index >= self.words.len() {
            self.words.resize(index + 1, 0);
        }
        let bit = 1 << (n % 64);
        let word = &mut self.words[index];
        if *word & bit != 0 {
            return Insert::Duplicate;
        }
        *word |= bit;
        self.end = self.end.max(n + 1);
        Insert::New
    }

    /// True if `n` is in the set; numbers below the base are.
    pub fn contains(&self, n: u64) -> bool {
        n < self.base
            || (n < self.end
                && self
                    .words
                    .get(self.index(n))
                    .is_some_and(|w| w & (1 << (n % 64)) != 0))
    }

    /// Settles everything below `base`.
    pub fn advance(&mut self, base: u64) {
        if base <= self.base {
            return;
        }
        self.base = base;
        self.end = self.end.max(base);
        let drop = self.index(base).min(self.words.len());
        self.words.drain(..drop);
        self.first_word = base / 64;
    }

    fn index(&self, n: u64) -> usize {
        usize::try_from(n / 64 - self.first_word).unwrap_or(usize::MAX)
    }

    /// Membership of the 64 numbers around `n`; settled numbers are in the set.
    fn word(&self, n: u64) -> u64 {
        let settled = self.base.saturating_sub(n - n % 64);
        if settled >= 64 {
            return u64::MAX;
        }
        let word = self.words.get(self.index(n)).copied().unwrap_or(0);
        word | ((1 << settled) - 1)
    }

    /// The length of the run of equal membership that ends at `last` (inclusive), going down but not
    /// below `floor`.
    pub fn run_down(&self, last: u64, floor: u64) -> u64 {
        let member = self.contains(last);
        let mut n = last;
        loop {
            let word = self.word(n);
            let word = if member { word } else { !word };
            let top = n % 64;
            let run = u64::from((word << (63 - top)).leading_ones()).min(top + 1);
            let reached = n + 1 - run;
            if run < top + 1 || reached <= floor {
                return last + 1 - reached.max(floor);
            }
            n = reached - 1;
        }
    }

    /// The length of the run of equal membership that begins at `first`, which is not below the base,
    /// going up but not to `end`.
    pub fn run_up(&self, first: u64, end: u64) -> u64 {
        let member = self.contains(first);
        let mut n = first;
        while n < end {
            let word = self.word(n);
            let others = if member { !word } else { word } >> (n % 64);
            if others != 0 {
                return (n + u64::from(others.trailing_zeros())).min(end) - first;
            }
            n = (n / 64 + 1) * 64;
        }
        end - first
    }

    /// Ranges of `range` that are not in the set, ascending.
    pub fn missing(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let (mut at, end) = (range.start.max(self.base), range.end);
        std::iter::from_fn(move || {
            while at < end {
                let first = at;
                at += self.run_up(at, end);
                if !self.contains(first) {
                    return Some(first..at);
                }
            }
            None
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_settled_is_one_run() {
        let mut map = Bitmap::default();
        map.insert(63);
        map.advance(64);
        assert_eq!((map.end(), map.run_down(63, 0)), (64, 64));
        map.insert(70);
        map.advance(67);
        assert_eq!((map.run_down(66, 3), map.run_down(69, 60)), (64, 3));
        assert_eq!(map.run_up(60, 80), 7);
    }

    #[test]
    fn a_number_too_far_ahead_costs_nothing() {
        let mut map = Bitmap::default();
        assert_eq!(map.insert(Bitmap::MAX_SPAN), Insert::TooFar);
        assert_eq!(map.insert(u64::MAX), Insert::TooFar);
        assert!(map.words.is_empty());
    }

    proptest! {
        #[test]
        fn bytes_give_back_what_was_written(
            members in proptest::collection::btree_set(0_u64..300, 0..80),
            end in 0_u64..320,
        ) {
            let mut map = Bitmap::default();
            for n in &members {
                map.insert(*n);
            }
            let mut bytes = [0; 40];
            map.write(0, &mut bytes);
            for n in 0..320 {
                let bit = bytes[usize::try_from(n / 8).unwrap()] >> (n % 8) & 1 == 1;
                prop_assert_eq!(bit, members.contains(&n));
            }
            let mut from = [0; 24];
            map.write(128, &mut from);
            prop_assert_eq!(&from[..], &bytes[16..]);
            let back = Bitmap::from_bytes(&bytes, end);
            for n in 0..400 {
                prop_assert_eq!(back.contains(n), n < end && members.contains(&n));
            }
            let highest = members.iter().rev().find(|n| **n < end);
            prop_assert_eq!(back.end(), highest.map_or(0, |n| n + 1));
            let (high, by) = (back.clone().above(128), 128);
            prop_assert_eq!((high.base(), high.end()), (by, back.end() + by));
            for n in 0..600 {
                prop_assert_eq!(high.contains(n), n < by || back.contains(n - by));
            }
            let long = Bitmap::from_bytes(&[255; 3], u64::MAX);
            prop_assert_eq!(long.end(), 24);
        }

        #[test]
        fn equals_a_naive_set(ops in proptest::collection::vec((any::<bool>(), 0_u64..700), 1..300)) {
            let (mut map, mut twin, mut base) = (Bitmap::default(), BTreeSet::new(), 0);
            for (settle, n) in ops {
                if settle && n % 5 == 0 {
                    map.advance(n);
                    base = base.max(n);
                } else {
                    let expect = match n {
                        n if n < base => Insert::Settled,
                        n if !twin.insert(n) => Insert::Duplicate,
                        _ => Insert::New,
                    };
                    prop_assert_eq!(map.insert(n), expect);
                }
            }
            for n in 0..800 {
                prop_assert_eq!(map.contains(n), n < base || twin.contains(&n));
            }
            let mut last = map.end();
            while last > base {
                let run = map.run_down(last - 1, base);
                let member = map.contains(last - 1);
                prop_assert!(run >= 1 && run <= last - base);
                for n in last - run..last {
                    prop_assert_eq!(map.contains(n), member);
                }
                last -= run;
                prop_assert!(last == base || map.contains(last - 1) != member);
            }
            let missing: Vec<u64> = map.missing(3..750).flatten().collect();
            let naive: Vec<u64> = (3..750).filter(|n| !map.contains(*n)).collect();
            prop_assert_eq!(missing, naive);
            let mut first = base;
            while first < map.end() {
                let run = map.run_up(first, map.end());
                let member = map.contains(first);
                prop_assert!(run >= 1 && first + run <= map.end());
                for n in first..first + run {
                    prop_assert_eq!(map.contains(n), member);
                }
                first += run;
                prop_assert!(first == map.end() || map.contains(first) != member);
            }
        }
    }
}
