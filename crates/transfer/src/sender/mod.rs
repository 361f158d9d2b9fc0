//! Sends files. The sender lists entries, waits for the receiver to request bytes, queues those on
//! the session and sends digests. The session reads content through [`Sender::fill`] when it sends
//! and again when it repairs.
//!
//! - Content is queued only for entries that the receiver has decided on.
//! - Entries that are listed and not over cost at most [`WINDOW`], whatever the size of the tree.
//! - No message is answered directly: answers are produced when there is space for them. So a
//!   sender always reads, and its receiver never waits for it to.
//! - An entry is *settled* once its root or its failure has been sent; the manifest ends when all are.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    ops::Range,
    sync::{Arc, mpsc},
};

use farhaul_core::{protocol::Session, time::Instant};

use crate::{
    bounds::{self, LARGEST, WINDOW, has_room},
    confine::Dir,
    digest::{BlockTree, block_count, block_range},
    disk::File,
    error::TransferError,
    host::Host,
    lanes::{Lanes, Link, total},
    ledger::Ledger,
    meter::Meter,
    pool::{self, Broken, Pool},
    progress::{Phase, Progress},
    ranges::RangeSet,
    scan::{self, Found, Listing, Partition, Scanned, Selection, Source},
    stripe::Striped,
    table::Table,
    wire::{
        BLOCK, Code, Entry, Generation, Hash, Message, NOT_LISTED, Outbox, Root, Tally,
        limits::{ENTRIES, TARGET_FRAME},
        path, short,
    },
};

mod ahead;
mod content;
mod decide;
mod failed;
mod job;
mod lane;

use ahead::Loaded;
pub(crate) use job::{Identity, Stamp, extents, hash_block, hash_content};
use job::{ReadDone, ReadJob, Since};
pub(crate) use lane::{Origin, Sends};

/// Content bytes queued on the session before more are. They are in memory.
const UNSENT: u64 = 4 << 20;
/// Packs and blocks being read or waiting to be queued, beyond one per worker.
const AHEAD: usize = 2;
/// Files per pack.
const PACK_FILES: usize = 256;
/// Number of times that the values of a file's blocks may be requested.
const BLOCK_REQUESTS: u32 = 2;
/// Values that are worth a message.
const VALUES: u64 = 64;
/// Large files hashed at the same time.
const HASHED_AT_ONCE: usize = 4;

/// A listed entry.
struct Outgoing {
    entry: Entry,
    source: usize,
    rel: Vec<u8>,
    stamp: Stamp,
    /// True if the file is listed anew after it had changed.
    again: bool,
    /// True for a stripe that the receiver has said to be complete.
    collected: bool,
    settled: bool,
    disposition: Disposition,
    /// Bytes requested so far, including repeated requests.
    asked: u64,
    body: Body,
}

/// Disposition of an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Disposition {
    /// The entry is sent, as far as it is requested.
    Sending,
    /// Nothing more is sent of the entry: the destination keeps what it has.
    Kept,
    /// Nothing more is sent of the entry: it will not be there.
    Failed,
    /// Nothing more is sent of the entry under this number: it is listed once more.
    Relisted,
}

impl Disposition {
    /// True if nothing more is sent of the entry.
    const fn is_given_up(self) -> bool {
        !matches!(self, Self::Sending)
    }
}

enum Body {
    /// Empty, or not decided yet.
    None,
    /// A small file; true if a pack that it is in waits to be read.
    Small {
        queued: bool,
    },
    Large(Box<Large>),
}

/// A file of more than one block, under way.
struct Large {
    file: Option<Arc<File>>,
    /// Ranges not queued yet, absolute offsets.
    to_send: RangeSet,
    /// True if the file waits for its turn to be read.
    queued: bool,
    /// Number of times that the file was hashed anew.
    repairs: u32,
    /// Number of times that the values of its blocks have been requested.
    block_requests: u32,
    /// True if its holes are known.
    mapped: bool,
    /// True if the file is only checked by the receiver, and stores less than its size: blocks of
    /// zeros count as holes.
    zeros: bool,
    /// Wanted and not read for sending yet, within the file: hashing follows behind.
    unread: RangeSet,
    tree: BlockTree,
    next_block: u64,
    hashing: u32,
    /// Number of times that the file was hashed once more because it was touched.
    touched: u32,
    /// Device and inode of the first that was opened by its name.
    inode: Option<(u64, u64)>,
    /// Source of the bytes, for further parallel sessions.
    origin: Option<Arc<Origin>>,
}

/// Content waiting to be queued, in manifest order.
enum Item {
    Large(u64),
    Pack(u64),
}

/// Consecutive small files.
struct Pack {
    first: u64,
    upto: u64,
    start: u64,
    wanted: Vec<Range<u64>>,
}

/// Content being read ahead, in the order in which it will be sent.
struct Step {
    what: Ahead,
    /// True if the bytes are in memory, or could not be read.
    ready: bool,
}

enum Ahead {
    Pack(u64),
    /// Bytes of one block of a large file, absolute offsets.
    Piece {
        number: u64,
        range: Range<u64>,
    },
}

/// The sending half of a transfer.
#[expect(clippy::struct_excessive_bools, reason = "independent of each other")]
pub(crate) struct Sender {
    roots: Vec<Dir>,
    /// True if bytes that are not requested yet will be: none of them is hashed ahead.
    ordered: bool,
    table: Table<Outgoing>,
    found: Option<Listing>,
    backlog: VecDeque<Found>,
    relist: VecDeque<Box<Scanned>>,
    /// Entries below this have been decided on by the receiver.
    decided: u64,
    unsettled: u64,
    ended: bool,
    queue: VecDeque<Item>,
    steps: VecDeque<Step>,
    packs: BTreeMap<u64, Pack>,
    next_pack: u64,
    loaded: Loaded,
    /// Further parallel sessions, once there may be some, and those that take pieces.
    pub(crate) lanes: Option<Arc<Lanes>>,
    links: Vec<Arc<Link>>,
    open: VecDeque<u64>,
    /// Large files that are not settled.
    active: VecDeque<u64>,
    hashing: usize,
    pool: Pool<ReadJob>,
    new_roots: VecDeque<Root>,
    /// Files whose blocks' values are being sent, and the next block of each.
    telling: VecDeque<(u64, u64)>,
    out: Outbox,
    pub(crate) ledger: Ledger,
    pub(crate) tally: Tally,
    pub(crate) finished: bool,
    /// True if the last message was sent.
    parted: bool,
    /// Root of the last file, for a transfer of one.
    pub(crate) last_root: Option<Hash>,
    meter: Meter,
    progress: Arc<Progress>,
    /// Error that ends the transfer.
    fault: Option<TransferError>,
    /// Partition of a shard, once everything was listed.
    pub(crate) partition: Option<Partition>,
    /// Results of its stripes.
    pub(crate) stripes: Vec<Striped>,
}

impl Sender {
    /// Starts to scan `sources`.
    pub(crate) fn new(
        sources: Vec<Source>,
        selection: Selection,
        progress: Arc<Progress>,
        host: &Host,
    ) -> io::Result<Self> {
        Ok(Self {
            roots: sources.iter().map(|s| Arc::clone(&s.root)).collect(),
            ordered: false,
            found: Some(scan::start(
                sources,
                selection,
                Arc::clone(&progress),
                host,
            )?),
            pool: Pool::new("farhaul-read", host)?,
            progress,
            table: Table::default(),
            backlog: VecDeque::new(),
            relist: VecDeque::new(),
            decided: 0,
            unsettled: 0,
            ended: false,
            queue: VecDeque::new(),
            packs: BTreeMap::new(),
            next_pack: 0,
            steps: VecDeque::new(),
            loaded: Loaded::default(),
            lanes: None,
            links: Vec::new(),
            open: VecDeque::new(),
            active: VecDeque::new(),
            hashing: 0,
            new_roots: VecDeque::new(),
            telling: VecDeque::new(),
            out: Outbox::default(),
            ledger: Ledger::default(),
            tally: Tally::default(),
            finished: false,
            parted: false,
            last_root: None,
            meter: host.meter(),
            fault: None,
            partition: None,
            stripes: Vec::new(),
        })
    }

    /// The receiver requests content piece by piece, all of it.
    pub(crate) const fn in_order(&mut self) {
        self.ordered = true;
    }

    /// A problem found before the scan.
    pub(crate) fn note(&mut self, problem: &scan::Problem) {
        let text = short(&problem.text);
        self.out.push(&Message::Failed {
            file: NOT_LISTED,
            code: problem.code,
            again: false,
            text,
        });
        self.ledger.add(problem.code, problem.text.clone());
    }

    /// True while workers have something to answer or the scanner to list.
    pub(crate) const fn is_waiting(&self) -> bool {
        self.pool.outstanding() > 0 || self.found.is_some()
    }

    /// Time to poll for results of workers or the scanner.
    pub(crate) fn next_wake(&self, now: Instant) -> Option<Instant> {
        let scan = self.found.as_ref().map(|_| now + pool::LOOK_AGAIN);
        scan.into_iter().chain(self.pool.next_answer(now)).min()
    }

    /// Sends a sign of progress: an empty list of roots.
    pub(crate) fn send_keep_alive(&mut self) {
        self.out.push(&Message::Roots(Vec::new()));
    }

    /// Moves everything on.
    pub(crate) fn poll(&mut self, session: &mut dyn Session) {
        while has_room(&self.out, session)
            && let Some(done) = self.pool.pop()
        {
            match done {
                Ok(done) => self.done(done),
                Err(broken) => self.broken(&broken),
            }
        }
        self.read_lanes();
        if self.fault.is_some() {
            return;
        }
        self.list(session);
        self.feed(session);
        self.hash(session);
        self.send_roots(session);
        self.send_blocks(session);
        let listed = self.found.is_none() && self.backlog.is_empty() && self.relist.is_empty();
        let reported = self.unsettled == 0 && self.new_roots.is_empty();
        if listed && reported && !self.ended && self.fault.is_none() {
            self.ended = true;
            self.out.push(&Message::End {
                entries: self.table.next(),
            });
            self.progress.set_phase(Phase::Finishing);
        }
        if self.finished && !std::mem::replace(&mut self.parted, true) {
            let (stats, lanes) = total(self.lanes.as_deref(), session);
            self.out.push(&self.meter.bye(&stats, lanes));
        }
        self.out.flush(session);
    }

    /// Takes the error with which the transfer must end, once.
    pub(crate) const fn take_fault(&mut self) -> Option<TransferError> {
        self.fault.take()
    }

    fn broken(&mut self, broken: &Broken) {
        let slot = broken.task.file.and_then(|n| self.table.get(n));
        let name = slot.map_or_else(String::new, |s| path::show(&s.item.entry.path));
        self.fault.get_or_insert(broken.error(&name));
    }

    /// Takes a message from the receiver.
    pub(crate) fn handle(&mut self, message: Message) -> Result<(), TransferError> {
        if self.finished {
            return Err(TransferError::protocol(
                "the peer sent more after its finished message",
            ));
        }
        match message {
            Message::Want { upto, ranges } => self.want(upto, &ranges),
            Message::Repair { file, ranges } => self.repair(file, &ranges),
            Message::AskBlocks { file } => self.asks_blocks(file),
            Message::Trouble { file, code, text } => {
                // Without a word: the existing file stays.
                let kept = code == Code::Ok && text.is_empty();
                if !kept {
                    let text = path::show(&text);
                    self.ledger.add(code.of_server(), text);
                }
                if kept {
                    self.give_up(file, Disposition::Kept);
                } else if code != Code::Ok {
                    self.give_up(file, Disposition::Failed);
                }
                Ok(())
            }
            Message::Collected {
                file,
                generation,
                whole,
            } => self.collected(file, generation, whole),
            Message::Report { resolved, tally } => self.report(resolved, &tally),
            // Before the manifest has ended, and before each entry was decided on, no end can be.
            Message::Finished { tally, .. } if self.ended && self.decided == self.table.next() => {
                self.note_tally(&tally);
                self.pop_over(self.table.next());
                self.finished = true;
                Ok(())
            }
            Message::Finished { .. } => Err(TransferError::protocol(
                "the peer sent a premature finished message",
            )),
            _ => Err(TransferError::protocol(
                "the peer sent a message that only a sender sends",
            )),
        }
    }

    /// Lists more entries.
    fn list(&mut self, session: &dyn Session) {
        while self.takes_more() && has_room(&self.out, session) {
            self.refill();
            if self.backlog.is_empty() && self.relist.is_empty() {
                return;
            }
            let first = self.table.next();
            let mut entries = Vec::new();
            let mut bytes = 0;
            while self.takes_more() && bytes < TARGET_FRAME && entries.len() < ENTRIES {
                let (scanned, again) = match self.relist.pop_front() {
                    Some(scanned) => (scanned, true),
                    None => match self.backlog.pop_front() {
                        Some(Found::Entry(scanned)) => (scanned, false),
                        Some(Found::Problem(problem)) => {
                            bytes += problem.text.len();
                            self.note(&problem);
                            continue;
                        }
                        Some(Found::Excluded(_)) => continue,
                        Some(Found::Kept(path)) => {
                            bytes += path.len();
                            let paths = vec![path];
                            self.out.push(&Message::Kept { paths });
                            continue;
                        }
                        Some(Found::End(partition)) => {
                            (self.found, self.partition) = (None, partition);
                            continue;
                        }
                        Some(Found::Broken(why)) => {
                            self.found = None;
                            self.fault.get_or_insert(pool::internal(scan::DOING, &why));
                            return;
                        }
                        None => break,
                    },
                };
                bytes += scanned.entry.len();
                entries.extend(self.announce(*scanned, again));
            }
            if !entries.is_empty() {
                self.out.push(&Message::Entries { first, entries });
            }
        }
    }

    /// True if another entry may be listed, whatever its name.
    fn takes_more(&self) -> bool {
        self.table.charged() <= WINDOW - LARGEST
    }

    fn refill(&mut self) {
        if let Some(found) = &self.found
            && self.backlog.is_empty()
        {
            match found.try_recv() {
                Ok(batch) => self.backlog.extend(batch),
                Err(mpsc::TryRecvError::Empty) => {}
                Err(mpsc::TryRecvError::Disconnected) => {
                    self.found = None;
                    self.fault.get_or_insert_with(scan::ended_early);
                }
            }
        }
    }

    fn announce(&mut self, scanned: Scanned, again: bool) -> Option<Entry> {
        let Scanned {
            entry,
            source,
            rel,
            stamp,
        } = scanned;
        let settled = entry.size == 0;
        let item = Outgoing {
            entry: entry.clone(),
            source,
            rel,
            stamp,
            again,
            collected: false,
            settled,
            disposition: Disposition::Sending,
            asked: 0,
            body: Body::None,
        };
        let charge = bounds::charge(&entry);
        if self.table.push(entry.size, charge, item).is_none() {
            let text = format!(
                "{}: the tree is larger than 2^62 bytes",
                path::show(&entry.path)
            );
            self.note(&scan::Problem {
                code: Code::Partial,
                text,
            });
            return None;
        }
        self.unsettled += u64::from(!settled);
        Some(entry)
    }

    /// Hashes blocks of large files behind the data.
    fn hash(&mut self, session: &dyn Session) {
        let room = self.pool.threads() * 2;
        let mut i = 0;
        while i < self.active.len().min(HASHED_AT_ONCE)
            && self.hashing < room
            && has_room(&self.out, session)
        {
            let number = self.active[i];
            match self.hash_file(number, room) {
                Ok(true) => i += 1,
                Ok(false) => drop(self.active.remove(i)),
                Err(e) => {
                    self.active.remove(i);
                    self.fail_read(number, &e);
                }
            }
        }
    }

    /// False once there is nothing more to do for this file.
    fn hash_file(&mut self, number: u64, room: usize) -> io::Result<bool> {
        while self.hashing < room {
            let Some(slot) = self.table.get_mut(number) else {
                return Ok(false);
            };
            let (size, settled) = (slot.item.entry.size, slot.item.settled);
            // What comes in order is requested in order.
            let requested = if self.ordered { slot.item.asked } else { size };
            let Body::Large(large) = &mut slot.item.body else {
                return Ok(false);
            };
            if settled {
                return Ok(false);
            }
            let (count, zeros) = (block_count(size), large.zeros);
            large.next_block = large.tree.next_unknown(large.next_block);
            let index = large.next_block;
            if index == count {
                if large.hashing > 0 || !large.mapped {
                    return Ok(true);
                }
                if self.conclude(number)? {
                    return Ok(false);
                }
                continue;
            }
            let block = block_range(index, size);
            if !large.mapped || block.end > requested || large.unread.overlaps(block) {
                return Ok(true);
            }
            large.next_block += 1;
            large.hashing += 1;
            let file = self.file(number)?;
            self.hashing += 1;
            self.pool.push(ReadJob::Block {
                number,
                index,
                size,
                file,
                zeros,
            });
        }
        Ok(true)
    }

    /// Sends the root of a file that is hashed and unchanged. One that was touched is hashed
    /// once more instead: if its content has changed all the same, the receiver finds out which blocks.
    fn conclude(&mut self, number: u64) -> io::Result<bool> {
        let now = Stamp::now(&*self.file(number)?)?;
        let slot = self.table.get_mut(number).ok_or(io::ErrorKind::NotFound)?;
        let (item, size) = (&mut slot.item, slot.range.end - slot.range.start);
        let Body::Large(large) = &mut item.body else {
            return Ok(true);
        };
        let sparse = large.tree.has_holes();
        match item.stamp.since(&now) {
            Since::Same => {
                if let Some(root) = large.tree.root() {
                    self.settle(number, root, sparse);
                }
                Ok(true)
            }
            Since::Touched if large.touched == 0 && !large.zeros && !sparse => {
                large.touched += 1;
                large.tree = BlockTree::new(size);
                large.next_block = 0;
                item.stamp = now;
                self.progress.retry();
                Ok(false)
            }
            Since::Touched | Since::Changed => Err(job::changed()),
        }
    }

    fn done(&mut self, done: ReadDone) {
        match done {
            ReadDone::Pack { id, bytes, results } => self.pack_done(id, bytes, results),
            ReadDone::Piece(piece) => self.piece_done(piece),
            ReadDone::Block {
                number,
                index,
                value,
            } => {
                self.hashing -= 1;
                match value {
                    Ok(value) => {
                        if let Some(Body::Large(large)) =
                            self.table.get_mut(number).map(|s| &mut s.item.body)
                        {
                            large.hashing -= 1;
                            large.tree.learn(index, value);
                            self.progress.compared(BLOCK);
                        }
                    }
                    Err(e) => self.fail_read(number, &e),
                }
            }
            ReadDone::Extents { number, data } => self.mapped(number, &data),
        }
    }

    fn settle(&mut self, file: u64, hash: Hash, sparse: bool) {
        if let Some(slot) = self.table.get_mut(file) {
            self.unsettled -= u64::from(!slot.item.settled);
            slot.item.settled = true;
            let part = slot.item.entry.stripe.is_some();
            self.last_root = Some(hash).filter(|_| !sparse && !part);
            self.new_roots.push_back(Root { file, sparse, hash });
        }
    }

    fn send_roots(&mut self, session: &dyn Session) {
        while !self.new_roots.is_empty() && has_room(&self.out, session) {
            let n = self.new_roots.len().min(TARGET_FRAME / 40);
            let roots = self.new_roots.drain(..n).collect();
            self.out.push(&Message::Roots(roots));
        }
    }

    /// Notes that a stripe is complete; perhaps all of its file are.
    fn collected(
        &mut self,
        file: u64,
        generation: Generation,
        whole: bool,
    ) -> Result<(), TransferError> {
        let Some(slot) = self.table.get(file) else {
            return Ok(());
        };
        let entry = &slot.item.entry;
        if entry.stripe.is_none() || slot.item.collected {
            return Err(TransferError::protocol(
                "the peer collects what was not divided",
            ));
        }
        self.stripes.push(Striped {
            path: path::show(&entry.path),
            generation: path::hex(&generation),
            whole,
        });
        if let Some(slot) = self.table.get_mut(file) {
            slot.item.collected = true;
        }
        Ok(())
    }
}

/// The receiver requests the same repeatedly.
fn too_often() -> TransferError {
    TransferError::protocol("the peer requests the same content repeatedly")
}

#[cfg(test)]
mod tests;
