//! Checks that every byte arrived where it belongs. The content of the store is a function of
//! object and offset. Bytes sent are made up when they are read, bytes that arrive are checked and
//! kept account of.

use std::collections::BTreeMap;

use farhaul_core::{
    loss::Ranges,
    store::{Extent, ObjectId, Sink, Store, StoreError},
};

/// A store of made-up content.
#[derive(Clone, Debug, Default)]
pub struct Pattern {
    seed: u64,
    placed: BTreeMap<ObjectId, Ranges>,
    filled: u64,
    repeated: u64,
    trusting: bool,
    /// New bytes that the store takes, if not any number; bytes taken are subtracted.
    pub room: Option<u64>,
    /// Bytes that the store has written, if there is a limit to what it takes.
    pub drained: u64,
    /// True if nothing can be read from it and placed in it any more.
    pub fails: bool,
}

impl Pattern {
    /// The content of `seed`; both sides must use the same.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            ..Self::default()
        }
    }

    /// Takes any content from now on.
    pub const fn trust(&mut self) {
        self.trusting = true;
    }

    /// The byte of `object` at `offset`.
    pub const fn byte(&self, object: ObjectId, offset: u64) -> u8 {
        self.word(object, offset / 8).to_le_bytes()[(offset % 8) as usize]
    }

    /// Distinct bytes of `object` that arrived.
    pub fn received(&self, object: ObjectId) -> u64 {
        self.placed.get(&object).map_or(0, Ranges::total)
    }

    /// True if bytes `0..len` of `object` have all arrived.
    pub fn has(&self, object: ObjectId, len: u64) -> bool {
        len == 0
            || self
                .placed
                .get(&object)
                .is_some_and(|ranges| ranges.covers(0..len))
    }

    /// Bytes of `object` that arrived, ascending: the first of each run, and one past its last.
    pub fn placed(&self, object: ObjectId) -> Vec<(u64, u64)> {
        let ranges = self.placed.get(&object).into_iter();
        let runs = ranges.flat_map(Ranges::iter);
        runs.map(|run| (run.start, run.end)).collect()
    }

    /// Bytes of `object` that arrived without a gap from its start.
    pub fn prefix(&self, object: ObjectId) -> u64 {
        self.placed.get(&object).map_or(0, Ranges::prefix)
    }

    /// Bytes read from this store, repairs included.
    pub const fn filled(&self) -> u64 {
        self.filled
    }

    /// Bytes that were placed once more.
    pub const fn repeated(&self) -> u64 {
        self.repeated
    }

    const fn word(&self, object: ObjectId, index: u64) -> u64 {
        let x = index
            .wrapping_add((object as u64) << 40)
            .wrapping_add(self.seed)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let x = (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x ^ (x >> 32)
    }

    /// Calls `visit` with each byte expected in `extent` and its index there, until it returns false.
    fn walk(&self, extent: &Extent, mut visit: impl FnMut(usize, u8) -> bool) -> bool {
        let mut offset = extent.offset;
        let mut i = 0;
        while i < extent.len as usize {
            let word = self.word(extent.object, offset / 8).to_le_bytes();
            for byte in &word[(offset % 8) as usize..] {
                if i == extent.len as usize {
                    break;
                }
                if !visit(i, *byte) {
                    return false;
                }
                i += 1;
                offset += 1;
            }
        }
        true
    }
}

impl Store for Pattern {
    fn fill(&mut self, extents: &[Extent], batch: &mut [u8]) -> Result<(), StoreError> {
        if self.fails {
            return Err(StoreError("disk on fire".into()));
        }
        for extent in extents {
            let into = batch
                .get_mut(extent.range())
                .ok_or_else(|| StoreError(format!("{extent:?} is outside its batch")))?;
            self.walk(extent, |i, byte| {
                into[i] = byte;
                true
            });
            self.filled += u64::from(extent.len);
        }
        Ok(())
    }

    fn place(&mut self, extents: &[Extent], batch: &[u8]) -> Result<(), StoreError> {
        if self.fails {
            return Err(StoreError("disk full".into()));
        }
        for extent in extents {
            let from = batch
                .get(extent.range())
                .ok_or_else(|| StoreError(format!("{extent:?} is outside its batch")))?;
            if !self.trusting && !self.walk(extent, |i, byte| from[i] == byte) {
                return Err(StoreError(format!("{extent:?} has wrong content")));
            }
            let ranges = self.placed.entry(extent.object).or_default();
            let new = ranges.insert(extent.offset..extent.end());
            self.repeated += u64::from(extent.len) - new;
            if let Some(room) = &mut self.room {
                let left = room.checked_sub(new);
                *room = left.ok_or_else(|| StoreError("more than there is room for".into()))?;
            }
        }
        Ok(())
    }

    fn sink(&self) -> Sink {
        let drained = self.drained;
        self.room
            .map_or(Sink::ENDLESS, |free| Sink { free, drained })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_filled_may_be_placed_and_nothing_else() {
        let extent = Extent {
            object: 3,
            offset: 1_005,
            len: 100,
            at: 20,
        };
        let (mut near, mut far) = (Pattern::new(7), Pattern::new(7));
        let mut batch = vec![0; 200];
        near.fill(&[extent], &mut batch).unwrap();
        assert_eq!(batch[20], near.byte(3, 1_005));
        assert_eq!(batch[119], near.byte(3, 1_104));
        far.place(&[extent], &batch).unwrap();
        assert_eq!(far.received(3), 100);
        assert!(!far.has(3, 100));
        batch[50] ^= 1;
        assert!(far.place(&[extent], &batch).is_err());
        let elsewhere = Extent {
            offset: 0,
            ..extent
        };
        batch[50] ^= 1;
        assert!(far.place(&[elsewhere], &batch).is_err());
    }
}
