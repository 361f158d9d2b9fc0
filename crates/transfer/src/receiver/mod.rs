//! What does the side that gets the files do? It decides on every listed entry which bytes it still
//! wants, places what arrives, compares digests, and only then gives a file its name.
//!
//! - Nothing is written outside the destination: every name is one component relative to a directory
//!   that was opened beneath it.
//! - A target is replaced by one rename of verified content, or not touched at all.
//! - No allocation is sized by the peer's values before bytes have arrived.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    io,
    ops::Range,
    sync::Arc,
    time::Duration,
};

use farhaul_core::{protocol::Session, time::Instant};

use crate::{
    ask::{Existing, Meter},
    asked::Asked,
    bounds::{self, WINDOW, has_room},
    confine::{Dir, Tree},
    digest::{BlockTree, Hash, Leaves},
    disk::File,
    error::{Code, TransferError},
    filter::Filter,
    host::Host,
    lanes::Lanes,
    ledger::{Ledger, Outbox, short},
    message::{Entry, Message, Root, Tally},
    mirror::Mirror,
    path::{self, Tag},
    pool::{Broken, Keep, Pool},
    progress::Progress,
    quota::Claim,
    ranges::RangeSet,
    sender::{Identity, NOT_LISTED},
    table::Table,
};

mod backups;
mod base;
mod compare;
mod decide;
mod delete;
mod disks;
mod failed;
mod files;
mod folders;
mod grant;
mod job;
mod journal;
mod lane;
mod links;
mod lock;
mod pipe;
mod place;
mod reach;
mod reread;
mod reuse;
mod staging;

use backups::Backups;
pub(crate) use base::{Base, Look};
pub(crate) use delete::{Listed, Step, Walk, check as check_delete, refusal, too_many};
use disks::Disks;
use folders::Folders;
use grant::Grants;
use job::{Folder, Meta, Small, Target, WriteDone, WriteJob};
use journal::Journal;
pub(crate) use journal::is_journal;
#[cfg(test)]
pub(crate) use journal::open_journal;
#[doc(hidden)]
pub use journal::{fuzz_journal, fuzz_journal_records};
pub(crate) use lane::{LaneLoad, Receives};
use links::Links;
pub(crate) use lock::Lock;
pub(crate) use reach::Reach;
use reread::Reread;
use reuse::Basis;
use staging::{Staging, Written};

/// In place of a count of blocks compared: the part is being named.
const COMMITTED: u64 = u64::MAX;
/// Small files per job.
const BATCH: usize = 64;
const CACHED: &str = "--verify-disk: the file system at the destination has no direct reads; the files were dropped from its cache and read again";
/// Completed entries before they are reported to the sender.
const REPORT_EVERY: u64 = 1024;
/// Longest time between reports while something changes.
const REPORT_AFTER: Duration = Duration::from_millis(200);

/// A listed entry.
#[expect(clippy::struct_excessive_bools, reason = "independent of each other")]
struct Incoming {
    path: Vec<u8>,
    meta: Meta,
    is_file: bool,
    /// Something has its name already.
    replaces: bool,
    /// The permissions of what has it.
    mode_there: Option<u32>,
    /// Why that may not be replaced, if it is not the same.
    stands: Option<&'static str>,
    /// Later entries may be links to it.
    linked: bool,
    /// Blocks of what has its name may be the same.
    reuses: bool,
    /// Its content was requested twice.
    repaired: bool,
    root: Option<Root>,
    state: State,
}

impl Incoming {
    /// False from when its content was found to match the received root until that turns out to be wrong: the
    /// root then reported is the one that was checked.
    fn takes_root(&self) -> bool {
        match &self.state {
            State::Part(part) => part.compared != Some(COMMITTED),
            State::Waits(_) | State::Wanted | State::Memory { .. } | State::Checking(_) => true,
            _ => false,
        }
    }
}

enum State {
    /// Nothing more will be done.
    Over,
    /// Nothing more will be done: it is in place.
    InPlace,
    /// A link to the file listed under this path, made once all before it is over.
    Link(Vec<u8>),
    /// A worker still has one of this name that was given up: decided on when that is done.
    Waits(Box<Entry>),
    /// No byte has arrived.
    Wanted,
    /// A small file being collected.
    Memory {
        bytes: Vec<u8>,
        left: usize,
    },
    /// A worker has it.
    Working,
    /// A worker has it, and the sender has given it up: it is over when the worker is done.
    GivenUp,
    /// What is there may be the same; its root once known, and whether holes went into it as such.
    Checking(Option<(Hash, bool)>),
    Part(Box<Part>),
}

/// A file collected on disk.
struct Part {
    file: Option<Arc<File>>,
    /// Exists on disk.
    made: bool,
    /// What is missing in it reads as zeros.
    cleared: bool,
    /// Which file on which device it then is.
    inode: Option<(u64, u64)>,
    /// Its number in the journal.
    journal: Option<u64>,
    /// Blocks that some bytes have been written of.
    gathering: BTreeMap<u64, Gathering>,
    tree: BlockTree,
    /// Values of the sender's blocks compared so far, once they were requested.
    compared: Option<u64>,
    /// Blocks that differ.
    bad: Vec<Range<u64>>,
    /// Blocks that counted as holes and are to be hashed as they are stored.
    stored: RangeSet,
    /// Its disk gave something else back.
    lost: bool,
    /// What was there, until it has been compared.
    basis: Option<Box<Basis>>,
}

impl Part {
    fn new(size: u64) -> Self {
        Self {
            file: None,
            made: false,
            cleared: true,
            inode: None,
            journal: None,
            gathering: BTreeMap::new(),
            tree: BlockTree::new(size),
            compared: None,
            bad: Vec::new(),
            stored: RangeSet::default(),
            lost: false,
            basis: None,
        }
    }
}

/// A block that is not complete.
struct Gathering {
    /// Bytes not written yet.
    left: u64,
    /// Apart: a map of one block has room for many.
    leaves: Box<Leaves>,
}

impl Gathering {
    fn new(bytes: u64) -> Self {
        Self {
            left: bytes,
            leaves: Box::new(Leaves::new(bytes)),
        }
    }
}

/// How a receiver works.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent of each other")]
pub(crate) struct Rules {
    /// Files reach the disk before they count.
    pub(crate) sync: bool,
    pub(crate) existing: Existing,
    /// Files of the same size are compared by content, whatever their times.
    pub(crate) checksum: bool,
    /// What was written is read again from the disk before it counts.
    pub(crate) verify_disk: bool,
    pub(crate) reach: Reach,
    /// Others than the sender may copy to this place: it delivers nothing under the names of their state.
    pub(crate) strangers: bool,
    pub(crate) mirror: Mirror,
    /// What arrives comes through a pipe: one file, which grows, and which the sender cannot send again.
    pub(crate) pipe: bool,
}

/// How far a transfer is, as its receiver sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// The manifest grows.
    Listing,
    /// It is complete.
    Listed,
    /// All entries are over; what the source lacks is deleted.
    Deleting,
    /// The disk is catching up.
    Finishing,
    /// It was reported to the sender.
    Finished,
    /// The sender knows.
    Closing,
}

/// The receiving half of a transfer.
pub(crate) struct Receiver {
    tree: Tree,
    rename: Option<Vec<u8>>,
    tag: Tag,
    rules: Rules,
    asked: Asked,
    journal: Journal,
    /// What is to be synced, unless nothing is.
    disks: Option<Arc<Disks>>,
    /// Whether what was written is read again.
    reread: Option<Reread>,
    table: Table<Incoming>,
    missing: RangeSet,
    pieces: Vec<Range<u64>>,
    /// Files under repair some blocks of which are to be hashed as they are stored.
    stored: VecDeque<u64>,
    staging: Staging,
    /// Further lanes, once there may be some.
    pub(crate) lanes: Option<Arc<Lanes>>,
    /// Bytes wanted that will need space.
    promised: u64,
    /// Free bytes of the destination when last queried.
    free: u64,
    /// Its part of the quota of the share, if there is one.
    quota: Option<Claim>,
    /// Bytes of small files in memory.
    resident: usize,
    /// Those of them that workers have, or will have next.
    writing: usize,
    /// Bytes that workers have written, or could not.
    drained: u64,
    small: Vec<Small>,
    open: VecDeque<u64>,
    folders: Folders,
    /// Blocks of parts that are not complete.
    gathering: usize,
    /// Ranges of blocks that differ.
    bad: usize,
    /// Files under way by path: no two of them may be collected in one place.
    names: HashMap<Vec<u8>, u64>,
    /// Of a copy that deletes: what was listed.
    listed: Listed,
    /// And what stays although it was not.
    excludes: Filter,
    /// Names that backups have, or cannot have.
    backups: Backups,
    /// Files that others may be links to.
    links: Links,
    /// What the sender's facts may change here.
    grants: Grants,
    /// Files whose blocks' values are to be requested.
    asking: Vec<u64>,
    /// Blocks of old files that workers compare.
    reusing: usize,
    /// Digests of the paths that the sender gave up and is to list again.
    again: HashSet<[u8; 8]>,
    /// Where names that differ only in case are one: digests of the lower case of every path listed, and
    /// of the path that had it first.
    folded: Option<HashMap<[u8; 8], [u8; 8]>>,
    pool: Pool<WriteJob>,
    wants: Vec<Range<u64>>,
    stage: Stage,
    reported: (u64, Tally, Option<Instant>),
    /// Bytes from the start of what comes through a pipe that the sender may forget.
    taken: u64,
    out: Outbox,
    /// Answers wait to leave.
    unheard: bool,
    /// Since when workers have had something to do and got nothing done.
    waiting_since: Option<Instant>,
    /// How far jobs that last had got.
    steps: u64,
    pub(crate) ledger: Ledger,
    pub(crate) tally: Tally,
    /// Root of the last file, for a transfer of one.
    pub(crate) last_root: Option<Hash>,
    meter: Meter,
    progress: Arc<Progress>,
    /// It was reported that the journal cannot be written.
    unnoted: bool,
    /// Ends the transfer.
    fault: Option<TransferError>,
}

impl Receiver {
    /// Takes the destination: makes and locks the journal.
    pub(crate) fn new(
        base: Base,
        tag: Tag,
        rules: Rules,
        asked: Asked,
        progress: Arc<Progress>,
        host: &Host,
    ) -> Result<Self, TransferError> {
        let pool = Pool::new("farhaul-write", host);
        let mut pool = pool.map_err(|e| {
            TransferError::new(Code::Internal, format!("cannot start a thread: {e}"))
        })?;
        let journal = Journal::open(&base.dir, tag)?;
        let folds = journal.lock().folds_case();
        let disks = journal.lock().disks();
        let disks = rules.sync.then_some(disks).transpose()?.map(Arc::new);
        // The next run of the same command must not touch what a worker of this one still writes to.
        pool.keep(Arc::clone(journal.lock()) as Keep);
        Ok(Self {
            folded: folds.then(HashMap::new),
            journal,
            disks,
            reread: rules.verify_disk.then(Reread::default),
            tree: Tree::new(base.dir),
            rename: base.rename,
            tag,
            rules,
            asked,
            table: Table::default(),
            missing: RangeSet::default(),
            pieces: Vec::new(),
            stored: VecDeque::new(),
            staging: Staging::default(),
            lanes: None,
            promised: 0,
            free: u64::MAX,
            quota: None,
            resident: 0,
            writing: 0,
            drained: 0,
            small: Vec::new(),
            open: VecDeque::new(),
            folders: Folders::default(),
            gathering: 0,
            bad: 0,
            names: HashMap::new(),
            listed: Listed::new(folds),
            excludes: Filter::default(),
            backups: Backups::default(),
            links: Links::default(),
            grants: Grants::new(&rules),
            asking: Vec::new(),
            reusing: 0,
            again: HashSet::new(),
            pool,
            wants: Vec::new(),
            stage: Stage::Listing,
            reported: (0, Tally::default(), None),
            taken: 0,
            out: Outbox::default(),
            unheard: false,
            waiting_since: None,
            steps: 0,
            ledger: Ledger::default(),
            tally: Tally::default(),
            last_root: None,
            meter: host.meter(),
            progress,
            unnoted: false,
            fault: None,
        })
    }

    /// The same within a quota.
    #[must_use]
    pub(crate) fn within(mut self, quota: Option<Claim>) -> Self {
        self.quota = quota;
        self
    }

    /// True if another message may be taken: there is room for what is answered.
    pub(crate) fn takes_more(&self, session: &dyn Session) -> bool {
        has_room(&self.out, session) && !self.folders.are_too_many() && !self.is_reusing_much()
    }

    /// True once all files are complete and the sender has been notified.
    pub(crate) fn is_finished(&self) -> bool {
        self.stage >= Stage::Finished
    }

    /// True once the sender knows.
    pub(crate) fn is_over(&self) -> bool {
        self.stage == Stage::Closing
    }

    /// True while workers have something to answer.
    pub(crate) const fn is_waiting(&self) -> bool {
        self.pool.outstanding() > 0
    }

    /// When workers are to be polled, or a report or a write is due though nothing arrives.
    pub(crate) fn next_wake(&self, now: Instant) -> Option<Instant> {
        let (_, tally, at) = &self.reported;
        let report = at.filter(|_| *tally != self.tally && !self.is_finished());
        let report = report.map(|at| at + REPORT_AFTER);
        let write = self.staging.since.map(|since| since + place::LINGER);
        let answer = self.pool.next_answer(now);
        let own = [report, write, self.stuck_at()].into_iter().flatten();
        own.chain(answer).min()
    }

    /// Sends a sign of progress: a report, though nothing changed.
    pub(crate) fn send_keep_alive(&mut self) {
        self.out.push(&Message::Report {
            resolved: self.reported.0,
            tally: self.tally,
        });
    }

    /// Moves everything on.
    pub(crate) fn poll(&mut self, now: Instant, session: &mut dyn Session) {
        let mut moved = false;
        while has_room(&self.out, session)
            && let Some(done) = self.pool.pop()
        {
            moved = true;
            self.answered(done);
        }
        self.read_lanes();
        self.unheard = !has_room(&self.out, session);
        self.watch_disk(now, moved);
        if self.fault.is_some() {
            return;
        }
        self.hash_stored();
        self.write_small();
        self.write_staged(now);
        self.pop_over();
        self.report(now);
        self.tell_taken();
        self.close_folders();
        if self.stage == Stage::Listed && self.table.len() == 0 && !self.folders.are_closing() {
            self.remove_unclaimed();
            if !self.starts_to_delete() {
                self.finish();
            }
        }
        let noted = self.journal.flush();
        self.note_journal(noted);
        self.out.flush(session);
    }

    /// Takes a message from the sender.
    pub(crate) fn handle(&mut self, message: Message) -> Result<(), TransferError> {
        match message {
            Message::Entries { first, entries } => {
                let more: usize = entries.iter().map(bounds::charge).sum();
                if first != self.table.next()
                    || self.stage != Stage::Listing
                    || self.table.charged() + more > WINDOW
                    || self.rules.pipe && first + entries.len() as u64 > 1
                {
                    return Err(TransferError::protocol(
                        "the manifest is out of order or too far ahead",
                    ));
                }
                self.check_space();
                entries.iter().try_for_each(|e| self.decide(e))?;
                self.send_wants();
                Ok(())
            }
            Message::Grown { file, size } if self.rules.pipe => self.grown(file, size),
            Message::End { entries }
                if entries == self.table.next() && self.stage == Stage::Listing =>
            {
                self.stage = Stage::Listed;
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
            Message::Kept { paths } if self.stage == Stage::Listing => self.note_kept(&paths),
            Message::Bye { .. } if self.is_finished() => {
                self.stage = Stage::Closing;
                Ok(())
            }
            _ => Err(TransferError::protocol(
                "the peer sent a message out of order",
            )),
        }
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

    /// Why what arrived is in too many pieces, if it is.
    fn check_pieces(&self) -> Result<(), &'static str> {
        if self.gathering > bounds::GATHERED || self.missing.len() > bounds::GAPS {
            return Err("the peer sends pieces of more blocks than it completes");
        }
        Ok(())
    }

    fn report(&mut self, now: Instant) {
        self.progress.set(&self.tally);
        let (resolved, tally, at) = &mut self.reported;
        let first = self.table.first();
        let at = *at.get_or_insert(now);
        let changed = *resolved != first || *tally != self.tally;
        let due = first - *resolved >= REPORT_EVERY || now.since(at) >= REPORT_AFTER;
        if changed && due && !self.is_finished() {
            self.reported = (first, self.tally, Some(now));
            self.out.push(&Message::Report {
                resolved: first,
                tally: self.tally,
            });
        } else if now.since(at) >= REPORT_AFTER {
            self.reported.2 = Some(now);
        }
    }

    /// Reports once that the journal cannot be written.
    fn note_journal(&mut self, noted: io::Result<()>) {
        if let Err(e) = noted
            && !std::mem::replace(&mut self.unnoted, true)
        {
            let text = "the journal cannot be written, so this transfer cannot be continued";
            self.warn(format!("{text}: {e}"));
        }
    }

    /// Something that both sides should know.
    fn warn(&mut self, text: String) {
        self.record(Code::Ok, text);
    }

    fn record(&mut self, code: Code, text: String) {
        self.out.push(&Message::Trouble {
            file: NOT_LISTED,
            code,
            text: short(&text),
        });
        self.ledger.add(code, text);
    }

    /// What others wait for who want the destination: it lives until the last worker is done.
    pub(crate) const fn lock(&self) -> &Arc<Lock> {
        self.journal.lock()
    }

    /// Why the transfer must end, once.
    pub(crate) const fn take_fault(&mut self) -> Option<TransferError> {
        self.fault.take()
    }

    fn answered(&mut self, done: Result<WriteDone, Broken>) {
        match done {
            Ok(done) => self.done(done),
            Err(broken) => {
                let slot = broken.task.file.and_then(|n| self.table.get(n));
                let name = slot.map_or_else(String::new, |s| path::show(&s.item.path));
                self.fault.get_or_insert(broken.error(&name));
            }
        }
    }

    fn done(&mut self, done: WriteDone) {
        match done {
            WriteDone::Small(endings) => {
                for (number, ending) in endings {
                    self.small_done(number, ending);
                }
            }
            WriteDone::Load { load, written } => {
                let bytes = |run: &Written| run.range.end - run.range.start;
                if load.lane.is_some() {
                    self.lane_load_done(load);
                } else {
                    self.drained += written.iter().map(bytes).sum::<u64>();
                    self.staging.recycle(load);
                }
                for run in written {
                    self.run_written(run);
                }
            }
            WriteDone::Block {
                number,
                index,
                value,
            } => self.block_done(number, index, value),
            WriteDone::Verified { number, checked } => self.verified(number, checked),
            WriteDone::Reused {
                number,
                count,
                done,
            } => self.reused(number, count, done),
            WriteDone::Checked { number, root } => self.checked(number, root.ok()),
            WriteDone::Committed { number, ending } => self.committed(number, ending),
            WriteDone::Deleted(deleted) => self.deleted(deleted),
            WriteDone::Finished { problems, synced } => {
                for (code, text) in problems {
                    self.record(code, text);
                }
                if self.stage < Stage::Finishing {
                    return self.folders_closed();
                }
                if self.reread.as_ref().is_some_and(Reread::was_cached) {
                    self.warn(CACHED.into());
                }
                for text in self.grants.refused() {
                    self.warn(text);
                }
                match synced {
                    Ok(()) if self.disks.is_some() => {
                        let noted = self.journal.synced(self.tally.files_failed == 0);
                        self.note_journal(noted);
                    }
                    Ok(()) => self.journal.settle(),
                    Err(e) => self.not_on_disk(&e),
                }
                self.progress.set(&self.tally);
                self.out.push(&Message::Finished {
                    tally: self.tally,
                    usage: self.meter.usage(),
                });
                self.stage = Stage::Finished;
            }
        }
    }

    /// A handle on the target's directory, and its name there.
    fn target(&mut self, file: u64) -> io::Result<Target> {
        let slot = self.table.get(file).ok_or(io::ErrorKind::NotFound)?;
        let (parent, name) = path::split(&slot.item.path);
        let dir: Dir = self.tree.dir(parent)?;
        if let Some(disks) = &self.disks {
            disks.hold(&dir, parent)?;
        }
        Ok(Target {
            dir,
            name: name.to_vec(),
            meta: slot.item.meta.clone(),
            replaces: slot.item.replaces,
            backup: self.rules.mirror.backup,
        })
    }

    fn identity(&self, file: u64) -> Option<Identity> {
        let slot = self.table.get(file)?;
        Some(Identity {
            size: slot.range.end - slot.range.start,
            mtime: slot.item.meta.mtime,
            mtime_nanos: slot.item.meta.mtime_nanos,
        })
    }
}

/// Device and number of an open file.
fn inode(file: &File) -> Option<(u64, u64)> {
    let stat = file.stat().ok()?;
    Some((stat.st_dev, stat.st_ino))
}

/// Nothing more is collected for this file: another may have its name.
fn release(names: &mut HashMap<Vec<u8>, u64>, path: &[u8], file: u64) {
    if names.get(path) == Some(&file) {
        names.remove(path);
    }
}

#[cfg(test)]
mod tests;
