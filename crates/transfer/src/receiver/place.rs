//! Places arriving bytes: into the memory of their small file, or with others into a load. A worker
//! writes a load to its place in the part of its large file.
//!
//! - Only bytes that are missing are taken: a duplicate never touches what was placed, hashed or
//!   renamed, whatever it carries.
//! - This thread copies; writing, and waiting for the disk, is the workers' part.
//! - An error of one file ends that file, not the session.

use std::{ops::Range, time::Duration};

use farhaul_core::{
    store::{Extent, StoreError},
    time::Instant,
};

use super::{
    Gathering, Receiver, State, WriteJob, lane,
    staging::{Into, Run, Written},
};
use crate::{
    digest::{LEAF, LEAVES, block_range},
    table::CONTENT,
    wire::{BLOCK, Exit, Hash},
};

/// Memory for small files that are incomplete or being written.
pub(super) const RESIDENT: usize = 6 << 20;
/// Longest time that bytes wait for others to be written with.
pub(super) const LINGER: Duration = Duration::from_millis(20);

/// Extents with consecutive offsets, and their bytes.
#[derive(Clone, Copy)]
pub(super) struct Arrived<'a> {
    extents: &'a [Extent],
    batch: &'a [u8],
}

/// Treatment of bytes of a large file.
pub(super) enum Bytes<'a, 'b> {
    /// The bytes are copied into a load.
    Copied(Arrived<'a>),
    /// The bytes are in a load already, in these runs.
    Stay {
        arrived: Arrived<'a>,
        runs: &'b mut Vec<Run>,
    },
}

impl<'a> Bytes<'a, '_> {
    const fn arrived(&self) -> Arrived<'a> {
        match self {
            Self::Copied(arrived) | Self::Stay { arrived, .. } => *arrived,
        }
    }
}

impl<'a> Arrived<'a> {
    /// The consecutive ones of content at the front of `extents`, whose bytes are in `batch`.
    pub(super) fn front(extents: &'a [Extent], batch: &'a [u8]) -> Self {
        let mut end = extents.first().map_or(0, |first| first.offset);
        let follows = |e: &&Extent| {
            let next = e.offset == end && e.object == CONTENT && e.range().end <= batch.len();
            end = e.offset.saturating_add(u64::from(e.len));
            next
        };
        let n = extents.iter().take_while(follows).count();
        Self {
            extents: &extents[..n],
            batch,
        }
    }

    pub(super) const fn len(self) -> usize {
        self.extents.len()
    }

    /// One past the last byte, if there is any.
    pub(super) fn end(self) -> Option<u64> {
        self.extents.last().map(Extent::end)
    }

    /// Place of the bytes of `range`, if they lie together.
    pub(super) fn place(self, range: &Range<u64>) -> Option<Range<usize>> {
        let [extent] = self.extents else { return None };
        let at = |offset: u64| {
            let within = usize::try_from(offset.checked_sub(extent.offset)?).ok()?;
            Some(extent.range().start + within)
        };
        Some(at(range.start)?..at(range.end)?)
    }

    /// The bytes of `range` of the object, in pieces.
    pub(super) fn pieces(self, range: Range<u64>) -> impl Iterator<Item = &'a [u8]> {
        let first = self.extents.partition_point(|e| e.end() <= range.start);
        let batch = self.batch;
        self.extents[first..]
            .iter()
            .take_while(move |e| e.offset < range.end)
            .map(move |e| {
                let from = range.start.max(e.offset) - e.offset;
                let to = range.end.min(e.end()) - e.offset;
                let bytes = &batch[e.range()];
                // Both are within the extent, whose length is 32 bits.
                &bytes[usize::try_from(from).unwrap_or_default()
                    ..usize::try_from(to).unwrap_or_default()]
            })
    }
}

impl Receiver {
    /// Places a batch.
    pub(super) fn place_batch(
        &mut self,
        extents: &[Extent],
        batch: &[u8],
    ) -> Result<(), StoreError> {
        if self.staging.is_full() {
            self.get_stuck();
        }
        if self.core.fault.is_some() {
            // The next poll ends the transfer.
            self.drained += extents.iter().map(|e| u64::from(e.len)).sum::<u64>();
            return Ok(());
        }
        let mut rest = extents;
        while let Some(first) = rest.first() {
            let arrived = Arrived::front(rest, batch);
            let Some(to) = arrived.end().filter(|to| *to <= self.table.end()) else {
                return Err(StoreError(
                    "the peer sent content that was never listed".into(),
                ));
            };
            let mut pieces = std::mem::take(&mut self.pieces);
            pieces.clear();
            self.missing.take(first.offset..to, &mut pieces);
            // Bytes that are here already wait for nothing.
            let new: u64 = pieces.iter().map(|piece| piece.end - piece.start).sum();
            self.drained += to - first.offset - new;
            if !self.arrives(new) {
                self.drained += new;
                self.pieces = pieces;
                return Ok(());
            }
            for piece in &pieces {
                self.place_piece(piece, &mut Bytes::Copied(arrived));
            }
            self.pieces = pieces;
            rest = &rest[arrived.len()..];
            self.check_pieces().map_err(|why| StoreError(why.into()))?;
        }
        Ok(())
    }

    pub(super) fn place_piece(&mut self, piece: &Range<u64>, bytes: &mut Bytes<'_, '_>) {
        let mut at = piece.start;
        while at < piece.end
            && let Some(number) = self.table.find(at)
        {
            let own = self
                .table
                .get(number)
                .map_or(at..piece.end, |s| s.range.clone());
            let end = piece.end.min(own.end);
            self.core.tally.bytes += end - at;
            self.dest.space.release(end - at);
            self.place_in(number, at..end, own.start, bytes);
            at = end;
        }
    }

    fn place_in(&mut self, number: u64, range: Range<u64>, start: u64, source: &mut Bytes<'_, '_>) {
        let within = range.start - start..range.end - start;
        let Some(slot) = self.table.get_mut(number) else {
            return;
        };
        let size = slot.range.end - slot.range.start;
        if matches!(slot.item.state, State::Wanted) {
            let bytes = usize::try_from(size).unwrap_or(usize::MAX);
            slot.item.state = if size <= BLOCK && self.resident + bytes <= RESIDENT {
                self.resident += bytes;
                State::Memory {
                    bytes: vec![0; bytes],
                    left: bytes,
                }
            } else {
                State::Part(Box::new(super::Part::new(size)))
            };
        }
        let arrived = source.arrived();
        let dropped = match source {
            Bytes::Copied(_) => range.end - range.start,
            Bytes::Stay { .. } => 0,
        };
        match &mut slot.item.state {
            State::Memory { bytes, left } => {
                let mut at = usize::try_from(within.start).unwrap_or(usize::MAX);
                for piece in arrived.pieces(range) {
                    if let Some(place) = bytes.get_mut(at..at + piece.len()) {
                        place.copy_from_slice(piece);
                        *left -= piece.len();
                    }
                    at += piece.len();
                }
                if *left == 0 {
                    self.settle_small(number);
                }
            }
            State::Part(_) => match self.part_file(number) {
                Ok(file) => {
                    let into = Into { number, file, size };
                    if let Bytes::Stay { runs, .. } = source {
                        runs.extend(lane::stays(into, within.start, arrived, &range));
                        return;
                    }
                    let pieces = arrived.pieces(range.clone());
                    let full = self.staging.add(into, within.start, range.end, pieces);
                    if let Some(load) = full {
                        self.pool.push(WriteJob::Load(load));
                    }
                }
                Err(e) => {
                    self.drained += dropped;
                    self.fail(number, super::files::code_of(&e), &e);
                }
            },
            _ => self.drained += dropped,
        }
    }

    /// Hands collected bytes to workers that have nothing else to do, or if they have waited long
    /// enough, or if nothing more will arrive.
    pub(super) fn write_staged(&mut self, now: Instant) {
        if self.staging.is_empty() {
            return;
        }
        let since = *self.staging.since.get_or_insert(now);
        let whole = self.missing.is_empty() || now.since(since) >= LINGER;
        if whole || self.pool.outstanding() == 0 {
            for load in self.staging.drain(whole) {
                self.pool.push(WriteJob::Load(load));
            }
        }
    }

    /// Notes that a run has been written, or not.
    pub(super) fn run_written(&mut self, run: Written) {
        match run.outcome {
            Ok(()) => self.written(run.number, &run.range, &run.leaves),
            // It may have failed before.
            Err(e) if self.is_part(run.number) => self.fail(run.number, Exit::of_write(&e), &e),
            Err(_) => {}
        }
    }

    fn is_part(&self, number: u64) -> bool {
        let slot = self.table.get(number);
        slot.is_some_and(|s| matches!(s.item.state, State::Part(_)))
    }

    /// Bytes of a large file are in their place; blocks that are complete get their value.
    pub(super) fn written(&mut self, number: u64, within: &Range<u64>, leaves: &[(u64, Hash)]) {
        if within.is_empty() {
            return;
        }
        let Some(slot) = self.table.get_mut(number) else {
            return;
        };
        let size = slot.range.end - slot.range.start;
        let State::Part(part) = &mut slot.item.state else {
            return;
        };
        for index in within.start / BLOCK..within.end.div_ceil(BLOCK) {
            let block = block_range(index, size);
            let bytes = block.end - block.start;
            let block_state = part.gathering.entry(index);
            let gathering = block_state.or_insert_with(|| {
                self.gathering += 1;
                Gathering::new(bytes)
            });
            let n = within.end.min(block.end) - within.start.max(block.start);
            gathering.left -= n.min(gathering.left);
        }
        for (leaf, value) in leaves {
            let block = leaf * LEAF / BLOCK;
            if let Some(gathering) = part.gathering.get_mut(&block) {
                let within = usize::try_from(leaf % LEAVES as u64).unwrap_or_default();
                gathering.leaves.set(within, *value);
            }
        }
        for index in within.start / BLOCK..within.end.div_ceil(BLOCK) {
            self.gathered(number, index, size);
        }
    }

    /// Finishes a block if all of it is there.
    fn gathered(&mut self, number: u64, index: u64, size: u64) {
        let Some(State::Part(part)) = self.table.get_mut(number).map(|s| &mut s.item.state) else {
            return;
        };
        if part.gathering.get(&index).is_none_or(|g| g.left > 0) {
            return;
        }
        let Some(gathering) = part.gathering.remove(&index) else {
            return;
        };
        self.gathering -= 1;
        match gathering.leaves.value().filter(|_| size > BLOCK) {
            Some(value) => self.block_done(number, index, Ok(value)),
            None => self.hash_block(number, index, size, gathering.leaves),
        }
    }
}
