//! Makes the bytes of a bench and counts those that arrived. The payload is a fixed pseudo-random
//! buffer repeated for ever, so that any offset can be filled and checked without a file. Arrived
//! bytes are counted exactly, duplicates apart.

use std::{collections::BTreeMap, sync::OnceLock};

use farhaul_core::{
    rng::Rng,
    store::{Extent, ObjectId, StoreError},
};

/// The one object of a bench session.
pub const OBJECT: ObjectId = 1;

/// Small enough for a core's own cache, where a program that measures a path has its bytes. The
/// length is a prime, so that bytes misplaced by any round number of them differ.
const PATTERN: usize = 262_139;
/// More separate holes than any path makes; beyond it the peer is inventing offsets.
const MAX_HOLES: usize = 1 << 20;

fn pattern() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| {
        let mut rng = Rng::new(0x6661_7268_6175_6c00);
        std::iter::repeat_with(|| rng.next_u64().to_le_bytes())
            .flatten()
            .take(PATTERN)
            .collect()
    })
}

/// Makes the payload before the clock starts.
pub fn prepare() {
    pattern();
}

fn at(offset: u64) -> usize {
    usize::try_from(offset % PATTERN as u64).unwrap_or(0)
}

/// Fills each extent's place in `batch`.
pub fn fill(extents: &[Extent], batch: &mut [u8]) {
    let pattern = pattern();
    for extent in extents {
        let mut out = &mut batch[extent.range()];
        let mut from = at(extent.offset);
        while !out.is_empty() {
            let n = out.len().min(PATTERN - from);
            let (head, tail) = out.split_at_mut(n);
            head.copy_from_slice(&pattern[from..from + n]);
            (out, from) = (tail, 0);
        }
    }
}

/// Compares the first bytes of each extent with what they must be.
pub fn check(extents: &[Extent], batch: &[u8]) -> Result<(), StoreError> {
    const SAMPLE: usize = 8;
    let pattern = pattern();
    for extent in extents {
        let from = at(extent.offset);
        let bytes = &batch[extent.range()];
        let n = bytes.len().min(SAMPLE).min(PATTERN - from);
        if bytes[..n] != pattern[from..from + n] {
            return Err(StoreError(format!(
                "the bytes at {} are not those that were sent",
                extent.offset
            )));
        }
    }
    Ok(())
}

/// Bytes of the object that have arrived.
#[derive(Debug, Default)]
pub struct Coverage {
    frontier: u64,
    holes: BTreeMap<u64, u64>,
    unique: u64,
    repeated: u64,
}

impl Coverage {
    /// Counts `len` bytes at `offset`.
    pub fn add(&mut self, offset: u64, len: u64) -> Result<(), StoreError> {
        let end = offset
            .checked_add(len)
            .ok_or_else(|| StoreError("an offset beyond any object".into()))?;
        let fresh = if offset >= self.frontier {
            if offset > self.frontier {
                self.dig(self.frontier, offset)?;
            }
            self.frontier = end;
            len
        } else {
            let above = end.saturating_sub(self.frontier);
            let filled = self.refill(offset, end.min(self.frontier))?;
            self.frontier = self.frontier.max(end);
            filled + above
        };
        self.unique += fresh;
        self.repeated += len - fresh;
        Ok(())
    }

    fn dig(&mut self, start: u64, end: u64) -> Result<(), StoreError> {
        if self.holes.len() >= MAX_HOLES {
            return Err(StoreError("the peer leaves too many gaps".into()));
        }
        self.holes.insert(start, end);
        Ok(())
    }

    /// Removes `start..end` from the holes; returns how much of it was one.
    fn refill(&mut self, start: u64, end: u64) -> Result<u64, StoreError> {
        let mut filled = 0;
        while let Some((&from, &to)) = self.holes.range(..end).next_back() {
            if to <= start {
                break;
            }
            self.holes.remove(&from);
            if to > end {
                self.dig(end, to)?;
            }
            if from < start {
                self.dig(from, start)?;
            }
            filled += to.min(end) - from.max(start);
        }
        Ok(filled)
    }

    /// Bytes that arrived, each counted once.
    pub const fn unique(&self) -> u64 {
        self.unique
    }

    /// Bytes that arrived again.
    pub const fn repeated(&self) -> u64 {
        self.repeated
    }

    /// True when the first `bytes` have all arrived.
    pub fn has_all(&self, bytes: u64) -> bool {
        self.frontier >= bytes && self.holes.range(..bytes).next().is_none()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn extent(offset: u64, len: u32, at: u32) -> Extent {
        Extent {
            object: OBJECT,
            offset,
            len,
            at,
        }
    }

    #[test]
    fn what_is_filled_is_accepted_also_across_the_seam() {
        let seam = PATTERN as u64 - 3;
        let extents = [extent(seam, 100, 50), extent(7 * seam, 1_000, 200)];
        let mut batch = vec![0; 2_000];
        fill(&extents, &mut batch);
        check(&extents, &batch).unwrap();
        assert_eq!(batch[53..150], pattern()[..97]);
        batch[200] ^= 1;
        assert!(check(&extents, &batch).is_err());
    }

    proptest! {
        #[test]
        fn coverage_counts_like_a_bitmap(pieces in proptest::collection::vec((0u64..200, 1u64..40), 1..60)) {
            let mut coverage = Coverage::default();
            let mut bitmap = [false; 256];
            let mut total = 0;
            for (offset, len) in pieces {
                coverage.add(offset, len).unwrap();
                total += len;
                for i in offset..offset + len {
                    bitmap[usize::try_from(i).unwrap()] = true;
                }
                let unique = bitmap.iter().filter(|b| **b).count() as u64;
                prop_assert_eq!(coverage.unique(), unique);
                prop_assert_eq!(coverage.repeated(), total - unique);
                for n in [1usize, 50, 200] {
                    prop_assert_eq!(coverage.has_all(n as u64), bitmap[..n].iter().all(|b| *b));
                }
            }
        }
    }

    #[test]
    fn invented_offsets_are_an_error_not_memory() {
        let mut coverage = Coverage::default();
        assert!(coverage.add(u64::MAX, 1).is_err());
        let mut odd = (0..=MAX_HOLES as u64).map(|i| 2 * i + 1);
        let failed = odd.find(|o| coverage.add(*o, 1).is_err());
        assert_eq!(failed, Some(2 * MAX_HOLES as u64 + 1));
    }
}
