//! Acts on the receiver's answers, which become packs of small files, ranges of large ones, and
//! notes about holes.

use std::{ops::Range, sync::Arc};

use farhaul_core::protocol::Session;

use super::{
    BLOCK, BLOCK_REQUESTS, Body, Disposition, Item, Large, Outgoing, PACK_FILES, Pack, ReadJob,
    Sender, VALUES, too_often,
};
use crate::{
    bounds::{self, ASKED, REPAIRS},
    digest::{BlockTree, block_count},
    error::TransferError,
    progress::FileOver,
    ranges::RangeSet,
    table::Slot,
    wire::{Entry, Hash, Kind, Message, Tally, limits::TARGET_FRAME},
};

/// Ranges per message.
const RANGES: usize = 1500;

impl Sender {
    pub(super) fn report(&mut self, resolved: u64, tally: &Tally) -> Result<(), TransferError> {
        if resolved > self.decided {
            return Err(TransferError::protocol(
                "the peer resolved entries it has not decided on",
            ));
        }
        self.core.note_tally(tally);
        self.pop_over(resolved);
        Ok(())
    }

    /// Entries below `resolved` are over.
    pub(super) fn pop_over(&mut self, resolved: u64) {
        while self.table.first() < resolved
            && let Some(item) = self.table.pop_if(|_| true)
        {
            if !item.settled {
                self.unsettled -= 1;
            }
            if item.entry.kind == Kind::File && item.disposition != Disposition::Relisted {
                let Entry { path, size, .. } = item.entry;
                let empty = size == 0 && item.disposition == Disposition::Sending;
                self.core.progress.file_over(FileOver {
                    path,
                    bytes: size,
                    ok: item.disposition != Disposition::Failed,
                    sent: item.asked > 0 || empty,
                });
            }
        }
        let next = self.table.get(self.table.first());
        let next = next.map(|slot| (self.table.first(), &slot.item.entry.path[..]));
        self.core.progress.set_current(next);
        if let Some(lanes) = self.core.lanes() {
            lanes.set_over(self.table.begin());
        }
    }

    /// Takes the receiver's decision on every entry below `upto`; it requests `ranges`.
    pub(super) fn want(&mut self, upto: u64, ranges: &[Range<u64>]) -> Result<(), TransferError> {
        let listed = ranges.last().is_none_or(|r| r.end <= self.table.end());
        if upto < self.decided || upto > self.table.next() || !listed {
            return Err(TransferError::protocol(
                "the peer wants what was not listed",
            ));
        }
        let border = self
            .table
            .get(self.decided)
            .map_or(self.table.end(), |s| s.range.start);
        let mut wanted: RangeSet = ranges.iter().cloned().collect();
        let mut before = Vec::new();
        wanted.take(0..border, &mut before);
        for r in before {
            self.want_more(&r)?;
        }
        let mut pack = None;
        for number in self.decided..upto {
            self.decide(number, &mut wanted, &mut pack)?;
        }
        self.close_pack(pack);
        self.decided = upto;
        if wanted.is_empty() {
            Ok(())
        } else {
            Err(TransferError::protocol(
                "the peer wants what it has not decided on",
            ))
        }
    }

    fn decide(
        &mut self,
        number: u64,
        wanted: &mut RangeSet,
        pack: &mut Option<Pack>,
    ) -> Result<(), TransferError> {
        let Some(slot) = self.table.get_mut(number) else {
            return Ok(());
        };
        if slot.item.entry.kind != Kind::File || slot.range.is_empty() {
            return Ok(());
        }
        let range = slot.range.clone();
        let mut pieces = Vec::new();
        wanted.take(range.clone(), &mut pieces);
        pieces.iter().try_for_each(|piece| charge(slot, piece))?;
        if slot.item.disposition.is_given_up() {
            // Given up already. A pack is read end to end, so it may not reach over this file.
            self.close_pack(pack.take());
            return Ok(());
        }
        let size = range.end - range.start;
        if size <= BLOCK {
            slot.item.body = Body::Small { queued: true };
            let full =
                |p: &Pack| range.end - p.start > BLOCK || p.upto - p.first >= PACK_FILES as u64;
            if pack.as_ref().is_some_and(full) {
                self.close_pack(pack.take());
            }
            let pack = pack.get_or_insert_with(|| new_pack(number, range.start));
            pack.upto = number + 1;
            for piece in pieces {
                join(&mut pack.wanted, piece);
            }
            return Ok(());
        }
        self.close_pack(pack.take());
        self.decide_large(number, pieces);
        Ok(())
    }

    fn decide_large(&mut self, number: u64, pieces: Vec<Range<u64>>) {
        let Some(slot) = self.table.get_mut(number) else {
            return;
        };
        let (size, start) = (slot.item.entry.size, slot.range.start);
        let sparse = slot.item.entry.allocated < size;
        let zeros = sparse && pieces.is_empty();
        let within = |p: &Range<u64>| p.start - start..p.end - start;
        let unread: RangeSet = pieces.iter().map(within).collect();
        slot.item.body = Body::Large(Box::new(Large {
            file: None,
            to_send: pieces.into_iter().collect(),
            queued: true,
            repairs: 0,
            block_requests: 0,
            mapped: !sparse,
            zeros,
            unread,
            tree: BlockTree::new(size),
            next_block: 0,
            hashing: 0,
            touched: 0,
        }));
        if sparse {
            let origin = Arc::clone(&slot.item.origin);
            self.pool.push(ReadJob::Extents(origin));
        }
        self.hashing.files.push_back(number);
        self.queue.push_back(Item::Large(number));
    }

    fn close_pack(&mut self, pack: Option<Pack>) {
        if let Some(pack) = pack {
            let id = self.next_pack;
            self.next_pack += 1;
            self.packs.insert(id, pack);
            self.queue.push_back(Item::Pack(id));
        }
    }

    /// Bytes of entries decided on before; those that wait to be read anyway are not queued twice.
    fn want_more(&mut self, range: &Range<u64>) -> Result<(), TransferError> {
        let mut at = range.start;
        while at < range.end
            && let Some(number) = self.table.find(at)
        {
            let Some(slot) = self.table.get_mut(number) else {
                return Ok(());
            };
            let piece = at..range.end.min(slot.range.end);
            at = piece.end;
            charge(slot, &piece)?;
            let start = slot.range.start;
            match &mut slot.item.body {
                Body::Large(large) => {
                    large.queue(start, piece);
                    if !std::mem::replace(&mut large.queued, true) {
                        self.queue.push_back(Item::Large(number));
                    }
                }
                Body::Small { queued } => {
                    if !std::mem::replace(queued, true) {
                        let mut pack = new_pack(number, start);
                        pack.wanted.push(piece);
                        self.close_pack(Some(pack));
                    }
                }
                Body::None => {}
            }
        }
        Ok(())
    }

    /// Sends `ranges` (within the object) again and hashes the file anew, since content arrived
    /// wrong.
    pub(super) fn repair(&mut self, file: u64, ranges: &[Range<u64>]) -> Result<(), TransferError> {
        let Some(slot) = self.table.get_mut(file) else {
            return Ok(());
        };
        let own = slot.range.clone();
        if !ranges
            .iter()
            .all(|r| r.start >= own.start && r.end <= own.end)
        {
            return Err(TransferError::protocol("the peer repairs outside the file"));
        }
        // Bytes sent for the first time are nothing that went wrong.
        if slot.item.asked > 0 {
            self.core.progress.retry();
        }
        if let Body::Large(large) = &mut slot.item.body {
            // From here on every block counts as it is stored.
            large.zeros = false;
            let hole = large.tree.take_holes().first().map(|r| r.start);
            let changed = ranges
                .iter()
                .map(|r| (r.start - own.start) / BLOCK..(r.end - own.start).div_ceil(BLOCK));
            let mut first = hole.unwrap_or(large.next_block);
            for blocks in changed {
                first = first.min(blocks.start);
                large.tree.clear(blocks);
            }
            large.next_block = large.next_block.min(first);
            if slot.item.settled && !slot.item.disposition.is_given_up() {
                large.repairs += 1;
                if large.repairs > REPAIRS {
                    return Err(too_often());
                }
                slot.item.settled = false;
                self.unsettled += 1;
                self.hashing.files.push_front(file);
            }
        }
        ranges.iter().try_for_each(|r| self.want_more(r))
    }

    /// The receiver requests the values of a file's blocks, which it may before it has any and after.
    pub(super) fn asks_blocks(&mut self, file: u64) -> Result<(), TransferError> {
        if let Some(slot) = self.table.get_mut(file)
            && let Body::Large(large) = &mut slot.item.body
        {
            large.block_requests += 1;
            if large.block_requests > BLOCK_REQUESTS {
                return Err(too_often());
            }
            self.telling.push_back((file, 0));
        }
        Ok(())
    }

    /// Sends requested values of blocks as they become known, as many as there is space for.
    pub(super) fn send_blocks(&mut self, session: &dyn Session) {
        while self.core.has_room(session)
            && let Some((file, first)) = self.telling.front().copied()
        {
            let Some(Outgoing {
                entry,
                disposition: Disposition::Sending,
                body: Body::Large(large),
                ..
            }) = self.table.get(file).map(|slot| &slot.item)
            else {
                self.telling.pop_front();
                continue;
            };
            let left = block_count(entry.size) - first;
            let values: Vec<Hash> = (first..first + left)
                .take(TARGET_FRAME / 32)
                .map_while(|i| large.tree.get(i))
                .collect();
            let n = values.len() as u64;
            if n < left.min(VALUES) {
                // The rest is being hashed.
                return;
            }
            self.core.out.push(&Message::Blocks {
                file,
                first,
                values,
            });
            if n == left {
                self.telling.pop_front();
            } else if let Some((_, next)) = self.telling.front_mut() {
                *next += n;
            }
        }
    }

    /// The stored ranges of a sparse file are known: the rest is reported as holes, not sent.
    pub(super) fn mapped(&mut self, number: u64, data: &[Range<u64>]) {
        let Some(slot) = self.table.get_mut(number) else {
            return;
        };
        let (start, size) = (slot.range.start, slot.item.entry.size);
        let Body::Large(large) = &mut slot.item.body else {
            return;
        };
        large.mapped = true;
        // Of a file in very many pieces the rest counts as one.
        let rest = data.get(bounds::RANGES).map(|r| r.start..size);
        let data = || {
            data.iter()
                .take(bounds::RANGES)
                .cloned()
                .chain(rest.clone())
        };
        if large.zeros {
            let mut rest: RangeSet = std::iter::once(0..size).collect();
            for r in data() {
                rest.remove(r);
            }
            for hole in rest.iter() {
                large.tree.set_hole(&hole);
            }
            return;
        }
        let mut wanted = std::mem::take(&mut large.to_send);
        let mut send = Vec::new();
        for r in data() {
            wanted.take(r.start + start..r.end + start, &mut send);
        }
        large.to_send = send.into_iter().collect();
        let holes: Vec<_> = wanted.iter().collect();
        for hole in &holes {
            let within = hole.start - start..hole.end - start;
            large.unread.remove(within.clone());
            large.tree.set_hole(&within);
        }
        for ranges in holes.chunks(RANGES) {
            self.core.out.push(&Message::Holes {
                ranges: ranges.to_vec(),
            });
        }
    }
}

impl Large {
    /// Queues what of `piece` does not wait to be read already; the file begins at `start`.
    pub(super) fn queue(&mut self, start: u64, piece: Range<u64>) {
        let within = piece.start - start..piece.end - start;
        let mut waiting = Vec::new();
        self.unread.take(within.clone(), &mut waiting);
        self.unread.insert(within);
        let mut at = piece.start;
        for r in waiting {
            self.to_send.insert(at..r.start + start);
            at = r.end + start;
        }
        self.to_send.insert(at..piece.end);
    }
}

/// Records that `piece` of the file in `slot` was requested. Only whole blocks may be, so that the
/// record costs as much as the bytes that were read of the file.
fn charge(slot: &mut Slot<Outgoing>, piece: &Range<u64>) -> Result<(), TransferError> {
    let (start, end) = (slot.range.start, slot.range.end);
    let whole = (piece.start - start).is_multiple_of(BLOCK)
        && (piece.end == end || (piece.end - start).is_multiple_of(BLOCK));
    if !whole {
        return Err(TransferError::protocol("the peer wants a part of a block"));
    }
    let asked = slot.item.asked.saturating_add(piece.end - piece.start);
    slot.item.asked = asked;
    if asked > (end - start).saturating_mul(ASKED) {
        return Err(too_often());
    }
    Ok(())
}

const fn new_pack(number: u64, start: u64) -> Pack {
    Pack {
        first: number,
        upto: number + 1,
        start,
        wanted: Vec::new(),
    }
}

/// Appends a range, joining neighbours.
fn join(ranges: &mut Vec<Range<u64>>, next: Range<u64>) {
    match ranges.last_mut() {
        Some(last) if last.end == next.start => last.end = next.end,
        _ => ranges.push(next),
    }
}
