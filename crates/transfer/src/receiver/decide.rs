//! Acts on the decision about each entry: directories and links are made at once. Of a file the
//! receiver requests everything, nothing (it is already there), or the blocks that an earlier run did
//! not complete.

use std::io;

use rustix::fs::{FileType, Stat};

use super::{
    content::identity,
    entries::Entries,
    item::{Basis, Part, State},
    names::SAME_NAME,
    target::Target,
};
use crate::{
    bounds,
    decide::{Decision, Earlier, Refusal, Rules, There, admit, decide},
    error::TransferError,
    ranges::RangeSet,
    reach::Reach,
    wire::{BLOCK, Entry, Exit, Kind, Message, Root, path},
};

/// True if a stripe is complete where those of its file are collected; none if no stripe was begun.
fn collected(target: &Target) -> Option<bool> {
    let stripe = target.stripe?;
    // Only now: a call for each file would cost a round trip on a network file system.
    let file = target.open_to_read(&target.part).ok()?;
    Some(stripe.is_marked(&file).unwrap_or(false))
}

/// True if blocks of `there` may be blocks of the entry.
fn may_reuse(entry: &Entry, there: &Stat, rules: &Rules) -> bool {
    !rules.pipe
        && !rules.mirror.whole_file
        && rules.reach.is_all()
        && entry.size > BLOCK
        && entry.allocated == entry.size
        && there.st_size.cast_unsigned() >= BLOCK
        && FileType::from_raw_mode(there.st_mode) == FileType::RegularFile
}

impl Entries {
    /// Decides on one entry.
    pub(super) fn decide(
        &mut self,
        entry: &Entry,
        left_out: Option<&'static str>,
    ) -> Result<(), TransferError> {
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
        let before_it = before.and_then(|file| self.table.get(file));
        // A worker still has one of this name that was given up.
        let waits = entry.kind == Kind::File
            && before_it.is_some_and(|slot| matches!(slot.item.state, State::GivenUp));
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

    pub(super) fn decide_file(&mut self, number: u64, entry: &Entry) -> Result<(), Refusal> {
        let Some(slot) = self.table.get_mut(number) else {
            return Ok(());
        };
        slot.item.state = State::Wanted;
        let (parent, _) = path::split(&slot.item.path);
        let fresh = self.dest.folders.is_new(parent);
        let target = self.target(number)?;
        let collected = collected(&target);
        let mut there = There::default();
        if !fresh {
            there = There::look(&target.dir, &target.name, entry)?;
        }
        there.earlier = self.earlier(number);
        // Another shard did not find its stripe in place: the existing file will be replaced.
        there.collected = collected.is_some();
        let decision = decide(entry, &there, &self.dest.rules)?;
        if let Some(stat) = there.stat.as_ref().filter(|_| decision != Decision::Stay) {
            let rules = &self.dest.rules;
            let reuses = !there.is_doubtful(entry, rules) && may_reuse(entry, stat, rules);
            if let Some(slot) = self.table.get_mut(number) {
                let (stands, keeps) = (there.stands(entry, rules), rules.reach == Reach::Content);
                slot.item.note_there(stat, stands, keeps, reuses);
            }
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
                self.workers.check_there(number, target, entry, unsure);
            }
            Decision::Make | Decision::Replace | Decision::Wait => {
                if let Some(slot) = self.table.get_mut(number) {
                    slot.item.replaces = decision == Decision::Replace;
                    if decision == Decision::Wait {
                        self.dest.wait_for_folder(&slot.item)?;
                    }
                }
                self.want(number, entry, target, collected == Some(true));
            }
        }
        Ok(())
    }

    /// Record that earlier runs left of the file. A long one is synced before it gets its name.
    pub(super) fn earlier(&self, number: u64) -> Earlier {
        match self.table.get(number).map(|slot| &slot.item.path) {
            Some(path) if self.is_small(number) && self.workers.journal.is_suspect(path) => {
                Earlier::Suspect
            }
            Some(path) if self.workers.journal.is_unsure(path) => Earlier::Unsure,
            _ => Earlier::Nothing,
        }
    }

    /// Requests all of the file, or what an earlier run did not complete.
    fn want(&mut self, number: u64, entry: &Entry, target: Target, collected: bool) {
        if entry.size == 0 {
            return self.decide_empty(number);
        }
        if collected {
            return self.check_collected(number, target, entry);
        }
        let sparse = entry.allocated < entry.size;
        if entry.size > BLOCK && !self.dest.rules.pipe && self.resume(number, &target, sparse) {
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
            slot.item.state = State::part(Part::new(entry.size));
        }
        if !self.reuse(number, RangeSet::default(), true) {
            self.content.request(range);
        }
    }

    /// Continues the part that an earlier run left; false if there is none. Blocks that it did not
    /// claim are requested now; those that it did are checked first.
    fn resume(&mut self, number: u64, target: &Target, sparse: bool) -> bool {
        let Some(slot) = self.table.get_mut(number) else {
            return false;
        };
        let (part, place) = ((number, slot), (&self.dest, target));
        let resumed = self.content.resume(part, place, &mut self.workers, sparse);
        let Some((claimed, wanted)) = resumed else {
            return false;
        };
        if !self.reuse(number, claimed, false) {
            wanted.iter().for_each(|range| self.content.request(range));
        }
        true
    }

    /// Starts a job that hashes the stripe where it is collected.
    fn check_collected(&mut self, number: u64, target: Target, entry: &Entry) {
        // What the journal may claim of it is less.
        if let Some((slot, identity)) = self.table.get(number).map(|slot| (slot, identity(slot))) {
            let name = self.dest.name_in_journal(&slot.item);
            self.workers.journal.claim(&name, identity);
        }
        if let Some(slot) = self.table.get_mut(number) {
            slot.item.collected = true;
            slot.item.state = State::Checking(None);
        }
        let name = target.part.clone();
        self.workers
            .check_there(number, Target { name, ..target }, entry, false);
    }

    /// Keeps the existing file, and reports that to the sender, which need not read its own. Without a
    /// text it is no warning.
    fn skip(&mut self, number: u64) {
        self.core.out.push(&Message::Trouble {
            file: number,
            code: Exit::Ok,
            text: Vec::new(),
        });
        // The name stays taken: an entry listed by it once more is refused.
        self.is_in_place(number, false);
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

    fn decide_empty(&mut self, number: u64) {
        if let Some(slot) = self.table.get_mut(number) {
            let hash = blake3::hash(b"").into();
            slot.item.root = Some(Root {
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
            part.basis = Some(Box::new(Basis::new(old, promised, claimed)));
            self.content.asking.push(number);
        }
        true
    }
}
