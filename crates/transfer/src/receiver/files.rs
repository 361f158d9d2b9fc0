//! Completes files: once all of a file is in place and hashed, and its root is the sender's, the
//! file gets its name. Blocks of a large file are hashed, known as holes, checked if an earlier run
//! left them, and compared with the sender's if the roots differ. Wrong blocks are requested once
//! more.

use std::{io, ops::Range, sync::Arc};

use super::{
    commit::{Ending, Lost},
    entries::{Entries, code_of, of_part},
    item::{Incoming, Part, State},
    job::{Small, WriteJob},
    journal::Journal,
    reuse::Claims,
};
use crate::{
    decide::Refusal,
    digest::{block_count, block_range},
    disk::File,
    ranges::RangeSet,
    role::RoleCore,
    wire::{BLOCK, Exit, Hash, Message, Root},
};

/// Small files per job.
const BATCH: usize = 64;
/// Blocks of an old file per job.
const REUSED: usize = 16;
const LOST: &str = "the disk returns other content than was written, also after a repair";
const WRONG_STRIPE: &str = "content differs from the source after a repair: the file is not put together; run this shard again";
const WRONG: &str = "content differs from the source after a repair";
const SAVED: &str = "saved beside it as .bad";
/// The hash of a file, if it is known: a sparse one has none, nor has a stripe.
fn plain_root(item: &Incoming) -> Option<Hash> {
    let plain = |root: &Root| !root.sparse && item.stripe.is_none();
    item.root.filter(plain).map(|root| root.hash)
}

/// Notes that a file of this `root` got its name.
fn in_place(core: &mut RoleCore, item: &mut Incoming, journal: &mut Journal, root: Option<Hash>) {
    item.state = State::InPlace;
    if item.replaces {
        // It was on the disk before it got its name.
        journal.found(&item.path);
    }
    core.last_root = root;
    core.tally.files_ok += 1;
}

impl Entries {
    /// Acts on a file whose content or root has become known.
    pub(super) fn settle(&mut self, number: u64) {
        let Some(slot) = self.table.get_mut(number) else {
            return;
        };
        let (size, item) = (slot.size(), &mut slot.item);
        let Some(root) = item.root else { return };
        match &item.state {
            State::Memory { left: 0, .. } => self.settle_small(number),
            State::Checking(Some(ours)) => {
                if *ours == (root.hash, root.sparse) {
                    if item.collected {
                        return self.commit_collected(number);
                    }
                    let plain = plain_root(item);
                    if let Err(e) = self.dest.set_facts(item, self.dest.rules.checksum) {
                        let why = format!(
                            "the content is the same, but its permissions or time cannot be set: {e}"
                        );
                        return self.fail(number, Exit::of_write(&e), &why);
                    }
                    self.workers.journal.found(&item.path);
                    self.core.tally.resumed += size;
                    self.core.last_root = plain;
                    self.is_in_place(number, false);
                } else {
                    self.want_instead(number);
                }
            }
            State::Part(part) if part.compared.is_none() => {
                let ours = part.tree.root();
                if let Some(ours) = ours {
                    if ours == root.hash && root.sparse == part.tree.has_holes() {
                        self.commit(number, false);
                    } else {
                        self.differs(number);
                    }
                }
            }
            _ => {}
        }
    }

    /// Requests the whole file, as the existing one is not the same after all, if it may be
    /// replaced.
    fn want_instead(&mut self, number: u64) {
        match self.table.get(number).and_then(|slot| slot.item.stands) {
            Some(why) => self.fail(number, Exit::DestError, &why),
            None if self.reuses_instead(number) => self.content.ask_for_blocks(&mut self.core.out),
            None => self.want_anew(number),
        }
    }

    pub(super) fn small_done(&mut self, number: u64, ending: Ending) {
        let Some(slot) = self.table.get_mut(number) else {
            return;
        };
        let bytes = usize::try_from(slot.size()).unwrap_or_default();
        self.content.resident -= bytes;
        self.workers.writing -= bytes;
        self.workers.drained += bytes as u64;
        if let State::GivenUp = std::mem::replace(&mut slot.item.state, State::Over) {
            return self.name_is_free(number);
        }
        match ending {
            Ending::InPlace | Ending::Collected { .. } => {
                let root = slot.item.root.map(|root| root.hash);
                in_place(
                    &mut self.core,
                    &mut slot.item,
                    &mut self.workers.journal,
                    root,
                );
            }
            Ending::Mismatch | Ending::Lost(_) if !slot.item.repaired => {
                slot.item.repaired = true;
                self.core.progress.retry();
                self.want_anew(number);
            }
            Ending::Mismatch => self.fail_wrong(number, WRONG),
            Ending::Lost(_) => self.fail_wrong(number, LOST),
            Ending::Failed(e) => self.fail(number, Exit::of_write(&e), &e),
            Ending::NotOnDisk(e) => {
                let noted = self.workers.journal.sync_failed();
                self.workers.note(&mut self.core, noted);
                self.fail(number, Exit::of_write(&e), &e);
            }
        }
    }

    /// Abandons a file whose content stayed wrong.
    fn fail_wrong(&mut self, number: u64, why: &str) {
        if self.dest.rules.alone {
            return self.fail(number, Exit::VerifyFailed, &why);
        }
        self.fail(number, Exit::VerifyFailed, &format!("{why}; {SAVED}"));
    }

    pub(super) fn block_done(&mut self, number: u64, index: u64, value: io::Result<Hash>) {
        let value = match value {
            Ok(value) => value,
            Err(e) => return self.fail(number, Exit::of_write(&e), &e),
        };
        if let Some(part) = self.part(number) {
            part.tree.set(index, value);
            if let Some(journal) = part.journal.filter(|_| !self.dest.rules.pipe) {
                self.workers.journal.block(journal, index, &value);
            }
            self.settle(number);
        }
    }

    /// Acts on roots that differ.
    pub(super) fn differs(&mut self, number: u64) {
        let Some(slot) = self.table.get_mut(number) else {
            return;
        };
        let size = slot.size();
        let State::Part(part) = &mut slot.item.state else {
            return;
        };
        if slot.item.repaired {
            self.commit(number, true);
            return;
        }
        slot.item.repaired = true;
        slot.item.root = None;
        self.core.progress.retry();
        if block_count(size) == 1 {
            part.tree.clear(0..1);
            let range = slot.range.clone();
            self.content.repair(&mut self.core.out, number, vec![range]);
        } else {
            part.compared = Some(0);
            self.core.out.push(&Message::AskBlocks { file: number });
        }
    }

    /// Hands a complete small file whose root is known to the next job.
    pub(super) fn settle_small(&mut self, number: u64) {
        let Some(root) = self.table.get(number).and_then(|s| s.item.root) else {
            return;
        };
        let target = match self.target(number) {
            Ok(target) => target,
            Err(e) => return self.fail(number, Exit::of_write(&e), &e),
        };
        let Some(slot) = self.table.get_mut(number) else {
            return;
        };
        if let State::Memory { bytes, .. } = std::mem::replace(&mut slot.item.state, State::Working)
        {
            let last = slot.item.repaired;
            let replaced = slot.item.replaces.then_some(&slot.item.path);
            self.workers.writing += bytes.len();
            let batch = target.dir.kept(BATCH);
            if let Some(Err(e)) = replaced.map(|path| self.dest.mirror.backups.make(path)) {
                return self.small_done(number, Ending::Failed(e));
            }
            self.workers.small.push(Small {
                number,
                target,
                bytes,
                root: root.hash,
                last,
            });
            if self.workers.small.len() >= batch {
                self.write_small();
            }
        }
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
                self.core.progress.compared(slot.size());
                self.settle(number);
            }
            None => self.want_instead(number),
        }
    }

    pub(super) fn committed(&mut self, number: u64, ending: Ending) {
        let Some(slot) = self.table.get_mut(number) else {
            return;
        };
        let journal = slot.item.part().and_then(|part| {
            // What was not written may look as if it were: it is removed.
            part.made = !matches!(
                ending,
                Ending::InPlace | Ending::Collected { .. } | Ending::Mismatch
            );
            part.journal
        });
        match ending {
            Ending::InPlace | Ending::Collected { .. } => {
                if let Some(part) = slot.item.part() {
                    self.content.uncount(part);
                }
                let root = plain_root(&slot.item);
                in_place(
                    &mut self.core,
                    &mut slot.item,
                    &mut self.workers.journal,
                    root,
                );
                if let Ending::Collected { generation, whole } = ending {
                    self.core.out.push(&Message::Collected {
                        file: number,
                        generation,
                        whole,
                    });
                }
            }
            Ending::Mismatch => {
                let lost = matches!(&slot.item.state, State::Part(part) if part.lost);
                self.fail_wrong(number, if lost { LOST } else { WRONG });
            }
            Ending::Lost(tree) => return self.lost(number, tree),
            Ending::Failed(e) => return self.fail(number, Exit::of_write(&e), &e),
            Ending::NotOnDisk(e) => {
                if let Some(part) = slot.item.part()
                    && let Some(journal) = part.journal.take()
                {
                    self.workers.journal.forget(journal);
                }
                if self.is_small(number) {
                    let noted = self.workers.journal.sync_failed();
                    self.workers.note(&mut self.core, noted);
                }
                return self.fail(number, Exit::of_write(&e), &e);
            }
        }
        if let Some(journal) = journal {
            self.workers.journal.forget(journal);
        }
    }

    /// Requests only the blocks that differ, if the existing file may be compared by blocks; else
    /// false.
    fn reuses_instead(&mut self, number: u64) -> bool {
        let Some(slot) = self.table.get_mut(number) else {
            return false;
        };
        if !slot.item.reuses {
            return false;
        }
        let size = slot.size();
        slot.item.state = State::part(Part::new(size));
        self.reuse(number, RangeSet::default(), false)
    }

    /// Requests the whole file, from its beginning.
    pub(super) fn want_anew(&mut self, number: u64) {
        let Some(slot) = self.table.get_mut(number) else {
            return;
        };
        let range = slot.range.clone();
        let size = range.end - range.start;
        slot.item.root = None;
        slot.item.state = if size > BLOCK {
            State::part(Part::new(size))
        } else {
            State::Wanted
        };
        self.content.repair(&mut self.core.out, number, vec![range]);
    }

    /// Bytes of a large file are in their place; blocks that are complete get their value.
    pub(super) fn written(&mut self, number: u64, within: &Range<u64>, leaves: &[(u64, Hash)]) {
        let slot = self.table.get_mut(number).filter(|_| !within.is_empty());
        let Some(slot) = slot else { return };
        let size = slot.size();
        if !self.content.written(slot, within, leaves) {
            return;
        }
        for index in within.start / BLOCK..within.end.div_ceil(BLOCK) {
            if let Some(part) = self.table.get_mut(number).and_then(|s| s.item.part())
                && let Some(leaves) = self.content.take_whole(part, index)
            {
                match leaves.value().filter(|_| size > BLOCK) {
                    Some(value) => self.block_done(number, index, Ok(value)),
                    None => self.hash_block(number, index, size, leaves),
                }
            }
        }
    }

    /// Blocks of an earlier run were checked.
    pub(super) fn verified(&mut self, number: u64, checked: io::Result<Claims>) {
        let (good, bad) = match checked {
            Ok(checked) => checked,
            Err(e) => return self.fail(number, Exit::of_write(&e), &e),
        };
        let slot = self.table.get_mut(number);
        let Some((range, part)) = slot.and_then(|s| Some((s.range.clone(), s.item.part()?))) else {
            return;
        };
        let (start, size) = (range.start, range.end - range.start);
        self.core.tally.resumed += part.claim(good, size, &mut self.workers.journal);
        for index in &bad {
            let block = block_range(*index, size);
            self.content.request(start + block.start..start + block.end);
        }
        if !bad.is_empty() {
            self.send_wants();
        }
        self.settle(number);
    }

    /// Starts the job for the small files that are ready.
    pub(super) fn write_small(&mut self) {
        if let Err((files, e)) = self.workers.write_small(&mut self.table) {
            for file in files {
                let e = io::Error::new(e.kind(), e.to_string());
                self.small_done(file.number, Ending::Failed(e));
            }
        }
    }

    /// Notes that some blocks of the old file were copied; others are not the sender's.
    pub(super) fn reused(&mut self, number: u64, count: usize, done: io::Result<Claims>) {
        self.content.reusing -= count;
        let (same, differ) = match done {
            Ok(done) => done,
            Err(e) => return self.fail(number, Exit::of_write(&e), &e),
        };
        let slot = self.table.get_mut(number);
        let Some((size, part)) = slot.and_then(|s| Some((s.size(), s.item.part()?))) else {
            return;
        };
        let copied = part.claim(same, size, &mut self.workers.journal);
        if let Some(basis) = &mut part.basis {
            basis.pending -= count;
            basis.note(differ);
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
        let size = slot.size();
        match slot.item.part().and_then(|part| part.take_compared(size)) {
            Some(bad) if bad.is_empty() => self.settle(number),
            Some(bad) => {
                // The one that is known may be of before the request.
                slot.item.root = None;
                self.content
                    .want_blocks(&mut self.core.out, (number, slot), bad);
            }
            None => {}
        }
    }

    /// Compares the sender's blocks with ours, or with those of the old file.
    pub(super) fn compare(&mut self, number: u64, first: u64, values: &[Hash]) {
        let Some(slot) = self.table.get_mut(number) else {
            return;
        };
        let size = slot.size();
        if let Some(part) = slot.item.part()
            && let Some(basis) = &part.basis
        {
            let (old, promised) = (Arc::clone(&basis.old), basis.promised);
            if let Some(wanted) = part.take_values(size, first, values) {
                let compared = self.compare_old((number, size), &old, promised, &wanted);
                match compared {
                    Ok(()) => self.all_compared(number),
                    Err(refusal) => self.refuse(number, &refusal),
                }
            }
        } else if let Some(bad) = self.content.compare(slot, first, values) {
            self.content
                .want_blocks(&mut self.core.out, (number, slot), bad);
        }
    }

    /// Starts jobs that compare blocks of the old file with the sender's.
    fn compare_old(
        &mut self,
        (number, size): (u64, u64),
        old: &Arc<File>,
        promised: bool,
        wanted: &[(u64, Hash)],
    ) -> Result<(), Refusal> {
        let blocks = wanted.iter().map(|(i, _)| block_range(*i, size));
        let bytes: u64 = blocks.map(|block| block.end - block.start).sum();
        if !promised && bytes > 0 {
            let reserved = self.dest.space.reserve(bytes);
            reserved.map_err(|why| Refusal::new(Exit::NoSpace, why))?;
        }
        let file = self.part_file(number).map_err(|e| of_part(&e))?;
        self.content.reusing += wanted.len();
        for blocks in wanted.chunks(REUSED) {
            let files = (Arc::clone(old), Arc::clone(&file));
            let job = WriteJob::reuse(number, size, files, blocks.to_vec());
            self.workers.pool.push(job);
        }
        Ok(())
    }

    /// Notes that the disk gave back other content than was written to it. For a large file `lost`
    /// has its blocks of that kind.
    fn lost(&mut self, number: u64, lost: Option<Lost>) {
        let slot = self.table.get_mut(number);
        let (Some(slot), Some((tree, bad))) = (slot, lost) else {
            return;
        };
        let repaired = slot.item.repaired;
        let Some(part) = slot.item.part() else { return };
        (part.tree, part.lost) = (*tree, true);
        if repaired {
            return self.commit(number, true);
        }
        part.compared = None;
        (slot.item.repaired, slot.item.root) = (true, None);
        self.core.progress.retry();
        let bad: RangeSet = bad.into_iter().map(|index| index..index + 1).collect();
        let bad = bad.iter().collect();
        self.content
            .want_blocks(&mut self.core.out, (number, slot), bad);
    }

    /// Gives a complete part its name, or keeps it as NAME.bad.
    fn commit(&mut self, number: u64, bad: bool) {
        if let Err(refusal) = self.start_commit(number, bad) {
            self.refuse(number, &refusal);
        }
    }

    fn start_commit(&mut self, number: u64, bad: bool) -> Result<(), Refusal> {
        let slot = self.table.get(number);
        if bad && slot.is_some_and(|s| s.item.stripe.is_some()) {
            // The file is not this one's alone.
            return Err(Refusal::new(Exit::VerifyFailed, WRONG_STRIPE));
        }
        let file = self.part_file(number).map_err(|e| of_part(&e))?;
        let target = self.target(number).map_err(|e| of_part(&e))?;
        if target.replaces
            && !bad
            && let Some(slot) = self.table.get(number)
        {
            self.dest.mirror.backups.make(&slot.item.path)?;
        }
        if self.is_small(number) {
            let file = std::iter::once(number);
            self.workers.note_named(&mut self.table, file)?;
        }
        if let Some(slot) = self.table.get_mut(number) {
            self.workers.commit((number, slot), (file, target), bad);
        }
        Ok(())
    }

    /// A stripe that an earlier run has completed is what the sender has: perhaps all are complete by now.
    fn commit_collected(&mut self, number: u64) {
        let opened = self.target(number).and_then(|target| {
            let file = target.open_part(|stat| self.dest.is_ours(stat))?;
            let stripe = target.stripe.ok_or(io::ErrorKind::NotFound)?;
            self.content.hold(stripe, &file)?;
            // Another run may have begun to write it again since it was hashed.
            Ok((stripe.is_marked(&file)?, file))
        });
        match (opened, self.table.get_mut(number)) {
            (Ok((true, file)), Some(slot)) => {
                let part = Part::left(slot.size(), Arc::new(file), true);
                self.content.stripes += 1;
                slot.item.state = State::part(part);
                self.core.tally.resumed += slot.size();
                self.commit(number, false);
            }
            (Ok((false, _)), _) => self.want_anew(number),
            (Ok(_), None) => {}
            (Err(e), _) => self.fail(number, code_of(&e), &e),
        }
    }
}
