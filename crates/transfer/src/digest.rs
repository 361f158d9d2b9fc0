//! Compares files by BLAKE3 over blocks of 1 MiB. A block's chaining value can be computed as soon
//! as the block is complete, in any order and on any thread. The values combine to exactly the
//! plain BLAKE3 root of the file.
//!
//! - Blocks are aligned subtrees of 1,024 chunks, so combining them needs no content.
//! - A block that is entirely a hole has a fixed marker instead of a chaining value. Then the root
//!   is not the plain one, and both sides know which blocks are holes. So a sparse file costs what
//!   it stores.

use std::{collections::BTreeMap, ops::Range};

use blake3::hazmat::{ChainingValue, HasherExt, Mode};

use crate::{
    ranges::RangeSet,
    wire::{BLOCK, Hash},
};

/// Bytes per leaf: what a worker hashes in passing, while it is in the cache.
pub(crate) const LEAF: u64 = 64 << 10;
/// Leaves of a full block.
pub(crate) const LEAVES: usize = 16;

/// Value of a block without stored content.
pub(crate) const HOLE: ChainingValue = *b"farhaul: this block is a hole...";

/// Blocks in a file of `size` bytes; an empty file has one (empty) block.
pub(crate) const fn block_count(size: u64) -> u64 {
    if size == 0 { 1 } else { size.div_ceil(BLOCK) }
}

/// The bytes of block `index` in a file of `size` bytes.
pub(crate) fn block_range(index: u64, size: u64) -> Range<u64> {
    index * BLOCK..((index + 1) * BLOCK).min(size)
}

/// Hashes one block piece by piece.
pub(crate) struct BlockDigest {
    hasher: blake3::Hasher,
    /// True if the file has no other block: its value is the root.
    only: bool,
}

impl BlockDigest {
    /// Begins block `index` of a file of `size` bytes.
    pub(crate) fn new(index: u64, size: u64) -> Self {
        let mut hasher = blake3::Hasher::new();
        let only = size <= BLOCK;
        if !only {
            hasher.set_input_offset(index * BLOCK);
        }
        Self { hasher, only }
    }

    /// Adds the next bytes.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
    }

    /// The value, after all its bytes.
    pub(crate) fn value(&self) -> Hash {
        if self.only {
            self.hasher.finalize().into()
        } else {
            self.hasher.finalize_non_root()
        }
    }
}

/// The value of block `index`, with content `bytes`, of a file of `size` bytes.
pub(crate) fn block_hash(index: u64, size: u64, bytes: &[u8]) -> Hash {
    let mut digest = BlockDigest::new(index, size);
    digest.update(bytes);
    digest.value()
}

/// The chaining value of the leaf that begins at `offset` of a file of more than one block.
pub(crate) fn leaf_hash(offset: u64, bytes: &[u8]) -> Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.set_input_offset(offset);
    hasher.update(bytes);
    hasher.finalize_non_root()
}

/// The values of one block's leaves as they become known.
#[derive(Clone, Debug)]
pub(crate) struct Leaves {
    values: [Hash; LEAVES],
    known: u16,
    count: usize,
}

impl Leaves {
    /// Leaves of a block of `bytes` bytes, none known.
    pub(crate) fn new(bytes: u64) -> Self {
        let count = usize::try_from(bytes.div_ceil(LEAF)).unwrap_or(LEAVES);
        Self {
            values: [[0; 32]; LEAVES],
            known: 0,
            count: count.clamp(1, LEAVES),
        }
    }

    pub(crate) fn set(&mut self, index: usize, value: Hash) {
        if let Some(place) = self.values.get_mut(index) {
            *place = value;
            self.known |= 1 << index;
        }
    }

    /// Leaves whose value is not known.
    pub(crate) fn unknown(&self) -> impl Iterator<Item = usize> {
        let known = self.known;
        (0..self.count).filter(move |i| known & 1 << i == 0)
    }

    /// The block's chaining value, once every leaf's is known.
    pub(crate) fn value(&self) -> Option<Hash> {
        fn join(values: &[Hash]) -> Hash {
            if let [one] = values {
                return *one;
            }
            let (left, right) = values.split_at(values.len().next_power_of_two() / 2);
            merge(&join(left), &join(right))
        }
        let all = self.unknown().next().is_none();
        all.then(|| join(&self.values[..self.count]))
    }
}

/// The values of one file's blocks as they become known.
#[derive(Clone, Debug, Default)]
pub(crate) struct BlockTree {
    size: u64,
    values: BTreeMap<u64, Hash>,
    /// Blocks that are holes, by index.
    holes: RangeSet,
}

impl BlockTree {
    pub(crate) fn new(size: u64) -> Self {
        Self {
            size,
            ..Self::default()
        }
    }

    pub(crate) fn set(&mut self, index: u64, value: Hash) {
        self.holes.remove(index..index + 1);
        self.values.insert(index, value);
    }

    /// Notes a block that was hashed, which may have proved a hole.
    pub(crate) fn learn(&mut self, index: u64, value: Hash) {
        if value == HOLE {
            self.set_hole(&block_range(index, self.size));
        } else {
            self.set(index, value);
        }
    }

    /// Marks every block that lies wholly in `bytes` as a hole, and returns them.
    pub(crate) fn set_hole(&mut self, bytes: &Range<u64>) -> Range<u64> {
        let first = bytes.start.div_ceil(BLOCK);
        let last = if bytes.end >= self.size {
            block_count(self.size)
        } else {
            bytes.end / BLOCK
        };
        if self.size <= BLOCK || first >= last {
            return 0..0;
        }
        self.holes.insert(first..last);
        first..last
    }

    /// True if some block is marked as a hole, so that the root is not the plain one.
    pub(crate) fn has_holes(&self) -> bool {
        !self.holes.is_empty()
    }

    pub(crate) fn is_hole(&self, index: u64) -> bool {
        self.holes.contains(&(index..index + 1))
    }

    /// Forgets `blocks`.
    pub(crate) fn clear(&mut self, blocks: Range<u64>) {
        let known: Vec<u64> = self.values.range(blocks.clone()).map(|(i, _)| *i).collect();
        for index in known {
            self.values.remove(&index);
        }
        self.holes.remove(blocks);
    }

    /// Grows the file to `size` bytes, more than before; its blocks so far are whole ones.
    pub(crate) const fn grow(&mut self, size: u64) {
        self.size = size;
    }

    /// Bytes of the file.
    pub(crate) const fn size(&self) -> u64 {
        self.size
    }

    /// The blocks that are no holes.
    pub(crate) fn values(&self) -> impl Iterator<Item = (u64, Hash)> {
        let stored = self.values.iter().filter(|(i, _)| !self.is_hole(**i));
        stored.map(|(i, value)| (*i, *value))
    }

    /// Clears the marks of holes, and returns the blocks that had one.
    pub(crate) fn take_holes(&mut self) -> RangeSet {
        std::mem::take(&mut self.holes)
    }

    /// Of a file of `size` bytes in which something is stored in these ranges: the blocks without any are holes.
    pub(crate) fn stored_in(size: u64, stored: Vec<Range<u64>>) -> Self {
        let mut holes: RangeSet = std::iter::once(0..size).collect();
        for range in stored {
            holes.remove(range);
        }
        let mut tree = Self::new(size);
        for hole in holes.iter() {
            tree.set_hole(&hole);
        }
        tree
    }

    /// The first unknown block from `from` on; the number of blocks if there is none.
    pub(crate) fn next_unknown(&self, from: u64) -> u64 {
        let mut at = from;
        loop {
            if let Some(hole) = self.holes.around(at) {
                at = hole.end;
            } else if self.values.contains_key(&at) {
                at += 1;
            } else {
                return at.min(block_count(self.size));
            }
        }
    }

    /// Value of block `index`, if it is known.
    pub(crate) fn get(&self, index: u64) -> Option<Hash> {
        if self.is_hole(index) {
            return Some(HOLE);
        }
        self.values.get(&index).copied()
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.values.len() as u64 + self.holes.total() == block_count(self.size)
    }

    /// The root, once every block is known.
    pub(crate) fn root(&self) -> Option<Hash> {
        if !self.is_complete() {
            return None;
        }
        let count = block_count(self.size);
        if count == 1 {
            return self.get(0);
        }
        let split = split(count);
        let mut levels = vec![HOLE];
        let left = self.subtree(0..split, &mut levels)?;
        let right = self.subtree(split..count, &mut levels)?;
        Some(blake3::hazmat::merge_subtrees_root(&left, &right, Mode::Hash).into())
    }

    /// Root of `blocks`; `levels[k]` is the value of 2^k blocks of hole: parents do not depend on
    /// position.
    fn subtree(&self, blocks: Range<u64>, levels: &mut Vec<Hash>) -> Option<Hash> {
        let count = blocks.end - blocks.start;
        if count == 1 {
            return self.get(blocks.start);
        }
        if count.is_power_of_two() && self.holes.contains(&blocks) {
            let level = count.trailing_zeros() as usize;
            while levels.len() <= level {
                let last = levels[levels.len() - 1];
                levels.push(merge(&last, &last));
            }
            return Some(levels[level]);
        }
        let middle = blocks.start + split(count);
        let left = self.subtree(blocks.start..middle, levels)?;
        let right = self.subtree(middle..blocks.end, levels)?;
        Some(merge(&left, &right))
    }
}

fn merge(left: &Hash, right: &Hash) -> Hash {
    blake3::hazmat::merge_subtrees_non_root(left, right, Mode::Hash)
}

/// The largest power of two below `count` (at least 2).
const fn split(count: u64) -> u64 {
    1 << (u64::BITS - 1 - (count - 1).leading_zeros())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(len: usize) -> Vec<u8> {
        (0..len)
            .map(|i| u8::try_from(i * 7 / 3 % 251).unwrap())
            .collect()
    }

    #[test]
    fn blocks_in_any_order_give_the_plain_root() {
        let mib = usize::try_from(BLOCK).unwrap();
        for len in [
            0,
            1,
            1024,
            mib - 1,
            mib,
            mib + 1,
            2 * mib,
            3 * mib + 5,
            5 * mib,
            7 * mib + 1025,
        ] {
            let data = content(len);
            let size = len as u64;
            let mut tree = BlockTree::new(size);
            for index in (0..block_count(size)).rev() {
                assert_eq!(tree.root(), None);
                let r = block_range(index, size);
                let bytes =
                    &data[usize::try_from(r.start).unwrap()..usize::try_from(r.end).unwrap()];
                tree.set(index, block_hash(index, size, bytes));
            }
            assert_eq!(tree.root(), Some(*blake3::hash(&data).as_bytes()), "{len}");
        }
    }

    #[test]
    fn leaves_give_the_value_of_their_block() {
        let leaf = usize::try_from(LEAF).unwrap();
        for len in [1, leaf, leaf + 1, 5 * leaf, 11 * leaf - 3, 16 * leaf] {
            let data = content(len);
            let (index, size) = (3, 3 * BLOCK + len as u64);
            let mut leaves = Leaves::new(len as u64);
            for (i, bytes) in data
                .chunks(leaf)
                .enumerate()
                .collect::<Vec<_>>()
                .iter()
                .rev()
            {
                assert_eq!(leaves.value(), None);
                leaves.set(*i, leaf_hash(index * BLOCK + *i as u64 * LEAF, bytes));
            }
            assert_eq!(
                leaves.value(),
                Some(block_hash(index, size, &data)),
                "{len}"
            );
        }
    }

    #[test]
    fn a_huge_hole_is_quick_and_differs_from_a_smaller_one() {
        let size = (1 << 60) + 12_345;
        let mut a = BlockTree::new(size);
        a.set_hole(&(0..size));
        assert!(a.is_complete());
        let mut b = BlockTree::new(size);
        b.set_hole(&(BLOCK + 1..size));
        assert!(
            !b.is_complete(),
            "a block with one stored byte is not a hole"
        );
        b.set(0, [1; 32]);
        b.set(1, [2; 32]);
        assert!(b.is_complete());
        assert_ne!(a.root(), b.root());
        assert_eq!(a.next_unknown(0), block_count(size));
        b.clear(1..2);
        assert_eq!(
            (b.next_unknown(0), b.next_unknown(2)),
            (1, block_count(size))
        );
        assert_eq!(a.take_holes().total(), block_count(size));
        assert_eq!((a.next_unknown(7), a.has_holes()), (7, false));
    }

    #[test]
    fn the_same_blocks_as_holes_give_the_same_root() {
        let size = 9 * BLOCK + 17;
        let mut by_parts = BlockTree::new(size);
        let mut at_once = BlockTree::new(size);
        by_parts.set_hole(&(3 * BLOCK..5 * BLOCK));
        by_parts.set_hole(&(5 * BLOCK..size));
        at_once.set_hole(&(3 * BLOCK - 5..size));
        for i in 0..3 {
            by_parts.set(i, [u8::try_from(i).unwrap(); 32]);
            at_once.set(i, [u8::try_from(i).unwrap(); 32]);
        }
        assert!(by_parts.root().is_some());
        assert_eq!(by_parts.root(), at_once.root());
        at_once.clear(4..5);
        assert_eq!(at_once.root(), None);
    }
}
