//! What does the side that has the files do? It lists entries, waits for the receiver to say which
//! bytes it wants, queues those on the session and tells digests; the session reads content through
//! [`Sender::fill`] when it sends and again when it repairs.
//!
//! - Content is queued only for entries that the receiver has decided on.
//! - At most [`WINDOW`] entries are listed and not over, whatever the size of the tree.
//! - An entry is *settled* once its root or its failure has been told; the manifest ends when all are.

use std::{
    collections::{BTreeMap, VecDeque},
    fs::File,
    io,
    ops::Range,
    sync::{Arc, mpsc},
};

use farhaul_core::protocol::Session;

use crate::{
    ask::Meter,
    confine::{self, Dir},
    digest::{BLOCK, BlockTree, Hash, block_count, block_range},
    error::{Code, TransferError},
    ledger::{Ledger, Outbox, short},
    message::{Entry, Kind, Message, Root, TARGET_FRAME, Tally},
    path,
    pool::{Pool, Wake},
    progress::{Phase, Progress},
    ranges::RangeSet,
    scan::{self, Found, Scanned, Selection, Source},
    table::{Table, WINDOW},
};

mod ahead;
mod content;
mod decide;
mod job;

use ahead::Loaded;
pub(crate) use job::{Identity, extents, hash_block, hash_content};
use job::{ReadDone, ReadJob};

/// "File number" of a problem with something that was never listed.
pub(crate) const NOT_LISTED: u64 = farhaul_core::codec::VARINT_MAX;
/// Manifest bytes in the stream before more are written.
const UNWRITTEN: usize = 1 << 20;
/// Content bytes queued on the session before more are. They are in memory.
const UNSENT: u64 = 4 << 20;
/// Packs and blocks being read or waiting to be queued, beyond one per worker.
const AHEAD: usize = 2;
/// Files per pack.
const PACK_FILES: usize = 256;
/// Large files hashed at the same time.
const HASHED_AT_ONCE: usize = 4;

/// A listed entry.
struct Outgoing {
    entry: Entry,
    source: usize,
    rel: Vec<u8>,
    /// Listed anew after it had changed.
    again: bool,
    settled: bool,
    /// Given up.
    failed: bool,
    body: Body,
}

impl Outgoing {
    const fn identity(&self) -> Identity {
        Identity::of(&self.entry)
    }
}

enum Body {
    /// No content, or not decided yet.
    None,
    Small,
    Large(Box<Large>),
}

/// A file of more than one block, under way.
struct Large {
    file: Option<Arc<File>>,
    /// Not queued yet, absolute offsets.
    to_send: VecDeque<Range<u64>>,
    /// Holes are known.
    mapped: bool,
    /// Only checked by the receiver, and stores less than its size: blocks of zeros count as holes.
    zeros: bool,
    /// Wanted and not read for sending yet, within the file: hashing follows behind.
    unread: RangeSet,
    tree: BlockTree,
    next_block: u64,
    hashing: u32,
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
    /// It is in memory, or could not be read.
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
pub(crate) struct Sender {
    roots: Vec<Dir>,
    table: Table<Outgoing>,
    found: Option<mpsc::Receiver<Vec<Found>>>,
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
    open: VecDeque<u64>,
    /// Large files that are not settled.
    active: VecDeque<u64>,
    hashing: usize,
    pool: Pool<ReadJob>,
    new_roots: Vec<Root>,
    out: Outbox,
    pub(crate) ledger: Ledger,
    pub(crate) tally: Tally,
    pub(crate) finished: bool,
    /// The last word was said.
    parted: bool,
    /// Root of the last file, for a transfer of one.
    pub(crate) last_root: Option<Hash>,
    meter: Meter,
    progress: Arc<Progress>,
}

impl Sender {
    /// Starts to scan `sources`.
    pub(crate) fn new(
        sources: Vec<Source>,
        selection: Selection,
        progress: Arc<Progress>,
        wake: Option<&Wake>,
    ) -> io::Result<Self> {
        Ok(Self {
            roots: sources.iter().map(|s| Arc::clone(&s.root)).collect(),
            found: Some(scan::start(sources, selection, Arc::clone(&progress))?),
            pool: Pool::new("farhaul-read", wake)?,
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
            open: VecDeque::new(),
            active: VecDeque::new(),
            hashing: 0,
            new_roots: Vec::new(),
            out: Outbox::default(),
            ledger: Ledger::default(),
            tally: Tally::default(),
            finished: false,
            parted: false,
            last_root: None,
            meter: Meter::new(),
        })
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
    pub(crate) fn is_waiting(&self) -> bool {
        self.pool.outstanding() > 0 || self.found.is_some()
    }

    /// Moves everything on.
    pub(crate) fn poll(&mut self, session: &mut dyn Session) {
        while let Some(done) = self.pool.pop() {
            self.done(done);
        }
        self.list(session);
        self.feed(session);
        self.hash();
        self.tell_roots();
        let listed = self.found.is_none() && self.backlog.is_empty() && self.relist.is_empty();
        if listed && self.unsettled == 0 && !self.ended {
            self.ended = true;
            self.out.push(&Message::End {
                entries: self.table.next(),
            });
            self.progress.set_phase(Phase::Finishing);
        }
        if self.finished && !std::mem::replace(&mut self.parted, true) {
            self.out.push(&self.meter.bye(session));
        }
        self.out.flush(session);
    }

    /// Takes a message from the receiver.
    pub(crate) fn handle(&mut self, message: Message) -> Result<(), TransferError> {
        match message {
            Message::Want { upto, ranges } => self.want(upto, &ranges),
            Message::Repair { file, ranges } => self.repair(file, &ranges),
            Message::AskBlocks { file } => {
                self.tell_blocks(file);
                Ok(())
            }
            Message::Trouble { file, code, text } => {
                // Without a word: what is there stays.
                let kept = code == Code::Ok && text.is_empty();
                if !kept {
                    let text = path::show(&text);
                    self.ledger.add(code, text);
                }
                if kept || code != Code::Ok {
                    self.give_up(file);
                }
                Ok(())
            }
            Message::Report { resolved, tally } => self.report(resolved, &tally),
            Message::Finished { tally, .. } => {
                self.note_tally(&tally);
                self.finished = true;
                Ok(())
            }
            _ => Err(TransferError::protocol(
                "the peer sent a message that only a sender sends",
            )),
        }
    }

    fn note_tally(&mut self, tally: &Tally) {
        self.tally = *tally;
        self.progress.set(tally);
    }

    fn report(&mut self, resolved: u64, tally: &Tally) -> Result<(), TransferError> {
        if resolved > self.decided {
            return Err(TransferError::protocol(
                "the peer resolved entries it has not decided on",
            ));
        }
        self.note_tally(tally);
        while self.table.first() < resolved
            && let Some(item) = self.table.pop_if(|_| true)
        {
            if !item.settled {
                self.unsettled -= 1;
            }
        }
        Ok(())
    }

    /// Lists more entries.
    fn list(&mut self, session: &dyn Session) {
        while self.table.len() < WINDOW && session.unwritten() + self.out.len() < UNWRITTEN {
            self.refill();
            if self.backlog.is_empty() && self.relist.is_empty() {
                return;
            }
            let first = self.table.next();
            let mut entries = Vec::new();
            let mut bytes = 0;
            while self.table.len() < WINDOW && bytes < TARGET_FRAME && entries.len() < 1024 {
                let (scanned, again) = match self.relist.pop_front() {
                    Some(scanned) => (scanned, true),
                    None => match self.backlog.pop_front() {
                        Some(Found::Entry(scanned)) => (scanned, false),
                        Some(Found::Problem(problem)) => {
                            self.note(&problem);
                            continue;
                        }
                        Some(Found::Excluded(_)) => continue,
                        None => break,
                    },
                };
                bytes += scanned.entry.path.len() + scanned.entry.target.len() + 48;
                entries.extend(self.announce(*scanned, again));
            }
            if !entries.is_empty() {
                self.out.push(&Message::Entries { first, entries });
            }
        }
    }

    fn refill(&mut self) {
        if let Some(found) = &self.found
            && self.backlog.is_empty()
        {
            match found.try_recv() {
                Ok(batch) => self.backlog.extend(batch),
                Err(mpsc::TryRecvError::Empty) => {}
                Err(mpsc::TryRecvError::Disconnected) => self.found = None,
            }
        }
    }

    fn announce(&mut self, scanned: Scanned, again: bool) -> Option<Entry> {
        let Scanned { entry, source, rel } = scanned;
        let settled = entry.size == 0;
        let item = Outgoing {
            entry: entry.clone(),
            source,
            rel,
            again,
            settled,
            failed: false,
            body: Body::None,
        };
        if self.table.push(entry.size, item).is_none() {
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
    fn hash(&mut self) {
        let room = self.pool.threads() * 2;
        let mut i = 0;
        while i < self.active.len().min(HASHED_AT_ONCE) && self.hashing < room {
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
            let (size, settled, identity) = (
                slot.item.entry.size,
                slot.item.settled,
                slot.item.identity(),
            );
            let Body::Large(large) = &mut slot.item.body else {
                return Ok(false);
            };
            if settled {
                return Ok(false);
            }
            let (count, zeros) = (block_count(size), large.zeros);
            while large.next_block < count && large.tree.get(large.next_block).is_some() {
                large.next_block += 1;
            }
            let index = large.next_block;
            if index == count {
                if large.hashing > 0 || !large.mapped {
                    return Ok(true);
                }
                let sparse = large.tree.has_holes();
                let root = large.tree.root();
                let file = self.file(number)?;
                if !identity.holds(&file)? {
                    return Err(job::changed());
                }
                if let Some(root) = root {
                    self.settle(number, root, sparse);
                }
                return Ok(false);
            }
            if !large.mapped || large.unread.overlaps(block_range(index, size)) {
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
            self.last_root = Some(hash).filter(|_| !sparse);
            self.new_roots.push(Root { file, sparse, hash });
        }
    }

    fn tell_roots(&mut self) {
        for roots in self.new_roots.chunks(TARGET_FRAME / 40) {
            self.out.push(&Message::Roots(roots.to_vec()));
        }
        self.new_roots.clear();
    }

    fn tell_blocks(&mut self, file: u64) {
        let Some(slot) = self.table.get(file) else {
            return;
        };
        let Body::Large(large) = &slot.item.body else {
            return;
        };
        let values: Vec<Hash> = (0..block_count(slot.item.entry.size))
            .map_while(|i| large.tree.get(i))
            .collect();
        let mut first = 0;
        for values in values.chunks(TARGET_FRAME / 32) {
            self.out.push(&Message::Blocks {
                file,
                first,
                values: values.to_vec(),
            });
            first += values.len() as u64;
        }
    }

    /// This file cannot be read.
    pub(crate) fn fail_read(&mut self, file: u64, e: &io::Error) {
        let Some(slot) = self.table.get(file).filter(|s| !s.item.failed) else {
            return;
        };
        let code = Code::of_read(e);
        let why = if e.kind() == io::ErrorKind::NotFound {
            "vanished".to_string()
        } else {
            e.to_string()
        };
        let text = format!("{}: {why}", path::show(&slot.item.entry.path));
        let again =
            code == Code::SourceChanged && !slot.item.again && !self.ended && self.list_again(file);
        self.out.push(&Message::Failed {
            file,
            code,
            again,
            text: short(&text),
        });
        if again {
            self.progress.retry();
        } else {
            self.ledger.add(code, text);
        }
        self.give_up(file);
    }

    /// Puts a changed file back into the manifest as it is now.
    fn list_again(&mut self, file: u64) -> bool {
        let Some(slot) = self.table.get(file) else {
            return false;
        };
        let item = &slot.item;
        let (parent, name) = path::split(&item.rel);
        let root = &self.roots[item.source];
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY;
        let stat = confine::open_beneath(root, parent, flags, rustix::fs::Mode::empty())
            .and_then(|dir| confine::stat(dir, name));
        let Ok(Some(stat)) = stat else { return false };
        if rustix::fs::FileType::from_raw_mode(stat.st_mode) != rustix::fs::FileType::RegularFile {
            return false;
        }
        let entry = scan::entry_of(Kind::File, item.entry.path.clone(), Vec::new(), &stat);
        let (source, rel) = (item.source, item.rel.clone());
        self.relist
            .push_back(Box::new(Scanned { entry, source, rel }));
        true
    }

    /// Nothing more is sent of this file.
    fn give_up(&mut self, file: u64) {
        if let Some(slot) = self.table.get_mut(file) {
            self.unsettled -= u64::from(!slot.item.settled);
            slot.item.settled = true;
            slot.item.failed = true;
            if let Body::Large(large) = &mut slot.item.body {
                large.to_send.clear();
                large.mapped = true;
            }
        }
    }
}
