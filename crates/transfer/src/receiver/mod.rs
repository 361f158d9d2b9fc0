//! What does the side that gets the files do? It decides on every listed entry which bytes it still
//! wants, places what arrives, compares digests, and only then gives a file its name.
//!
//! - Nothing is written outside the destination: every name is one component relative to a directory
//!   that was opened beneath it.
//! - A target is replaced by one rename of verified content, or not touched at all.
//! - What the peer says bounds nothing that is allocated before bytes have arrived.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    fs::File,
    io,
    ops::Range,
    sync::Arc,
    time::Duration,
};

use farhaul_core::{protocol::Session, time::Instant};

use crate::{
    ask::{Existing, Meter},
    confine::{Dir, Tree},
    digest::{BlockTree, Hash, Leaves},
    error::{Code, TransferError},
    ledger::{Ledger, Outbox, short},
    message::{Message, Root, Tally},
    path::{self, Tag},
    pool::{Pool, Wake},
    progress::Progress,
    ranges::RangeSet,
    sender::{Identity, NOT_LISTED},
    table::{Table, WINDOW},
};

mod base;
mod decide;
mod files;
mod job;
mod journal;
mod place;
mod staging;

pub(crate) use base::{Base, Look};
use job::{Meta, Small, Target, WriteDone, WriteJob};
use journal::Journal;
#[doc(hidden)]
pub use journal::{fuzz_journal, fuzz_journal_records};
use staging::Staging;

/// Small files per job.
const BATCH: usize = 64;
/// Entries over before the sender is told.
const REPORT_EVERY: u64 = 1024;
/// Longest time between reports while something changes.
const REPORT_AFTER: Duration = Duration::from_millis(200);

/// A listed entry.
struct Incoming {
    path: Vec<u8>,
    meta: Meta,
    is_file: bool,
    /// Something has its name already.
    replaces: bool,
    /// Its content was asked for twice.
    repaired: bool,
    root: Option<Root>,
    state: State,
}

enum State {
    /// Nothing more will be done.
    Over,
    /// No byte has arrived.
    Wanted,
    /// A small file being collected.
    Memory {
        bytes: Vec<u8>,
        left: usize,
    },
    /// A worker has it.
    Working,
    /// What is there may be the same; its root once known, and whether holes went into it as such.
    Checking(Option<(Hash, bool)>),
    Part(Box<Part>),
}

/// A file collected on disk.
struct Part {
    file: Option<Arc<File>>,
    /// Exists on disk.
    made: bool,
    /// Its number in the journal.
    journal: Option<u64>,
    /// Blocks that some bytes have been written of.
    gathering: BTreeMap<u64, Gathering>,
    tree: BlockTree,
    /// Values of the sender's blocks compared so far, once they were asked for.
    compared: Option<u64>,
    bad: Vec<u64>,
}

impl Part {
    fn new(size: u64) -> Self {
        Self {
            file: None,
            made: false,
            journal: None,
            gathering: BTreeMap::new(),
            tree: BlockTree::new(size),
            compared: None,
            bad: Vec::new(),
        }
    }
}

/// A block that is not complete.
struct Gathering {
    /// Bytes not written yet.
    left: u64,
    leaves: Leaves,
}

impl Gathering {
    fn new(bytes: u64) -> Self {
        Self {
            left: bytes,
            leaves: Leaves::new(bytes),
        }
    }
}

/// How a receiver works.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Files reach the disk before they count.
    pub(crate) sync: bool,
    pub(crate) existing: Existing,
    /// Files of the same size are compared by content, whatever their times.
    pub(crate) checksum: bool,
}

/// How far a transfer is, as its receiver sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// The manifest grows.
    Listing,
    /// It is complete.
    Listed,
    /// All entries are over; the disk is catching up.
    Finishing,
    /// The sender has been told.
    Finished,
    /// The sender knows.
    Farewell,
}

/// The receiving half of a transfer.
pub(crate) struct Receiver {
    tree: Tree,
    rename: Option<Vec<u8>>,
    tag: Tag,
    rules: Rules,
    journal: Journal,
    table: Table<Incoming>,
    missing: RangeSet,
    pieces: Vec<Range<u64>>,
    staging: Staging,
    /// Bytes wanted that will need space.
    promised: u64,
    /// Bytes the destination could take when last asked.
    free: u64,
    /// Bytes of small files in memory.
    resident: usize,
    small: Vec<Small>,
    open: VecDeque<u64>,
    dirs: Vec<(Vec<u8>, Meta)>,
    /// Directories made by this transfer: nothing can be in the way in them.
    fresh: HashSet<Vec<u8>>,
    /// Files under way by path: no two of them may be collected in one place.
    names: HashMap<Vec<u8>, u64>,
    pool: Pool<WriteJob>,
    wants: Vec<Range<u64>>,
    stage: Stage,
    reported: (u64, Tally, Option<Instant>),
    out: Outbox,
    pub(crate) ledger: Ledger,
    pub(crate) tally: Tally,
    /// Root of the last file, for a transfer of one.
    pub(crate) last_root: Option<Hash>,
    meter: Meter,
    progress: Arc<Progress>,
}

impl Receiver {
    /// Takes the destination: makes and locks the journal.
    pub(crate) fn new(
        base: Base,
        tag: Tag,
        rules: Rules,
        progress: Arc<Progress>,
        wake: Option<&Wake>,
    ) -> Result<Self, TransferError> {
        let pool = Pool::new("farhaul-write", wake);
        let pool = pool.map_err(|e| {
            TransferError::new(Code::Internal, format!("cannot start a thread: {e}"))
        })?;
        Ok(Self {
            journal: Journal::open(&base.dir, tag)?,
            tree: Tree::new(base.dir),
            rename: base.rename,
            tag,
            rules,
            table: Table::default(),
            missing: RangeSet::default(),
            pieces: Vec::new(),
            staging: Staging::default(),
            promised: 0,
            free: u64::MAX,
            resident: 0,
            small: Vec::new(),
            open: VecDeque::new(),
            dirs: Vec::new(),
            fresh: HashSet::new(),
            names: HashMap::new(),
            pool,
            wants: Vec::new(),
            stage: Stage::Listing,
            reported: (0, Tally::default(), None),
            out: Outbox::default(),
            ledger: Ledger::default(),
            tally: Tally::default(),
            last_root: None,
            meter: Meter::new(),
            progress,
        })
    }

    /// True once all files are as they should be and the sender has been told.
    pub(crate) fn is_finished(&self) -> bool {
        self.stage >= Stage::Finished
    }

    /// True once the sender knows.
    pub(crate) fn is_over(&self) -> bool {
        self.stage == Stage::Farewell
    }

    /// True while workers have something to answer.
    pub(crate) fn is_waiting(&self) -> bool {
        self.pool.outstanding() > 0
    }

    /// When a report or a write is due though nothing arrives.
    pub(crate) fn next_wake(&self) -> Option<Instant> {
        let (_, told, at) = &self.reported;
        let report = at.filter(|_| *told != self.tally && !self.is_finished());
        let report = report.map(|at| at + REPORT_AFTER);
        let write = self.staging.since.map(|since| since + place::LINGER);
        report.into_iter().chain(write).min()
    }

    /// Moves everything on.
    pub(crate) fn poll(&mut self, now: Instant, session: &mut dyn Session) {
        while let Some(done) = self.pool.pop() {
            self.done(done);
        }
        self.write_small();
        self.write_staged(now);
        loop {
            let number = self.table.first();
            let Some(over) = self.table.pop_if(|e| matches!(e.state, State::Over)) else {
                break;
            };
            release(&mut self.names, &over.path, number);
        }
        self.report(now);
        if self.stage == Stage::Listed && self.table.len() == 0 {
            self.stage = Stage::Finishing;
            self.remove_unclaimed();
            let (root, dirs) = (self.tree.root(), std::mem::take(&mut self.dirs));
            self.pool.push(WriteJob::Finish {
                root,
                dirs,
                sync: self.rules.sync,
            });
        }
        if let Err(e) = self.journal.flush() {
            self.ledger.add(
                Code::Ok,
                format!("the journal cannot be written, so this transfer cannot be continued: {e}"),
            );
        }
        self.out.flush(session);
    }

    /// Takes a message from the sender.
    pub(crate) fn handle(&mut self, message: Message) -> Result<(), TransferError> {
        match message {
            Message::Entries { first, entries } => {
                if first != self.table.next()
                    || self.stage != Stage::Listing
                    || self.table.len() + entries.len() > WINDOW
                {
                    return Err(TransferError::protocol(
                        "the manifest is out of order or too far ahead",
                    ));
                }
                self.look_at_space();
                entries.iter().try_for_each(|e| self.decide(e))?;
                self.tell_wants();
                Ok(())
            }
            Message::End { entries }
                if entries == self.table.next() && self.stage == Stage::Listing =>
            {
                self.stage = Stage::Listed;
                Ok(())
            }
            Message::Holes { ranges } => {
                for r in &ranges {
                    self.hole(r);
                }
                Ok(())
            }
            Message::Roots(roots) => {
                for root in roots {
                    if let Some(slot) = self.table.get_mut(root.file) {
                        slot.item.root = Some(root);
                        self.settle(root.file);
                    }
                }
                Ok(())
            }
            Message::Failed {
                file,
                code,
                again,
                text,
            } => {
                self.failed_there(file, code, again, &text);
                Ok(())
            }
            Message::Blocks {
                file,
                first,
                values,
            } => {
                self.compare(file, first, &values);
                Ok(())
            }
            Message::Bye { .. } if self.is_finished() => {
                self.stage = Stage::Farewell;
                Ok(())
            }
            _ => Err(TransferError::protocol(
                "the peer sent a message out of place",
            )),
        }
    }

    fn failed_there(&mut self, file: u64, code: Code, again: bool, text: &[u8]) {
        let listed = self
            .table
            .get(file)
            .is_some_and(|s| !matches!(s.item.state, State::Over));
        if file != NOT_LISTED && !listed {
            return;
        }
        if listed {
            self.abandon(file, code);
        }
        if again {
            self.progress.retry();
            return;
        }
        self.tally.files_failed += u64::from(code != Code::Ok);
        let text = path::show(text);
        self.ledger.add(code, text);
    }

    /// This file cannot be written.
    fn fail(&mut self, file: u64, code: Code, why: &dyn std::fmt::Display) {
        let Some(slot) = self.table.get(file) else {
            return;
        };
        let text = format!("{}: {why}", path::show(&slot.item.path));
        self.out.push(&Message::Trouble {
            file,
            code,
            text: short(&text),
        });
        self.tally.files_failed += u64::from(slot.item.is_file || code != Code::Ok);
        self.ledger.add(code, text);
        self.abandon(file, code);
    }

    /// Gives a file up. A large part is kept for the next run unless its source is gone.
    fn abandon(&mut self, file: u64, code: Code) {
        let Some(slot) = self.table.get_mut(file) else {
            return;
        };
        self.missing.remove(slot.range.clone());
        release(&mut self.names, &slot.item.path, file);
        let keep = !matches!(code, Code::SourceChanged | Code::VerifyFailed);
        match std::mem::replace(&mut slot.item.state, State::Over) {
            State::Memory { bytes, .. } => self.resident -= bytes.len(),
            State::Part(part) if part.made && !(keep && part.journal.is_some()) => {
                let (parent, name) = path::split(&slot.item.path);
                let name = path::part_name(name, self.tag);
                // What cannot be removed is overwritten or removed by the next run.
                let _left = self.tree.dir(parent).and_then(|dir| {
                    Ok(rustix::fs::unlinkat(
                        &dir,
                        name.as_slice(),
                        rustix::fs::AtFlags::empty(),
                    )?)
                });
                if let Some(number) = part.journal {
                    self.journal.forget(number);
                }
            }
            _ => {}
        }
    }

    fn report(&mut self, now: Instant) {
        self.progress.set(&self.tally);
        let (resolved, told, at) = &mut self.reported;
        let first = self.table.first();
        let at = *at.get_or_insert(now);
        let changed = *resolved != first || *told != self.tally;
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

    /// Parts of files that an earlier run of the same command left and that are no longer sent.
    fn remove_unclaimed(&mut self) {
        let names: Vec<Vec<u8>> = self.journal.unclaimed().map(<[u8]>::to_vec).collect();
        for name in names {
            let (parent, name) = path::split(&name);
            let part = path::part_name(name, self.tag);
            // It may never have been made.
            let _gone = self.tree.dir(parent).and_then(|dir| {
                Ok(rustix::fs::unlinkat(
                    &dir,
                    part.as_slice(),
                    rustix::fs::AtFlags::empty(),
                )?)
            });
        }
        self.journal.drop_unclaimed();
    }

    fn done(&mut self, done: WriteDone) {
        match done {
            WriteDone::Small(endings) => {
                for (number, ending) in endings {
                    self.small_done(number, ending);
                }
            }
            WriteDone::Load { load, written } => {
                self.staging.recycle(load);
                for run in written {
                    self.run_written(run);
                }
            }
            WriteDone::Block {
                number,
                index,
                value,
            } => self.block_done(number, index, value),
            WriteDone::Verified { number, good, bad } => self.verified(number, &good, &bad),
            WriteDone::Checked { number, root } => self.checked(number, root.ok()),
            WriteDone::Committed { number, ending } => self.committed(number, ending),
            WriteDone::Finished { problems } => {
                for problem in problems {
                    self.ledger.add(Code::Ok, problem.clone());
                    self.out.push(&Message::Trouble {
                        file: NOT_LISTED,
                        code: Code::Ok,
                        text: short(&problem),
                    });
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
        Ok(Target {
            dir,
            name: name.to_vec(),
            meta: slot.item.meta,
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

/// Nothing more is collected for this file: another may have its name.
fn release(names: &mut HashMap<Vec<u8>, u64>, path: &[u8], file: u64) {
    if names.get(path) == Some(&file) {
        names.remove(path);
    }
}

#[cfg(test)]
mod tests;
