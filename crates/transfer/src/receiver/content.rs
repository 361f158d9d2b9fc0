//! Content that is under way: what is missing, requested, staged, and gathered in blocks. The parts of large
//! files are opened and continued here.

use std::{collections::VecDeque, io, ops::Range, sync::Arc};

use rustix::{fs::Stat, io::Errno};

use super::{
    destination::Destination,
    item::{Gathering, Incoming, Part, State, inode},
    job::WriteJob,
    journal::Journal,
    place::{Arrived, RESIDENT},
    staging::Staging,
    target::Target,
    workers::Workers,
};
use crate::{
    bounds::{self, STRIPES},
    confine,
    digest::{LEAF, LEAVES, Leaves, block_count, block_range},
    disk::File,
    ranges::RangeSet,
    sender::Identity,
    table::{Slot, Table},
    wire::{BLOCK, Hash, Message, Outbox, Stripe},
};

/// Ranges per message.
pub(super) const RANGES: usize = 1_500;
/// Blocks checked by one job.
const VERIFY: usize = 16;
/// Parts kept open.
const OPEN: usize = 128;
/// Blocks that wait for workers before no more messages are taken.
const WAITING: usize = 4096;

/// Content under way.
#[derive(Default)]
pub(super) struct Content {
    pub(super) missing: RangeSet,
    pub(super) pieces: Vec<Range<u64>>,
    wants: Vec<Range<u64>>,
    /// Files for whose blocks the receiver requests digests.
    pub(super) asking: Vec<u64>,
    /// Files under repair with some blocks that are to be hashed as they are stored.
    stored: VecDeque<u64>,
    pub(super) staging: Staging,
    /// Bytes of small files in memory.
    pub(super) resident: usize,
    open: VecDeque<u64>,
    /// Blocks of parts that are not complete.
    gathering: usize,
    /// Ranges of blocks that differ.
    bad: usize,
    /// Stripes that are open.
    pub(super) stripes: usize,
    /// Blocks of old files that workers compare.
    pub(super) reusing: usize,
}

/// Outcome of placing arrived bytes.
pub(super) enum Placed {
    /// The bytes are in memory; true if all of the file is.
    InMemory(bool),
    /// The bytes are to be written to the part.
    OnDisk,
    /// Nothing is collected of the entry.
    Unwanted,
}

/// Identity of a whole file at its source.
pub(super) fn identity(slot: &Slot<Incoming>) -> Identity {
    let stripe = slot.item.stripe.as_ref();
    let size = stripe.map_or(slot.size(), |stripe| stripe.file_size);
    slot.item.meta.identity(size)
}

impl Content {
    /// Error if the arrived content is in too many pieces.
    pub(super) fn check_pieces(&self) -> Result<(), &'static str> {
        if self.gathering > bounds::GATHERED || self.missing.len() > bounds::GAPS {
            return Err("the peer sends pieces of more blocks than it completes");
        }
        Ok(())
    }

    /// Requests `range`; sent with the next message.
    pub(super) fn request(&mut self, range: Range<u64>) {
        self.missing.insert(range.clone());
        match self.wants.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.wants.push(range),
        }
    }

    /// Sends the requests; every entry listed so far is decided on.
    pub(super) fn send_wants(&mut self, out: &mut Outbox, upto: u64) {
        let set: RangeSet = self.wants.drain(..).collect();
        let ranges: Vec<_> = set.iter().collect();
        let (head, tail) = ranges.split_at(ranges.len().min(RANGES));
        for ranges in std::iter::once(head).chain(tail.chunks(RANGES)) {
            let ranges = ranges.to_vec();
            out.push(&Message::Want { upto, ranges });
        }
        self.ask_for_blocks(out);
    }

    /// Asks for the values of blocks of files that the sender knows to be decided on.
    pub(super) fn ask_for_blocks(&mut self, out: &mut Outbox) {
        for file in std::mem::take(&mut self.asking) {
            out.push(&Message::AskBlocks { file });
        }
    }

    /// Requests these bytes of a file once more, and then a new root.
    pub(super) fn repair(&mut self, out: &mut Outbox, number: u64, ranges: Vec<Range<u64>>) {
        let (head, tail) = ranges.split_at(ranges.len().min(RANGES));
        for part in std::iter::once(head).chain(tail.chunks(RANGES)) {
            out.push(&Message::Repair {
                file: number,
                ranges: part.to_vec(),
            });
        }
        for range in ranges {
            self.missing.insert(range);
        }
    }

    /// Requests blocks once more, and lets those that counted as holes be hashed as stored.
    pub(super) fn want_blocks(
        &mut self,
        out: &mut Outbox,
        (number, slot): (u64, &mut Slot<Incoming>),
        bad: Vec<Range<u64>>,
    ) {
        let (start, size) = (slot.range.start, slot.size());
        let Some(part) = slot.item.part() else { return };
        // The new root counts every block as it is stored.
        part.stored = part.tree.take_holes();
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for blocks in bad {
            let bytes = blocks.start * BLOCK..size.min(blocks.end * BLOCK);
            let range = start + bytes.start..start + bytes.end;
            part.stored.remove(blocks.clone());
            part.tree.clear(blocks);
            ranges.push(range);
        }
        if !part.stored.is_empty() {
            self.stored.push_back(number);
        }
        self.repair(out, number, ranges);
    }

    /// Compares the sender's blocks with ours; after the last, returns the bad ones.
    pub(super) fn compare(
        &mut self,
        slot: &mut Slot<Incoming>,
        first: u64,
        values: &[Hash],
    ) -> Option<Vec<Range<u64>>> {
        let size = slot.size();
        let part = slot.item.part()?;
        if part.compared != Some(first) {
            return None;
        }
        for (index, value) in (first..).zip(values) {
            if part.tree.get(index) == Some(*value) {
                continue;
            }
            match part.bad.last_mut() {
                // Of very many the good ones between them are requested too.
                Some(last) if last.end == index || self.bad >= bounds::RANGES => {
                    last.end = index + 1;
                }
                _ => {
                    part.bad.push(index..index + 1);
                    self.bad += 1;
                }
            }
        }
        let upto = first + values.len() as u64;
        if upto < block_count(size) {
            part.compared = Some(upto);
            return None;
        }
        part.compared = None;
        let bad = std::mem::take(&mut part.bad);
        self.bad -= bad.len();
        Some(bad)
    }

    /// The next block that counted as a hole before, and is to be hashed as it is stored: its file, number, and
    /// the size of the file.
    pub(super) fn next_stored(&mut self, table: &mut Table<Incoming>) -> Option<(u64, u64, u64)> {
        while let Some(&number) = self.stored.front() {
            if let Some(slot) = table.get_mut(number)
                && let (size, Some(part)) = (slot.size(), slot.item.part())
                && let Some(first) = part.stored.first()
            {
                part.stored.remove(first.start..first.start + 1);
                return Some((number, first.start, size));
            }
            self.stored.pop_front();
        }
        None
    }

    /// Bytes of a large file are in their place; false if nothing is collected of it.
    pub(super) fn written(
        &mut self,
        slot: &mut Slot<Incoming>,
        within: &Range<u64>,
        leaves: &[(u64, Hash)],
    ) -> bool {
        let size = slot.size();
        let Some(part) = slot.item.part() else {
            return false;
        };
        for index in within.start / BLOCK..within.end.div_ceil(BLOCK) {
            let block = block_range(index, size);
            let bytes = block.end - block.start;
            let block_state = part.gathering.entry(index);
            let gathering = block_state.or_insert_with(|| {
                self.gathering += 1;
                Gathering::new(bytes)
            });
            let n = within.end.min(block.end) - within.start.max(block.start);
            gathering.left -= n.min(gathering.left);
        }
        for (leaf, value) in leaves {
            let block = leaf * LEAF / BLOCK;
            if let Some(gathering) = part.gathering.get_mut(&block) {
                let within = usize::try_from(leaf % LEAVES as u64).unwrap_or_default();
                gathering.leaves.set(within, *value);
            }
        }
        true
    }

    /// Takes a complete block.
    pub(super) fn take_whole(&mut self, part: &mut Part, index: u64) -> Option<Box<Leaves>> {
        if part.gathering.get(&index).is_none_or(|g| g.left > 0) {
            return None;
        }
        self.gathering -= 1;
        Some(part.gathering.remove(&index)?.leaves)
    }

    /// Uncounts a part that is no longer collected.
    pub(super) fn uncount(&mut self, part: &Part) {
        self.gathering -= part.gathering.len();
        self.bad -= part.bad.len();
        self.stripes -= usize::from(part.striped);
    }

    /// Places bytes of an entry if they are collected in memory.
    pub(super) fn place(
        &mut self,
        slot: &mut Slot<Incoming>,
        range: Range<u64>,
        arrived: Arrived<'_>,
    ) -> Placed {
        let size = slot.size();
        if matches!(slot.item.state, State::Wanted) {
            let bytes = usize::try_from(size).unwrap_or(usize::MAX);
            slot.item.state = if size <= BLOCK && self.resident + bytes <= RESIDENT {
                self.resident += bytes;
                State::Memory {
                    bytes: vec![0; bytes],
                    left: bytes,
                }
            } else {
                State::part(Part::new(size))
            };
        }
        match &mut slot.item.state {
            State::Memory { bytes, left } => {
                let at = range.start - slot.range.start;
                let mut at = usize::try_from(at).unwrap_or(usize::MAX);
                for piece in arrived.pieces(range) {
                    if let Some(place) = bytes.get_mut(at..at + piece.len()) {
                        place.copy_from_slice(piece);
                        *left -= piece.len();
                    }
                    at += piece.len();
                }
                Placed::InMemory(*left == 0)
            }
            State::Part(_) => Placed::OnDisk,
            _ => Placed::Unwanted,
        }
    }

    /// Takes the missing pieces of `range`, and their bytes. The caller gives the buffer back.
    pub(super) fn take_missing(&mut self, range: Range<u64>) -> (Vec<Range<u64>>, u64) {
        let mut pieces = std::mem::take(&mut self.pieces);
        pieces.clear();
        self.missing.take(range, &mut pieces);
        let bytes = pieces.iter().map(|piece| piece.end - piece.start).sum();
        (pieces, bytes)
    }

    /// True if other messages must wait for workers.
    pub(super) const fn is_reusing_much(&self) -> bool {
        self.reusing > WAITING
    }

    /// Keeps others from delivering this stripe; not too many are open at a time.
    pub(super) fn hold(&self, stripe: Stripe, file: &File) -> io::Result<()> {
        if self.stripes >= STRIPES {
            let text = "parts of too many files are delivered at a time";
            return Err(io::Error::other(text));
        }
        stripe.hold(file)
    }

    /// The part of a large file, created when its first byte arrives.
    pub(super) fn part_file(
        &mut self,
        table: &mut Table<Incoming>,
        dest: &mut Destination,
        journal: &mut Journal,
        number: u64,
    ) -> io::Result<Arc<File>> {
        let slot = table.get(number).ok_or(io::ErrorKind::NotFound)?;
        let size = slot.size();
        let State::Part(part) = &slot.item.state else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        if let Some(file) = &part.file {
            return Ok(Arc::clone(file));
        }
        let (made, was) = (part.made, part.inode);
        let target = dest.target(&slot.item)?;
        let mut cleared = true;
        let file = match &target.stripe {
            _ if made => target.open_part(|stat| {
                let same = was == Some((stat.st_dev, stat.st_ino));
                same.then_some(()).ok_or_else(confine::swapped)
            })?,
            Some(stripe) => {
                let (file, empty) = self.open_stripe(dest, &target, stripe, size)?;
                cleared = empty;
                file
            }
            // A worker of a run that ended may still be writing to the existing file.
            None => confine::inside(&target.dir, target.closed, || {
                confine::create_anew(&target.dir, &target.part)
            })?,
        };
        let file = Arc::new(file);
        let (identity, in_journal) = (identity(slot), dest.name_in_journal(&slot.item));
        if let Some(part) = table.get_mut(number).and_then(|s| s.item.part()) {
            if !made {
                part.made = true;
                part.cleared &= cleared;
                part.striped = target.stripe.is_some();
                self.stripes += usize::from(part.striped);
                part.inode = inode(&file);
                if size > BLOCK {
                    part.journal = Some(journal.begin(&in_journal, identity));
                }
            }
            part.file = Some(Arc::clone(&file));
        }
        if !made && target.stripe.is_none() {
            file.set_len(size)?;
        }
        if target.stripe.is_some() {
            // Its lock is that of the open file.
            return Ok(file);
        }
        self.open.push_back(number);
        let more = self.open.len().saturating_sub(file.kept(OPEN));
        for oldest in self.open.drain(..more) {
            if let Some(part) = table.get_mut(oldest).and_then(|s| s.item.part()) {
                part.file = None;
            }
        }
        Ok(file)
    }

    /// Opens the file where a stripe is collected with others; true if nothing of it is there.
    fn open_stripe(
        &self,
        dest: &Destination,
        target: &Target,
        stripe: &Stripe,
        size: u64,
    ) -> io::Result<(File, bool)> {
        let Target { dir, part, .. } = target;
        let check = |stat: &Stat| dest.is_ours(stat);
        let open = || stripe.open(dir, part, check, |file| self.hold(*stripe, file));
        let file = confine::inside(dir, target.closed, open)?;
        // An earlier run may have left something there, and what the sender reports as a hole is not written.
        let empty = match file.seek_data(0) {
            Ok(data) => data >= size,
            Err(e) => e == Errno::NXIO,
        };
        let cleared = empty || confine::punch(&file, &(0..size))?;
        Ok((file, cleared))
    }

    /// Continues the part of `slot` that an earlier run left; nothing if there is none. Blocks that it claimed are
    /// checked; returned are those, and the ranges of the object that it did not claim.
    pub(super) fn resume(
        &mut self,
        (number, slot): (u64, &mut Slot<Incoming>),
        (dest, target): (&Destination, &Target),
        workers: &mut Workers,
        sparse: bool,
    ) -> Option<(RangeSet, RangeSet)> {
        let (size, identity) = (slot.size(), identity(slot));
        let name = dest.name_in_journal(&slot.item);
        let claimed = workers.journal.claim(&name, identity)?;
        let file = self.left(dest, target, size)?;
        let (start, file) = (slot.range.start, Arc::new(file));
        let mut wanted: RangeSet = std::iter::once(slot.range.clone()).collect();
        let claimed: Vec<(u64, Hash)> = claimed
            .into_iter()
            .filter(|(i, _)| *i < block_count(size))
            .collect();
        for (index, _) in &claimed {
            let block = block_range(*index, size);
            wanted.remove(start + block.start..start + block.end);
        }
        // Unclaimed bytes may contain anything, and the sender may report them as a hole: then
        // nothing is written there.
        let within = |r: Range<u64>| r.start - start..r.end - start;
        if sparse
            && !wanted
                .iter()
                .map(within)
                .all(|r| confine::punch(&file, &r).unwrap_or(false))
        {
            // The part is made anew, which fails as well if nothing can be written. Zeros in place
            // of perhaps terabytes of holes are not written.
            return None;
        }
        let mut part = Part::left(size, Arc::clone(&file), target.stripe.is_some());
        part.cleared = sparse;
        part.journal = Some(workers.journal.begin(&name, identity));
        slot.item.state = State::part(part);
        if target.stripe.is_none() {
            self.open.push_back(number);
        } else {
            self.stripes += 1;
        }
        for blocks in claimed.chunks(VERIFY) {
            let job = WriteJob::verify(number, size, Arc::clone(&file), blocks.to_vec());
            workers.pool.push(job);
        }
        let claimed = claimed.iter().map(|(index, _)| *index..*index + 1);
        Some((claimed.collect(), wanted))
    }

    /// The part that an earlier run left, if it is one.
    fn left(&self, dest: &Destination, target: &Target, size: u64) -> Option<File> {
        // The owner of the journal created the part. What else has its name is replaced like any part that
        // is not continued.
        let is_ours = |stat: &Stat| {
            dest.is_ours(stat)?;
            let same = stat.st_size.cast_unsigned() == target.collected(size);
            same.then_some(()).ok_or_else(confine::swapped)
        };
        let file = target.open_part(is_ours).ok()?;
        // A stripe that is complete, or that another run delivers, is not continued.
        let is_taken = |stripe: Stripe| {
            self.hold(stripe, &file)?;
            stripe.is_marked(&file)
        };
        let taken = target.stripe.is_some_and(|s| is_taken(s).unwrap_or(true));
        (!taken).then_some(file)
    }
}
