//! Reuses blocks of a file that changed and is already here. The sender reports the values of its
//! blocks before it sends any. Blocks that the old file has are copied from it, and only the others
//! are requested.
//!
//! - The bytes copied are those that were hashed; the whole is verified by its root like any other
//!   file.
//! - Reuse happens only where peers may read existing files: the requests disclose which blocks are
//!   there.

use std::{io, sync::Arc};

use rustix::fs::{FileType, Stat};

use super::{Receiver, State, WriteJob};
use crate::{
    bounds,
    digest::{BlockDigest, block_count, block_range},
    disk::File,
    pages::Pages,
    pool::Stop,
    ranges::RangeSet,
    wire::{BLOCK, Entry, Exit, Hash, Message},
};

/// Blocks per job.
const BATCH: usize = 16;
/// Blocks that wait for workers before no more messages are taken.
const WAITING: usize = 4096;

/// Blocks that an earlier run left and their values, and those that do not hold what it claimed.
pub(crate) type Claims = (Vec<(u64, Hash)>, Vec<u64>);

/// An older file of the same name.
pub(super) struct Basis {
    old: Arc<File>,
    /// True if space for all of it was set aside.
    promised: bool,
    /// Blocks that workers have.
    pending: usize,
    /// Blocks that an earlier run left.
    claimed: RangeSet,
    /// Blocks that are to be requested, and the end of the last of them.
    differ: RangeSet,
    last: u64,
}

impl Receiver {
    /// True if blocks of `there` may be blocks of the entry.
    fn may_reuse(&self, entry: &Entry, there: &Stat) -> bool {
        !self.dest.rules.mirror.whole_file
            && self.dest.rules.reach.is_all()
            && entry.size > BLOCK
            && entry.allocated == entry.size
            && there.st_size.cast_unsigned() >= BLOCK
            && FileType::from_raw_mode(there.st_mode) == FileType::RegularFile
    }

    /// Takes note of that; a `doubtful` file is not read.
    pub(super) fn note_reuse(&mut self, number: u64, entry: &Entry, there: &Stat, doubtful: bool) {
        let reuses = !doubtful && self.may_reuse(entry, there);
        if let Some(slot) = self.table.get_mut(number) {
            slot.item.reuses = reuses;
        }
    }

    /// True if other messages must wait for workers.
    pub(super) const fn is_reusing_much(&self) -> bool {
        self.reusing > WAITING
    }

    /// Asks for the values of the file's blocks, to compare the old file with them; false if it cannot be
    /// read. `claimed` blocks are in the part; space for all was set aside if it is `promised`, else it is before the others are copied.
    pub(super) fn reuse(&mut self, number: u64, claimed: RangeSet, promised: bool) -> bool {
        if !self.table.get(number).is_some_and(|slot| slot.item.reuses) {
            return false;
        }
        let target = self.target(number);
        let old = target.and_then(|t| t.open_to_read(&t.name));
        let (Ok(old), Ok(_)) = (old, self.part_file(number)) else {
            return false;
        };
        if let Some(slot) = self.table.get_mut(number)
            && let State::Part(part) = &mut slot.item.state
        {
            // If it differs after all, the whole is requested.
            slot.item.reuses = false;
            part.compared = Some(0);
            part.basis = Some(Box::new(Basis {
                old: Arc::new(old),
                promised,
                pending: 0,
                claimed,
                differ: RangeSet::default(),
                last: 0,
            }));
            self.asking.push(number);
        }
        true
    }

    /// Asks for the values of blocks of files that the sender knows to be decided on.
    pub(super) fn ask_for_blocks(&mut self) {
        for file in std::mem::take(&mut self.asking) {
            self.core.out.push(&Message::AskBlocks { file });
        }
    }

    /// Starts a job that compares blocks of the old file with the sender's; false if there is none.
    pub(super) fn compare_old(&mut self, number: u64, first: u64, values: &[Hash]) -> bool {
        let Some(slot) = self.table.get_mut(number) else {
            return false;
        };
        let size = slot.range.end - slot.range.start;
        let State::Part(part) = &mut slot.item.state else {
            return false;
        };
        let Some(basis) = &mut part.basis else {
            return false;
        };
        let upto = first + values.len() as u64;
        if part.compared != Some(first) || upto > block_count(size) {
            return true;
        }
        part.compared = Some(upto);
        let all = (first..).zip(values.iter().copied());
        let wanted: Vec<(u64, Hash)> = all
            .filter(|(i, _)| !basis.claimed.contains(&(*i..*i + 1)))
            .collect();
        basis.pending += wanted.len();
        let (old, promised) = (Arc::clone(&basis.old), basis.promised);
        let bytes: u64 = wanted.iter().map(|(i, _)| len_of(*i, size)).sum();
        if !promised
            && bytes > 0
            && let Err(why) = self.dest.space.reserve(bytes)
        {
            self.fail(number, Exit::NoSpace, &why);
            return true;
        }
        self.reusing += wanted.len();
        match self.part_file(number) {
            Ok(file) => {
                for blocks in wanted.chunks(BATCH) {
                    self.pool.push(WriteJob::Reuse {
                        number,
                        size,
                        old: Arc::clone(&old),
                        file: Arc::clone(&file),
                        blocks: blocks.to_vec(),
                    });
                }
                self.all_compared(number);
            }
            Err(e) => {
                self.reusing -= wanted.len();
                self.fail(number, super::files::code_of(&e), &e);
            }
        }
        true
    }

    /// Notes that some blocks of the old file were copied; others are not the sender's.
    pub(super) fn reused(&mut self, number: u64, count: usize, done: io::Result<Claims>) {
        self.reusing -= count;
        let (same, differ) = match done {
            Ok(done) => done,
            Err(e) => return self.fail(number, Exit::of_write(&e), &e),
        };
        let Some(slot) = self.table.get_mut(number) else {
            return;
        };
        let size = slot.range.end - slot.range.start;
        let State::Part(part) = &mut slot.item.state else {
            return;
        };
        let mut copied = 0;
        for (index, value) in &same {
            copied += len_of(*index, size);
            part.tree.set(*index, *value);
            if let Some(journal) = part.journal {
                self.journal.block(journal, *index, value);
            }
        }
        if let Some(basis) = &mut part.basis {
            basis.pending -= count;
            for index in differ {
                // Of very many the good ones between them are requested too.
                let many = basis.differ.len() >= bounds::RANGES;
                let from = if many { basis.last.min(index) } else { index };
                basis.differ.insert(from..index + 1);
                basis.last = basis.last.max(index + 1);
            }
        }
        self.core.tally.resumed += copied;
        self.dest.space.release(copied);
        if self.arrives(copied) {
            self.all_compared(number);
        }
    }

    /// Requests the blocks that differ, after the last comparison.
    fn all_compared(&mut self, number: u64) {
        let Some(slot) = self.table.get_mut(number) else {
            return;
        };
        let size = slot.range.end - slot.range.start;
        let State::Part(part) = &mut slot.item.state else {
            return;
        };
        if part.compared != Some(block_count(size))
            || part.basis.as_ref().is_none_or(|basis| basis.pending > 0)
        {
            return;
        }
        part.compared = None;
        let differ = part.basis.take().map(|basis| basis.differ);
        let bad: Vec<_> = differ.iter().flat_map(RangeSet::iter).collect();
        if bad.is_empty() {
            return self.settle(number);
        }
        // The one that is known may be of before the request.
        slot.item.root = None;
        self.want_blocks(number, bad);
    }
}

/// Copies those of the blocks that the old file has. The bytes written are those that were hashed,
/// whatever another program does to the old file meanwhile.
pub(super) fn copy_same(
    (old, file): (&File, &File),
    size: u64,
    blocks: &[(u64, Hash)],
    (scratch, stop): (&mut Pages, &Stop),
) -> io::Result<Claims> {
    let (mut same, mut differ) = (Vec::new(), Vec::new());
    for (index, value) in blocks {
        stop.check()?;
        stop.step();
        let range = block_range(*index, size);
        scratch.fit(usize::try_from(range.end - range.start).unwrap_or_default());
        // What cannot be read is requested like what differs.
        let read = old.read_exact_at(scratch, range.start).is_ok();
        if read && hash_of(*index, size, scratch) == *value {
            file.write_all_at(scratch, range.start)?;
            same.push((*index, *value));
        } else {
            differ.push(*index);
        }
    }
    Ok((same, differ))
}

fn len_of(index: u64, size: u64) -> u64 {
    let block = block_range(index, size);
    block.end - block.start
}

fn hash_of(index: u64, size: u64, bytes: &[u8]) -> Hash {
    let mut digest = BlockDigest::new(index, size);
    digest.update(bytes);
    digest.value()
}
