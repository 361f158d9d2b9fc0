//! Completes files: once all of a file is in place and hashed, and its root is the sender's, the
//! file gets its name.

use std::{io, sync::Arc};

use rustix::{fs::Stat, io::Errno};

use super::{
    BATCH, COMMITTED, Incoming, Part, Receiver, Small, State, Target, WriteJob, commit::Ending,
    inode,
};
use crate::{
    bounds::STRIPES,
    confine,
    digest::BlockTree,
    disk::File,
    ranges::RangeSet,
    table::{Slot, Table},
    wire::{BLOCK, Exit, Hash, Message, Root, Stripe},
};

/// Parts kept open.
const OPEN: usize = 128;
const LOST: &str = "the disk returns other content than was written, also after a repair";
const WRONG_STRIPE: &str = "content differs from the source after a repair: the file is not put together; run this shard again";
const WRONG: &str = "content differs from the source after a repair";
const SAVED: &str = "saved beside it as .bad";

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
                    if item.collected {
                        return self.commit_collected(number);
                    }
                    let size = slot.range.end - slot.range.start;
                    let plain = plain_root(item);
                    if let Err(e) = self.dest.set_facts(item, self.dest.rules.checksum) {
                        let why = format!(
                            "the content is the same, but its permissions or time cannot be set: {e}"
                        );
                        return self.fail(number, Exit::of_write(&e), &why);
                    }
                    self.core.tally.resumed += size;
                    self.was_there(number);
                    self.core.last_root = plain;
                    if let Some(slot) = self.table.get_mut(number) {
                        self.journal.found(&slot.item.path);
                        slot.item.state = State::InPlace;
                    }
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

    /// A stripe that an earlier run has completed is what the sender has: perhaps all are complete by now.
    fn commit_collected(&mut self, number: u64) {
        let opened = self.target(number).and_then(|target| {
            let file = target.open_part(|stat| self.dest.is_ours(stat))?;
            let stripe = target.stripe.ok_or(io::ErrorKind::NotFound)?;
            self.hold(stripe, &file)?;
            // Another run may have begun to write it again since it was hashed.
            Ok((stripe.is_marked(&file)?, file))
        });
        let file = match opened {
            Ok((true, file)) => file,
            Ok((false, _)) => return self.want_anew(number),
            Err(e) => return self.fail(number, code_of(&e), &e),
        };
        let Some(slot) = self.table.get_mut(number) else {
            return;
        };
        let size = slot.range.end - slot.range.start;
        let mut part = Part::new(size);
        (part.made, part.inode) = (true, inode(&file));
        part.file = Some(Arc::new(file));
        part.striped = true;
        self.stripes += 1;
        slot.item.state = State::Part(Box::new(part));
        self.core.tally.resumed += size;
        self.commit(number, false);
    }

    /// Keeps others from delivering this stripe; not too many are open at a time.
    pub(super) fn hold(&self, stripe: Stripe, file: &File) -> io::Result<()> {
        if self.stripes >= STRIPES {
            let text = "parts of too many files are delivered at a time";
            return Err(io::Error::other(text));
        }
        stripe.hold(file)
    }

    /// Requests the whole file, as the existing one is not the same after all, if it may be
    /// replaced.
    fn want_instead(&mut self, number: u64) {
        match self.table.get(number).and_then(|slot| slot.item.stands) {
            Some(why) => self.fail(number, Exit::DestError, &why),
            None if self.reuses_instead(number) => self.ask_for_blocks(),
            None => self.want_anew(number),
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
        let size = slot.range.end - slot.range.start;
        slot.item.state = State::Part(Box::new(Part::new(size)));
        self.reuse(number, RangeSet::default(), false)
    }

    /// Requests the whole file, from its beginning.
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
        self.repair(number, vec![range]);
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
            self.writing += bytes.len();
            let batch = target.dir.kept(BATCH);
            if let Some(Err(e)) = replaced.map(|path| self.dest.mirror.backups.make(path)) {
                return self.small_done(number, Ending::Failed(e));
            }
            self.small.push(Small {
                number,
                target,
                bytes,
                root: root.hash,
                last,
            });
            if self.small.len() >= batch {
                self.write_small();
            }
        }
    }

    /// Starts the job for the small files that are ready.
    pub(super) fn write_small(&mut self) {
        if !self.small.is_empty() {
            let files = std::mem::take(&mut self.small);
            let disks = self.dest.disks.clone();
            if let Err(e) = self.note_named(files.iter().map(|f| f.number)) {
                for file in files {
                    let e = io::Error::new(e.kind(), e.to_string());
                    self.small_done(file.number, Ending::Failed(e));
                }
                return;
            }
            self.pool.push(WriteJob::Small {
                files,
                disks,
                reread: self.reread.clone(),
            });
        }
    }

    /// Notes in the journal files that get their names before they are synced, unless they replace
    /// something. The journal has them on the disk before, and with them the names of all that are
    /// listed by now. Waiting for each would take longer than the copy.
    fn note_named(&mut self, files: impl Iterator<Item = u64>) -> io::Result<()> {
        let Some(disks) = &self.dest.disks else {
            let slots = files.filter_map(|number| self.table.get(number));
            self.journal.named_for_now(slots.map(|s| &s.item.path[..]));
            return Ok(());
        };
        let disks = Arc::clone(disks);
        let is_new = |table: &Table<Incoming>, number: u64| {
            let slot = table.get(number);
            slot.is_some_and(|s| !s.item.noted && !s.item.replaces)
        };
        let mut new: Vec<u64> = files.filter(|n| is_new(&self.table, *n)).collect();
        if new.is_empty() {
            return Ok(());
        }
        let (listed, now) = (self.noted..self.table.next(), new.clone());
        let small = |s: &Slot<Incoming>| s.item.is_wanted() && s.range.end - s.range.start <= BLOCK;
        new.extend(listed.clone().filter(|n| {
            let wanted = self.table.get(*n).is_some_and(small);
            wanted && is_new(&self.table, *n) && !now.contains(n)
        }));
        let slots = new.iter().filter_map(|number| self.table.get(*number));
        let noted = self.journal.named(slots.map(|s| &s.item.path[..]));
        noted
            .map_err(|e| io::Error::new(e.kind(), format!("the journal cannot be written: {e}")))?;
        for number in new {
            if let Some(slot) = self.table.get_mut(number) {
                slot.item.noted = true;
            }
        }
        self.noted = listed.end;
        disks.names_noted();
        Ok(())
    }

    /// Abandons a file whose content stayed wrong.
    fn fail_wrong(&mut self, number: u64, why: &str) {
        if self.dest.rules.alone {
            return self.fail(number, Exit::VerifyFailed, &why);
        }
        self.fail(number, Exit::VerifyFailed, &format!("{why}; {SAVED}"));
    }

    pub(super) fn small_done(&mut self, number: u64, ending: Ending) {
        let Some(slot) = self.table.get_mut(number) else {
            return;
        };
        let bytes = usize::try_from(slot.range.end - slot.range.start).unwrap_or_default();
        self.resident -= bytes;
        self.writing -= bytes;
        self.drained += bytes as u64;
        if let State::GivenUp = std::mem::replace(&mut slot.item.state, State::Over) {
            return self.name_is_free(number);
        }
        match ending {
            Ending::InPlace | Ending::Collected { .. } => {
                self.core.last_root = slot.item.root.map(|r| r.hash);
                slot.item.state = State::InPlace;
                if slot.item.replaces {
                    // It was on the disk before it got its name.
                    self.journal.found(&slot.item.path);
                }
                self.core.tally.files_ok += 1;
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
                let noted = self.journal.sync_failed();
                self.reports.note_journal(&mut self.core, noted);
                self.fail(number, Exit::of_write(&e), &e);
            }
        }
    }

    /// The part of a large file, created when its first byte arrives.
    pub(super) fn part_file(&mut self, number: u64) -> io::Result<Arc<File>> {
        let slot = self.table.get(number).ok_or(io::ErrorKind::NotFound)?;
        let size = slot.range.end - slot.range.start;
        let State::Part(part) = &slot.item.state else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        if let Some(file) = &part.file {
            return Ok(Arc::clone(file));
        }
        let (made, was) = (part.made, part.inode);
        let target = self.target(number)?;
        let mut cleared = true;
        let file = match &target.stripe {
            _ if made => target.open_part(|stat| {
                let same = was == Some((stat.st_dev, stat.st_ino));
                same.then_some(()).ok_or_else(confine::swapped)
            })?,
            Some(stripe) => {
                let (file, empty) = self.open_stripe(&target, stripe, size)?;
                cleared = empty;
                file
            }
            // A worker of a run that ended may still be writing to the existing file.
            None => confine::inside(&target.dir, target.closed, || {
                confine::create_anew(&target.dir, &target.part)
            })?,
        };
        let file = Arc::new(file);
        let identity = self.identity(number);
        let item = self.table.get(number).map(|slot| &slot.item);
        let in_journal = item.map_or_else(Vec::new, |item| self.dest.name_in_journal(item));
        if let Some(slot) = self.table.get_mut(number)
            && let State::Part(part) = &mut slot.item.state
        {
            if !made {
                part.made = true;
                part.cleared &= cleared;
                part.striped = target.stripe.is_some();
                self.stripes += usize::from(part.striped);
                part.inode = inode(&file);
                if let Some(id) = identity.filter(|_| size > BLOCK) {
                    part.journal = Some(self.journal.begin(&in_journal, id));
                }
            }
            part.file = Some(Arc::clone(&file));
        }
        if !made && target.stripe.is_none() {
            file.set_len(size)?;
        }
        if target.stripe.is_some() {
            // Its lock is that of the open file.
            return Ok(file);
        }
        self.open.push_back(number);
        let more = self.open.len().saturating_sub(file.kept(OPEN));
        for oldest in self.open.drain(..more) {
            if let Some(State::Part(part)) = self.table.get_mut(oldest).map(|s| &mut s.item.state) {
                part.file = None;
            }
        }
        Ok(file)
    }

    /// Opens the file where a stripe is collected with others; true if nothing of it is there.
    fn open_stripe(&self, target: &Target, stripe: &Stripe, size: u64) -> io::Result<(File, bool)> {
        let Target { dir, part, .. } = target;
        let check = |stat: &Stat| self.dest.is_ours(stat);
        let open = || stripe.open(dir, part, check, |file| self.hold(*stripe, file));
        let file = confine::inside(dir, target.closed, open)?;
        // An earlier run may have left something there, and what the sender reports as a hole is not written.
        let empty = match file.seek_data(0) {
            Ok(data) => data >= size,
            Err(e) => e == Errno::NXIO,
        };
        let cleared = empty || confine::punch(&file, &(0..size))?;
        Ok((file, cleared))
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
                self.core
                    .progress
                    .compared(slot.range.end - slot.range.start);
                self.settle(number);
            }
            None => self.want_instead(number),
        }
    }

    /// Gives a complete part its name, or keeps it as NAME.bad.
    pub(super) fn commit(&mut self, number: u64, bad: bool) {
        if bad
            && self
                .table
                .get(number)
                .is_some_and(|s| s.item.stripe.is_some())
        {
            // The file is not this one's alone.
            return self.fail(number, Exit::VerifyFailed, &WRONG_STRIPE);
        }
        let (file, target) = match self
            .part_file(number)
            .and_then(|f| Ok((f, self.target(number)?)))
        {
            Ok(found) => found,
            Err(e) => return self.fail(number, code_of(&e), &e),
        };
        if target.replaces
            && !bad
            && let Some(slot) = self.table.get(number)
            && let Err(e) = self.dest.mirror.backups.make(&slot.item.path)
        {
            return self.fail(number, Exit::of_write(&e), &e);
        }
        let small = self.is_small(number);
        if small && let Err(e) = self.note_named(std::iter::once(number)) {
            return self.fail(number, Exit::of_write(&e), &e);
        }
        let mut reread = self
            .reread
            .clone()
            .filter(|_| !bad)
            .map(|options| (options, None));
        if let Some(State::Part(part)) = self.table.get_mut(number).map(|s| &mut s.item.state) {
            part.compared = Some(COMMITTED);
            if let Some((_, tree)) = &mut reread {
                let size = part.tree.size();
                let values = std::mem::replace(&mut part.tree, BlockTree::new(size));
                *tree = Some(Box::new(values));
            }
        }
        let reread = reread.and_then(|(options, tree)| Some((options, tree?)));
        let disks = self.dest.disks.clone();
        self.completing += usize::from(target.stripe.is_some());
        self.pool.push(WriteJob::Commit {
            number,
            file,
            target,
            disks,
            small,
            reread,
            bad,
        });
    }

    /// True for a file that is collected in memory if there is room, and synced with others.
    pub(super) fn is_small(&self, number: u64) -> bool {
        let slot = self.table.get(number);
        slot.is_some_and(|s| s.range.end - s.range.start <= BLOCK)
    }

    pub(super) fn committed(&mut self, number: u64, ending: Ending) {
        let Some(slot) = self.table.get_mut(number) else {
            return;
        };
        let plain = plain_root(&slot.item);
        let journal = match &mut slot.item.state {
            State::Part(part) => {
                // What was not written may look as if it were: it is removed.
                part.made = !matches!(
                    ending,
                    Ending::InPlace | Ending::Collected { .. } | Ending::Mismatch
                );
                part.journal
            }
            _ => None,
        };
        match ending {
            Ending::InPlace | Ending::Collected { .. } => {
                if slot.item.replaces {
                    self.journal.found(&slot.item.path);
                }
                if let State::Part(part) = std::mem::replace(&mut slot.item.state, State::InPlace) {
                    self.uncount(&part);
                }
                self.core.last_root = plain;
                self.core.tally.files_ok += 1;
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
                if let (State::Part(part), Some(journal)) = (&mut slot.item.state, journal) {
                    part.journal = None;
                    self.journal.forget(journal);
                }
                if self.is_small(number) {
                    let noted = self.journal.sync_failed();
                    self.reports.note_journal(&mut self.core, noted);
                }
                return self.fail(number, Exit::of_write(&e), &e);
            }
        }
        if let Some(journal) = journal {
            self.journal.forget(journal);
        }
    }
}

/// Exit for an error of a part: another run may have it.
pub(super) fn code_of(e: &io::Error) -> Exit {
    match e.kind() {
        io::ErrorKind::ResourceBusy => Exit::Locked,
        _ => Exit::of_write(e),
    }
}

/// The hash of a file, if it is known: a sparse one has none, nor has a stripe.
fn plain_root(item: &Incoming) -> Option<Hash> {
    let plain = |root: &Root| !root.sparse && item.stripe.is_none();
    item.root.filter(plain).map(|root| root.hash)
}
