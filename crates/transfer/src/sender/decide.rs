//! What does the receiver want? Its answers become packs of small files, ranges of large ones, and
//! notes about holes.

use std::{collections::VecDeque, ops::Range};

use super::{BLOCK, Body, Item, Large, PACK_FILES, Pack, ReadJob, Sender};
use crate::{
    digest::BlockTree,
    error::TransferError,
    message::{Kind, Message},
    ranges::RangeSet,
    table::Slot,
};

/// Ranges per message.
const RANGES: usize = 1500;

impl Sender {
    /// The receiver has decided on every entry below `upto` and wants `ranges`.
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
            self.want_more(&r);
        }
        let mut pack = None;
        for number in self.decided..upto {
            self.decide(number, &mut wanted, &mut pack);
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

    fn decide(&mut self, number: u64, wanted: &mut RangeSet, pack: &mut Option<Pack>) {
        let Some(slot) = self.table.get_mut(number) else {
            return;
        };
        if slot.item.entry.kind != Kind::File || slot.range.is_empty() {
            return;
        }
        let range = slot.range.clone();
        let mut pieces = Vec::new();
        wanted.take(range.clone(), &mut pieces);
        if slot.item.failed {
            // Given up already. A pack is read end to end, so it may not reach over this file.
            self.close_pack(pack.take());
            return;
        }
        let size = range.end - range.start;
        if size <= BLOCK {
            slot.item.body = Body::Small;
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
            return;
        }
        self.close_pack(pack.take());
        self.decide_large(number, pieces);
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
            to_send: pieces.into(),
            mapped: !sparse,
            zeros,
            unread,
            tree: BlockTree::new(size),
            next_block: 0,
            hashing: 0,
        }));
        if sparse {
            let root = std::sync::Arc::clone(&self.roots[slot.item.source]);
            let rel = slot.item.rel.clone();
            self.pool.push(ReadJob::Extents {
                number,
                root,
                rel,
                size,
            });
        }
        self.active.push_back(number);
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

    /// Bytes of entries decided on before.
    fn want_more(&mut self, range: &Range<u64>) {
        let mut at = range.start;
        while at < range.end
            && let Some(number) = self.table.find(at)
        {
            let Some(Slot { range: own, item }) = self.table.get_mut(number) else {
                return;
            };
            let piece = at..range.end.min(own.end);
            at = piece.end;
            let start = own.start;
            match &mut item.body {
                Body::Large(large) => {
                    large.unread.insert(piece.start - start..piece.end - start);
                    large.to_send.push_back(piece);
                    self.queue.push_back(Item::Large(number));
                }
                Body::Small => {
                    let mut pack = new_pack(number, start);
                    pack.wanted.push(piece);
                    self.close_pack(Some(pack));
                }
                Body::None => {}
            }
        }
    }

    /// Content arrived wrong: sends `ranges` (within the object) again and hashes the file anew.
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
        self.progress.retry();
        if let Body::Large(large) = &mut slot.item.body {
            // From here on every block counts as it is stored.
            large.zeros = false;
            let size = slot.item.entry.size;
            let holes: Vec<u64> = if large.tree.has_holes() {
                (0..crate::digest::block_count(size))
                    .filter(|i| large.tree.is_hole(*i))
                    .collect()
            } else {
                Vec::new()
            };
            let changed = ranges
                .iter()
                .flat_map(|r| (r.start - own.start) / BLOCK..(r.end - own.start).div_ceil(BLOCK));
            for index in holes.into_iter().chain(changed) {
                large.tree.clear(index);
            }
            large.next_block = 0;
            if slot.item.settled {
                slot.item.settled = false;
                self.unsettled += 1;
                self.active.push_front(file);
            }
        }
        for r in ranges {
            self.want_more(r);
        }
        Ok(())
    }

    /// The stored ranges of a sparse file are known: the rest is told, not sent.
    pub(super) fn mapped(&mut self, number: u64, data: &[Range<u64>]) {
        let Some(slot) = self.table.get_mut(number) else {
            return;
        };
        let (start, size) = (slot.range.start, slot.item.entry.size);
        let Body::Large(large) = &mut slot.item.body else {
            return;
        };
        large.mapped = true;
        if large.zeros {
            let mut rest: RangeSet = std::iter::once(0..size).collect();
            for r in data {
                rest.remove(r.clone());
            }
            for hole in rest.iter() {
                large.tree.set_hole(&hole);
            }
            return;
        }
        let mut wanted: RangeSet = large.to_send.drain(..).collect();
        let mut send = Vec::new();
        for r in data {
            wanted.take(r.start + start..r.end + start, &mut send);
        }
        large.to_send = VecDeque::from(send);
        let holes: Vec<_> = wanted.iter().collect();
        for hole in &holes {
            let within = hole.start - start..hole.end - start;
            large.unread.remove(within.clone());
            large.tree.set_hole(&within);
        }
        for ranges in holes.chunks(RANGES) {
            self.out.push(&Message::Holes {
                ranges: ranges.to_vec(),
            });
        }
    }
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
