//! Ends the transfer, entry by entry: links are made, folders get their permissions, and what the source lacks
//! is deleted.

use std::io;

use super::{
    Incoming, Receiver, Reread, Stage, State, WriteJob, destination::Destination, links::HardLink,
};
use crate::{
    progress::{FileOver, Phase},
    wire::{Entry, Exit, NOT_LISTED},
};

const CACHED: &str = "--verify-disk: the file system at the destination has no direct reads; the files were dropped from its cache and read again";

impl Receiver {
    /// Makes the entry a link to the file that is its target.
    fn link(&mut self, number: u64, entry: &Entry) {
        let Some(slot) = self.table.get_mut(number) else {
            return;
        };
        match self.dest.make_hard_link(&slot.item, entry) {
            Ok(HardLink::Impossible(from, target)) => {
                slot.item.state = State::Working;
                self.pool.push(WriteJob::Twin {
                    number,
                    from,
                    target,
                    disks: self.dest.disks.clone(),
                });
            }
            Ok(made) => self.linked(number, matches!(made, HardLink::Made)),
            Err(refusal) => self.refuse(number, &refusal),
        }
    }

    /// Notes that the link is in place: `made`, or already there.
    pub(super) fn linked(&mut self, number: u64, made: bool) {
        if made {
            self.core.tally.files_ok += 1;
        } else {
            self.was_there(number);
        }
        self.abandon(number, Exit::Ok);
        self.is_in_place(number);
    }

    /// Removes entries that are over from the front of the table; a link that gets there is made.
    pub(super) fn pop_over(&mut self) {
        loop {
            let number = self.table.first();
            let state = self.table.get_mut(number).map(|slot| &mut slot.item.state);
            if let Some(state) = state.filter(|state| matches!(state, State::Link(_)))
                && let State::Link(entry) = std::mem::replace(state, State::Over)
            {
                self.link(number, &entry);
            }
            let is_over = |e: &Incoming| e.state.is_over();
            let slot = self.table.get(number);
            let bytes = slot.map_or(0, |slot| slot.range.end - slot.range.start);
            let Some(over) = self.table.pop_if(is_over) else {
                let next = self.table.get(number);
                self.core
                    .progress
                    .set_current(next.map(|slot| (number, &slot.item.path[..])));
                return;
            };
            if over.linked && matches!(over.state, State::InPlace) {
                self.dest.mirror.links.add(&over.path);
            }
            self.names.release(&over.path, number);
            if over.is_file && !self.names.is_to_come(&over.path) {
                let ok = matches!(over.state, State::InPlace);
                self.core.progress.file_over(FileOver {
                    path: over.path,
                    bytes,
                    ok,
                    sent: ok && !over.stayed,
                });
            }
        }
    }

    /// Notes that the copy is in place, was there, or cannot be made.
    pub(super) fn twin_made(&mut self, number: u64, done: io::Result<bool>) {
        let Some(slot) = self.table.get_mut(number) else {
            return;
        };
        if let State::GivenUp = std::mem::replace(&mut slot.item.state, State::Over) {
            return self.name_is_free(number);
        }
        match done {
            Ok(made) => self.linked(number, made),
            Err(e) => self.fail(number, Exit::of_write(&e), &e),
        }
    }

    /// Starts the job for folders that were left behind and in which all is over.
    pub(super) fn close_folders(&mut self) {
        if let Some(dirs) = self.dest.folders.take_closing(self.table.first()) {
            self.pool.push(WriteJob::Finish {
                root: self.dest.tree.root(),
                dirs,
                disks: None,
            });
        }
    }

    /// Starts to delete what the source lacks; false if nothing is to be deleted.
    pub(super) fn starts_to_delete(&mut self) -> bool {
        let Destination {
            tree,
            rules,
            disks,
            mirror,
            ..
        } = &mut self.dest;
        let Some(delete) = rules.mirror.delete else {
            return false;
        };
        match mirror.walk(tree.root(), rules, &self.core.log) {
            Ok((walk, waiting)) => {
                self.stage = Stage::Deleting;
                self.pool.push(WriteJob::Delete {
                    walk,
                    waiting,
                    most: delete.most,
                    disks: disks.clone(),
                });
                true
            }
            Err(nothing) => {
                nothing.note(&mut self.core);
                false
            }
        }
    }

    /// Folders get their times, and everything reaches the disk.
    pub(super) fn finish(&mut self) {
        self.stage = Stage::Finishing;
        self.core.progress.set_phase(Phase::Finishing);
        let (root, dirs) = (self.dest.tree.root(), self.dest.folders.take());
        let disks = self.dest.disks.clone();
        self.pool.push(WriteJob::Finish { root, dirs, disks });
    }

    /// Notes the end of a job: some folders have their permissions; or all, and everything is on
    /// the disk, or not. The sender gets a report.
    pub(super) fn finished(&mut self, problems: Vec<(Exit, String)>, synced: io::Result<()>) {
        for (code, text) in problems {
            self.core.trouble(NOT_LISTED, code, text);
        }
        if self.stage < Stage::Finishing {
            self.dest.folders.closed();
            return;
        }
        if self.reread.as_ref().is_some_and(Reread::was_cached) {
            self.core.warn(CACHED.into());
        }
        for text in self.dest.tree.root().lacks().take() {
            self.core.warn(text);
        }
        match synced {
            Ok(()) if self.dest.disks.is_some() => {
                let noted = self.journal.synced(self.core.tally.files_failed == 0);
                self.reports.note_journal(&mut self.core, noted);
            }
            Ok(()) => self.journal.settle(),
            Err(e) => self.not_on_disk(&e),
        }
        self.core.progress.set(&self.core.tally);
        self.core.finish();
    }
}
