//! Abandons a file that fails, on whichever side it failed, reports it to the other side and counts
//! it.
//!
//! - Every file that was listed and does not exist at the end is a failure: nothing is lost silently.

use std::io;

use super::{Part, Receiver, State, journal};
use crate::{
    decide::Refusal,
    state_names,
    wire::{Exit, NOT_LISTED, path},
};

impl Receiver {
    pub(super) fn failed_there(&mut self, file: u64, code: Exit, again: bool, text: &[u8]) {
        if again {
            // What has arrived of it may be in the way of what comes.
            self.dest.folders.forget_new();
        }
        let listed = self
            .table
            .get(file)
            .is_some_and(|s| !s.item.state.is_over() && !matches!(s.item.state, State::GivenUp));
        if file != NOT_LISTED && !listed {
            if again {
                self.may_come_again(file);
            }
            return;
        }
        let promised = again && listed && self.promise(file);
        if listed {
            self.abandon(file, code);
        }
        if promised {
            self.core.progress.retry();
            return;
        }
        self.core.tally.files_failed += u64::from(code != Exit::Ok);
        let text = path::show(text);
        self.core.log.add(code, text);
    }

    /// Lets a file that is there, or has failed, be listed again as it is now: it need not wait for
    /// those before this one.
    fn may_come_again(&mut self, file: u64) {
        if let Some(slot) = self.table.get(file)
            && !matches!(slot.item.state, State::GivenUp)
        {
            self.names.release(&slot.item.path, file);
        }
    }

    /// A sync has failed: no file of this run is known to be on the disk.
    pub(super) fn not_on_disk(&mut self, e: &io::Error) {
        let code = Exit::of_write(e);
        let lost = std::mem::take(&mut self.core.tally.files_ok);
        self.core.tally.files_failed += lost;
        let next = match self.journal.sync_failed() {
            Ok(()) => "the next run sends again what may not be on the disk".to_string(),
            Err(e) => format!("the journal cannot be written ({e}): give --verify-disk next time"),
        };
        let text = format!("{e}; {next}");
        if lost == 0 && self.core.log.has(code) {
            // Each of them has been reported.
            return;
        }
        self.core.trouble(NOT_LISTED, code, text);
    }

    /// Abandons this file, which cannot be written.
    pub(super) fn fail(&mut self, file: u64, code: Exit, why: &dyn std::fmt::Display) {
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
        self.missing.remove(slot.range.clone());
        if code != Exit::Ok {
            self.dest.mirror.listed.waits_no_more(&slot.item.path);
        }
        // What a worker has may still get its name.
        if !matches!(slot.item.state, State::Working) {
            self.names.release(&slot.item.path, file);
        }
        let gone = self.dest.rules.pipe || matches!(code, Exit::SourceChanged | Exit::VerifyFailed);
        match std::mem::replace(&mut slot.item.state, State::Over) {
            State::Memory { bytes, .. } => self.resident -= bytes.len(),
            // What the worker has is counted until it is done, and its result is not waited for.
            State::Working => slot.item.state = State::GivenUp,
            State::Part(part) => self.drop_part(file, &part, !gone),
            _ => {}
        }
    }

    /// Counts a file that was already there.
    pub(super) fn was_there(&mut self, file: u64) {
        self.core.tally.files_skipped += 1;
        if let Some(slot) = self.table.get_mut(file) {
            slot.item.stayed = true;
        }
    }

    /// Ends this file: all of its content is there.
    pub(super) fn is_in_place(&mut self, file: u64) {
        if let Some(slot) = self.table.get_mut(file) {
            slot.item.state = State::InPlace;
        }
    }

    fn drop_part(&mut self, file: u64, part: &Part, keep: bool) {
        self.uncount(part);
        if self
            .table
            .get(file)
            .is_some_and(|slot| slot.item.stripe.is_some())
        {
            // What others have sent of it stays, and this one is sent again.
            if let Some(number) = part.journal.filter(|_| !keep) {
                self.journal.forget(number);
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
                self.journal.forget(number);
            }
            if !gone {
                self.journal.left(&path);
            }
        }
    }

    /// Uncounts a part that is no longer collected.
    pub(super) fn uncount(&mut self, part: &Part) {
        self.gathering -= part.gathering.len();
        self.bad -= part.bad.len();
        self.stripes -= usize::from(part.striped);
    }

    /// Parts of files that an earlier run of the same command left and that are no longer sent. What stripes are collected
    /// in stays: others may still send theirs.
    pub(super) fn remove_unclaimed(&mut self) {
        let mut names: Vec<Vec<u8>> = self.journal.unclaimed().map(<[u8]>::to_vec).collect();
        names.retain(|path| {
            let name = path::split(path).1;
            let part = journal::part_of(&self.dest.tree.root(), self.dest.tag, path);
            part != name && !self.dest.remove_beside(&mut self.core, path, &part)
        });
        self.journal.drop_unclaimed(&names);
    }
}
