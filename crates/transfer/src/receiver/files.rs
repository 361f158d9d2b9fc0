//! When is a file done? When all of it is in place, hashed, and its root is the sender's; then it gets
//! its name. When the roots differ, the blocks are compared and the bad ones asked for once more.

use std::{fs::File, io, ops::Range, sync::Arc};

use rustix::fs::{Mode, OFlags};

use super::{BATCH, Part, Receiver, Small, State, WriteJob, job::Ending};
use crate::{
    confine,
    digest::{BLOCK, Hash, Leaves, block_count, block_range},
    error::Code,
    message::Message,
    path,
    ranges::RangeSet,
};

/// Parts kept open.
const OPEN: usize = 128;
const WRONG: &str = "content differs from the source after a repair; kept as .bad";

impl Receiver {
    /// Acts on a file whose content or root has become known.
    pub(super) fn settle(&mut self, number: u64) {
        let Some(slot) = self.table.get_mut(number) else {
            return;
        };
        let item = &mut slot.item;
        let Some(root) = item.root else { return };
        match &item.state {
            State::Memory { left: 0, .. } => self.settle_small(number),
            State::Checking(Some(ours)) => {
                if *ours == (root.hash, root.sparse) {
                    let size = slot.range.end - slot.range.start;
                    item.state = State::Over;
                    self.last_root = Some(root.hash).filter(|_| !root.sparse);
                    self.tally.resumed += size;
                    self.tally.files_skipped += 1;
                    if self.rules.checksum {
                        self.set_time(number);
                    }
                } else {
                    self.want_anew(number);
                }
            }
            State::Part(part) if part.compared.is_none() => {
                let ours = part.tree.root();
                if let Some(ours) = ours {
                    if ours == root.hash && root.sparse == part.tree.has_holes() {
                        self.last_root = Some(ours).filter(|_| !root.sparse);
                        self.commit(number, false);
                    } else {
                        self.differs(number);
                    }
                }
            }
            _ => {}
        }
    }

    /// The content is the same, the time perhaps not.
    fn set_time(&mut self, number: u64) {
        let set = self.target(number).and_then(|target| {
            let time = rustix::fs::Timespec {
                tv_sec: target.meta.mtime,
                tv_nsec: target.meta.mtime_nanos.into(),
            };
            let times = rustix::fs::Timestamps {
                last_access: time,
                last_modification: time,
            };
            let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
            Ok(rustix::fs::utimensat(
                &target.dir,
                target.name.as_slice(),
                &times,
                flags,
            )?)
        });
        if let (Err(e), Some(slot)) = (set, self.table.get(number)) {
            let name = path::show(&slot.item.path);
            self.ledger
                .add(Code::Ok, format!("{name}: its time cannot be set: {e}"));
        }
    }

    /// What is there is not the same file after all: the whole is wanted.
    fn want_anew(&mut self, number: u64) {
        let Some(slot) = self.table.get_mut(number) else {
            return;
        };
        let range = slot.range.clone();
        let size = range.end - range.start;
        slot.item.root = None;
        slot.item.state = if size > BLOCK {
            State::Part(Box::new(Part::new(size)))
        } else {
            State::Wanted
        };
        self.missing.insert(range.clone());
        let ranges = std::iter::once(range).collect();
        self.out.push(&Message::Repair {
            file: number,
            ranges,
        });
    }

    /// Hands a complete small file whose root is known to the next job.
    pub(super) fn settle_small(&mut self, number: u64) {
        let Some(root) = self.table.get(number).and_then(|s| s.item.root) else {
            return;
        };
        let target = match self.target(number) {
            Ok(target) => target,
            Err(e) => return self.fail(number, Code::of_write(&e), &e),
        };
        let Some(slot) = self.table.get_mut(number) else {
            return;
        };
        if let State::Memory { bytes, .. } = std::mem::replace(&mut slot.item.state, State::Working)
        {
            let (replaces, last) = (slot.item.replaces, slot.item.repaired);
            self.small.push(Small {
                number,
                target,
                bytes,
                root: root.hash,
                replaces,
                last,
            });
            if self.small.len() >= BATCH {
                self.write_small();
            }
        }
    }

    /// Starts the job for the small files that are ready.
    pub(super) fn write_small(&mut self) {
        if !self.small.is_empty() {
            let files = std::mem::take(&mut self.small);
            self.pool.push(WriteJob::Small {
                files,
                tag: self.tag,
                sync: self.rules.sync,
            });
        }
    }

    pub(super) fn small_done(&mut self, number: u64, ending: Ending) {
        let Some(slot) = self.table.get_mut(number) else {
            return;
        };
        let range = slot.range.clone();
        self.resident -= usize::try_from(range.end - range.start).unwrap_or_default();
        match ending {
            Ending::InPlace => {
                self.last_root = slot.item.root.map(|r| r.hash);
                slot.item.state = State::Over;
                self.tally.files_ok += 1;
            }
            Ending::Mismatch if !slot.item.repaired => {
                slot.item.repaired = true;
                self.progress.retry();
                self.want_anew(number);
            }
            Ending::Mismatch => self.fail(number, Code::VerifyFailed, &WRONG),
            Ending::Failed(e) => self.fail(number, Code::of_write(&e), &e),
        }
    }

    /// The part of a large file, made when its first byte comes.
    pub(super) fn part_file(&mut self, number: u64) -> io::Result<Arc<File>> {
        let slot = self.table.get(number).ok_or(io::ErrorKind::NotFound)?;
        let size = slot.range.end - slot.range.start;
        let State::Part(part) = &slot.item.state else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        if let Some(file) = &part.file {
            return Ok(Arc::clone(file));
        }
        let made = part.made;
        let target = self.target(number)?;
        let name = path::part_name(&target.name, self.tag);
        let file = if made {
            let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            File::from(rustix::fs::openat(&target.dir, name, flags, Mode::empty())?)
        } else {
            // A worker of a run that ended may still be writing to what is there.
            confine::create_anew(&target.dir, &name)?
        };
        let file = Arc::new(file);
        let identity = self.identity(number);
        if let Some(slot) = self.table.get_mut(number)
            && let State::Part(part) = &mut slot.item.state
        {
            if !made {
                part.made = true;
                if let Some(id) = identity.filter(|_| size > BLOCK) {
                    part.journal = Some(self.journal.begin(&slot.item.path, id));
                }
            }
            part.file = Some(Arc::clone(&file));
        }
        if !made {
            file.set_len(size)?;
        }
        self.open.push_back(number);
        if self.open.len() > OPEN
            && let Some(oldest) = self.open.pop_front()
            && let Some(State::Part(part)) = self.table.get_mut(oldest).map(|s| &mut s.item.state)
        {
            part.file = None;
        }
        Ok(file)
    }

    /// Has the leaves hashed that are not known, now that the block is complete.
    pub(super) fn hash_block(&mut self, number: u64, index: u64, size: u64, leaves: Leaves) {
        match self.part_file(number) {
            Ok(file) => self.pool.push(WriteJob::Block {
                number,
                index,
                size,
                file,
                leaves: Box::new(leaves),
            }),
            Err(e) => self.fail(number, Code::of_write(&e), &e),
        }
    }

    pub(super) fn block_done(&mut self, number: u64, index: u64, value: io::Result<Hash>) {
        let value = match value {
            Ok(value) => value,
            Err(e) => return self.fail(number, Code::of_write(&e), &e),
        };
        if let Some(State::Part(part)) = self.table.get_mut(number).map(|s| &mut s.item.state) {
            part.tree.set(index, value);
            if let Some(journal) = part.journal {
                self.journal.block(journal, index, &value);
            }
            self.settle(number);
        }
    }

    /// Blocks of an earlier run were checked.
    pub(super) fn verified(&mut self, number: u64, good: &[(u64, Hash)], bad: &[u64]) {
        let Some(slot) = self.table.get_mut(number) else {
            return;
        };
        let start = slot.range.start;
        let size = slot.range.end - start;
        let State::Part(part) = &mut slot.item.state else {
            return;
        };
        for (index, value) in good {
            let block = block_range(*index, size);
            self.tally.resumed += block.end - block.start;
            part.tree.set(*index, *value);
            if let Some(journal) = part.journal {
                self.journal.block(journal, *index, value);
            }
        }
        for index in bad {
            let block = block_range(*index, size);
            self.wish(start + block.start..start + block.end);
        }
        if !bad.is_empty() {
            self.tell_wants();
        }
        self.settle(number);
    }

    pub(super) fn checked(&mut self, number: u64, root: Option<(Hash, bool)>) {
        let Some(slot) = self.table.get_mut(number) else {
            return;
        };
        if !matches!(slot.item.state, State::Checking(_)) {
            return;
        }
        match root {
            Some(root) => {
                slot.item.state = State::Checking(Some(root));
                self.settle(number);
            }
            None => self.want_anew(number),
        }
    }

    /// Wanted bytes that the sender says are holes: the part has them already.
    pub(super) fn hole(&mut self, range: &Range<u64>) {
        let mut pieces = Vec::new();
        self.missing.take(range.clone(), &mut pieces);
        for piece in pieces {
            let mut at = piece.start;
            while at < piece.end
                && let Some(number) = self.table.find(at)
            {
                let Some(slot) = self.table.get_mut(number) else {
                    break;
                };
                let start = slot.range.start;
                let end = piece.end.min(slot.range.end);
                let within = at - start..end - start;
                self.tally.resumed += end - at;
                at = end;
                if let State::Part(part) = &mut slot.item.state {
                    let blocks = part.tree.set_hole(&within);
                    let size = slot.range.end - start;
                    if blocks.is_empty() {
                        self.written(number, &within, &[]);
                    } else {
                        let last = block_range(blocks.end - 1, size).end;
                        self.written(number, &(within.start..blocks.start * BLOCK), &[]);
                        self.written(number, &(last..within.end), &[]);
                    }
                    self.settle(number);
                }
            }
        }
    }

    /// The roots differ.
    fn differs(&mut self, number: u64) {
        let Some(slot) = self.table.get_mut(number) else {
            return;
        };
        let State::Part(part) = &mut slot.item.state else {
            return;
        };
        if slot.item.repaired {
            self.commit(number, true);
            return;
        }
        slot.item.repaired = true;
        slot.item.root = None;
        self.progress.retry();
        let size = slot.range.end - slot.range.start;
        if block_count(size) == 1 {
            part.tree.clear(0);
            let range = slot.range.clone();
            self.missing.insert(range.clone());
            let ranges = std::iter::once(range).collect();
            self.out.push(&Message::Repair {
                file: number,
                ranges,
            });
        } else {
            part.compared = Some(0);
            self.out.push(&Message::AskBlocks { file: number });
        }
    }

    /// Compares the sender's blocks with ours; after the last, asks for the bad ones.
    pub(super) fn compare(&mut self, number: u64, first: u64, values: &[Hash]) {
        let Some(slot) = self.table.get_mut(number) else {
            return;
        };
        let start = slot.range.start;
        let size = slot.range.end - start;
        let State::Part(part) = &mut slot.item.state else {
            return;
        };
        if part.compared != Some(first) {
            return;
        }
        for (index, value) in (first..).zip(values) {
            if part.tree.get(index) != Some(*value) {
                part.bad.push(index);
            }
        }
        let upto = first + values.len() as u64;
        if upto < block_count(size) {
            part.compared = Some(upto);
            return;
        }
        part.compared = None;
        let bad = std::mem::take(&mut part.bad);
        // The new root counts every block as it is stored.
        let holes: Vec<u64> = if part.tree.has_holes() {
            (0..block_count(size))
                .filter(|i| part.tree.is_hole(*i))
                .collect()
        } else {
            Vec::new()
        };
        bad.iter().chain(&holes).for_each(|i| part.tree.clear(*i));
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for index in &bad {
            let block = block_range(*index, size);
            let range = start + block.start..start + block.end;
            self.missing.insert(range.clone());
            ranges.push(range);
        }
        let holes = holes
            .into_iter()
            .filter(|i| !bad.contains(i))
            .collect::<Vec<_>>();
        for index in holes {
            let block = block_range(index, size);
            self.hash_block(number, index, size, Leaves::new(block.end - block.start));
        }
        let set: RangeSet = ranges.into_iter().collect();
        let ranges: Vec<_> = set.iter().collect();
        if ranges.is_empty() {
            self.out.push(&Message::Repair {
                file: number,
                ranges: Vec::new(),
            });
        }
        for ranges in ranges.chunks(1500) {
            self.out.push(&Message::Repair {
                file: number,
                ranges: ranges.to_vec(),
            });
        }
    }

    /// Gives a complete part its name, or its name of shame.
    fn commit(&mut self, number: u64, bad: bool) {
        let (file, target) = match self
            .part_file(number)
            .and_then(|f| Ok((f, self.target(number)?)))
        {
            Ok(found) => found,
            Err(e) => return self.fail(number, Code::of_write(&e), &e),
        };
        let part = path::part_name(&target.name, self.tag);
        if let Some(State::Part(part)) = self.table.get_mut(number).map(|s| &mut s.item.state) {
            part.compared = Some(u64::MAX);
        }
        let sync = self.rules.sync;
        self.pool.push(WriteJob::Commit {
            number,
            file,
            target,
            part,
            sync,
            bad,
        });
    }

    pub(super) fn committed(&mut self, number: u64, ending: Ending) {
        let Some(slot) = self.table.get_mut(number) else {
            return;
        };
        let journal = match &mut slot.item.state {
            State::Part(part) => {
                part.made = matches!(ending, Ending::Failed(_));
                part.journal
            }
            _ => None,
        };
        match ending {
            Ending::InPlace => {
                slot.item.state = State::Over;
                self.tally.files_ok += 1;
            }
            Ending::Mismatch => self.fail(number, Code::VerifyFailed, &WRONG),
            Ending::Failed(e) => return self.fail(number, Code::of_write(&e), &e),
        }
        if let Some(journal) = journal {
            self.journal.forget(journal);
        }
    }
}
