//! Where does an arriving byte go? Into the memory of its small file or straight to its place in the
//! part of its large one.
//!
//! - Only bytes that are missing are taken: a duplicate never touches what was placed, hashed or
//!   renamed, whatever it carries.
//! - Consecutive pieces of one file are one `pwritev`.
//! - An error of one file ends that file, not the session.

use std::{
    fs::File,
    io::{self, IoSlice},
    ops::Range,
    sync::Arc,
};

use farhaul_core::store::{Extent, StoreError};

use super::{Receiver, State};
use crate::{digest::BLOCK, digest::block_range, error::Code, table::CONTENT};

/// Memory for small files that are incomplete or being written.
const RESIDENT: usize = 48 << 20;
/// Buffers of one system call.
const VECTOR: usize = 64;

/// Extents with consecutive offsets, and their bytes.
#[derive(Clone, Copy)]
struct Arrived<'a> {
    extents: &'a [Extent],
    batch: &'a [u8],
}

impl<'a> Arrived<'a> {
    /// The bytes of `range` of the object, in pieces.
    fn pieces(self, range: Range<u64>) -> impl Iterator<Item = &'a [u8]> {
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
    pub(crate) fn place(&mut self, extents: &[Extent], batch: &[u8]) -> Result<(), StoreError> {
        let mut rest = extents;
        while let Some(first) = rest.first() {
            let mut end = first.offset;
            let follows = |e: &&Extent| {
                let next = e.offset == end && e.object == CONTENT && e.range().end <= batch.len();
                end = e.offset.saturating_add(u64::from(e.len));
                next
            };
            let n = rest.iter().take_while(follows).count();
            let (run, after) = rest.split_at(n);
            let to = run.last().map_or(u64::MAX, Extent::end);
            if n == 0 || to > self.table.end() {
                return Err(StoreError(
                    "the peer sent content that was never listed".into(),
                ));
            }
            let mut pieces = std::mem::take(&mut self.pieces);
            pieces.clear();
            self.missing.take(first.offset..to, &mut pieces);
            for piece in &pieces {
                self.place_piece(
                    piece,
                    Arrived {
                        extents: run,
                        batch,
                    },
                );
            }
            self.pieces = pieces;
            rest = after;
        }
        Ok(())
    }

    fn place_piece(&mut self, piece: &Range<u64>, arrived: Arrived<'_>) {
        let mut at = piece.start;
        while at < piece.end
            && let Some(number) = self.table.find(at)
        {
            let own = self
                .table
                .get(number)
                .map_or(at..piece.end, |s| s.range.clone());
            let end = piece.end.min(own.end);
            self.tally.bytes += end - at;
            self.promised = self.promised.saturating_sub(end - at);
            self.place_in(number, at..end, own.start, arrived);
            at = end;
        }
    }

    fn place_in(&mut self, number: u64, range: Range<u64>, start: u64, arrived: Arrived<'_>) {
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
            State::Part(_) => {
                let written = self
                    .part_file(number)
                    .and_then(|f| write(&f, within.start, arrived.pieces(range)));
                match written {
                    Ok(()) => self.placed(number, within),
                    Err(e) => self.fail(number, Code::of_write(&e), &e),
                }
            }
            _ => {}
        }
    }

    /// Bytes of a large file are in place: blocks that are complete are hashed.
    pub(super) fn placed(&mut self, number: u64, within: Range<u64>) {
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
        let mut complete: Option<Range<u64>> = None;
        for index in within.start / BLOCK..within.end.div_ceil(BLOCK) {
            let block = block_range(index, size);
            let n = within.end.min(block.end) - within.start.max(block.start);
            let left = part.left.entry(index).or_insert(block.end - block.start);
            *left -= n.min(*left);
            if *left == 0 {
                part.left.remove(&index);
                let from = complete.map_or(index, |c| c.start);
                complete = Some(from..index + 1);
            }
        }
        // A contiguous range completes contiguous blocks, except perhaps its first and last.
        for index in complete.into_iter().flatten() {
            self.hash_block(number, index, size);
        }
    }
}

/// Writes pieces one after another from `at`.
fn write<'a>(
    file: &Arc<File>,
    mut at: u64,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> io::Result<()> {
    let mut vector = [IoSlice::new(&[]); VECTOR];
    let mut n = 0;
    for piece in pieces {
        vector[n] = IoSlice::new(piece);
        n += 1;
        if n == VECTOR {
            at = write_vector(file, at, &mut vector)?;
            n = 0;
        }
    }
    write_vector(file, at, &mut vector[..n]).map(drop)
}

fn write_vector(file: &File, mut at: u64, mut vector: &mut [IoSlice<'_>]) -> io::Result<u64> {
    while vector.iter().any(|s| !s.is_empty()) {
        match rustix::io::pwritev(file, vector, at) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                at += n as u64;
                IoSlice::advance_slices(&mut vector, n);
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(at)
}
