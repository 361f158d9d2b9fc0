//! Writes to a pipe what a server sends. The content of the one file is requested by blocks and put
//! in order there. Requests are ahead of what was written by the size of the window. A thread
//! writes and hashes it.
//!
//! - Every byte in memory was requested, and the window bounds the requests: a server cannot make
//!   this end hold more.
//! - What was written cannot be taken back, so the end says whether it was right: the root is compared at last.

use std::{
    collections::VecDeque,
    io::{self, Write},
    ops::Range,
    sync::{Arc, mpsc},
    thread,
};

use farhaul_core::{
    protocol::Session,
    store::{Extent, StoreError},
    time::Instant,
};

use super::Window;
use crate::{
    digest::{BlockDigest, BlockTree, block_range},
    error::{Advice, TransferError},
    host::Host,
    pages::Pages,
    pool::{LOOK_AGAIN, internal},
    progress::Progress,
    ranges::RangeSet,
    requested::Requested,
    role::{Role, RoleCore, not_requested},
    table::CONTENT,
    wire::{BLOCK, Exit, Hash, Kind, Message, NOT_LISTED, Root, path},
};

/// The only file.
const FILE: u64 = 0;
/// Blocks that are requested at once, unless fewer are left.
const STEP: u64 = 4;
/// Bytes written before they are reported.
const REPORT_EVERY: u64 = 16 * BLOCK;

/// A block on its way.
struct Block {
    bytes: Pages,
    /// Bytes that are missing.
    left: u64,
    /// True if the block was reported as a hole.
    hole: bool,
}

type Output = Box<dyn Write + Send>;

/// A whole block for the thread: its number, whether it counts as a hole, and the size of the file.
struct Whole {
    index: u64,
    bytes: Pages,
    hole: bool,
    size: u64,
}

/// Answer of the thread: the buffer, and the value of the block unless it is a hole.
type Written = io::Result<(u64, Pages, Option<Hash>)>;

/// The role that writes to a pipe.
pub(crate) struct PipeReceiver {
    core: RoleCore,
    whole: mpsc::Sender<Whole>,
    written: mpsc::Receiver<Written>,
    wakes: bool,
    permitted: Requested,
    window: Window,
    /// Blocks that are to come: none is known before the file is listed.
    tree: Option<BlockTree>,
    name: Vec<u8>,
    /// Bytes requested, written and reported, from the start.
    requested: u64,
    done: u64,
    reported: u64,
    /// Number of the first block that the thread does not have, and those from there on.
    first: u64,
    blocks: VecDeque<Block>,
    missing: RangeSet,
    pieces: Vec<Range<u64>>,
    spare: Vec<Pages>,
    root: Option<Root>,
    /// True if all was written and compared.
    compared: bool,
    /// True if nothing more is listed.
    ended: bool,
}

impl PipeReceiver {
    /// Writes the file that `permitted` permits to `output`.
    pub(crate) fn new(
        output: Output,
        permitted: Requested,
        progress: Arc<Progress>,
        host: &Host,
    ) -> io::Result<Self> {
        let (whole, blocks) = mpsc::channel();
        let (send, written) = mpsc::channel();
        let wake = host.wake.clone();
        let wakes = wake.is_some();
        thread::Builder::new()
            .name("farhaul-pipe".into())
            .spawn(move || {
                write(output, &blocks, |done| {
                    let heard = send.send(done).is_ok();
                    if let Some(wake) = &wake {
                        wake();
                    }
                    heard
                });
            })?;
        Ok(Self {
            core: RoleCore::of_receiver(progress, host.meter()),
            whole,
            written,
            wakes,
            permitted,
            window: Window::default(),
            tree: None,
            name: Vec::new(),
            requested: 0,
            done: 0,
            reported: 0,
            first: 0,
            blocks: VecDeque::new(),
            missing: RangeSet::default(),
            pieces: Vec::new(),
            spare: Vec::new(),
            root: None,
            compared: false,
            ended: false,
        })
    }

    fn size(&self) -> u64 {
        self.tree.as_ref().map_or(0, BlockTree::size)
    }

    fn block_done(&mut self, index: u64, bytes: Pages, value: Option<Hash>) {
        if let (Some(tree), Some(value)) = (&mut self.tree, value) {
            tree.set(index, value);
        }
        self.done += bytes.len() as u64;
        self.spare.push(bytes);
    }

    /// Gives the thread the blocks that follow and are whole.
    fn hand_over(&mut self) {
        while self.blocks.front().is_some_and(|block| block.left == 0)
            && let Some(block) = self.blocks.pop_front()
        {
            let whole = Whole {
                index: self.first,
                bytes: block.bytes,
                hole: block.hole,
                size: self.size(),
            };
            if self.whole.send(whole).is_err() {
                self.core.fail(ended_early());
                return;
            }
            self.first += 1;
        }
    }

    /// Requests what the window has room for.
    fn request(&mut self) {
        let size = self.size();
        let window = self.done + self.window.blocks() * BLOCK;
        let end = (window / BLOCK * BLOCK).min(size);
        if end <= self.requested || end < size && end - self.requested < STEP * BLOCK {
            return;
        }
        let range = self.requested..end;
        while self.requested < end {
            let index = self.requested / BLOCK;
            let block = block_range(index, size);
            let bytes = self.spare.pop().unwrap_or_default();
            self.blocks.push_back(Block {
                bytes,
                left: block.end - block.start,
                hole: false,
            });
            self.requested = block.end;
        }
        self.missing.insert(range.clone());
        self.core.out.push(&Message::Want {
            upto: 1,
            ranges: vec![range],
        });
    }

    /// Says whether all of it was right, once it is written and the root is known.
    fn compare(&mut self) {
        let Some(tree) = self.tree.as_ref().filter(|_| !self.compared) else {
            return;
        };
        if self.done < tree.size() {
            return;
        }
        let empty = tree.size() == 0;
        let right = match (self.root, tree.root()) {
            _ if empty => true,
            (Some(theirs), Some(ours)) => theirs.hash == ours && theirs.sparse == tree.has_holes(),
            _ => return,
        };
        self.compared = true;
        if right {
            let plain = self.root.filter(|root| !root.sparse).map(|root| root.hash);
            self.core.last_root = plain.or_else(|| empty.then(|| blake3::hash(b"").into()));
            self.core.tally.files_ok = 1;
        } else {
            let text = format!(
                "{}: content differs from the source, and so does what was written to the standard output",
                path::show(&self.name)
            );
            let fix = "discard it, and check memory and disk of both machines";
            self.core
                .fail(TransferError::new(Exit::VerifyFailed, text).fix(fix));
        }
    }

    /// Fills requested bytes that are a hole with zeros, since a pipe has none.
    fn hole(&mut self, range: &Range<u64>) {
        let mut pieces = Vec::new();
        self.missing.take(range.clone(), &mut pieces);
        for piece in pieces {
            let blocks = self
                .tree
                .as_mut()
                .map_or(0..0, |tree| tree.set_hole(&piece));
            self.core.tally.resumed += piece.end - piece.start;
            self.fill(&piece, |_, own| own.fill(0));
            for index in blocks {
                let at = index
                    .checked_sub(self.first)
                    .and_then(|i| usize::try_from(i).ok());
                if let Some(block) = at.and_then(|i| self.blocks.get_mut(i)) {
                    block.hole = true;
                }
            }
        }
    }

    /// Fills each missing part of a block that `range` has; `bytes` provides its content.
    fn fill(&mut self, range: &Range<u64>, mut bytes: impl FnMut(u64, &mut [u8])) {
        let (size, first) = (self.size(), self.first);
        let mut at = range.start;
        while at < range.end {
            let index = at / BLOCK;
            let own = block_range(index, size);
            let end = range.end.min(own.end);
            let slot = index
                .checked_sub(first)
                .and_then(|i| usize::try_from(i).ok());
            let Some(block) = slot.and_then(|i| self.blocks.get_mut(i)) else {
                return;
            };
            let len = |n: u64| usize::try_from(n).unwrap_or_default();
            if block.bytes.len() != len(own.end - own.start) {
                block.bytes.fit(len(own.end - own.start));
            }
            let part = len(at - own.start)..len(end - own.start);
            bytes(at, &mut block.bytes[part]);
            block.left -= end - at;
            at = end;
        }
    }
}

impl Role for PipeReceiver {
    fn core(&mut self) -> &mut RoleCore {
        &mut self.core
    }

    fn handle(&mut self, message: Message) -> Result<(), TransferError> {
        match message {
            Message::Entries {
                first: FILE,
                entries,
            } if self.tree.is_none() => {
                let [entry] = &entries[..] else {
                    return Err(TransferError::protocol(
                        "a single file was announced, and more were listed",
                    ));
                };
                let left_out = self.permitted.check(entry)?;
                if let Some(why) = left_out.filter(|_| entry.kind == Kind::File) {
                    return Err(TransferError::new(Exit::SourceChanged, why));
                }
                if entry.kind != Kind::File {
                    let text = format!("{} is a link, and not followed", path::show(&entry.path));
                    return Err(
                        TransferError::new(Exit::Usage, text).fix("name the file that it leads to")
                    );
                }
                self.name.clone_from(&entry.path);
                self.tree = Some(BlockTree::new(entry.size));
                self.core.progress.found(entry.size);
                self.core.progress.scan_done();
                if entry.size == 0 {
                    self.core.out.push(&Message::Want {
                        upto: 1,
                        ranges: Vec::new(),
                    });
                }
                Ok(())
            }
            Message::Holes { ranges } => {
                for range in &ranges {
                    self.hole(range);
                }
                Ok(())
            }
            Message::Roots(roots) => {
                if let Some(root) = roots.into_iter().find(|root| root.file == FILE) {
                    self.root.get_or_insert(root);
                }
                Ok(())
            }
            Message::Failed {
                file, code, text, ..
            } if code != Exit::Ok => {
                let fix = if file == NOT_LISTED {
                    "check the name".into()
                } else {
                    Advice::again("what was written is not whole: run the same command again")
                };
                Err(TransferError::new(code, path::show(&text)).fix(fix))
            }
            Message::Failed { text, .. } => {
                self.core.log.add(Exit::Ok, path::show(&text));
                Ok(())
            }
            // The root was sent before; what it is of may still be written.
            Message::End { entries: 1 } if self.tree.is_some() && !self.ended => {
                self.ended = true;
                Ok(())
            }
            _ => Err(TransferError::protocol(
                "the peer sent a message out of order",
            )),
        }
    }

    fn poll(&mut self, now: Instant, session: &mut dyn Session) {
        let before = self.done;
        loop {
            match self.written.try_recv() {
                Ok(Ok((index, bytes, value))) => self.block_done(index, bytes, value),
                Ok(Err(e)) => self.core.fail(not_written(&e)),
                Err(mpsc::TryRecvError::Empty) => break,
                Err(mpsc::TryRecvError::Disconnected) => {
                    self.core.fail(ended_early());
                    break;
                }
            }
        }
        if self.core.fault.is_some() {
            return;
        }
        let rtt = session.stats().rtt_smoothed;
        self.window.moved(now, self.done - before, rtt);
        self.hand_over();
        self.request();
        self.compare();
        if self.ended && self.compared && !self.core.is_finished() {
            self.core.finish();
        }
        self.core.progress.set(&self.core.tally);
        if self.done - self.reported >= REPORT_EVERY && !self.compared {
            self.keep_alive();
        }
        self.core.out.flush(session);
    }

    /// True while the thread has something to write, or the pipe is full.
    fn is_waiting(&self) -> bool {
        (self.first * BLOCK).min(self.size()) > self.done && self.core.fault.is_none()
    }

    fn next_wake(&self, now: Instant) -> Option<Instant> {
        (self.is_waiting() && !self.wakes).then(|| now + LOOK_AGAIN)
    }

    fn takes_more(&self, session: &dyn Session) -> bool {
        self.core.has_room(session)
    }

    fn keep_alive(&mut self) {
        self.reported = self.done;
        self.core.report(0);
    }

    fn place(&mut self, extents: &[Extent], batch: &[u8]) -> Result<(), StoreError> {
        let mut pieces = std::mem::take(&mut self.pieces);
        for extent in extents {
            let bytes = batch.get(extent.range());
            let known = extent.object == CONTENT && extent.end() <= self.requested;
            let Some(bytes) = bytes.filter(|_| known) else {
                return not_requested();
            };
            pieces.clear();
            self.missing.take(extent.offset..extent.end(), &mut pieces);
            for piece in &pieces {
                self.core.tally.bytes += piece.end - piece.start;
                self.fill(piece, |at, own| {
                    let from = usize::try_from(at - extent.offset).unwrap_or_default();
                    own.copy_from_slice(&bytes[from..from + own.len()]);
                });
            }
        }
        self.pieces = pieces;
        Ok(())
    }
}

/// Error for a thread that is gone before its end.
fn ended_early() -> TransferError {
    internal("writing to a pipe", "the thread ended early")
}

/// Error of the transfer for an error of the thread.
fn not_written(e: &io::Error) -> TransferError {
    let text = format!("the standard output cannot be written: {e}");
    TransferError::new(Exit::of_write(e), text)
}

/// Body of the thread: writes block after block, until there are no more or nobody listens.
fn write(
    mut output: Output,
    blocks: &mpsc::Receiver<Whole>,
    mut tell: impl FnMut(Written) -> bool,
) {
    while let Ok(Whole {
        index,
        bytes,
        hole,
        size,
    }) = blocks.recv()
    {
        let last = index.saturating_add(1).saturating_mul(BLOCK) >= size;
        let done = output.write_all(&bytes);
        let done = done.and_then(|()| if last { output.flush() } else { Ok(()) });
        let failed = done.is_err();
        let done = done.map(|()| {
            let value = (!hole).then(|| {
                let mut digest = BlockDigest::new(index, size);
                digest.update(&bytes);
                digest.value()
            });
            (index, bytes, value)
        });
        if !tell(done) || failed {
            return;
        }
    }
}
