//! Sends what comes through a pipe. A thread reads the pipe by blocks into buffers that it is
//! given, and hashes them. The file is listed with what has been read of it, and grows; a block is
//! kept until the receiver has it.
//!
//! - Nothing is read before the receiver has accepted, nor beyond the window.
//! - A file is listed as one that grows only if it is longer than [`FIRST`]; a shorter one is like any other.

use std::{
    collections::VecDeque,
    io::{self, Read},
    ops::Range,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use farhaul_core::{
    protocol::Session,
    store::{Extent, StoreError},
    time::Instant,
};

use super::Window;
use crate::{
    digest::{BlockDigest, BlockTree},
    error::TransferError,
    host::Host,
    pages::Pages,
    pool::{LOOK_AGAIN, Wake, internal},
    progress::Progress,
    role::{Role, RoleCore, State, fill_each},
    table::CONTENT,
    wire::{BLOCK, Entry, Exit, Hash, Message, Root},
};

/// Bytes with which a file is listed that may grow: an end takes a file longer than a block for a
/// large one.
pub(crate) const FIRST: u64 = 2 * BLOCK;
/// The only file.
const FILE: u64 = 0;

/// Block that the thread has read.
struct Block {
    bytes: Pages,
    /// Value as a block of a file of several.
    value: Hash,
    /// True if nothing follows.
    last: bool,
}

type Input = Box<dyn Read + Send>;

/// The thread that reads.
enum Reader {
    /// The thread has not begun.
    Waits(Input, Option<Wake>),
    Reads {
        blocks: mpsc::Receiver<io::Result<Block>>,
        buffers: mpsc::Sender<Pages>,
    },
    /// The thread reached the end, or is not needed.
    Over,
}

/// The role that sends what comes through a pipe.
pub(crate) struct PipeSender {
    core: RoleCore,
    reader: Reader,
    wakes: bool,
    window: Window,
    /// Buffers that exist.
    buffers: u64,
    /// Number of the first block that is kept, and those from there on.
    first: u64,
    kept: VecDeque<Pages>,
    /// Bytes read, listed, requested and given to the session.
    read: u64,
    listed: u64,
    wanted: u64,
    given: u64,
    tree: BlockTree,
    entry: Entry,
    stage: Stage,
    /// Time and round trip at the last poll.
    now: Instant,
    rtt: Option<Duration>,
}

/// Progress of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Too little has been read to list it.
    Begins,
    /// The file is listed, and may grow.
    Grows,
    /// All of the file has been listed, or was given up.
    Ended,
}

impl PipeSender {
    /// Sends what `input` gives, once the peer has [accepted](Role::accepted), as a file with the name, mode and times of `entry`.
    pub(crate) fn new(input: Input, entry: Entry, progress: Arc<Progress>, host: &Host) -> Self {
        Self {
            core: RoleCore::of_sender(progress, host.meter()),
            reader: Reader::Waits(input, host.wake.clone()),
            wakes: host.wake.is_some(),
            window: Window::default(),
            buffers: 0,
            first: 0,
            kept: VecDeque::new(),
            read: 0,
            listed: 0,
            wanted: 0,
            given: 0,
            tree: BlockTree::new(FIRST),
            entry,
            stage: Stage::Begins,
            now: Instant::EPOCH,
            rtt: None,
        }
    }

    /// Gives the thread as many buffers as the window has.
    fn provide(&mut self) {
        let Reader::Reads { buffers, .. } = &self.reader else {
            return;
        };
        while self.buffers < self.window.blocks() && buffers.send(Pages::default()).is_ok() {
            self.buffers += 1;
        }
    }

    /// Takes what the thread has read.
    fn fetch(&mut self) {
        loop {
            let Reader::Reads { blocks, .. } = &self.reader else {
                return;
            };
            match blocks.try_recv() {
                Ok(Ok(block)) => {
                    let bytes = block.bytes.len() as u64;
                    if bytes > 0 {
                        let index = self.read / BLOCK;
                        self.tree.set(index, block.value);
                    }
                    self.read += bytes;
                    self.core.progress.grew(bytes);
                    if bytes > 0 {
                        self.kept.push_back(block.bytes);
                    }
                    if block.last {
                        self.core.progress.scan_done();
                        self.reader = Reader::Over;
                    }
                }
                Ok(Err(e)) => {
                    self.reader = Reader::Over;
                    let text = format!("the standard input cannot be read: {e}");
                    self.core
                        .fail(TransferError::new(Exit::SourceMissing, text));
                }
                Err(mpsc::TryRecvError::Empty) => return,
                Err(mpsc::TryRecvError::Disconnected) => {
                    self.reader = Reader::Over;
                    let why = "the thread ended early";
                    self.core.fail(internal("reading a pipe", why));
                }
            }
        }
    }

    /// Lists for the receiver what was read.
    fn list(&mut self) {
        let over = matches!(self.reader, Reader::Over);
        if self.core.fault.is_some() || self.stage == Stage::Ended {
            return;
        }
        if self.stage == Stage::Begins && (over || self.read > FIRST) {
            self.listed = if over { self.read } else { FIRST };
            (self.entry.size, self.entry.allocated) = (self.listed, self.listed);
            self.core.out.push(&Message::Entries {
                first: FILE,
                entries: vec![self.entry.clone()],
            });
            self.stage = Stage::Grows;
        }
        if self.stage == Stage::Grows && self.read > self.listed {
            self.listed = self.read;
            self.core.out.push(&Message::Grown {
                file: FILE,
                size: self.listed,
            });
        }
        if self.stage == Stage::Grows && over {
            self.end();
        }
    }

    /// Notes that all was read and listed.
    fn end(&mut self) {
        self.stage = Stage::Ended;
        if self.listed > 0 {
            self.tree.grow(self.listed);
            let hash = if self.listed <= BLOCK {
                let only = self.kept.front().map_or(&[][..], |block| block);
                Some(blake3::hash(only).into())
            } else {
                self.tree.root()
            };
            let Some(hash) = hash else {
                let why = "a block has no value";
                self.core.fail(internal("hashing a pipe", why));
                return;
            };
            self.core.last_root = Some(hash);
            self.core.out.push(&Message::Roots(vec![Root {
                file: FILE,
                sparse: false,
                hash,
            }]));
        }
        self.core.end_list(1);
    }

    /// The receiver does not want the rest.
    fn give_up(&mut self) {
        self.reader = Reader::Over;
        self.kept.clear();
        if self.stage != Stage::Ended {
            let entries = u64::from(self.stage == Stage::Grows);
            self.stage = Stage::Ended;
            self.core.out.push(&Message::End { entries });
        }
    }

    /// Takes a request. Listed content is requested once, in order: bytes that were taken
    /// are not here any more.
    fn want(&mut self, range: &Range<u64>) -> Result<(), TransferError> {
        if range.start != self.wanted || range.end > self.listed {
            return Err(TransferError::protocol(
                "the peer wants what was not listed, or again what came through a pipe",
            ));
        }
        self.wanted = range.end;
        Ok(())
    }

    /// Notes that the receiver has all below `upto`.
    fn taken(&mut self, upto: u64) -> Result<(), TransferError> {
        if upto > self.wanted {
            return Err(TransferError::protocol(
                "the peer has taken what it has not wanted",
            ));
        }
        let before = self.first;
        while (self.first + 1) * BLOCK <= upto
            && let Some(bytes) = self.kept.pop_front()
        {
            self.first += 1;
            let Reader::Reads { buffers, .. } = &self.reader else {
                continue;
            };
            // One that nobody takes is not needed.
            let _over = buffers.send(bytes);
        }
        let moved = (self.first - before) * BLOCK;
        self.window.moved(self.now, moved, self.rtt);
        self.provide();
        Ok(())
    }

    /// Copies what is kept of the block with `offset`, from there on. A block that was taken gives
    /// zeros: its bytes were received already.
    fn copy(&self, offset: u64, into: &mut [u8]) -> usize {
        let at = usize::try_from(offset % BLOCK).unwrap_or_default();
        let block = (offset / BLOCK).checked_sub(self.first);
        let block = block.and_then(|i| self.kept.get(usize::try_from(i).ok()?));
        let rest = block.and_then(|bytes| bytes.get(at..)).unwrap_or_default();
        if rest.is_empty() {
            let whole = usize::try_from(BLOCK).unwrap_or(usize::MAX);
            let n = into.len().min(whole - at);
            into[..n].fill(0);
            return n;
        }
        let n = rest.len().min(into.len());
        into[..n].copy_from_slice(&rest[..n]);
        n
    }
}

impl Role for PipeSender {
    fn core(&mut self) -> &mut RoleCore {
        &mut self.core
    }

    fn handle(&mut self, message: Message) -> Result<(), TransferError> {
        match message {
            Message::Want { upto, ranges } if upto <= 1 => {
                ranges.iter().try_for_each(|range| self.want(range))
            }
            Message::Taken { file: FILE, upto } => self.taken(upto),
            Message::Trouble { code, text, .. } => {
                let told = self.core.take_trouble(code, &text);
                if !told || code != Exit::Ok {
                    self.give_up();
                }
                Ok(())
            }
            Message::Report { tally, .. } => {
                self.core.note_tally(&tally);
                Ok(())
            }
            Message::Finished { tally, .. }
                if self.stage == Stage::Ended && !self.core.is_finished() =>
            {
                self.core.note_tally(&tally);
                self.core.state = State::Finished;
                Ok(())
            }
            _ => Err(TransferError::protocol(
                "the peer sent a message out of order",
            )),
        }
    }

    fn poll(&mut self, now: Instant, session: &mut dyn Session) {
        (self.now, self.rtt) = (now, session.stats().rtt_smoothed);
        self.fetch();
        self.list();
        if self.given < self.wanted {
            session.send(CONTENT, self.given, self.wanted - self.given);
            self.given = self.wanted;
        }
        self.core.part(session);
        self.core.out.flush(session);
    }

    fn is_waiting(&self) -> bool {
        matches!(self.reader, Reader::Reads { .. })
    }

    fn next_wake(&self, now: Instant) -> Option<Instant> {
        (self.is_waiting() && !self.wakes).then(|| now + LOOK_AGAIN)
    }

    /// Begins to read.
    fn accepted(&mut self) -> io::Result<()> {
        let Reader::Waits(input, wake) = std::mem::replace(&mut self.reader, Reader::Over) else {
            return Ok(());
        };
        let (send_block, blocks) = mpsc::channel();
        let (buffers, take_buffer) = mpsc::channel();
        thread::Builder::new()
            .name("farhaul-pipe".into())
            .spawn(move || read(input, &take_buffer, &send_block, wake.as_ref()))?;
        self.reader = Reader::Reads { blocks, buffers };
        self.core.progress.found(0);
        self.provide();
        Ok(())
    }

    /// An empty list of roots.
    fn keep_alive(&mut self) {
        self.core.out.push(&Message::Roots(Vec::new()));
    }

    fn fill(&mut self, extents: &[Extent], batch: &mut [u8]) -> Result<(), StoreError> {
        fill_each(extents, batch, |object, at, own| {
            (object == CONTENT).then(|| self.copy(at, own))
        })
    }
}

/// Body of the thread: fills each buffer that it is given, until its input ends or nobody listens.
fn read(
    mut input: Input,
    buffers: &mpsc::Receiver<Pages>,
    blocks: &mpsc::Sender<io::Result<Block>>,
    wake: Option<&Wake>,
) {
    let whole = usize::try_from(BLOCK).unwrap_or(usize::MAX);
    let mut index = 0;
    while let Ok(mut bytes) = buffers.recv() {
        bytes.fit(whole);
        let block = fill_up(&mut *input, &mut bytes).map(|n| {
            bytes.fit(n);
            let mut digest = BlockDigest::new(index, u64::MAX);
            digest.update(&bytes);
            Block {
                value: if n == 0 {
                    Hash::default()
                } else {
                    digest.value()
                },
                last: n < whole,
                bytes,
            }
        });
        index += 1;
        let over = block.as_ref().map_or(true, |block| block.last);
        let heard = blocks.send(block).is_ok();
        if let Some(wake) = wake {
            wake();
        }
        if over || !heard {
            return;
        }
    }
}

/// Reads until `into` is full or the input ends.
fn fill_up(input: &mut dyn Read, into: &mut [u8]) -> io::Result<usize> {
    let mut n = 0;
    while n < into.len() {
        match input.read(&mut into[n..]) {
            Ok(0) => break,
            Ok(more) => n += more,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(n)
}
