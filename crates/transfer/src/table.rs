//! Maps offsets of the object to entries. The contents of all entries lie end to end in one object;
//! the table has the entries that are listed and not yet over.
//!
//! - Offsets only grow; an entry's place never changes.
//! - Entries that are over leave from the front, so the table is as long as the list of entries
//!   under way.

use std::{collections::VecDeque, ops::Range};

use crate::wire::BLOCK;

/// The object that carries file contents.
pub(crate) const CONTENT: farhaul_core::store::ObjectId = 1;

/// An entry's place.
#[derive(Debug)]
pub(crate) struct Slot<T> {
    pub(crate) range: Range<u64>,
    pub(crate) item: T,
    charge: usize,
}

impl<T> Slot<T> {
    /// Bytes of the entry.
    pub(crate) const fn size(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// Entries under way, by number and by offset.
#[derive(Debug)]
pub(crate) struct Table<T> {
    first: u64,
    slots: VecDeque<Slot<T>>,
    end: u64,
    large: u64,
    charged: usize,
    /// Index at which the last offset was found; the next is nearly always there or right after.
    hint: usize,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            first: 0,
            slots: VecDeque::new(),
            end: 0,
            large: 0,
            charged: 0,
            hint: 0,
        }
    }
}

impl<T> Table<T> {
    /// Number of the first entry that is not over.
    pub(crate) const fn first(&self) -> u64 {
        self.first
    }

    /// Number of the next entry.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    /// Entries under way.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Memory that the entries under way cost, bytes.
    pub(crate) const fn charged(&self) -> usize {
        self.charged
    }

    /// Bytes of all entries ever listed.
    pub(crate) const fn end(&self) -> u64 {
        self.end
    }

    /// Offset at which the first entry that is not over begins.
    pub(crate) fn begin(&self) -> u64 {
        self.slots.front().map_or(self.end, |slot| slot.range.start)
    }

    /// Bytes of those of them that are larger than a block.
    pub(crate) const fn large(&self) -> u64 {
        self.large
    }

    /// Appends an entry of `size` bytes that costs `charge`; `None` if offsets would overflow.
    pub(crate) fn push(&mut self, size: u64, charge: usize, item: T) -> Option<u64> {
        let end = self
            .end
            .checked_add(size)
            .filter(|e| *e <= farhaul_core::codec::VARINT_MAX)?;
        self.slots.push_back(Slot {
            range: self.end..end,
            item,
            charge,
        });
        self.charged += charge;
        self.end = end;
        if size > BLOCK {
            self.large += size;
        }
        Some(self.next() - 1)
    }

    /// Grows the last entry to `size` bytes; false if it has more, or if offsets would overflow.
    pub(crate) fn grow_last(&mut self, size: u64) -> bool {
        let Some(slot) = self.slots.back_mut() else {
            return false;
        };
        let end = slot.range.start.checked_add(size);
        let Some(end) = end.filter(|e| *e >= self.end && *e <= farhaul_core::codec::VARINT_MAX)
        else {
            return false;
        };
        (slot.range.end, self.end) = (end, end);
        true
    }

    /// Removes the first entry if `over` returns true.
    pub(crate) fn pop_if(&mut self, over: impl FnOnce(&T) -> bool) -> Option<T> {
        if !over(&self.slots.front()?.item) {
            return None;
        }
        self.first += 1;
        self.hint = self.hint.saturating_sub(1);
        let slot = self.slots.pop_front()?;
        self.charged -= slot.charge;
        Some(slot.item)
    }

    pub(crate) fn get(&self, number: u64) -> Option<&Slot<T>> {
        let i = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.slots.get(i)
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut Slot<T>> {
        let i = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.slots.get_mut(i)
    }

    /// The entry that holds byte `at`, and what of it lies before `end`; `None` if there is nothing.
    pub(crate) fn next_in(&mut self, at: u64, end: u64) -> Option<(u64, Range<u64>)> {
        let number = self.find(at).filter(|_| at < end)?;
        let own = &self.get(number)?.range;
        Some((number, at..end.min(own.end)))
    }

    /// The number of the entry that holds byte `offset`; `None` if it is over or not listed.
    pub(crate) fn find(&mut self, offset: u64) -> Option<u64> {
        for i in [self.hint, self.hint + 1] {
            if self.slots.get(i).is_some_and(|s| s.range.contains(&offset)) {
                self.hint = i;
                return Some(self.first + i as u64);
            }
        }
        let i = self.slots.partition_point(|s| s.range.end <= offset);
        if !self.slots.get(i)?.range.contains(&offset) {
            return None;
        }
        self.hint = i;
        Some(self.first + i as u64)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_byte_is_found(sizes in proptest::collection::vec(0u64..5, 1..40), popped in 0usize..10, probes in proptest::collection::vec(0u64..200, 20)) {
            let mut table = Table::default();
            let mut owner = Vec::new();
            for (i, size) in sizes.iter().enumerate() {
                prop_assert_eq!(table.push(*size, i, i), Some(i as u64));
                owner.extend(std::iter::repeat_n(i as u64, usize::try_from(*size).unwrap()));
            }
            let popped = popped.min(sizes.len());
            for i in 0..popped {
                prop_assert_eq!(table.pop_if(|_| true), Some(i));
            }
            prop_assert_eq!(table.charged(), (popped..sizes.len()).sum::<usize>());
            for offset in probes {
                let expected = owner.get(usize::try_from(offset).unwrap()).copied();
                let expected = expected.filter(|i| *i >= popped as u64);
                prop_assert_eq!(table.find(offset), expected, "offset {}", offset);
            }
        }
    }

    #[test]
    fn the_last_entry_may_grow() {
        let mut table = Table::default();
        assert!(!table.grow_last(1));
        table.push(3, 1, 'a');
        table.push(2, 1, 'b');
        assert!(table.grow_last(5) && !table.grow_last(4));
        assert!(!table.grow_last(farhaul_core::codec::VARINT_MAX));
        assert_eq!(
            (table.end(), table.find(7), table.find(8)),
            (8, Some(1), None)
        );
        table.push(1, 1, 'c');
        assert_eq!(table.find(8), Some(2));
    }

    #[test]
    fn offsets_do_not_overflow() {
        let mut table = Table::default();
        assert!(table.push(farhaul_core::codec::VARINT_MAX, 1, ()).is_some());
        assert!(table.push(1, 1, ()).is_none());
        assert!(table.push(0, 1, ()).is_some());
        assert!(table.pop_if(|()| false).is_none());
    }
}
