//! Decides on each entry: directories and links are made at once. Of a file the receiver requests
//! everything, nothing (it is already there), or the blocks that an earlier run did not complete.

use std::{io, ops::Range, sync::Arc};

use rustix::fs::{FileType, Stat};

use super::{
    Incoming, Meta, Part, Reach, Receiver, Reread, State, Target, WriteJob, inode, reach::UNSURE,
};
use crate::{
    bounds, confine,
    digest::{block_count, block_range},
    disk::File,
    error::TransferError,
    ranges::RangeSet,
    sender::Identity,
    table::Slot,
    wire::{BLOCK, Code, Entry, Hash, Kind, Message, Stripe, path},
};

/// Ranges per message.
pub(super) const RANGES: usize = 1_500;
pub(super) const SAME_NAME: &str = "another file was listed by this name";
/// Blocks checked by one job.
const VERIFY: usize = 16;

/// Progress of a stripe.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Collected {
    /// No stripe of its file was begun, or the entry is no stripe.
    Nothing,
    /// Some stripe of its file was begun.
    Begun,
    /// The stripe is complete.
    Complete,
}

pub(super) fn is_dir(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

impl Receiver {
    /// Decides on one entry.
    pub(super) fn decide(&mut self, entry: &Entry) -> Result<(), TransferError> {
        let left_out = self.requested.check(entry)?;
        let meta = Meta {
            mode: self.rules.reach.permissions(entry.mode),
            mtime: entry.mtime,
            mtime_nanos: entry.mtime_nanos,
            granted: self.grants.grant(entry),
        };
        let path = match &self.rename {
            None => entry.path.clone(),
            Some(name) if entry.kind == Kind::File && !entry.path.contains(&b'/') => name.clone(),
            Some(_) => {
                return Err(TransferError::protocol(
                    "a single file was announced, a tree was listed",
                ));
            }
        };
        self.names.note_listed(&path);
        self.note_listed(&path, entry.kind);
        let item = Incoming {
            repaired: self.rules.pipe,
            ..Incoming::new(path, entry, meta.clone())
        };
        let number = self.table.push(entry.size, bounds::charge(entry), item);
        let number =
            number.ok_or_else(|| TransferError::protocol("the tree is larger than 2^62 bytes"))?;
        let reserved = self.is_reserved(number);
        let refused = reserved.is_some() || left_out.is_some();
        let before = if refused {
            None
        } else {
            self.named_before(number)
        };
        let waits = entry.kind == Kind::File && before.is_some_and(|file| self.is_given_up(file));
        if entry.kind == Kind::File && !waits {
            self.core.progress.found(entry.size);
        }
        if let Some(why) = reserved {
            self.fail(number, Code::DestError, &why);
            return Ok(());
        }
        if let Some(why) = left_out {
            self.fail(number, Code::SourceChanged, &why);
            return Ok(());
        }
        if before.is_some() && !waits {
            self.fail(number, Code::DestError, &SAME_NAME);
            return Ok(());
        }
        if entry.kind != Kind::Dir
            && let Some(slot) = self.table.get(number)
            && let Some(why) = self.names.refuse_other_case(&slot.item.path)
        {
            self.fail(number, Code::DestError, &why);
            return Ok(());
        }
        let made = match entry.kind {
            Kind::Dir => self.decide_dir(&entry.path, meta),
            Kind::Symlink => self.decide_link(number, entry),
            Kind::HardLink => self.decide_hard_link(number, entry),
            Kind::File if waits => {
                self.wait_for_name(number, entry);
                Ok(())
            }
            Kind::File => self.decide_file(number, entry),
        };
        if let Err(e) = made {
            self.fail(number, Code::of_write(&e), &e);
        }
        Ok(())
    }

    /// The file that has this one's name, unless that is this.
    fn named_before(&mut self, number: u64) -> Option<u64> {
        let slot = self.table.get(number).filter(|slot| slot.item.is_file)?;
        let first = self.names.take(&slot.item.path, number);
        (first != number).then_some(first)
    }

    fn is_given_up(&self, number: u64) -> bool {
        let slot = self.table.get(number);
        slot.is_some_and(|slot| matches!(slot.item.state, State::GivenUp))
    }

    /// A worker still has one of this name that was given up.
    fn wait_for_name(&mut self, number: u64, entry: &Entry) {
        let before = self.names.wait(&entry.path, number);
        let waits = before.and_then(|before| self.table.get(before));
        if waits.is_some_and(|slot| matches!(slot.item.state, State::Waits(_))) {
            self.names.wait(&entry.path, before.unwrap_or(number));
            self.fail(number, Code::DestError, &SAME_NAME);
        } else if let Some(slot) = self.table.get_mut(number) {
            slot.item.state = State::Waits(Box::new(entry.clone()));
        }
    }

    /// The worker that had the file `number` is done: what waits for its name is decided on.
    pub(super) fn name_is_free(&mut self, number: u64) {
        let Some(slot) = self.table.get(number) else {
            return;
        };
        let path = slot.item.path.clone();
        self.names.release(&path, number);
        let Some(next) = self.names.waiting(&path) else {
            return;
        };
        let Some(slot) = self.table.get_mut(next) else {
            return;
        };
        let entry = match std::mem::replace(&mut slot.item.state, State::Over) {
            State::Waits(entry) => entry,
            other => {
                slot.item.state = other;
                return;
            }
        };
        if self.named_before(next).is_some() {
            self.fail(next, Code::DestError, &SAME_NAME);
        } else if let Err(e) = self.decide_file(next, &entry) {
            self.fail(next, Code::of_write(&e), &e);
        }
        self.send_wants();
    }

    /// Notes a listed path: it is not deleted, whatever becomes of it.
    pub(super) fn note_listed(&mut self, path: &[u8], kind: Kind) {
        if self.rules.mirror.delete.is_some() {
            self.listed.add(path, kind);
        }
    }

    /// Notes entries that the sender has and does not list.
    pub(super) fn note_kept(&mut self, paths: &[Vec<u8>]) -> Result<(), TransferError> {
        for path in paths {
            self.requested.check_kept(path)?;
            if self.rules.mirror.delete.is_some() {
                self.listed.keep(path);
            }
        }
        Ok(())
    }

    /// Reason that nothing may be received by this path, if it is for something else.
    fn is_reserved(&mut self, number: u64) -> Option<&'static str> {
        if self.is_own_state(number) {
            return Some(path::RESERVED);
        }
        let path = self.table.get(number)?.item.path.clone();
        self.note_possible_backup(&path).err()
    }

    /// True if some name in the path is one under which a transfer, this or another, keeps its
    /// state.
    fn is_own_state(&self, number: u64) -> bool {
        let ours = |name: &[u8]| {
            let own = path::reserved(name, self.names.are_folded());
            own.is_some_and(|own| self.rules.strangers || own.tag() == self.tag)
        };
        let slot = self.table.get(number);
        slot.is_some_and(|s| s.item.path.split(|b| *b == b'/').any(ours))
    }

    fn decide_file(&mut self, number: u64, entry: &Entry) -> io::Result<()> {
        let Some(slot) = self.table.get_mut(number) else {
            return Ok(());
        };
        slot.item.state = State::Wanted;
        let (parent, _) = path::split(&slot.item.path);
        let fresh = self.folders.is_new(parent);
        let target = self.target(number)?;
        let there = if fresh {
            None
        } else {
            confine::stat(&target.dir, &target.name)?
        };
        let suspect = self.is_suspect(number);
        let collected = Self::collected(&target);
        // Another shard did not find its stripe in place: the existing file will be replaced.
        let replaced = collected != Collected::Nothing;
        let unsure = !suspect && there.as_ref().is_some_and(|s| self.is_unsure(number, s));
        if let Some(there) = &there
            && !suspect
            && !unsure
            && self.stays(number, there)
        {
            return Ok(());
        }
        if let Some(there) = &there {
            self.note_there(number, there, suspect || unsure);
            let doubtful = suspect || unsure || self.rules.pipe;
            self.note_reuse(number, entry, there, doubtful);
        }
        if let Some(there) = &there
            && !suspect
            && (self.is_empty_too(number, there)?
                || !unsure && !replaced && self.is_unchanged(number, there)?)
        {
            return Ok(());
        }
        if let Some(there) = &there
            && self.is_candidate(number, there, suspect || self.rules.pipe || replaced)?
        {
            self.check_there(number, target, entry, unsure);
            return Ok(());
        }
        if let Some(why) = self.table.get(number).and_then(|slot| slot.item.stands) {
            self.fail(number, Code::DestError, &why);
            return Ok(());
        }
        self.want(number, entry, target, collected);
        Ok(())
    }

    /// Requests all of the file, or what an earlier run did not complete.
    fn want(&mut self, number: u64, entry: &Entry, target: Target, collected: Collected) {
        if entry.size == 0 {
            return self.decide_empty(number);
        }
        if collected == Collected::Complete {
            return self.check_collected(number, target, entry);
        }
        let sparse = entry.allocated < entry.size;
        if entry.size > BLOCK && !self.rules.pipe && self.resume(number, &target, sparse) {
            return;
        }
        if let Err(why) = self.space.reserve(entry.allocated) {
            return self.fail(number, Code::NoSpace, &why);
        }
        let Some(slot) = self.table.get_mut(number) else {
            return;
        };
        let range = slot.range.clone();
        if entry.size > BLOCK {
            slot.item.state = State::Part(Box::new(Part::new(entry.size)));
        }
        if !self.reuse(number, RangeSet::default(), true) {
            self.request(range);
        }
    }

    /// Progress of a stripe where those of its file are collected.
    fn collected(target: &Target) -> Collected {
        let file = target
            .stripe
            .map(|stripe| (stripe, target.open_to_read(&target.part)));
        match file {
            Some((stripe, Ok(file))) if stripe.is_marked(&file).unwrap_or(false) => {
                Collected::Complete
            }
            Some((_, Ok(_))) => Collected::Begun,
            Some((_, Err(_))) | None => Collected::Nothing,
        }
    }

    /// Starts a job that hashes the stripe where it is collected.
    fn check_collected(&mut self, number: u64, target: Target, entry: &Entry) {
        // What the journal may claim of it is less.
        if let Some((slot, identity)) = self.table.get(number).zip(self.identity(number)) {
            let name = self.name_in_journal(&slot.item);
            self.journal.claim(&name, identity);
        }
        if let Some(slot) = self.table.get_mut(number) {
            slot.item.collected = true;
            slot.item.state = State::Checking(None);
        }
        let name = target.part.clone();
        self.check_there(number, Target { name, ..target }, entry, false);
    }

    /// Starts a job that hashes the existing file.
    fn check_there(&mut self, number: u64, target: Target, entry: &Entry, unsure: bool) {
        let size = entry.size;
        let past_cache = unsure.then(Reread::of_unsynced);
        self.pool.push(WriteJob::Check {
            number,
            target,
            size,
            zeros: entry.allocated < size,
            reread: self.reread.clone().or(past_cache),
        });
    }

    /// True if an earlier run gave the file its name and its sync failed. Long ones are synced
    /// before that.
    fn is_suspect(&self, number: u64) -> bool {
        let suspect = |s: &Slot<Incoming>| self.journal.is_suspect(&s.item.path);
        self.is_small(number) && self.table.get(number).is_some_and(suspect)
    }

    /// True if an earlier run ended before its sync, and the file appears unchanged.
    fn is_unsure(&self, number: u64, there: &Stat) -> bool {
        let unsure = |s: &Slot<Incoming>| self.journal.is_unsure(&s.item.path);
        let as_left = |id: Identity| id.may_be(false, there);
        self.disks.is_some()
            && self.is_small(number)
            && FileType::from_raw_mode(there.st_mode) == FileType::RegularFile
            && self.identity(number).is_some_and(as_left)
            && self.table.get(number).is_some_and(unsure)
    }

    /// True if the existing file is kept, as requested by the client. A file that has its name
    /// since a run that ended before the content was on the disk does not count.
    fn stays(&mut self, number: u64, there: &Stat) -> bool {
        let unsure = |s: &Slot<Incoming>| self.journal.is_unsure(&s.item.path);
        // It may be shorter: a length is on the disk as soon as it was allocated.
        let remnant = |id: Identity| there.st_size == 0 || id.has_time_of(there);
        if self.is_small(number)
            && self.table.get(number).is_some_and(unsure)
            && self.identity(number).is_some_and(remnant)
        {
            return false;
        }
        let dir = FileType::from_raw_mode(there.st_mode) == FileType::Directory;
        let request = |id: Identity| !dir && id.stays(self.rules.existing, there);
        if !self.identity(number).is_some_and(request) {
            return false;
        }
        self.skip(number);
        true
    }

    /// Counts a file that was already there, and reports it to the sender, without a text: it is no warning.
    fn keep(&mut self, number: u64) {
        self.core.out.push(&Message::Trouble {
            file: number,
            code: Code::Ok,
            text: Vec::new(),
        });
        self.was_there(number);
    }

    /// Keeps the existing file; the sender need not read its own.
    fn skip(&mut self, number: u64) {
        self.keep(number);
        // The name stays taken: an entry listed by it once more is refused.
        if let Some(slot) = self.table.get(number) {
            self.missing.remove(slot.range.clone());
        }
        self.is_in_place(number);
    }

    /// True if the existing file counts as the same by size and time, unless contents are to be
    /// compared. A time that the file system stored in part is not enough. A peer that may not
    /// learn about existing files has their content compared.
    fn is_unchanged(&mut self, number: u64, there: &Stat) -> io::Result<bool> {
        let compares = self.rules.checksum || self.reread.is_some() || self.rules.pipe;
        let regular = FileType::from_raw_mode(there.st_mode) == FileType::RegularFile;
        let same = |id: Identity| id.size > 0 && id.is_exactly(there);
        if compares
            || !regular
            || !self.rules.reach.is_all()
            || !self.identity(number).is_some_and(same)
            || self
                .table
                .get(number)
                .is_some_and(|slot| self.journal.is_unsure(&slot.item.path))
        {
            return Ok(false);
        }
        self.set_facts(number, false)?;
        self.core.tally.resumed += self
            .table
            .get(number)
            .map_or(0, |slot| slot.range.end - slot.range.start);
        self.skip(number);
        Ok(true)
    }

    /// Notes the existing file, which may have to stay, or keep its permissions.
    fn note_there(&mut self, number: u64, there: &Stat, doubtful: bool) {
        let reach = self.rules.reach;
        if let Some(slot) = self.table.get_mut(number) {
            let stands = reach.refusal(there);
            slot.item.stands = stands.map(|why| if doubtful { UNSURE } else { why });
            slot.item.mode_there = Some(there.st_mode & 0o777);
            if reach == Reach::Content {
                slot.item.meta.mode = u16::try_from(there.st_mode & 0o777).unwrap_or(0);
            }
        }
    }

    /// True if the existing entry of that name could be the same file.
    fn is_candidate(&mut self, number: u64, there: &Stat, suspect: bool) -> io::Result<bool> {
        let kind = FileType::from_raw_mode(there.st_mode);
        if kind == FileType::Directory {
            return self.wait_for_folder(number).map(|()| false);
        }
        if let Some(why) = confine::is_special(there) {
            return Err(io::Error::other(why));
        }
        let same = self
            .identity(number)
            .is_some_and(|id| id.may_be(self.rules.checksum, there));
        let same = same && kind == FileType::RegularFile && !suspect;
        if let Some(slot) = self.table.get_mut(number) {
            slot.item.replaces = true;
            if same {
                slot.item.state = State::Checking(None);
            }
        }
        Ok(same)
    }

    /// True if both files are empty: only the facts may differ then. A peer that may neither fetch
    /// nor learn about existing files replaces them.
    fn is_empty_too(&mut self, number: u64, there: &Stat) -> io::Result<bool> {
        let kind = FileType::from_raw_mode(there.st_mode);
        let both = |s: &Slot<Incoming>| s.range.is_empty() && there.st_size == 0;
        let same = kind == FileType::RegularFile && self.table.get(number).is_some_and(both);
        if !same || self.rules.reach == Reach::Content {
            return Ok(false);
        }
        self.set_facts(number, true)?;
        self.keep(number);
        self.core.last_root = Some(blake3::hash(b"").into());
        self.abandon(number, Code::Ok);
        self.is_in_place(number);
        Ok(true)
    }

    fn decide_empty(&mut self, number: u64) {
        if let Some(slot) = self.table.get_mut(number) {
            let hash = blake3::hash(b"").into();
            slot.item.root = Some(crate::wire::Root {
                file: number,
                sparse: false,
                hash,
            });
            slot.item.state = State::Memory {
                bytes: Vec::new(),
                left: 0,
            };
            self.settle(number);
        }
    }

    /// Continues the part that an earlier run left, if there is one; false if there is none. Blocks
    /// that it did not claim are requested now; those that it did are checked first.
    fn resume(&mut self, number: u64, target: &Target, sparse: bool) -> bool {
        let Some(identity) = self.identity(number) else {
            return false;
        };
        let Some(slot) = self.table.get(number) else {
            return false;
        };
        let size = slot.range.end - slot.range.start;
        let name = self.name_in_journal(&slot.item);
        let Some(claimed) = self.journal.claim(&name, identity) else {
            return false;
        };
        let Some(file) = self.left(target, size) else {
            return false;
        };
        let inode = inode(&file);
        let (start, file) = (slot.range.start, Arc::new(file));
        let mut wanted: RangeSet = std::iter::once(slot.range.clone()).collect();
        let claimed: Vec<(u64, Hash)> = claimed
            .into_iter()
            .filter(|(i, _)| *i < block_count(size))
            .collect();
        for (index, _) in &claimed {
            let block = block_range(*index, size);
            wanted.remove(start + block.start..start + block.end);
        }
        // Unclaimed bytes may contain anything, and the sender may report them as a hole: then
        // nothing is written there.
        let mut holes = wanted.iter().map(|r| r.start - start..r.end - start);
        if sparse && !holes.all(|r| confine::punch(&file, &r).unwrap_or(false)) {
            // The part is made anew, which fails as well if nothing can be written. Zeros in place
            // of perhaps terabytes of holes are not written.
            return false;
        }
        let mut part = Part::new(size);
        part.made = true;
        part.striped = target.stripe.is_some();
        part.cleared = sparse;
        part.inode = inode;
        part.file = Some(Arc::clone(&file));
        part.journal = Some(self.journal.begin(&name, identity));
        if let Some(slot) = self.table.get_mut(number) {
            slot.item.state = State::Part(Box::new(part));
        }
        if target.stripe.is_none() {
            self.open.push_back(number);
        } else {
            self.stripes += 1;
        }
        for blocks in claimed.chunks(VERIFY) {
            self.pool.push(WriteJob::Verify {
                number,
                size,
                file: Arc::clone(&file),
                blocks: blocks.to_vec(),
            });
        }
        let blocks = claimed.iter().map(|(index, _)| *index..*index + 1);
        if !self.reuse(number, blocks.collect(), false) {
            for range in wanted.iter() {
                self.request(range);
            }
        }
        true
    }

    /// The part that an earlier run left, if it is one.
    fn left(&self, target: &Target, size: u64) -> Option<File> {
        // The owner of the journal created the part. What else has its name is replaced like any part that
        // is not continued.
        let is_ours = |stat: &Stat| {
            self.is_ours(stat)?;
            let same = stat.st_size.cast_unsigned() == target.collected(size);
            same.then_some(()).ok_or_else(confine::swapped)
        };
        let file = target.open_part(is_ours).ok()?;
        // A stripe that is complete, or that another run delivers, is not continued.
        let is_taken = |stripe: Stripe| {
            self.hold(stripe, &file)?;
            stripe.is_marked(&file)
        };
        let taken = target.stripe.is_some_and(|s| is_taken(s).unwrap_or(true));
        (!taken).then_some(file)
    }

    /// Requests `range`; sent with the next message.
    pub(super) fn request(&mut self, range: Range<u64>) {
        self.missing.insert(range.clone());
        match self.wants.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.wants.push(range),
        }
    }

    /// Sends the requests; every entry listed so far is decided on.
    pub(super) fn send_wants(&mut self) {
        let set: RangeSet = self.wants.drain(..).collect();
        let ranges: Vec<_> = set.iter().collect();
        let upto = self.table.next();
        let (head, tail) = ranges.split_at(ranges.len().min(RANGES));
        self.core.out.push(&Message::Want {
            upto,
            ranges: head.to_vec(),
        });
        for ranges in tail.chunks(RANGES) {
            self.core.out.push(&Message::Want {
                upto,
                ranges: ranges.to_vec(),
            });
        }
        self.ask_for_blocks();
    }
}
