//! Receives files. The receiver decides on every listed entry which bytes it still wants, places
//! what arrives, compares digests, and only then gives a file its name.
//!
//! - Nothing is written outside the destination: every name is one component relative to a directory
//!   that was opened beneath it.
//! - A target is replaced by one rename of verified content, or not touched at all.
//! - No allocation is sized by the peer's values before bytes have arrived.

use std::{collections::VecDeque, io, ops::Range, sync::Arc};

use farhaul_core::{
    protocol::Session,
    store::{Extent, Sink, StoreError},
    time::Instant,
};

use crate::{
    bounds::{self, WINDOW},
    decide::Rules,
    disk::File,
    error::TransferError,
    filter::Filter,
    host::Host,
    pool::{Keep, Pool},
    progress::Progress,
    quota::Claim,
    ranges::RangeSet,
    requested::Requested,
    role::{Role, RoleCore},
    sender::Identity,
    table::Table,
    wire::{Message, NOT_LISTED, Root, path::Tag},
};

mod answers;
mod backups;
mod base;
mod blocks;
mod commit;
mod compare;
mod decide;
mod delete;
mod destination;
mod disks;
mod ending;
mod failed;
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
mod pipe;
mod place;
mod report;
mod reread;
mod reuse;
mod space;
mod staging;
mod target;
mod twin;
mod watch;

pub(crate) use backups::Backups;
pub(crate) use base::{Base, Look};
pub(crate) use delete::{Listed, Step, Walk, refusal, too_many};
use destination::Destination;
use item::{COMMITTED, Gathering, Incoming, Part, State};
use job::{Small, WriteJob};
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
use reread::Reread;
pub(crate) use space::Space;
pub(crate) use staging::LaneLoad;
use staging::Staging;
use target::Target;

/// Small files per job.
const BATCH: usize = 64;

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
    core: RoleCore,
    dest: Destination,
    requested: Requested,
    journal: Journal,
    /// Set if what was written is read again.
    reread: Option<Reread>,
    table: Table<Incoming>,
    missing: RangeSet,
    pieces: Vec<Range<u64>>,
    /// Files under repair with some blocks that are to be hashed as they are stored.
    stored: VecDeque<u64>,
    staging: Staging,
    /// Bytes of small files in memory.
    resident: usize,
    /// Number of those that workers have, or will have next.
    writing: usize,
    /// Bytes that workers have written, or could not.
    drained: u64,
    small: Vec<Small>,
    /// Files before this one were looked at when names were noted in the journal.
    noted: u64,
    open: VecDeque<u64>,
    /// Blocks of parts that are not complete.
    gathering: usize,
    /// Ranges of blocks that differ.
    bad: usize,
    /// Stripes that are open, and those that workers note to be complete.
    stripes: usize,
    completing: usize,
    names: Names,
    /// Files whose blocks' values are to be requested.
    asking: Vec<u64>,
    /// Blocks of old files that workers compare.
    reusing: usize,
    pool: Pool<WriteJob>,
    wants: Vec<Range<u64>>,
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
        let mut pool = pool.map_err(|e| TransferError::no_thread(&e))?;
        let anew = base.dir.anew().map_err(|e| base::dest_error(b"", &e))?;
        let dir = Arc::new(anew);
        let journal = Journal::open(&dir, tag)?;
        let lock = Arc::clone(journal.lock());
        let folds = lock.folds_case();
        let dest = Destination::new((dir, base.rename), tag, rules, lock)?;
        // The next run of the same command must not touch what a worker of this one still writes to.
        pool.keep(Arc::clone(journal.lock()) as Keep);
        Ok(Self {
            core: RoleCore::of_receiver(progress, host.meter()),
            dest,
            journal,
            reread: rules.verify_disk.then(Reread::default),
            requested,
            table: Table::default(),
            missing: RangeSet::default(),
            pieces: Vec::new(),
            stored: VecDeque::new(),
            staging: Staging::default(),
            resident: 0,
            writing: 0,
            drained: 0,
            small: Vec::new(),
            noted: 0,
            open: VecDeque::new(),
            gathering: 0,
            bad: 0,
            stripes: 0,
            completing: 0,
            names: Names::new(folds),
            asking: Vec::new(),
            reusing: 0,
            pool,
            wants: Vec::new(),
            stage: Stage::Listing,
            reports: Reports::default(),
        })
    }

    fn take_roots(&mut self, roots: Vec<Root>) {
        for root in roots {
            if let Some(slot) = self.table.get_mut(root.file)
                && slot.item.takes_root()
            {
                slot.item.root = Some(root);
                self.settle(root.file);
            }
        }
    }

    /// Ends the transfer, as nothing has been written for too long.
    fn get_stuck(&mut self) {
        self.core.fail(watch::stuck(self.reports.unheard));
    }

    /// Error if the arrived content is in too many pieces.
    fn check_pieces(&self) -> Result<(), &'static str> {
        if self.gathering > bounds::GATHERED || self.missing.len() > bounds::GAPS {
            return Err("the peer sends pieces of more blocks than it completes");
        }
        Ok(())
    }

    /// Lock that others wait for who want the destination: it lives until the last worker is done.
    pub(crate) const fn lock(&self) -> &Arc<Lock> {
        self.journal.lock()
    }

    fn target(&mut self, number: u64) -> io::Result<Target> {
        let slot = self.table.get(number).ok_or(io::ErrorKind::NotFound)?;
        self.dest.target(&slot.item)
    }

    /// Queries how much the destination can take.
    fn check_space(&mut self) {
        self.dest.space.query(&self.dest.tree.root());
    }

    /// Counts bytes of content that are here; false if that ends the transfer.
    fn arrives(&mut self, bytes: u64) -> bool {
        let arrived = self.dest.space.arrive(bytes);
        arrived.map_err(|e| self.core.fail(e)).is_ok()
    }

    /// Limits the space to a quota.
    #[must_use]
    pub(crate) fn within(mut self, quota: Option<Claim>) -> Self {
        self.dest.space.set_quota(quota);
        self
    }

    /// Sets the filter of a copy that deletes: excluded entries stay.
    pub(crate) fn excluding(mut self, filter: Filter) -> Self {
        self.dest.mirror.excludes = filter;
        self
    }

    fn identity(&self, file: u64) -> Option<Identity> {
        let slot = self.table.get(file)?;
        let size = slot.range.end - slot.range.start;
        let stripe = slot.item.stripe.as_ref();
        let size = stripe.map_or(size, |stripe| stripe.file_size);
        Some(slot.item.meta.identity(size))
    }
}

impl Role for Receiver {
    fn core(&mut self) -> &mut RoleCore {
        &mut self.core
    }

    fn handle(&mut self, message: Message) -> Result<(), TransferError> {
        match message {
            Message::Entries { first, entries } => {
                let more: usize = entries.iter().map(bounds::charge).sum();
                if first != self.table.next()
                    || self.stage != Stage::Listing
                    || self.table.charged() + more > WINDOW
                    || self.dest.rules.pipe && first + entries.len() as u64 > 1
                {
                    return Err(TransferError::protocol(
                        "the manifest is out of order or too far ahead",
                    ));
                }
                if self.dest.rules.stripe_scope.is_none()
                    && entries.iter().any(|e| e.stripe.is_some())
                {
                    return Err(TransferError::protocol(
                        "stripes of files were not agreed on",
                    ));
                }
                self.check_space();
                entries.iter().try_for_each(|e| self.decide(e))?;
                self.send_wants();
                Ok(())
            }
            Message::Grown { file, size } if self.dest.rules.pipe => self.grown(file, size),
            Message::End { entries }
                if entries == self.table.next() && self.stage == Stage::Listing =>
            {
                self.stage = Stage::Listed;
                self.core.progress.scan_done();
                self.end_promises();
                Ok(())
            }
            Message::Holes { ranges } => {
                for r in &ranges {
                    self.hole(r);
                    self.check_pieces().map_err(TransferError::protocol)?;
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
                if !self.compare_old(file, first, &values) {
                    self.compare(file, first, &values);
                }
                Ok(())
            }
            Message::Kept { paths } if self.stage == Stage::Listing => {
                self.dest.mirror.listed.keep_all(&paths, &self.requested)
            }
            _ => Err(TransferError::protocol(
                "the peer sent a message out of order",
            )),
        }
    }

    fn poll(&mut self, now: Instant, session: &mut dyn Session) {
        let mut moved = false;
        while self.core.has_room(session)
            && let Some(done) = self.pool.pop()
        {
            moved = true;
            self.answered(done);
        }
        self.read_lanes();
        self.reports.unheard = !self.core.has_room(session);
        if self.reports.watch.look(&self.pool, now, moved) {
            self.get_stuck();
        }
        if self.core.fault.is_some() {
            return;
        }
        self.hash_stored();
        self.write_small();
        self.write_staged(now);
        self.pop_over();
        self.reports.report(&mut self.core, self.table.first(), now);
        self.tell_taken();
        self.close_folders();
        if self.stage == Stage::Listed && self.table.len() == 0 && !self.dest.folders.are_closing()
        {
            self.remove_unclaimed();
            if !self.starts_to_delete() {
                self.finish();
            }
        }
        let noted = self.journal.flush();
        self.reports.note_journal(&mut self.core, noted);
        self.core.out.flush(session);
    }

    fn is_waiting(&self) -> bool {
        self.pool.outstanding() > 0
    }

    /// Workers are polled, or a report or a write is due.
    fn next_wake(&self, now: Instant) -> Option<Instant> {
        let report = self.reports.due(&self.core.tally);
        let report = report.filter(|_| !self.core.is_finished());
        let write = self.staging.since.map(|since| since + place::LINGER);
        let answer = self.pool.next_answer(now);
        let own = [report, write, self.reports.watch.stuck_at(&self.pool)]
            .into_iter()
            .flatten();
        own.chain(answer).min()
    }

    fn takes_more(&self, session: &dyn Session) -> bool {
        self.core.has_room(session)
            && !self.dest.folders.are_too_many()
            && !self.is_reusing_much()
            && self.completing < bounds::COMPLETING
    }

    fn keep_alive(&mut self) {
        self.core.report(self.reports.resolved);
    }

    fn for_lanes(&self) -> Option<u64> {
        Some(self.table.large())
    }

    fn place(&mut self, extents: &[Extent], batch: &[u8]) -> Result<(), StoreError> {
        self.place_batch(extents, batch)
    }

    /// Limit on what may arrive, which is reported to the sender, and what workers have written.
    /// Where workers are behind, with small files too, the sender waits.
    fn sink(&self) -> Sink {
        let small = place::RESIDENT.saturating_sub(self.writing) as u64;
        Sink {
            free: self.staging.room().min(small),
            drained: self.drained,
        }
    }
}

/// Device and number of an open file.
fn inode(file: &File) -> Option<(u64, u64)> {
    let stat = file.stat().ok()?;
    Some((stat.st_dev, stat.st_ino))
}

#[cfg(test)]
mod tests;
