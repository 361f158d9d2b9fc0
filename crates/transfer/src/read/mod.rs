//! Sends ranges of files, many at a time. The content of each is an object of its own. Workers load
//! and hash blocks in the order of the requests, a bounded number of bytes ahead of what was sent.
//! A repair reads from the file again. Changes of entries are requests of the same session.
//!
//! - No file stays open for the peer: one that is opened again must be the same, and as long as the range.
//! - What one session holds is bounded: [`REQUESTS`] that are not over, [`AHEAD`] bytes of content, the names of one folder.

mod changes;
mod jobs;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io,
    sync::Arc,
};

use farhaul_core::{
    protocol::Session,
    store::{Extent, StoreError},
    time::Instant,
};

pub(crate) use self::changes::{Busy, Terms};
pub use self::changes::{Changed, TellChange};
use self::{
    changes::{Act, Order},
    jobs::{Answer, Block, Done, Inode, Job, Listing, Named, Opened, Work},
};
use crate::{
    confine::{self, Dir},
    digest::{BlockTree, block_count, block_range},
    disk::File,
    error::TransferError,
    host::Host,
    pages::Pages,
    pool::Pool,
    progress::{Phase, Progress},
    role::{Role, RoleCore, State, fill_each},
    scan,
    wire::{BLOCK, Change, Entry, Exit, FileVersion, Message, short},
};

/// Requests of a session that are not over.
pub(crate) const REQUESTS: usize = 1_024;
/// Bytes that are being loaded, or were and have not been sent.
const AHEAD: u64 = 32 << 20;
/// Bytes that wait in the session: what was requested in vain is still sent.
const UNSENT: u64 = 2 << 20;
/// Copies within a share that are under way: each holds files open.
const COPIES: usize = 2;
/// Buffers kept for the next blocks.
const SPARE: usize = 8;

/// Subjects of a request.
pub(crate) enum Wanted {
    List,
    Stat,
    Range { offset: u64, len: u64 },
}

/// The role that answers reads.
pub(crate) struct Reads {
    core: RoleCore,
    pool: Pool<Job>,
    /// The highest number of a request.
    last: u32,
    /// Requests that are not over.
    open: BTreeSet<u32>,
    ranges: BTreeMap<u32, Range>,
    /// Ranges whose file is yet to be opened, and those with further blocks, in order.
    fresh: BTreeSet<u32>,
    further: BTreeSet<u32>,
    /// Blocks that were loaded and not given to the session.
    ready: BTreeSet<(u32, u64)>,
    /// Bytes being loaded, or loaded and not sent.
    ahead: u64,
    spare: Vec<Pages>,
    /// Folders to be listed, in order.
    folders: VecDeque<(u32, Named)>,
    listing: Turn,
    /// Copies to be made, in order, and the number of those under way.
    copies: VecDeque<(u32, Box<Order>)>,
    copying: usize,
    /// The file of the last repair.
    again: Option<(u32, File)>,
    /// Ranges that a repair could not be read of.
    broken: Vec<(u32, io::Error)>,
}

/// Holder of the open folders.
enum Turn {
    Nobody,
    /// A worker is at the folder of this request.
    Worker(u32),
    /// The next page waits for room.
    Waits(u32, Box<Listing>),
}

/// A range of a file.
struct Range {
    named: Named,
    offset: u64,
    /// Length as requested, then what the file has of it, bytes.
    len: u64,
    inode: Option<Inode>,
    version: FileVersion,
    /// File that is open, as long as there are blocks to be loaded.
    file: Option<Arc<File>>,
    next: u64,
    tree: BlockTree,
    /// Loaded and not sent.
    blocks: BTreeMap<u64, Pages>,
}

impl Reads {
    pub(crate) fn new(progress: Arc<Progress>, host: &Host) -> io::Result<Self> {
        progress.set_phase(Phase::Moving);
        let mut core = RoleCore::of_sender(progress, host.meter());
        core.state = State::Open;
        core.out.push(&Message::Reads);
        Ok(Self {
            core,
            pool: Pool::new("farhaul-read", host)?,
            last: 0,
            open: BTreeSet::new(),
            ranges: BTreeMap::new(),
            fresh: BTreeSet::new(),
            further: BTreeSet::new(),
            ready: BTreeSet::new(),
            ahead: 0,
            spare: Vec::new(),
            folders: VecDeque::new(),
            listing: Turn::Nobody,
            copies: VecDeque::new(),
            copying: 0,
            again: None,
            broken: Vec::new(),
        })
    }

    /// Takes up the request `id`, whose number is higher than all before.
    pub(crate) fn begin(&mut self, id: u32) -> Result<(), TransferError> {
        if id <= self.last {
            return Err(TransferError::protocol("a request out of order"));
        }
        if self.open.len() == REQUESTS {
            return Err(TransferError::protocol("too many requests at a time"));
        }
        self.last = id;
        self.open.insert(id);
        Ok(())
    }

    /// Answers the request `id` about `path` beneath `root`.
    pub(crate) fn request(&mut self, id: u32, root: &Dir, path: Vec<u8>, wanted: &Wanted) {
        let root = Arc::clone(root);
        let named = Named { root, path };
        match *wanted {
            Wanted::Stat => self.work(id, Work::Stat(named)),
            Wanted::List => self.folders.push_back((id, named)),
            Wanted::Range { offset, len } => {
                let range = Range {
                    named,
                    offset,
                    len,
                    inode: None,
                    version: FileVersion::default(),
                    file: None,
                    next: 0,
                    tree: BlockTree::new(len),
                    blocks: BTreeMap::new(),
                };
                self.ranges.insert(id, range);
                self.fresh.insert(id);
            }
        }
    }

    /// Carries out the request `id` to change what is at `path` beneath `root`.
    pub(crate) fn change(
        &mut self,
        id: u32,
        root: &Dir,
        path: Vec<u8>,
        (change, terms): (Change, Terms),
    ) {
        let root = Arc::clone(root);
        let named = Named { root, path };
        let order = Box::new(Order {
            named,
            change,
            terms,
        });
        if matches!(order.change, Change::Copy { .. }) {
            self.copies.push_back((id, order));
            return;
        }
        self.work(id, Work::Change(order, None));
    }

    fn work(&mut self, id: u32, work: Work) {
        self.pool.push(Job { id, lent: 0, work });
    }

    /// Begins copies.
    fn copy(&mut self) {
        while self.copying < COPIES
            && let Some((id, order)) = self.copies.pop_front()
        {
            self.copying += 1;
            self.work(id, Work::Change(order, None));
        }
    }

    /// The last answer to the request `id`, if it is not one about content.
    pub(crate) fn found(&mut self, id: u32, entries: Vec<Entry>) {
        if self.open.remove(&id) {
            let more = false;
            self.core.out.push(&Message::Found { id, more, entries });
        }
    }

    /// Answers that the request `id` has no answer.
    pub(crate) fn unanswered(&mut self, id: u32, code: Exit, text: &str) {
        if self.open.remove(&id) {
            self.forget(id);
            let text = short(text);
            self.core.out.push(&Message::Unanswered { id, code, text });
        }
    }

    fn forget(&mut self, id: u32) {
        if self.again.as_ref().is_some_and(|(of, _)| *of == id) {
            self.again = None;
        }
        let Some(range) = self.ranges.remove(&id) else {
            return;
        };
        self.fresh.remove(&id);
        self.further.remove(&id);
        for index in range.blocks.keys() {
            self.ready.remove(&(id, *index));
        }
        for block in range.blocks.into_values() {
            self.ahead -= block.len() as u64;
            self.keep(block);
        }
    }

    fn keep(&mut self, buffer: Pages) {
        if self.spare.len() < SPARE {
            self.spare.push(buffer);
        }
    }

    /// True if all requests are over.
    pub(crate) fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    fn fail(&mut self, id: u32, e: &io::Error) {
        let (code, text) = match e.kind() {
            io::ErrorKind::StaleNetworkFileHandle => (Exit::SourceChanged, e.to_string()),
            io::ErrorKind::NotADirectory => (Exit::SourceMissing, e.to_string()),
            _ if confine::met_a_link(e) => {
                let text = "a link, or behind one: links are not followed in a share";
                (Exit::Partial, text.into())
            }
            _ => (scan::missing(e), e.to_string()),
        };
        self.unanswered(id, code, &text);
    }

    fn take(&mut self, done: Done, session: &dyn Session) {
        let id = done.id;
        self.ahead -= done.lent;
        if matches!(self.listing, Turn::Worker(folder) if folder == id) {
            self.listing = Turn::Nobody;
        }
        match done.answer {
            Ok(Answer::Stat(entry)) => self.found(id, vec![entry]),
            Ok(Answer::Page(entries, None)) => self.found(id, entries),
            Ok(Answer::Page(_, Some(_))) if !self.open.contains(&id) => {}
            Ok(Answer::Page(entries, Some(rest))) => {
                let more = true;
                self.core.out.push(&Message::Found { id, more, entries });
                self.listing = Turn::Waits(id, rest);
            }
            Ok(Answer::First(opened, block)) => {
                self.opened(id, opened);
                self.loaded(id, block);
            }
            Ok(Answer::Block(block)) => self.loaded(id, block),
            Ok(Answer::Changed(order, act)) => {
                let has_room = self.core.has_room(session);
                self.changed(id, order, act, has_room);
            }
            Ok(Answer::Abandoned) => self.copying -= 1,
            Err(e) => self.fail(id, &e),
        }
    }

    /// Answers a change, or has a copy go on, which is said if there is room.
    fn changed(
        &mut self,
        id: u32,
        order: Box<Order>,
        act: Result<Act, TransferError>,
        has_room: bool,
    ) {
        let is_copy = matches!(order.change, Change::Copy { .. });
        if is_copy && !matches!(act, Ok(Act::More(_))) {
            self.copying -= 1;
        }
        match act {
            Ok(Act::More(copying)) if self.open.contains(&id) => {
                self.work(id, Work::Change(order, Some(copying)));
                if has_room {
                    self.core.out.push(&Message::Changed { id, more: true });
                }
            }
            Ok(Act::More(copying)) => self.work(id, Work::Abandon(copying)),
            Ok(Act::Done) => {
                let removed = matches!(order.change, Change::Remove | Change::RemoveFolder);
                self.core.tally.deleted += u64::from(removed);
                if self.open.remove(&id) {
                    self.core.out.push(&Message::Changed { id, more: false });
                }
            }
            Err(e) => self.unanswered(id, e.code, &e.text),
        }
    }

    /// Starts a job that lists the next page of a folder.
    fn list(&mut self, session: &dyn Session) {
        if matches!(self.listing, Turn::Worker(_)) || !self.core.has_room(session) {
            return;
        }
        let (id, work) = match std::mem::replace(&mut self.listing, Turn::Nobody) {
            Turn::Waits(id, rest) => (id, Work::List(rest)),
            _ => match self.folders.pop_front() {
                Some((id, named)) => (id, Work::Open(named)),
                None => return,
            },
        };
        self.listing = Turn::Worker(id);
        self.work(id, work);
    }

    /// Starts jobs that load blocks: the rest of ranges whose file is open first.
    fn load(&mut self) {
        while self.ahead < AHEAD
            && let Some(job) = self.further_block().or_else(|| self.first_block())
        {
            self.ahead += job.lent;
            self.pool.push(job);
        }
    }

    fn further_block(&mut self) -> Option<Job> {
        while let Some(&id) = self.further.first() {
            let range = self.ranges.get_mut(&id);
            let file = range.and_then(|range| Some((range.file.clone()?, range)));
            let Some((file, range)) = file else {
                self.further.remove(&id);
                continue;
            };
            let index = range.next;
            range.next += 1;
            let bytes = block_range(index, range.len);
            let job = Job {
                id,
                lent: bytes.end - bytes.start,
                work: Work::Block {
                    file,
                    offset: range.offset,
                    len: range.len,
                    index,
                    buffer: self.spare.pop().unwrap_or_default(),
                },
            };
            if range.next == block_count(range.len) {
                range.file = None;
                self.further.remove(&id);
            }
            return Some(job);
        }
        None
    }

    fn first_block(&mut self) -> Option<Job> {
        let id = self.fresh.pop_first()?;
        let range = self.ranges.get(&id)?;
        let work = Work::First {
            named: range.named.clone(),
            offset: range.offset,
            len: range.len,
            buffer: self.spare.pop().unwrap_or_default(),
        };
        let lent = range.len.min(BLOCK);
        Some(Job { id, lent, work })
    }

    fn opened(&mut self, id: u32, opened: Opened) {
        let Some(range) = self.ranges.get_mut(&id) else {
            return;
        };
        range.inode = Some(opened.inode);
        range.version = opened.version;
        range.len = opened.len;
        range.tree = BlockTree::new(opened.len);
        range.next = 1;
        if block_count(opened.len) > 1 {
            range.file = Some(opened.file);
            self.further.insert(id);
        }
    }

    /// Takes a block, and, with the last one, reports the end of its range.
    fn loaded(&mut self, id: u32, block: Block) {
        let Some(range) = self.ranges.get_mut(&id) else {
            return self.keep(block.bytes);
        };
        range.tree.set(block.index, block.value);
        if !block.bytes.is_empty() {
            self.ahead += block.bytes.len() as u64;
            range.blocks.insert(block.index, block.bytes);
            self.ready.insert((id, block.index));
        }
        if let Some(hash) = range.tree.root() {
            let (len, version) = (range.len, range.version);
            self.core.out.push(&Message::ReadEnd {
                id,
                len,
                hash,
                version,
            });
        }
    }

    fn send(&mut self, session: &mut dyn Session) {
        while session.unsent() < UNSENT
            && let Some((id, index)) = self.ready.pop_first()
        {
            let range = self.ranges.get(&id);
            if let Some(block) = range.and_then(|range| range.blocks.get(&index)) {
                let len = block.len() as u64;
                self.core.tally.bytes += len;
                session.send(id, index * BLOCK, len);
            }
        }
        self.core.progress.set(&self.core.tally);
    }

    /// Fills the front of `own`: from one block, or from the file again.
    fn fill_some(&mut self, id: u32, at: u64, own: &mut [u8]) -> usize {
        let Some(range) = self.ranges.get_mut(&id) else {
            // Over already; the peer has what it needs.
            own.fill(0);
            return own.len();
        };
        let (index, from) = (at / BLOCK, usize::try_from(at % BLOCK).unwrap_or(0));
        let most = own
            .len()
            .min(usize::try_from(BLOCK).unwrap_or(usize::MAX) - from);
        let Some(block) = range.blocks.get(&index) else {
            let own = &mut own[..most];
            if let Err(e) = self.read_again(id, at, own) {
                own.fill(0);
                self.broken.push((id, e));
            }
            return most;
        };
        let n = most.min(block.len().saturating_sub(from));
        if n == 0 {
            own.fill(0);
            return own.len();
        }
        own[..n].copy_from_slice(&block[from..from + n]);
        // Blocks are sent from front to back: with the end of one all of it has left.
        if from + n == block.len()
            && let Some(block) = range.blocks.remove(&index)
        {
            self.ahead -= block.len() as u64;
            self.keep(block);
        }
        n
    }

    fn read_again(&mut self, id: u32, at: u64, own: &mut [u8]) -> io::Result<()> {
        let range = self.ranges.get(&id).ok_or(io::ErrorKind::NotFound)?;
        if self.again.as_ref().is_none_or(|(of, _)| *of != id) {
            self.again = Some((id, range.named.open(range.inode)?.0));
        }
        let (_, file) = self.again.as_ref().ok_or(io::ErrorKind::NotFound)?;
        jobs::read_exact(file, own, range.offset + at)
    }
}

impl Role for Reads {
    fn core(&mut self) -> &mut RoleCore {
        &mut self.core
    }

    fn handle(&mut self, message: Message) -> Result<(), TransferError> {
        let Message::Release { id } = message else {
            return Err(TransferError::protocol(
                "no request of a session that reads",
            ));
        };
        if id > self.last {
            return Err(TransferError::protocol("a release of what was not read"));
        }
        // What has failed, or was released before, is over.
        if self.open.remove(&id) {
            self.forget(id);
            self.folders.retain(|(folder, _)| *folder != id);
            self.copies.retain(|(copy, _)| *copy != id);
            if matches!(self.listing, Turn::Waits(folder, _) if folder == id) {
                self.listing = Turn::Nobody;
            }
        }
        Ok(())
    }

    fn poll(&mut self, _now: Instant, session: &mut dyn Session) {
        while let Some(answer) = self.pool.pop() {
            match answer {
                Ok(done) => self.take(done, session),
                Err(broken) => {
                    self.core.fail(broken.error(""));
                    return;
                }
            }
        }
        for (id, e) in std::mem::take(&mut self.broken) {
            self.fail(id, &e);
        }
        self.list(session);
        self.copy();
        self.load();
        self.send(session);
        self.core.out.flush(session);
    }

    fn is_waiting(&self) -> bool {
        self.pool.outstanding() > 0
    }

    fn next_wake(&self, now: Instant) -> Option<Instant> {
        self.pool.next_answer(now)
    }

    fn takes_more(&self, session: &dyn Session) -> bool {
        self.core.has_room(session)
    }

    fn fill(&mut self, extents: &[Extent], batch: &mut [u8]) -> Result<(), StoreError> {
        fill_each(extents, batch, |id, at, own| {
            Some(self.fill_some(id, at, own))
        })
    }
}
