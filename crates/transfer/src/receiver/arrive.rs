//! Places arriving bytes: into the memory of their small file, or with others into a load. A worker
//! writes a load to its place in the part of its large file.
//!
//! - Only bytes that are missing are taken: a duplicate never touches what was placed, hashed or
//!   renamed, whatever it carries.
//! - This thread copies; writing, and waiting for the disk, is the workers' part.
//! - An error of one file ends that file, not the session.
//! - Content that comes through a pipe is one file that grows while it arrives. An incomplete one is of no use to a
//!   later run.

use std::ops::Range;

use farhaul_core::{
    store::{Extent, StoreError},
    time::Instant,
};

use super::{
    Receiver, Stage,
    content::{Content, Placed},
    entries::code_of,
    item::State,
    job::WriteJob,
    place::{Arrived, Bytes, LINGER},
    staging::{Into, LaneLoad, Load, Run},
};
use crate::{
    digest::{LEAF, Leaves, block_range},
    error::TransferError,
    lanes::{LaneEvent, lost},
    table::CONTENT,
    wire::{BLOCK, Exit},
};

/// The only file of a pipe.
const FILE: u64 = 0;

const UNLISTED: &str = "the peer sent content that was never listed";
const NEW_HOLES: &str =
    "has holes that it had not when it was listed: the same command begins it anew";
const NO_HOLES: &str = "has holes, and the file system there cannot make any where something was left: copy it without --shard";

impl Receiver {
    /// Places a batch.
    pub(super) fn place_batch(
        &mut self,
        extents: &[Extent],
        batch: &[u8],
    ) -> Result<(), StoreError> {
        if self.entries.content.staging.is_full() {
            self.get_stuck();
        }
        if self.entries.core.fault.is_some() {
            // The next poll ends the transfer.
            self.entries.workers.drained += extents.iter().map(|e| u64::from(e.len)).sum::<u64>();
            return Ok(());
        }
        let mut rest = extents;
        while let Some(first) = rest.first() {
            let arrived = Arrived::front(rest, batch);
            let to = arrived.end().ok_or_else(|| StoreError(UNLISTED.into()))?;
            let taken = self.take_in(first.offset..to, &mut Bytes::Copied(arrived));
            let taken = taken.map_err(|why| StoreError(why.into()))?;
            // Bytes that are here already wait for nothing.
            self.entries.workers.drained += to - first.offset - taken.unwrap_or(0);
            if taken.is_none() {
                return Ok(());
            }
            rest = &rest[arrived.len()..];
        }
        Ok(())
    }

    /// Places the missing pieces of a range; returns their bytes, or none if an error ends the transfer.
    fn take_in(
        &mut self,
        range: Range<u64>,
        bytes: &mut Bytes<'_, '_>,
    ) -> Result<Option<u64>, &'static str> {
        if range.end > self.entries.table.end() {
            return Err(UNLISTED);
        }
        let (pieces, new) = self.entries.content.take_missing(range);
        let arrives = self.entries.arrives(new);
        for piece in pieces.iter().filter(|_| arrives) {
            self.place_piece(piece, bytes);
        }
        self.entries.content.pieces = pieces;
        if !arrives {
            return Ok(None);
        }
        self.entries.content.check_pieces()?;
        Ok(Some(new))
    }

    fn place_piece(&mut self, piece: &Range<u64>, bytes: &mut Bytes<'_, '_>) {
        let mut at = piece.start;
        while let Some((number, range)) = self.entries.table.next_in(at, piece.end) {
            at = range.end;
            self.entries.core.tally.bytes += range.end - range.start;
            self.entries.dest.space.release(range.end - range.start);
            self.place_in(number, range, bytes);
        }
    }

    fn place_in(&mut self, number: u64, range: Range<u64>, source: &mut Bytes<'_, '_>) {
        let Some(slot) = self.entries.table.get_mut(number) else {
            return;
        };
        let at = range.start - slot.range.start;
        let (size, arrived) = (slot.size(), source.arrived());
        let dropped = match source {
            Bytes::Copied(_) => range.end - range.start,
            Bytes::Stay { .. } => 0,
        };
        let content = &mut self.entries.content;
        match content.place(slot, range.clone(), arrived) {
            Placed::InMemory(true) => self.entries.settle_small(number),
            Placed::InMemory(false) => {}
            Placed::Unwanted => self.entries.workers.drained += dropped,
            Placed::OnDisk => match self.entries.part_file(number) {
                Ok(file) => {
                    if let Bytes::Stay { runs, .. } = source {
                        let run = |bytes| Run {
                            number,
                            file,
                            size,
                            offset: at,
                            bytes,
                        };
                        return runs.extend(arrived.place(&range).map(run));
                    }
                    let into = Into { number, file, size };
                    let pieces = arrived.pieces(range.clone());
                    let staging = &mut self.entries.content.staging;
                    if let Some(load) = staging.add(into, at, range.end, pieces) {
                        self.entries.workers.pool.push(WriteJob::Load(load));
                    }
                }
                Err(e) => {
                    self.entries.workers.drained += dropped;
                    self.entries.fail(number, code_of(&e), &e);
                }
            },
        }
    }

    /// Requested bytes that the sender reports as holes: the part has them already.
    pub(super) fn hole(&mut self, range: &Range<u64>) {
        let mut pieces = Vec::new();
        let missing = &mut self.entries.content.missing;
        missing.take(range.clone(), &mut pieces);
        for piece in pieces {
            let mut at = piece.start;
            while let Some((number, range)) = self.entries.table.next_in(at, piece.end) {
                at = range.end;
                self.entries.core.tally.resumed += range.end - range.start;
                self.hole_in(number, &range);
            }
        }
    }

    fn hole_in(&mut self, number: u64, range: &Range<u64>) {
        let Some(slot) = self.entries.table.get_mut(number) else {
            return;
        };
        let (start, size) = (slot.range.start, slot.size());
        let striped = slot.item.stripe.is_some();
        match slot.item.part() {
            Some(part) if part.cleared => {
                let within = range.start - start..range.end - start;
                let blocks = part.tree.set_hole(&within);
                let mut rest = [within.clone(), 0..0];
                if !blocks.is_empty() {
                    let last = block_range(blocks.end - 1, size).end;
                    rest = [within.start..blocks.start * BLOCK, last..within.end];
                }
                for within in rest {
                    self.entries.written(number, &within, &[]);
                }
                self.entries.settle(number);
            }
            Some(_) if striped => self.entries.fail(number, Exit::DestError, &NO_HOLES),
            Some(_) => self.entries.fail(number, Exit::SourceChanged, &NEW_HOLES),
            None => {}
        }
    }

    /// Hashes blocks as they are stored that counted as holes before, some at a time.
    pub(super) fn hash_stored(&mut self) {
        let entries = &mut self.entries;
        while entries.workers.pool.outstanding() < 2 * entries.workers.pool.threads()
            && let Some((number, index, size)) = entries.content.next_stored(&mut entries.table)
        {
            let block = block_range(index, size);
            let leaves = Box::new(Leaves::new(block.end - block.start));
            entries.hash_block(number, index, size, leaves);
        }
    }

    /// Hands collected bytes to workers that have nothing else to do, or if they have waited long
    /// enough, or if nothing more will arrive.
    pub(super) fn write_staged(&mut self, now: Instant) {
        let Content {
            staging, missing, ..
        } = &mut self.entries.content;
        if staging.is_empty() {
            return;
        }
        let since = *staging.since.get_or_insert(now);
        let whole = missing.is_empty() || now.since(since) >= LINGER;
        let pool = &mut self.entries.workers.pool;
        if whole || pool.outstanding() == 0 {
            staging
                .drain(whole)
                .for_each(|load| pool.push(WriteJob::Load(load)));
        }
    }

    /// Takes what arrived on further parallel sessions.
    pub(super) fn read_lanes(&mut self) {
        let Some(lanes) = self.entries.core.lanes().cloned() else {
            return;
        };
        for event in lanes.take_events() {
            match event {
                LaneEvent::Load(load) => self.take_load(load),
                LaneEvent::Left {
                    number,
                    why: Some(why),
                    ..
                } => self.entries.core.log.add(Exit::Ok, lost(number, &why)),
                // Workers are for sessions that are there: a peer may ask for some that never come.
                LaneEvent::Joined(_) => self.entries.workers.pool.grow(lanes.up()),
                LaneEvent::Left { .. } | LaneEvent::Unreadable(..) => {}
            }
        }
    }

    /// Places the missing bytes of a further session's load into its files, without copying them
    /// once more.
    fn take_load(&mut self, load: LaneLoad) {
        let Load { bytes, runs, lane } = load;
        let mut kept = Load {
            lane,
            ..Load::default()
        };
        for run in runs {
            let range = run.number + run.offset..run.number + run.end();
            if self.entries.core.fault.is_some() {
                break;
            }
            let len = u32::try_from(run.bytes.len()).unwrap_or(u32::MAX);
            let extent = [Extent {
                object: CONTENT,
                offset: range.start,
                len,
                at: u32::try_from(run.bytes.start).unwrap_or(u32::MAX),
            }];
            let arrived = Arrived::front(&extent, &bytes);
            let mut stay = Bytes::Stay {
                arrived,
                runs: &mut kept.runs,
            };
            match self.take_in(range, &mut stay) {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(why) => self.entries.core.fail(TransferError::protocol(why)),
            }
        }
        kept.bytes = bytes;
        if kept.runs.is_empty() {
            self.lane_load_done(kept);
        } else {
            self.entries.workers.pool.push(WriteJob::Load(kept));
        }
    }

    /// Gives the buffer of a load back to the session on which the load arrived.
    pub(super) fn lane_load_done(&mut self, load: Load) {
        let Some((lanes, lane)) = self.entries.core.lanes().zip(load.lane) else {
            return;
        };
        let table = &self.entries.table;
        let last = load.runs.last().and_then(|run| table.get(run.number));
        let align = last.map(|slot| slot.range.start % LEAF);
        lanes.give_back(lane, load.bytes, align);
    }

    /// Grows the file to `size`, and requests the added bytes.
    pub(super) fn grown(&mut self, file: u64, size: u64) -> Result<(), TransferError> {
        if file == FILE && self.entries.table.first() > FILE && self.stage == Stage::Listing {
            // It is over here, and the sender may not know yet.
            return Ok(());
        }
        let listed = file == FILE && self.stage == Stage::Listing;
        let slot = self.entries.table.get(file).filter(|_| listed);
        let Some(slot) = slot.filter(|slot| slot.item.root.is_none()) else {
            return Err(TransferError::protocol("a file grew that is not open"));
        };
        let (start, before) = (slot.range.start, slot.size());
        // Blocks complete by then stay as they are.
        let whole = before > BLOCK && before.is_multiple_of(BLOCK);
        let end = slot.range.end;
        let collects = matches!(slot.item.state, State::Part(_));
        if !whole || size <= before || !self.entries.table.grow_last(size) {
            return Err(TransferError::protocol("a file grew as none can"));
        }
        if !collects {
            // It failed here; what was under way is not missed.
            return Ok(());
        }
        self.check_space();
        if let Err(why) = self.entries.dest.space.reserve(size - before) {
            self.entries.fail(file, Exit::NoSpace, &why);
            return Ok(());
        }
        if let Some(State::Part(part)) = self.entries.table.get_mut(file).map(|s| &mut s.item.state)
        {
            part.tree.grow(size);
        }
        self.entries.content.request(end..start + size);
        self.entries.send_wants();
        Ok(())
    }

    /// Reports to the sender the blocks that will not be requested again.
    pub(super) fn tell_taken(&mut self) {
        let slot = self
            .entries
            .table
            .get(FILE)
            .filter(|_| self.entries.dest.rules.pipe);
        if slot.is_none_or(|slot| matches!(slot.item.state, State::Over)) {
            return;
        }
        // There is one file, at the beginning of the object.
        let first = self
            .entries
            .content
            .missing
            .first()
            .map_or(self.entries.table.end(), |r| r.start);
        let upto = first / BLOCK * BLOCK;
        self.reports.take(&mut self.entries.core, FILE, upto);
    }
}

impl Drop for Receiver {
    /// Removes an incomplete file that came through a pipe: no later run can continue it.
    fn drop(&mut self) {
        if self.entries.dest.rules.pipe && !self.entries.core.is_finished() {
            self.entries.abandon(FILE, Exit::INTERRUPTED);
        }
    }
}
