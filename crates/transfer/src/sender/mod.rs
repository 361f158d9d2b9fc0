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
    sync::Arc,
};

use farhaul_core::{
    protocol::Session,
    store::{Extent, StoreError},
    time::Instant,
};

use crate::{
    bounds::{self, LARGEST, WINDOW},
    digest::{BlockTree, block_count, block_range},
    disk::File,
    error::TransferError,
    host::Host,
    lanes::Link,
    plan::{Sink, report_failure, report_path},
    pool::{self, Broken, Pool},
    progress::Progress,
    ranges::RangeSet,
    role::{Role, RoleCore, State},
    scan::{self, Found, Listing, Problem, Scanned, Selection, Source},
    stripe::Striped,
    table::Table,
    wire::{
        Action, BLOCK, Entry, Exit, Generation, Hash, Message, Root,
        limits::{ENTRIES, TARGET_FRAME},
        path,
    },
};

mod ahead;
mod content;
mod decide;
mod failed;
mod job;
mod lane;
mod origin;
mod plan;

use ahead::Loaded;
pub(crate) use job::{Identity, Stamp, extents, hash_block, hash_content};
use job::{ReadDone, ReadJob, Since};
pub(crate) use lane::Sends;
pub(crate) use origin::Origin;
pub(crate) use plan::Planning;

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
    origin: Arc<Origin>,
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

/// Large files that are not settled, and hashing.
#[derive(Default)]
struct Hashing {
    files: VecDeque<u64>,
    /// Blocks that workers hash.
    blocks: usize,
}

/// The role that sends files.
pub(crate) struct Sender {
    core: RoleCore,
    /// True if bytes that are not requested yet will be: none of them is hashed ahead.
    ordered: bool,
    table: Table<Outgoing>,
    found: Listing,
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
    /// Further parallel sessions that take pieces.
    links: Vec<Arc<Link>>,
    open: VecDeque<u64>,
    hashing: Hashing,
    pool: Pool<ReadJob>,
    new_roots: VecDeque<Root>,
    /// Files whose blocks' values are being sent, and the next block of each.
    telling: VecDeque<(u64, u64)>,
    /// Set if entries are only judged, and nothing is sent.
    plan: Option<Planning>,
}

impl Sender {
    /// Starts to scan sources; some are missing.
    pub(crate) fn new(
        (sources, missing): (Vec<Source>, Vec<Problem>),
        selection: Selection,
        progress: Arc<Progress>,
        plan: Option<Planning>,
        host: &Host,
    ) -> io::Result<Self> {
        let core = RoleCore::of_sender(Arc::clone(&progress), host.meter());
        let mut sender = Self {
            core,
            ordered: false,
            found: scan::start(sources, selection, progress, host)?,
            pool: Pool::new("farhaul-read", host)?,
            table: Table::default(),
            relist: VecDeque::new(),
            decided: 0,
            unsettled: 0,
            ended: false,
            queue: VecDeque::new(),
            packs: BTreeMap::new(),
            next_pack: 0,
            steps: VecDeque::new(),
            loaded: Loaded::default(),
            links: Vec::new(),
            open: VecDeque::new(),
            hashing: Hashing::default(),
            new_roots: VecDeque::new(),
            telling: VecDeque::new(),
            plan,
        };
        for problem in &missing {
            sender.note(problem);
        }
        Ok(sender)
    }

    /// Reports an entry that is not listed.
    fn note(&mut self, problem: &Problem) {
        self.core.note(problem);
        report_failure(self.sink(), problem.code, &problem.text);
    }

    /// Receiver of what would become of entries, in a plan.
    fn sink(&self) -> Option<&Sink> {
        self.plan.as_ref()?.sink.as_ref()
    }

    /// The receiver requests content piece by piece, all of it.
    pub(crate) const fn in_order(&mut self) {
        self.ordered = true;
    }

    fn broken(&mut self, broken: &Broken) {
        let slot = broken.task.file.and_then(|n| self.table.get(n));
        let name = slot.map_or_else(String::new, |s| path::show(&s.item.entry.path));
        self.core.fail(broken.error(&name));
    }

    /// Lists more entries.
    fn list(&mut self, session: &dyn Session) {
        while self.lists_more() && self.core.has_room(session) {
            let fetched = self.found.refill();
            let fetched = fetched.unwrap_or_else(|e| {
                self.core.fail(e);
                false
            });
            if !fetched && self.relist.is_empty() {
                return;
            }
            let first = self.table.next();
            let (mut entries, mut paths) = (Vec::new(), Vec::new());
            let mut bytes = 0;
            while self.lists_more() && bytes < TARGET_FRAME && entries.len() < ENTRIES {
                let (scanned, again) = match self.relist.pop_front() {
                    Some(scanned) => (scanned, true),
                    None => match self.found.pop() {
                        Some(Found::Entry(scanned)) => (scanned, false),
                        Some(Found::Problem(problem)) => {
                            bytes += problem.text.len();
                            self.note(&problem);
                            continue;
                        }
                        Some(Found::Excluded(path)) => {
                            bytes += path.len() + 8;
                            report_path(self.sink(), Action::Exclude, path.clone());
                            paths.push(path);
                            continue;
                        }
                        Some(Found::Kept(path)) => {
                            bytes += path.len();
                            let paths = vec![path];
                            self.core.out.push(&Message::Kept { paths });
                            continue;
                        }
                        Some(Found::End(partition)) => {
                            self.core.partition = partition;
                            continue;
                        }
                        Some(Found::Broken(why)) => {
                            self.core.fail(pool::internal(scan::DOING, &why));
                            return;
                        }
                        None => break,
                    },
                };
                bytes += scanned.entry.len();
                entries.extend(self.announce(*scanned, again));
            }
            if !paths.is_empty() {
                self.core.out.push(&Message::Excluded { paths });
            }
            if !entries.is_empty() {
                self.core.out.push(&Message::Entries { first, entries });
            }
        }
    }

    /// True if another entry may be listed, whatever its name.
    fn lists_more(&self) -> bool {
        self.table.charged() <= WINDOW - LARGEST
    }

    fn announce(&mut self, scanned: Scanned, again: bool) -> Option<Entry> {
        let Scanned {
            entry,
            root,
            rel,
            stamp,
        } = scanned;
        let (number, start) = (self.table.next(), self.table.end());
        let settled = entry.size == 0 && self.plan.is_none();
        let item = Outgoing {
            entry: entry.clone(),
            origin: Origin::of(&entry, (root, rel), number, start),
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
            self.note(&Problem {
                code: Exit::Partial,
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
        while i < self.hashing.files.len().min(HASHED_AT_ONCE)
            && self.hashing.blocks < room
            && self.core.has_room(session)
        {
            let number = self.hashing.files[i];
            match self.hash_file(number, room) {
                Ok(true) => i += 1,
                Ok(false) => drop(self.hashing.files.remove(i)),
                Err(e) => {
                    self.hashing.files.remove(i);
                    self.fail_read(number, &e);
                }
            }
        }
    }

    /// False once there is nothing more to do for this file.
    fn hash_file(&mut self, number: u64, room: usize) -> io::Result<bool> {
        while self.hashing.blocks < room {
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
            self.hashing.blocks += 1;
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
                self.core.progress.retry();
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
                self.hashing.blocks -= 1;
                match value {
                    Ok(value) => {
                        if let Some(Body::Large(large)) =
                            self.table.get_mut(number).map(|s| &mut s.item.body)
                        {
                            large.hashing -= 1;
                            large.tree.learn(index, value);
                            self.core.progress.compared(BLOCK);
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
            self.core.last_root = Some(hash).filter(|_| !sparse && !part);
            self.new_roots.push_back(Root { file, sparse, hash });
        }
    }

    fn send_roots(&mut self, session: &dyn Session) {
        while !self.new_roots.is_empty() && self.core.has_room(session) {
            let n = self.new_roots.len().min(TARGET_FRAME / 40);
            let roots = self.new_roots.drain(..n).collect();
            self.core.out.push(&Message::Roots(roots));
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
        self.core.stripes.push(Striped {
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

impl Role for Sender {
    fn core(&mut self) -> &mut RoleCore {
        &mut self.core
    }

    fn handle(&mut self, message: Message) -> Result<(), TransferError> {
        if self.core.is_finished() {
            return Err(TransferError::protocol(
                "the peer sent more after its finished message",
            ));
        }
        match message {
            // Before the manifest has ended, and before each entry was decided on, no end can be.
            Message::Finished { tally, .. } if self.ended && self.decided == self.table.next() => {
                self.core.note_tally(&tally);
                self.pop_over(self.table.next());
                self.core.state = State::Finished;
                Ok(())
            }
            Message::Finished { .. } => Err(TransferError::protocol(
                "the peer sent a premature finished message",
            )),
            message if self.plan.is_some() => self.handle_plan(message),
            Message::Want { upto, ranges } => self.want(upto, &ranges),
            Message::Repair { file, ranges } => self.repair(file, &ranges),
            Message::AskBlocks { file } => self.asks_blocks(file),
            Message::Trouble { file, code, text } => {
                if !self.core.take_trouble(code, &text) {
                    self.give_up(file, Disposition::Kept);
                } else if code != Exit::Ok {
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
            _ => Err(TransferError::protocol(
                "the peer sent a message that only a sender sends",
            )),
        }
    }

    fn poll(&mut self, _now: Instant, session: &mut dyn Session) {
        while self.core.has_room(session)
            && let Some(done) = self.pool.pop()
        {
            match done {
                Ok(done) => self.done(done),
                Err(broken) => self.broken(&broken),
            }
        }
        self.read_lanes();
        if self.core.fault.is_some() {
            return;
        }
        self.list(session);
        self.feed(session);
        self.hash(session);
        self.send_roots(session);
        self.send_blocks(session);
        let listed = self.found.is_over() && self.relist.is_empty();
        let reported = self.unsettled == 0 && self.new_roots.is_empty();
        if listed && reported && !self.ended && self.core.fault.is_none() {
            self.ended = true;
            self.core.end_list(self.table.next());
        }
        self.core.part(session);
        self.core.out.flush(session);
    }

    /// True while workers have something to answer or the scanner to list.
    fn is_waiting(&self) -> bool {
        self.pool.outstanding() > 0 || self.found.is_waiting()
    }

    fn next_wake(&self, now: Instant) -> Option<Instant> {
        let scan = self.found.is_waiting().then(|| now + pool::LOOK_AGAIN);
        scan.into_iter().chain(self.pool.next_answer(now)).min()
    }

    /// An empty list of roots, of which a plan has none.
    fn keep_alive(&mut self) {
        if self.plan.is_none() {
            self.core.out.push(&Message::Roots(Vec::new()));
        }
    }

    fn for_lanes(&self) -> Option<u64> {
        self.plan.is_none().then(|| self.table.large())
    }

    fn fill(&mut self, extents: &[Extent], batch: &mut [u8]) -> Result<(), StoreError> {
        self.fill_batch(extents, batch)
    }
}

/// The receiver requests the same repeatedly.
fn too_often() -> TransferError {
    TransferError::protocol("the peer requests the same content repeatedly")
}

#[cfg(test)]
mod tests;
