//! Acts on the decision about each entry: directories and links are made at once. Of a file the
//! receiver requests everything, nothing (it is already there), or the blocks that an earlier run did
//! not complete.

use std::{io, ops::Range, sync::Arc};

use rustix::fs::Stat;

use super::{Part, Receiver, Reread, State, Target, WriteJob, inode, names::SAME_NAME};
use crate::{
    bounds, confine,
    decide::{Decision, Earlier, Refusal, There, admit, decide},
    digest::{block_count, block_range},
    disk::File,
    error::TransferError,
    ranges::RangeSet,
    reach::Reach,
    wire::{BLOCK, Entry, Exit, Hash, Kind, Message, Stripe, path},
};

/// Ranges per message.
pub(super) const RANGES: usize = 1_500;
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

impl Receiver {
    /// Decides on one entry.
    pub(super) fn decide(&mut self, entry: &Entry) -> Result<(), TransferError> {
        let left_out = self.requested.check(entry)?;
        let (item, reserved) = self.dest.expect(entry)?;
        let meta = item.meta.clone();
        self.names.note_listed(&item.path);
        let number = self.table.push(entry.size, bounds::charge(entry), item);
        let number =
            number.ok_or_else(|| TransferError::protocol("the tree is larger than 2^62 bytes"))?;
        let refused = reserved.map(|why| (Exit::DestError, why));
        let refused = refused.or(left_out.map(|why| (Exit::SourceChanged, why)));
        let before = match refused {
            Some(_) => None,
            None => self.named_before(number),
        };
        let waits = entry.kind == Kind::File && before.is_some_and(|file| self.is_given_up(file));
        if entry.kind == Kind::File && !waits {
            self.core.progress.found(entry.size);
        }
        let refused = match before {
            Some(_) if !waits => Some((Exit::DestError, SAME_NAME)),
            _ if entry.kind == Kind::Dir => refused,
            _ => refused.or_else(|| {
                let slot = self.table.get(number)?;
                let why = self.names.refuse_other_case(&slot.item.path)?;
                Some((Exit::DestError, why))
            }),
        };
        if let Some((code, why)) = refused {
            self.fail(number, code, &why);
            return Ok(());
        }
        let made = match entry.kind {
            _ if let Err(refusal) = admit(entry, &self.dest.rules) => Err(refusal),
            Kind::File if waits => {
                self.wait_for_name(number, entry);
                Ok(())
            }
            Kind::File => self.decide_file(number, entry),
            Kind::Dir => {
                let tally = &mut self.core.tally;
                self.dest.decide_dir(tally, entry, meta, self.table.next())
            }
            Kind::Symlink | Kind::HardLink => match self.table.get_mut(number) {
                Some(slot) if entry.kind == Kind::HardLink => {
                    slot.item.state = State::Link(Box::new(entry.clone()));
                    Ok(())
                }
                Some(slot) => self.dest.decide_link(&slot.item, entry),
                None => Ok(()),
            },
        };
        if let Err(refusal) = made {
            self.refuse(number, &refusal);
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
            self.fail(number, Exit::DestError, &SAME_NAME);
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
            self.fail(next, Exit::DestError, &SAME_NAME);
        } else if let Err(refusal) = self.decide_file(next, &entry) {
            self.refuse(next, &refusal);
        }
        self.send_wants();
    }

    fn decide_file(&mut self, number: u64, entry: &Entry) -> Result<(), Refusal> {
        let Some(slot) = self.table.get_mut(number) else {
            return Ok(());
        };
        slot.item.state = State::Wanted;
        let (parent, _) = path::split(&slot.item.path);
        let fresh = self.dest.folders.is_new(parent);
        let target = self.target(number)?;
        let collected = Self::collected(&target);
        let mut there = There::default();
        if !fresh {
            there = There::look(&target.dir, &target.name, entry)?;
        }
        there.earlier = self.earlier(number);
        // Another shard did not find its stripe in place: the existing file will be replaced.
        there.collected = collected != Collected::Nothing;
        let decision = decide(entry, &there, &self.dest.rules)?;
        if let Some(stat) = there.stat.as_ref().filter(|_| decision != Decision::Stay) {
            self.note_there(number, stat, there.stands(entry, &self.dest.rules));
            let doubtful = there.is_doubtful(entry, &self.dest.rules) || self.dest.rules.pipe;
            self.note_reuse(number, entry, stat, doubtful);
        }
        match decision {
            Decision::Stay => self.skip(number),
            Decision::Same => self.keep_same(number, entry)?,
            Decision::Compare => {
                if let Some(slot) = self.table.get_mut(number) {
                    slot.item.replaces = true;
                    slot.item.state = State::Checking(None);
                }
                let unsure = there.is_unsure(entry, &self.dest.rules);
                self.check_there(number, target, entry, unsure);
            }
            Decision::Make | Decision::Replace | Decision::Wait => {
                if let Some(slot) = self.table.get_mut(number) {
                    slot.item.replaces = decision == Decision::Replace;
                    if decision == Decision::Wait {
                        self.dest.wait_for_folder(&slot.item)?;
                    }
                }
                self.want(number, entry, target, collected);
            }
        }
        Ok(())
    }

    /// Record that earlier runs left of the file. A long one is synced before it gets its name.
    fn earlier(&self, number: u64) -> Earlier {
        match self.table.get(number).map(|slot| &slot.item.path) {
            Some(path) if self.is_small(number) && self.journal.is_suspect(path) => {
                Earlier::Suspect
            }
            Some(path) if self.journal.is_unsure(path) => Earlier::Unsure,
            _ => Earlier::Nothing,
        }
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
        if entry.size > BLOCK
            && !self.dest.rules.pipe
            && self.resume(number, &target, sparse).is_some()
        {
            return;
        }
        if let Err(why) = self.dest.space.reserve(entry.allocated) {
            return self.fail(number, Exit::NoSpace, &why);
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
            let name = self.dest.name_in_journal(&slot.item);
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

    /// Keeps the existing file, and reports that to the sender, which need not read its own. Without a
    /// text it is no warning.
    fn skip(&mut self, number: u64) {
        self.core.out.push(&Message::Trouble {
            file: number,
            code: Exit::Ok,
            text: Vec::new(),
        });
        self.was_there(number);
        // The name stays taken: an entry listed by it once more is refused.
        if let Some(slot) = self.table.get(number) {
            self.missing.remove(slot.range.clone());
        }
        self.is_in_place(number);
    }

    /// Keeps an existing file that counts as the same: only its facts may differ.
    fn keep_same(&mut self, number: u64, entry: &Entry) -> io::Result<()> {
        let empty = entry.size == 0;
        if let Some(slot) = self.table.get(number) {
            self.dest.set_facts(&slot.item, empty)?;
        }
        if empty {
            self.core.last_root = Some(blake3::hash(b"").into());
        }
        self.core.tally.resumed += entry.size;
        self.skip(number);
        Ok(())
    }

    /// Notes the existing file, which may have to stay, or keep its permissions.
    fn note_there(&mut self, number: u64, there: &Stat, stands: Option<&'static str>) {
        if let Some(slot) = self.table.get_mut(number) {
            slot.item.stands = stands;
            slot.item.mode_there = Some(there.st_mode & 0o777);
            if self.dest.rules.reach == Reach::Content {
                slot.item.meta.mode = u16::try_from(there.st_mode & 0o777).unwrap_or(0);
            }
        }
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

    /// Continues the part that an earlier run left; nothing if there is none. Blocks that it did not
    /// claim are requested now; those that it did are checked first.
    fn resume(&mut self, number: u64, target: &Target, sparse: bool) -> Option<()> {
        let identity = self.identity(number)?;
        let slot = self.table.get(number)?;
        let size = slot.range.end - slot.range.start;
        let name = self.dest.name_in_journal(&slot.item);
        let claimed = self.journal.claim(&name, identity)?;
        let file = self.left(target, size)?;
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
            return None;
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
        Some(())
    }

    /// The part that an earlier run left, if it is one.
    fn left(&self, target: &Target, size: u64) -> Option<File> {
        // The owner of the journal created the part. What else has its name is replaced like any part that
        // is not continued.
        let is_ours = |stat: &Stat| {
            self.dest.is_ours(stat)?;
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
        for ranges in std::iter::once(head).chain(tail.chunks(RANGES)) {
            let ranges = ranges.to_vec();
            self.core.out.push(&Message::Want { upto, ranges });
        }
        self.ask_for_blocks();
    }
}
