//! Acts on the answers of workers, and ends the transfer, entry by entry: folders get their permissions, and
//! what the source lacks is deleted.

use std::io;

use super::{
    Receiver, Stage,
    destination::Destination,
    entries::Entries,
    item::State,
    job::{WriteDone, WriteJob},
    journal::{self, Journal},
    links::HardLink,
    reread::Reread,
    staging::Written,
};
use crate::{
    pool::Broken,
    progress::{FileOver, Phase},
    role::RoleCore,
    table::Slot,
    wire::{Entry, Exit, NOT_LISTED, path},
};

const CACHED: &str = "--verify-disk: the file system at the destination has no direct reads; the files were dropped from its cache and read again";

/// A sync has failed: no file of this run is known to be on the disk.
fn not_on_disk(core: &mut RoleCore, journal: &mut Journal, e: &io::Error) {
    let code = Exit::of_write(e);
    let lost = std::mem::take(&mut core.tally.files_ok);
    core.tally.files_failed += lost;
    let next = match journal.sync_failed() {
        Ok(()) => "the next run sends again what may not be on the disk".to_string(),
        Err(e) => format!("the journal cannot be written ({e}): give --verify-disk next time"),
    };
    if lost == 0 && core.log.has(code) {
        // Each of them has been reported.
        return;
    }
    core.trouble(NOT_LISTED, code, format!("{e}; {next}"));
}

impl Receiver {
    /// Takes what a worker has done, or that it panicked.
    pub(super) fn answered(&mut self, done: Result<WriteDone, Broken>) {
        match done {
            Ok(done) => self.done(done),
            Err(broken) => {
                let slot = broken.task.file.and_then(|n| self.entries.table.get(n));
                let name = slot.map_or_else(String::new, |s| path::show(&s.item.path));
                self.entries.core.fail(broken.error(&name));
            }
        }
    }

    fn done(&mut self, done: WriteDone) {
        match done {
            WriteDone::Small(endings) => {
                for (number, ending) in endings {
                    self.entries.small_done(number, ending);
                }
            }
            WriteDone::Load { load, written } => {
                let bytes = |run: &Written| run.range.end - run.range.start;
                if load.lane.is_some() {
                    self.lane_load_done(load);
                } else {
                    self.entries.workers.drained += written.iter().map(bytes).sum::<u64>();
                    self.entries.content.staging.recycle(load);
                }
                for run in written {
                    self.run_written(run);
                }
            }
            WriteDone::Block {
                number,
                index,
                value,
            } => self.entries.block_done(number, index, value),
            WriteDone::Verified { number, checked } => {
                self.entries.verified(number, checked);
            }
            WriteDone::Reused {
                number,
                count,
                done,
            } => self.entries.reused(number, count, done),
            WriteDone::Checked { number, root } => {
                self.entries.checked(number, root.ok());
            }
            WriteDone::Committed {
                number,
                striped,
                ending,
            } => {
                self.entries.workers.completing -= usize::from(striped);
                self.entries.committed(number, ending);
            }
            WriteDone::Twin { number, done } => self.twin_made(number, done),
            WriteDone::Deleted(deleted) => {
                deleted.note(&mut self.entries.core);
                self.finish();
            }
            WriteDone::Finished { problems, synced } => self.finished(problems, synced),
        }
    }

    /// Notes that a run has been written, or not.
    fn run_written(&mut self, run: Written) {
        let slot = self.entries.table.get(run.number);
        match run.outcome {
            Ok(()) => self.entries.written(run.number, &run.range, &run.leaves),
            // It may have failed before.
            Err(e) if slot.is_some_and(|s| matches!(s.item.state, State::Part(_))) => {
                self.entries.fail(run.number, Exit::of_write(&e), &e);
            }
            Err(_) => {}
        }
    }

    pub(super) fn failed_there(&mut self, file: u64, code: Exit, again: bool, text: &[u8]) {
        let entries = &mut self.entries;
        if again {
            // What has arrived of it may be in the way of what comes.
            entries.dest.folders.forget_new();
        }
        let slot = entries.table.get(file);
        let given_up = slot.is_some_and(|s| matches!(s.item.state, State::GivenUp));
        let listed = slot.is_some_and(|s| !s.item.state.is_over()) && !given_up;
        if file != NOT_LISTED && !listed {
            // What is there, or has failed, need not be waited for.
            if let Some(slot) = slot.filter(|_| again && !given_up) {
                entries.names.release(&slot.item.path, file);
            }
            return;
        }
        let promised = again
            && listed
            && self.stage == Stage::Listing
            && slot.is_some_and(|slot| entries.names.promise(&slot.item.path));
        if listed {
            entries.abandon(file, code);
        }
        if promised {
            entries.core.progress.retry();
            return;
        }
        entries.core.tally.files_failed += u64::from(code != Exit::Ok);
        entries.core.log.add(code, path::show(text));
    }

    /// Ends the listing: entries that were to be listed again and were not have failed.
    pub(super) fn end_promises(&mut self) {
        let left = self.entries.names.take_promises();
        if left > 0 {
            let core = &mut self.entries.core;
            core.tally.files_failed += left;
            let text = format!(
                "{left} files that had changed were to be listed again, and the sender did not do so"
            );
            core.log.add(Exit::SourceChanged, text);
        }
    }

    /// Removes entries that are over from the front of the table; a link that gets there is made.
    pub(super) fn pop_over(&mut self) {
        loop {
            let number = self.entries.table.first();
            let slot = self.entries.table.get_mut(number);
            let state = slot.map(|slot| &mut slot.item.state);
            if let Some(state) = state.filter(|state| matches!(state, State::Link(_)))
                && let State::Link(entry) = std::mem::replace(state, State::Over)
            {
                self.link(number, &entry);
            }
            let Entries {
                core,
                table,
                names,
                dest,
                ..
            } = &mut self.entries;
            let bytes = table.get(number).map_or(0, Slot::size);
            let Some(over) = table.pop_if(|e| e.state.is_over()) else {
                let next = table.get(number);
                let next = next.map(|slot| (number, &slot.item.path[..]));
                return core.progress.set_current(next);
            };
            let ok = matches!(over.state, State::InPlace);
            if over.linked && ok {
                dest.mirror.links.add(&over.path);
            }
            names.release(&over.path, number);
            if over.is_file && !names.is_to_come(&over.path) {
                core.progress.file_over(FileOver {
                    path: over.path,
                    bytes,
                    ok,
                    sent: ok && !over.stayed,
                });
            }
        }
    }

    /// Starts the job for folders that were left behind and in which all is over.
    pub(super) fn close_folders(&mut self) {
        let Destination { tree, folders, .. } = &mut self.entries.dest;
        if let Some(dirs) = folders.take_closing(self.entries.table.first()) {
            self.entries.workers.finish(tree.root(), dirs, false);
        }
    }

    /// Starts to delete what the source lacks; false if nothing is to be deleted.
    pub(super) fn starts_to_delete(&mut self) -> bool {
        let Destination {
            tree,
            rules,
            mirror,
            ..
        } = &mut self.entries.dest;
        let Some(delete) = rules.mirror.delete else {
            return false;
        };
        match mirror.walk(tree.root(), rules, &self.entries.core.log) {
            Ok((walk, waiting)) => {
                self.stage = Stage::Deleting;
                let disks = self.entries.workers.disks.clone();
                let job = WriteJob::delete(walk, waiting, delete.most, disks);
                self.entries.workers.pool.push(job);
                true
            }
            Err(nothing) => {
                nothing.note(&mut self.entries.core);
                false
            }
        }
    }

    /// Parts of files that an earlier run of the same command left and that are no longer sent. What stripes are collected
    /// in stays: others may still send theirs.
    pub(super) fn remove_unclaimed(&mut self) {
        let Entries {
            core,
            dest,
            workers,
            ..
        } = &mut self.entries;
        let names = workers.journal.unclaimed().map(<[u8]>::to_vec);
        let mut names: Vec<_> = names.collect();
        names.retain(|path| {
            let part = journal::part_of(&dest.tree.root(), dest.tag, path);
            part != path::split(path).1 && !dest.remove_beside(core, path, &part)
        });
        workers.journal.drop_unclaimed(&names);
    }

    /// Folders get their times, and everything reaches the disk.
    pub(super) fn finish(&mut self) {
        self.stage = Stage::Finishing;
        self.entries.core.progress.set_phase(Phase::Finishing);
        let Destination { tree, folders, .. } = &mut self.entries.dest;
        self.entries
            .workers
            .finish(tree.root(), folders.take(), true);
    }

    /// Notes the end of a job: some folders have their permissions; or all, and everything is on
    /// the disk, or not. The sender gets a report.
    pub(super) fn finished(&mut self, problems: Vec<(Exit, String)>, synced: io::Result<()>) {
        let Entries {
            core,
            dest,
            workers,
            ..
        } = &mut self.entries;
        for (code, text) in problems {
            core.trouble(NOT_LISTED, code, text);
        }
        if self.stage < Stage::Finishing {
            dest.folders.closed();
            return;
        }
        if workers.reread.as_ref().is_some_and(Reread::was_cached) {
            core.warn(CACHED.into());
        }
        for text in dest.tree.root().lacks().take() {
            core.warn(text);
        }
        match synced {
            Ok(()) if workers.disks.is_some() => {
                let noted = workers.journal.synced(core.tally.files_failed == 0);
                workers.note(core, noted);
            }
            Ok(()) => workers.journal.settle(),
            Err(e) => not_on_disk(core, &mut workers.journal, &e),
        }
        core.progress.set(&core.tally);
        core.finish();
    }

    /// Makes the entry a link to the file that is its target.
    fn link(&mut self, number: u64, entry: &Entry) {
        let Some(slot) = self.entries.table.get_mut(number) else {
            return;
        };
        match self.entries.dest.make_hard_link(&slot.item, entry) {
            Ok(HardLink::Impossible(copy)) => {
                slot.item.state = State::Working;
                let disks = self.entries.workers.disks.clone();
                let job = WriteJob::twin(number, *copy, disks);
                self.entries.workers.pool.push(job);
            }
            Ok(made) => self.linked(number, matches!(made, HardLink::Made)),
            Err(refusal) => self.entries.refuse(number, &refusal),
        }
    }

    /// Notes that the link is in place: `made`, or already there.
    fn linked(&mut self, number: u64, made: bool) {
        self.entries.abandon(number, Exit::Ok);
        self.entries.is_in_place(number, made);
    }

    /// Notes that the copy is in place, was there, or cannot be made.
    fn twin_made(&mut self, number: u64, done: io::Result<bool>) {
        let Some(slot) = self.entries.table.get_mut(number) else {
            return;
        };
        if let State::GivenUp = std::mem::replace(&mut slot.item.state, State::Over) {
            return self.entries.name_is_free(number);
        }
        match done {
            Ok(made) => self.linked(number, made),
            Err(e) => self.entries.fail(number, Exit::of_write(&e), &e),
        }
    }
}
