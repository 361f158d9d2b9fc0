//! Receives files. The receiver decides on every listed entry which bytes it still wants, places
//! what arrives, compares digests, and only then gives a file its name.
//!
//! - Nothing is written outside the destination: every name is one component relative to a directory
//!   that was opened beneath it.
//! - A target is replaced by one rename of verified content, or not touched at all.
//! - No allocation is sized by the peer's values before bytes have arrived.
//!
//! [`Receiver`] plays the role: messages, arrivals, answers of workers, the end. [`Entries`] carries each listed
//! entry from the decision to its name. Its parts are [`Names`], [`Destination`] with the mirror, [`Content`] under
//! way, and [`Workers`] with the journal. A part gets an entry, or the core, as an argument; none knows the receiver.

use std::sync::Arc;

use farhaul_core::{
    protocol::Session,
    store::{Extent, Sink, StoreError},
    time::Instant,
};

use crate::{
    bounds::{self, WINDOW},
    decide::Rules,
    error::TransferError,
    filter::Filter,
    host::Host,
    pool::Pool,
    progress::Progress,
    quota::Claim,
    requested::Requested,
    role::{Role, RoleCore},
    table::Table,
    wire::{Entry, Message, NOT_LISTED, Root, path::Tag},
};

mod arrive;
mod backups;
mod base;
mod commit;
mod compare;
mod content;
mod decide;
mod delete;
mod destination;
mod disks;
mod ending;
mod entries;
mod files;
mod folders;
mod grant;
mod item;
mod job;
mod journal;
mod lane;
mod links;
mod lock;
mod made_at_once;
mod mirror;
mod names;
mod place;
mod report;
mod reread;
mod reuse;
mod space;
mod staging;
mod target;
mod twin;
mod watch;
mod workers;

pub(crate) use backups::Backups;
pub(crate) use base::{Base, Look};
use content::Content;
pub(crate) use delete::{Listed, Step, Walk, refusal, too_many};
use destination::Destination;
use entries::Entries;
use journal::Journal;
pub(crate) use journal::is_journal;
#[cfg(test)]
pub(crate) use journal::open_journal;
#[doc(hidden)]
pub use journal::{fuzz_journal, fuzz_journal_records};
pub(crate) use lane::Receives;
pub(crate) use links::Paths;
pub(crate) use lock::Lock;
use names::Names;
use report::Reports;
pub(crate) use space::Space;
pub(crate) use staging::LaneLoad;
use workers::Workers;

/// Progress of a transfer to its end, as its receiver sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Listing: the manifest grows.
    Listing,
    /// The manifest is complete.
    Listed,
    /// All entries are over; entries that the source lacks are deleted.
    Deleting,
    /// The disk is catching up.
    Finishing,
}

/// The role that receives files.
pub(crate) struct Receiver {
    requested: Requested,
    entries: Entries,
    stage: Stage,
    reports: Reports,
}

impl Receiver {
    /// Takes the destination: makes and locks the journal.
    pub(crate) fn new(
        base: Base,
        tag: Tag,
        rules: Rules,
        requested: Requested,
        progress: Arc<Progress>,
        host: &Host,
    ) -> Result<Self, TransferError> {
        let pool = Pool::new("farhaul-write", host);
        let pool = pool.map_err(|e| TransferError::no_thread(&e))?;
        let anew = base.dir.anew().map_err(|e| base::dest_error(b"", &e))?;
        let dir = Arc::new(anew);
        let journal = Journal::open(&dir, tag)?;
        let lock = Arc::clone(journal.lock());
        let disks = rules.sync.then(|| lock.disks()).transpose()?.map(Arc::new);
        Ok(Self {
            requested,
            entries: Entries {
                core: RoleCore::of_receiver(progress, host.meter()),
                table: Table::default(),
                names: Names::new(lock.folds_case()),
                dest: Destination::new((dir, base.rename), tag, rules, (lock, disks.clone())),
                content: Content::default(),
                workers: Workers::new(pool, journal, disks, &rules),
            },
            stage: Stage::Listing,
            reports: Reports::default(),
        })
    }

    fn take_roots(&mut self, roots: Vec<Root>) {
        for root in roots {
            if let Some(slot) = self.entries.table.get_mut(root.file)
                && slot.item.takes_root()
            {
                slot.item.root = Some(root);
                self.entries.settle(root.file);
            }
        }
    }

    /// Ends the transfer, as nothing has been written for too long.
    fn get_stuck(&mut self) {
        self.entries.core.fail(watch::stuck(self.reports.unheard));
    }

    /// Lock that others wait for who want the destination: it lives until the last worker is done.
    pub(crate) const fn lock(&self) -> &Arc<Lock> {
        self.entries.workers.journal.lock()
    }

    /// Queries how much the destination can take.
    fn check_space(&mut self) {
        let dest = &mut self.entries.dest;
        dest.space.query(&dest.tree.root());
    }

    /// Limits the space to a quota.
    #[must_use]
    pub(crate) fn within(mut self, quota: Option<Claim>) -> Self {
        self.entries.dest.space.set_quota(quota);
        self
    }

    /// Sets the filter of a copy that deletes: excluded entries stay.
    pub(crate) fn excluding(mut self, filter: Filter) -> Self {
        self.entries.dest.mirror.excludes = filter;
        self
    }

    /// Takes listed entries.
    fn listed(&mut self, first: u64, entries: &[Entry]) -> Result<(), TransferError> {
        let more: usize = entries.iter().map(bounds::charge).sum();
        if first != self.entries.table.next()
            || self.stage != Stage::Listing
            || self.entries.table.charged() + more > WINDOW
            || self.entries.dest.rules.pipe && first + entries.len() as u64 > 1
        {
            return Err(TransferError::protocol(
                "the manifest is out of order or too far ahead",
            ));
        }
        if self.entries.dest.rules.stripe_scope.is_none()
            && entries.iter().any(|e| e.stripe.is_some())
        {
            return Err(TransferError::protocol(
                "stripes of files were not agreed on",
            ));
        }
        self.check_space();
        entries.iter().try_for_each(|e| {
            let left_out = self.requested.check(e)?;
            self.entries.decide(e, left_out)
        })?;
        self.entries.send_wants();
        Ok(())
    }
}

impl Role for Receiver {
    fn core(&mut self) -> &mut RoleCore {
        &mut self.entries.core
    }

    fn handle(&mut self, message: Message) -> Result<(), TransferError> {
        match message {
            Message::Entries { first, entries } => self.listed(first, &entries),
            Message::Grown { file, size } if self.entries.dest.rules.pipe => self.grown(file, size),
            Message::End { entries }
                if entries == self.entries.table.next() && self.stage == Stage::Listing =>
            {
                self.stage = Stage::Listed;
                self.entries.core.progress.scan_done();
                self.end_promises();
                Ok(())
            }
            Message::Holes { ranges } => {
                for r in &ranges {
                    self.hole(r);
                    let checked = self.entries.content.check_pieces();
                    checked.map_err(TransferError::protocol)?;
                }
                Ok(())
            }
            Message::Roots(roots) => {
                self.take_roots(roots);
                Ok(())
            }
            Message::Failed {
                file,
                code,
                again,
                text,
            } if file != NOT_LISTED || self.stage == Stage::Listing => {
                self.failed_there(file, code, again, &text);
                Ok(())
            }
            Message::Blocks {
                file,
                first,
                values,
            } => {
                self.entries.compare(file, first, &values);
                Ok(())
            }
            Message::Kept { paths } if self.stage == Stage::Listing => {
                let listed = &mut self.entries.dest.mirror.listed;
                listed.keep_all(&paths, &self.requested)
            }
            _ => Err(TransferError::protocol(
                "the peer sent a message out of order",
            )),
        }
    }

    fn poll(&mut self, now: Instant, session: &mut dyn Session) {
        let mut moved = false;
        while self.entries.core.has_room(session)
            && let Some(done) = self.entries.workers.pool.pop()
        {
            moved = true;
            self.answered(done);
        }
        self.read_lanes();
        self.reports.unheard = !self.entries.core.has_room(session);
        let pool = &self.entries.workers.pool;
        if self.reports.watch.look(pool, now, moved) {
            self.get_stuck();
        }
        if self.entries.core.fault.is_some() {
            return;
        }
        self.hash_stored();
        self.entries.write_small();
        self.write_staged(now);
        self.pop_over();
        let Entries { core, table, .. } = &mut self.entries;
        self.reports.report(core, table.first(), now);
        self.tell_taken();
        self.close_folders();
        if self.stage == Stage::Listed
            && self.entries.table.len() == 0
            && !self.entries.dest.folders.are_closing()
        {
            self.remove_unclaimed();
            if !self.starts_to_delete() {
                self.finish();
            }
        }
        let noted = self.entries.workers.journal.flush();
        self.entries.workers.note(&mut self.entries.core, noted);
        self.entries.core.out.flush(session);
    }

    fn is_waiting(&self) -> bool {
        self.entries.workers.pool.outstanding() > 0
    }

    /// Workers are polled, or a report or a write is due.
    fn next_wake(&self, now: Instant) -> Option<Instant> {
        let report = self.reports.due(&self.entries.core.tally);
        let report = report.filter(|_| !self.entries.core.is_finished());
        let write = self.entries.content.staging.since;
        let write = write.map(|since| since + place::LINGER);
        let pool = &self.entries.workers.pool;
        let (answer, stuck) = (pool.next_answer(now), self.reports.watch.stuck_at(pool));
        let own = [report, write, stuck].into_iter().flatten();
        own.chain(answer).min()
    }

    fn takes_more(&self, session: &dyn Session) -> bool {
        self.entries.core.has_room(session)
            && !self.entries.dest.folders.are_too_many()
            && !self.entries.content.is_reusing_much()
            && self.entries.workers.completing < bounds::COMPLETING
    }

    fn keep_alive(&mut self) {
        self.entries.core.report(self.reports.resolved);
    }

    fn for_lanes(&self) -> Option<u64> {
        Some(self.entries.table.large())
    }

    fn place(&mut self, extents: &[Extent], batch: &[u8]) -> Result<(), StoreError> {
        self.place_batch(extents, batch)
    }

    /// Limit on what may arrive, which is reported to the sender, and what workers have written.
    /// Where workers are behind, with small files too, the sender waits.
    fn sink(&self) -> Sink {
        let small = place::RESIDENT.saturating_sub(self.entries.workers.writing) as u64;
        Sink {
            free: self.entries.content.staging.room().min(small),
            drained: self.entries.workers.drained,
        }
    }
}

#[cfg(test)]
mod tests;
