//! Carries each listed entry from its decision to its name, one part after the other. An entry that fails, on either
//! side, is abandoned here, reported to the other side and counted.
//!
//! - Every file that was listed and does not exist at the end is a failure: nothing is lost silently.

use std::{fmt, io, sync::Arc};

use super::{
    content::Content,
    destination::Destination,
    item::{Incoming, Part, State},
    job::WriteJob,
    names::{Names, SAME_NAME},
    target::Target,
    workers::Workers,
};
use crate::{
    decide::Refusal,
    digest::Leaves,
    disk::File,
    role::RoleCore,
    state_names,
    table::Table,
    wire::{BLOCK, Entry, Exit, path},
};

/// Listed entries, and the parts that they go through.
pub(super) struct Entries {
    pub(super) core: RoleCore,
    pub(super) table: Table<Incoming>,
    pub(super) names: Names,
    pub(super) dest: Destination,
    pub(super) content: Content,
    pub(super) workers: Workers,
}

/// Exit for an error of a part: another run may have it.
pub(super) fn code_of(e: &io::Error) -> Exit {
    match e.kind() {
        io::ErrorKind::ResourceBusy => Exit::Locked,
        _ => Exit::of_write(e),
    }
}

/// Refusal for an error of a part.
pub(super) fn of_part(e: &io::Error) -> Refusal {
    Refusal::new(code_of(e), e.to_string())
}

impl Entries {
    /// A handle on the directory of an entry, and its name there.
    pub(super) fn target(&mut self, number: u64) -> io::Result<Target> {
        let slot = self.table.get(number).ok_or(io::ErrorKind::NotFound)?;
        self.dest.target(&slot.item)
    }

    /// The part of a large file.
    pub(super) fn part_file(&mut self, number: u64) -> io::Result<Arc<File>> {
        let journal = &mut self.workers.journal;
        self.content
            .part_file(&mut self.table, &mut self.dest, journal, number)
    }

    /// The part of a file that is collected on disk.
    pub(super) fn part(&mut self, number: u64) -> Option<&mut Part> {
        self.table.get_mut(number)?.item.part()
    }

    /// True for a file that is collected in memory if there is room, and synced with others.
    pub(super) fn is_small(&self, number: u64) -> bool {
        let slot = self.table.get(number);
        slot.is_some_and(|s| s.size() <= BLOCK)
    }

    /// Counts bytes of content that are here; false if that ends the transfer.
    pub(super) fn arrives(&mut self, bytes: u64) -> bool {
        let arrived = self.dest.space.arrive(bytes);
        arrived.map_err(|e| self.core.fail(e)).is_ok()
    }

    /// Sends the requests; every entry listed so far is decided on.
    pub(super) fn send_wants(&mut self) {
        let upto = self.table.next();
        self.content.send_wants(&mut self.core.out, upto);
    }

    /// Starts a job that hashes the unknown leaves, now that the block is complete.
    pub(super) fn hash_block(&mut self, number: u64, index: u64, size: u64, leaves: Box<Leaves>) {
        match self.part_file(number) {
            Ok(file) => self.workers.pool.push(WriteJob::Block {
                number,
                index,
                size,
                file,
                leaves,
            }),
            Err(e) => self.fail(number, code_of(&e), &e),
        }
    }

    /// Abandons this file, which cannot be written.
    pub(super) fn fail(&mut self, file: u64, code: Exit, why: &dyn fmt::Display) {
        let Some(slot) = self.table.get(file) else {
            return;
        };
        let text = format!("{}: {why}", path::show(&slot.item.path));
        self.core.tally.files_failed += u64::from(slot.item.is_file || code != Exit::Ok);
        self.core.trouble(file, code, text);
        self.abandon(file, code);
    }

    /// Abandons this file, which is refused.
    pub(super) fn refuse(&mut self, file: u64, refusal: &Refusal) {
        self.fail(file, refusal.code, &refusal.why);
    }

    /// Gives a file up. A large part is kept for the next run unless its source is gone.
    pub(super) fn abandon(&mut self, file: u64, code: Exit) {
        let Some(slot) = self.table.get_mut(file) else {
            return;
        };
        self.content.missing.remove(slot.range.clone());
        if code != Exit::Ok {
            self.dest.mirror.listed.waits_no_more(&slot.item.path);
        }
        // What a worker has may still get its name.
        if !matches!(slot.item.state, State::Working) {
            self.names.release(&slot.item.path, file);
        }
        let gone = self.dest.rules.pipe || matches!(code, Exit::SourceChanged | Exit::VerifyFailed);
        match std::mem::replace(&mut slot.item.state, State::Over) {
            State::Memory { bytes, .. } => self.content.resident -= bytes.len(),
            // What the worker has is counted until it is done, and its result is not waited for.
            State::Working => slot.item.state = State::GivenUp,
            State::Part(part) => self.drop_part(file, &part, !gone),
            _ => {}
        }
    }

    fn drop_part(&mut self, file: u64, part: &Part, keep: bool) {
        self.content.uncount(part);
        if self
            .table
            .get(file)
            .is_some_and(|slot| slot.item.stripe.is_some())
        {
            // What others have sent of it stays, and this one is sent again.
            if let Some(number) = part.journal.filter(|_| !keep) {
                self.workers.journal.forget(number);
            }
            return;
        }
        if part.made && !(keep && part.journal.is_some()) {
            let path = self.table.get(file).map(|slot| slot.item.path.clone());
            let path = path.unwrap_or_default();
            let gone = self.dest.remove_beside(
                &mut self.core,
                &path,
                &state_names::part_name(path::split(&path).1, self.dest.tag),
            );
            if let Some(number) = part.journal {
                self.workers.journal.forget(number);
            }
            if !gone {
                self.workers.journal.left(&path);
            }
        }
    }

    /// Ends this entry, which was `made`, or already there.
    pub(super) fn is_in_place(&mut self, number: u64, made: bool) {
        let tally = &mut self.core.tally;
        let count = if made {
            &mut tally.files_ok
        } else {
            &mut tally.files_skipped
        };
        *count += 1;
        if let Some(slot) = self.table.get_mut(number) {
            slot.item.stayed = !made;
            slot.item.state = State::InPlace;
        }
    }

    /// The file that has this one's name, unless that is this.
    pub(super) fn named_before(&mut self, number: u64) -> Option<u64> {
        let slot = self.table.get(number).filter(|slot| slot.item.is_file)?;
        let first = self.names.take(&slot.item.path, number);
        (first != number).then_some(first)
    }

    /// A worker still has one of this name that was given up.
    pub(super) fn wait_for_name(&mut self, number: u64, entry: &Entry) {
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
}
