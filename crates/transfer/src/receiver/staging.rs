//! Carries bytes of large files to the disk without holding up the thread that receives them. They
//! are copied once into a load. A worker writes the load and, while its bytes are in the cache,
//! hashes every leaf that lies in it whole.
//!
//! - Loads are recycled: in a steady state nothing is allocated.
//! - There are at most [`LOADS`]: the receiver reports the room that is left. So the sender waits
//!   for a disk that is slower than the network.
//! - New data and repairs are collected apart, so that a repair does not cut a leaf of new data in two.
//! - `F` is the knowledge about a file: nothing where the session does not know files, as on a
//!   further parallel session.

use std::{io, ops::Range, sync::Arc};

use farhaul_core::time::Instant;

use crate::{
    digest::{LEAF, leaf_hash},
    disk::File,
    wire::{BLOCK, Hash},
};

/// Bytes in a load: they stay in the cache of the core that fetches them.
const LOAD: usize = 512 << 10;
/// Consecutive bytes in a load, which are as good as full when a peer sends single bytes.
const RUNS: usize = 4_096;
/// Loads being filled, written or waiting: 12 MiB of content.
const LOADS: usize = 24;
/// Loads that are not advertised: two are being filled, two may be cut short.
const SPARE: usize = 4;

/// Consecutive bytes of one file.
#[derive(Debug)]
pub(super) struct Run<F = Arc<File>> {
    pub(super) number: u64,
    pub(super) file: F,
    pub(super) size: u64,
    /// Offset within the file.
    pub(super) offset: u64,
    /// Range within the load.
    pub(super) bytes: Range<usize>,
}

impl<F> Run<F> {
    pub(super) const fn end(&self) -> u64 {
        self.offset + (self.bytes.end - self.bytes.start) as u64
    }
}

/// Bytes on their way to the disk.
#[derive(Debug)]
pub(crate) struct Load<F = Arc<File>> {
    pub(super) bytes: Vec<u8>,
    pub(super) runs: Vec<Run<F>>,
    /// Number of the further parallel session on which the bytes arrived.
    pub(super) lane: Option<usize>,
}

/// Content that arrived on a further parallel session. The files are not known: runs are within the
/// object, from the number on.
pub(crate) type LaneLoad = Load<()>;

impl<F> Default for Load<F> {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            runs: Vec::new(),
            lane: None,
        }
    }
}

/// Result of writing a run.
#[derive(Debug)]
pub(crate) struct Written {
    pub(super) number: u64,
    /// Range within the file.
    pub(super) range: Range<u64>,
    /// Values of the leaves that lay in it whole, by their number in the file.
    pub(super) leaves: Vec<(u64, Hash)>,
    pub(super) outcome: io::Result<()>,
}

/// A large file that bytes are for.
pub(super) struct Into<F = Arc<File>> {
    pub(super) number: u64,
    pub(super) file: F,
    pub(super) size: u64,
}

impl<F: Clone> Load<F> {
    fn append<'a>(&mut self, into: Into<F>, offset: u64, pieces: impl Iterator<Item = &'a [u8]>) {
        let from = self.bytes.len();
        pieces.for_each(|piece| self.bytes.extend_from_slice(piece));
        let to = self.bytes.len();
        match self.runs.last_mut() {
            Some(last) if last.number == into.number && last.end() == offset => {
                last.bytes.end = to;
                // It may have grown since.
                last.size = into.size;
            }
            _ => self.runs.push(Run {
                number: into.number,
                file: into.file,
                size: into.size,
                offset,
                bytes: from..to,
            }),
        }
    }

    /// Moves the begun leaf at the end to `next`; the bytes that complete it may be about to come.
    fn move_tail(&mut self, next: &mut Self) {
        let Some(last) = self.runs.last_mut() else {
            return;
        };
        let end = last.end();
        let cut = end - end % LEAF;
        if last.size <= BLOCK || end == last.size || cut == end {
            return;
        }
        let tail = usize::try_from(end - cut.max(last.offset)).unwrap_or_default();
        let at = last.bytes.end - tail;
        let into = Into {
            number: last.number,
            file: last.file.clone(),
            size: last.size,
        };
        next.append(into, end - tail as u64, std::iter::once(&self.bytes[at..]));
        last.bytes.end = at;
        self.bytes.truncate(at);
        if last.bytes.is_empty() {
            self.runs.pop();
        }
    }
}

impl Load {
    /// The entry that its first bytes are of.
    pub(super) fn first(&self) -> Option<u64> {
        self.runs.first().map(|run| run.number)
    }

    /// Writes it, hashing in passing.
    pub(super) fn write(&self) -> Vec<Written> {
        let written = |run: &Run| {
            let mut leaves = Vec::new();
            let outcome = run.write(&self.bytes[run.bytes.clone()], &mut leaves);
            Written {
                number: run.number,
                range: run.offset..run.end(),
                leaves,
                outcome,
            }
        };
        self.runs.iter().map(written).collect()
    }
}

impl Run {
    fn write(&self, mut bytes: &[u8], leaves: &mut Vec<(u64, Hash)>) -> io::Result<()> {
        let mut at = self.offset;
        while !bytes.is_empty() {
            let leaf_end = (at - at % LEAF + LEAF).min(self.size);
            let len = usize::try_from(leaf_end - at).unwrap_or(usize::MAX);
            let (now, rest) = bytes.split_at(len.min(bytes.len()));
            if self.size > BLOCK && at.is_multiple_of(LEAF) && now.len() == len {
                leaves.push((at / LEAF, leaf_hash(at, now)));
            }
            self.file.write_all_at(now, at)?;
            at += now.len() as u64;
            bytes = rest;
        }
        Ok(())
    }
}

/// Loads being filled, and empty ones.
#[derive(Debug)]
pub(super) struct Staging<F = Arc<File>> {
    /// New data.
    ahead: Load<F>,
    /// Repairs.
    behind: Load<F>,
    /// One past the newest byte of the object.
    frontier: u64,
    spare: Vec<Load<F>>,
    /// Loads handed to workers.
    out: usize,
    /// Time since which something has been waiting here.
    pub(super) since: Option<Instant>,
}

impl<F> Default for Staging<F> {
    fn default() -> Self {
        Self {
            ahead: Load::default(),
            behind: Load::default(),
            frontier: 0,
            spare: Vec::new(),
            out: 0,
            since: None,
        }
    }
}

impl<F: Clone> Staging<F> {
    /// Bytes that may arrive. Sessions ask again for each batch: a load that was handed over before it was full
    /// costs the next batch its room, not this one.
    pub(super) const fn room(&self) -> u64 {
        (LOADS - SPARE).saturating_sub(self.out) as u64 * LOAD as u64
    }

    /// True if nothing more can be taken.
    pub(super) const fn is_full(&self) -> bool {
        self.out + 2 >= LOADS
    }

    /// Takes bytes of a file; `end` is one past the last of them within the object. A load that is full
    /// is returned for a worker.
    pub(super) fn add<'a>(
        &mut self,
        into: Into<F>,
        offset: u64,
        end: u64,
        pieces: impl Iterator<Item = &'a [u8]>,
    ) -> Option<Load<F>> {
        let new = end > self.frontier;
        self.frontier = self.frontier.max(end);
        let load = if new {
            &mut self.ahead
        } else {
            &mut self.behind
        };
        load.append(into, offset, pieces);
        let full = load.bytes.len() >= LOAD || load.runs.len() >= RUNS;
        full.then(|| self.take(new, !new))
    }

    /// Takes what workers can write, the begun leaf at the end of new data too if `whole`.
    pub(super) fn drain(&mut self, whole: bool) -> impl Iterator<Item = Load<F>> {
        let loads = [(true, whole), (false, true)].map(|(new, whole)| {
            let load = if new { &self.ahead } else { &self.behind };
            let load = (!load.runs.is_empty()).then(|| self.take(new, whole))?;
            if load.runs.is_empty() {
                self.recycle(load);
                return None;
            }
            Some(load)
        });
        loads.into_iter().flatten()
    }

    fn take(&mut self, new: bool, whole: bool) -> Load<F> {
        let mut next = self.spare.pop().unwrap_or_default();
        next.bytes.reserve(LOAD + (64 << 10));
        let load = if new {
            &mut self.ahead
        } else {
            &mut self.behind
        };
        if !whole {
            load.move_tail(&mut next);
        }
        self.out += 1;
        let taken = std::mem::replace(load, next);
        if self.is_empty() {
            self.since = None;
        }
        taken
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ahead.runs.is_empty() && self.behind.runs.is_empty()
    }

    /// Takes back a load that was written.
    pub(super) fn recycle(&mut self, mut load: Load<F>) {
        load.bytes.clear();
        load.runs.clear();
        self.out -= 1;
        self.spare.push(load);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_idle_wait_after_a_full_load() {
        let file = Arc::new(File::from(tempfile::tempfile().unwrap()));
        let size = 4 * LOAD as u64;
        let bytes = vec![7; LOAD / 2];
        let mut staging = Staging::default();
        let add = |staging: &mut Staging, offset: u64| {
            let into = Into {
                number: 0,
                file: Arc::clone(&file),
                size,
            };
            let end = offset + bytes.len() as u64;
            staging.add(into, offset, end, std::iter::once(&bytes[..]))
        };
        assert!(add(&mut staging, 0).is_none());
        staging.since = Some(Instant::EPOCH);
        assert!(add(&mut staging, LOAD as u64 / 2).is_some());
        assert!(staging.is_empty() && staging.since.is_none());
    }
}
