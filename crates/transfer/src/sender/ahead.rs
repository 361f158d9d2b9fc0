//! Reads ahead what will be sent next. Workers read packs of small files and blocks of large ones
//! into memory, and hash them in passing. Only what they have read is queued on the session, so the
//! thread that sends copies from memory and never waits for a disk.
//!
//! - The queue keeps manifest order.
//! - Buffers are recycled once everything in them has been sent, the warmest first.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
    sync::Arc,
};

use farhaul_core::protocol::Session;

use super::{
    AHEAD, Ahead, Body, Item, Sender, Step, UNSENT,
    job::{PackFile, Piece, ReadJob},
};
use crate::{
    pages::Pages,
    ranges::RangeSet,
    table::CONTENT,
    wire::{BLOCK, Hash},
};

/// Bytes in memory; beyond that the oldest are given up. Only content that is queued twice is ever
/// that old.
const KEPT: u64 = 12 << 20;
/// Empty buffers kept.
const SPARE: usize = 8;
/// Starts remembered before those that have gone are forgotten.
const STARTS: usize = 4_096;

/// Content read ahead.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    /// Bytes beyond [`KEPT`] that may be kept, for further parallel sessions.
    more: u64,
    by_start: BTreeMap<u64, Buffer>,
    /// Offsets at which the pieces start, oldest first; some may have gone.
    order: VecDeque<u64>,
    bytes: u64,
    spare: Vec<Pages>,
}

#[derive(Debug)]
struct Buffer {
    bytes: Pages,
    /// Bytes that have not been taken yet.
    unsent: u64,
}

impl Loaded {
    /// Keeps `bytes` of the object from `start` until `unsent` of them have been taken.
    pub(super) fn insert(&mut self, start: u64, bytes: Pages, unsent: u64) {
        if unsent == 0 {
            return self.recycle(bytes);
        }
        self.remove(start);
        self.bytes += bytes.len() as u64;
        if self.order.len() >= STARTS {
            self.order.retain(|s| self.by_start.contains_key(s));
        }
        self.order.push_back(start);
        self.by_start.insert(start, Buffer { bytes, unsent });
        while self.bytes > KEPT + self.more
            && let Some(oldest) = self.order.pop_front()
        {
            self.remove(oldest);
        }
    }

    fn remove(&mut self, start: u64) {
        if let Some(bytes) = self.take(start) {
            self.recycle(bytes);
        }
    }

    /// Takes what starts at `start`, for another to send.
    pub(super) fn take(&mut self, start: u64) -> Option<Pages> {
        let old = self.by_start.remove(&start)?;
        self.bytes -= old.bytes.len() as u64;
        Some(old.bytes)
    }

    /// Buffers that are empty.
    pub(super) const fn spares(&mut self) -> &mut Vec<Pages> {
        &mut self.spare
    }

    /// Keeps a block more for each of so many workers.
    pub(super) const fn work_for(&mut self, workers: usize) {
        self.more = BLOCK * workers as u64;
    }

    fn recycle(&mut self, bytes: Pages) {
        if self.spare.len() < SPARE {
            self.spare.push(bytes);
        }
    }

    /// Copies the bytes from `offset` on; returns how many that were.
    pub(super) fn copy(&mut self, offset: u64, into: &mut [u8]) -> usize {
        let Some((start, buffer)) = self.by_start.range_mut(..=offset).next_back() else {
            return 0;
        };
        let rest = usize::try_from(offset - start).ok();
        let Some(rest) = rest.and_then(|at| buffer.bytes.get(at..)) else {
            return 0;
        };
        let n = rest.len().min(into.len());
        into[..n].copy_from_slice(&rest[..n]);
        buffer.unsent = buffer.unsent.saturating_sub(n as u64);
        if buffer.unsent == 0 {
            let start = *start;
            self.remove(start);
            while let Some(oldest) = self.order.front()
                && !self.by_start.contains_key(oldest)
            {
                self.order.pop_front();
            }
        }
        n
    }
}

impl Sender {
    /// Queues content on the session, in manifest order.
    pub(super) fn feed(&mut self, session: &mut dyn Session) {
        self.read_ahead(session);
        loop {
            if self.hand_over(session.unsent()) {
                self.read_ahead(session);
                continue;
            }
            if session.unsent() >= UNSENT || self.steps.front().is_none_or(|s| !s.ready) {
                return;
            }
            match self.steps.pop_front().map(|step| step.what) {
                Some(Ahead::Pack(id)) => {
                    for r in self.packs.remove(&id).map(|p| p.wanted).unwrap_or_default() {
                        session.send(CONTENT, r.start, r.end - r.start);
                    }
                }
                Some(Ahead::Piece { number, range }) => {
                    if self
                        .table
                        .get(number)
                        .is_some_and(|s| !s.item.disposition.is_given_up())
                    {
                        session.send(CONTENT, range.start, range.end - range.start);
                    } else {
                        self.loaded.remove(range.start);
                    }
                }
                None => return,
            }
            self.read_ahead(session);
        }
    }

    /// Starts to read what follows. What cannot be read is reported, for which there must be space.
    fn read_ahead(&mut self, session: &dyn Session) {
        while self.steps.len() < AHEAD + self.pool.threads()
            && self.core.has_room(session)
            && let Some(item) = self.queue.front()
        {
            let (what, reads) = match *item {
                Item::Pack(id) => {
                    self.queue.pop_front();
                    (Ahead::Pack(id), self.read_pack(id))
                }
                Item::Large(number) => {
                    let body = self.table.get(number).map(|s| &s.item.body);
                    if matches!(body, Some(Body::Large(large)) if !large.mapped) {
                        return;
                    }
                    let Some(range) = self.next_piece(number) else {
                        self.queue.pop_front();
                        if let Some(Body::Large(large)) =
                            self.table.get_mut(number).map(|s| &mut s.item.body)
                        {
                            large.queued = false;
                        }
                        continue;
                    };
                    let reads = self.read_piece(number, &range);
                    (Ahead::Piece { number, range }, reads)
                }
            };
            self.steps.push_back(Step {
                what,
                ready: !reads,
            });
        }
    }

    /// The next bytes wanted of a large file, of one block at most.
    fn next_piece(&mut self, number: u64) -> Option<Range<u64>> {
        let slot = self.table.get_mut(number)?;
        let start = slot.range.start;
        let Body::Large(large) = &mut slot.item.body else {
            return None;
        };
        let front = large.to_send.first()?;
        let block_end = start + ((front.start - start) / BLOCK + 1) * BLOCK;
        let piece = front.start..front.end.min(block_end);
        large.to_send.remove(piece.clone());
        Some(piece)
    }

    /// False if there is nothing to wait for.
    fn read_piece(&mut self, number: u64, range: &Range<u64>) -> bool {
        let Some(slot) = self.table.get(number) else {
            return false;
        };
        let start = slot.range.start;
        let size = slot.range.end - start;
        match self.file(number) {
            Ok(file) => {
                let piece = Piece {
                    number,
                    size,
                    range: range.start - start..range.end - start,
                    bytes: self.loaded.spare.pop().unwrap_or_default(),
                    value: None,
                    outcome: Ok(()),
                };
                self.pool.push(ReadJob::Piece { piece, file });
                true
            }
            Err(e) => {
                self.fail_read(number, &e);
                false
            }
        }
    }

    pub(super) fn piece_done(&mut self, piece: Piece) {
        let Piece {
            number,
            range,
            bytes,
            value,
            outcome,
            ..
        } = piece;
        let Some(slot) = self.table.get_mut(number) else {
            // Over, whatever was read.
            self.ready(|what| matches!(what, Ahead::Piece { number: n, .. } if *n == number));
            return self.loaded.recycle(bytes);
        };
        let start = slot.range.start + range.start;
        if let Body::Large(large) = &mut slot.item.body {
            large.unread.remove(range.clone());
            if let Some(value) = value {
                large.tree.set(range.start / BLOCK, value);
            }
        }
        match outcome {
            Ok(()) => {
                let unsent = bytes.len() as u64;
                self.loaded.insert(start, bytes, unsent);
            }
            Err(e) => {
                self.loaded.recycle(bytes);
                self.fail_read(number, &e);
            }
        }
        self.ready(|what| matches!(what, Ahead::Piece { range, .. } if range.start == start));
    }

    /// Marks a step as done with reading.
    fn ready(&mut self, is: impl Fn(&Ahead) -> bool) {
        for step in self.steps.iter_mut().filter(|s| is(&s.what)) {
            step.ready = true;
        }
    }

    /// False if there is nothing to wait for.
    fn read_pack(&mut self, id: u64) -> bool {
        let Some(pack) = self.packs.get_mut(&id) else {
            return false;
        };
        // Files over by now are not read, and the pack starts behind them.
        let first = pack.first.max(self.table.first());
        let upto = pack.upto;
        pack.start = self.table.get(first).map_or(pack.start, |s| s.range.start);
        let file = |number: u64| {
            let item = &self.table.get(number)?.item;
            let origin = Arc::clone(&item.origin);
            let stamp = item.stamp;
            matches!(item.body, Body::Small { .. }).then_some(PackFile { origin, stamp })
        };
        let files: Vec<_> = (first..upto).filter_map(file).collect();
        let bytes = self.loaded.spare.pop().unwrap_or_default();
        self.pool.push(ReadJob::Pack { id, files, bytes });
        true
    }

    pub(super) fn pack_done(
        &mut self,
        id: u64,
        bytes: Pages,
        results: Vec<(u64, std::io::Result<Hash>)>,
    ) {
        for (number, result) in results {
            if let Some(slot) = self.table.get_mut(number)
                && let Body::Small { queued } = &mut slot.item.body
            {
                *queued = false;
            }
            match result {
                Ok(root) => self.settle(number, root, false),
                Err(e) => {
                    if let (Some(slot), Some(pack)) =
                        (self.table.get(number), self.packs.get_mut(&id))
                    {
                        let mut wanted: RangeSet = pack.wanted.drain(..).collect();
                        wanted.remove(slot.range.clone());
                        pack.wanted.extend(wanted.iter());
                    }
                    self.fail_read(number, &e);
                }
            }
        }
        if let Some(pack) = self.packs.get(&id) {
            let unsent = pack.wanted.iter().map(|r| r.end - r.start).sum();
            self.loaded.insert(pack.start, bytes, unsent);
        }
        self.ready(|what| matches!(what, Ahead::Pack(pack) if *pack == id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(byte: u8, len: usize) -> Pages {
        let mut pages = Pages::default();
        pages.fit(len);
        pages.fill(byte);
        pages
    }

    #[test]
    fn what_was_sent_is_let_go() {
        let mut loaded = Loaded::default();
        loaded.insert(100, filled(1, 10), 10);
        loaded.insert(110, filled(2, 10), 4);
        let mut into = [0; 8];
        assert_eq!(loaded.copy(99, &mut into), 0);
        assert_eq!(loaded.copy(104, &mut into), 6);
        assert_eq!(into, [1, 1, 1, 1, 1, 1, 0, 0]);
        assert_eq!(loaded.copy(100, &mut into[..4]), 4);
        assert_eq!(loaded.copy(100, &mut into), 0, "all of it was taken");
        assert_eq!(loaded.copy(112, &mut into[..4]), 4);
        assert_eq!(loaded.copy(112, &mut into), 0, "nothing more is wanted");
        assert!(loaded.order.is_empty() && loaded.by_start.is_empty());
        assert_eq!((loaded.spare.len(), loaded.bytes), (2, 0));
    }

    #[test]
    fn memory_is_bounded() {
        let mut loaded = Loaded::default();
        for i in 0..60 {
            loaded.insert(i << 20, filled(0, 1 << 20), 1 << 20);
        }
        assert_eq!(loaded.bytes, KEPT);
        let mut into = [0; 1];
        assert_eq!(loaded.copy(0, &mut into), 0);
        assert_eq!(loaded.copy(59 << 20, &mut into), 1);
    }
}
