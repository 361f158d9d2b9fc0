//! Receives on a further parallel session: bytes of the object, of any file. They are collected in
//! loads; the first session decides what of them is missing, and of which file.

use std::{mem, ops::Range};

use farhaul_core::{
    store::{Extent, Sink, StoreError},
    time::Instant,
};

use super::{
    Receiver, WriteJob,
    decide::RANGES,
    place::{Arrived, Bytes, LINGER},
    staging::{Into, LaneLoad, Load, Run, Staging},
};
use crate::{
    bounds::GAPS,
    digest::LEAF,
    error::TransferError,
    lanes::{LaneEvent, Lanes, Link, lost},
    ranges::RangeSet,
    table::CONTENT,
    wire::{Exit, Message, Outbox},
};

/// The receiving end.
#[derive(Debug, Default)]
pub(crate) struct Receives {
    staging: Staging<()>,
    /// Offset at which leaves begin, below [`LEAF`]: a load is cut at the end of one.
    align: u64,
    drained: u64,
    /// Handed over and not confirmed yet.
    got: RangeSet,
}

impl Receives {
    /// Places a batch.
    pub(crate) fn place(
        &mut self,
        extents: &[Extent],
        batch: &[u8],
        link: &Link,
        lanes: &Lanes,
    ) -> Result<(), StoreError> {
        let mut rest = extents;
        while let Some(first) = rest.first() {
            let arrived = Arrived::front(rest, batch);
            let Some(to) = arrived.end() else {
                return Err(StoreError(
                    "the peer sent content that was never listed".into(),
                ));
            };
            if self.staging.is_full() {
                return Err(StoreError(
                    "the peer sent more than there was room for".into(),
                ));
            }
            let from = first.offset;
            let number = if from < self.align { 0 } else { self.align };
            let into = Into {
                number,
                file: (),
                size: u64::MAX,
            };
            let pieces = arrived.pieces(from..to);
            let full = self.staging.add(into, from - number, to, pieces);
            rest = &rest[arrived.len()..];
            if let Some(load) = full {
                self.hand_over(load, link, lanes);
            }
        }
        if self.got.len() > GAPS {
            let text = "the peer sends a lane's content in too many pieces";
            return Err(StoreError(text.into()));
        }
        Ok(())
    }

    fn hand_over(&mut self, mut load: LaneLoad, link: &Link, lanes: &Lanes) {
        for run in &load.runs {
            self.got
                .insert(run.number + run.offset..run.number + run.end());
        }
        load.lane = Some(link.number());
        lanes.tell(LaneEvent::Load(load));
    }

    /// Takes buffers back, hands over what has waited long enough, and confirms.
    pub(crate) fn poll(&mut self, now: Instant, link: &Link, lanes: &Lanes, out: &mut Outbox) {
        let (returned, align) = link.take_returned();
        self.align = align;
        for bytes in returned {
            self.drained += bytes.len() as u64;
            self.staging.recycle(Load {
                bytes,
                ..Load::default()
            });
        }
        if !self.staging.is_empty() {
            let since = *self.staging.since.get_or_insert(now);
            if now.since(since) >= LINGER {
                let loads: Vec<_> = self.staging.drain(true).collect();
                for load in loads {
                    self.hand_over(load, link, lanes);
                }
            }
        }
        let got: Vec<Range<u64>> = mem::take(&mut self.got).iter().collect();
        for ranges in got.chunks(RANGES) {
            let ranges = ranges.to_vec();
            out.push(&Message::Got { ranges });
        }
    }

    pub(crate) fn next_wake(&self) -> Option<Instant> {
        self.staging.since.map(|since| since + LINGER)
    }

    pub(crate) const fn sink(&self) -> Sink {
        Sink {
            free: self.staging.room(),
            drained: self.drained,
        }
    }
}

impl Receiver {
    /// Takes what arrived on further parallel sessions.
    pub(super) fn read_lanes(&mut self) {
        let Some(lanes) = self.core.lanes().cloned() else {
            return;
        };
        for event in lanes.take_events() {
            match event {
                LaneEvent::Load(load) => self.take_load(load),
                LaneEvent::Left {
                    number,
                    why: Some(why),
                    ..
                } => self.core.log.add(Exit::Ok, lost(number, &why)),
                // Workers are for sessions that are there: a peer may ask for some that never come.
                LaneEvent::Joined(_) => self.pool.grow(lanes.up()),
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
        let mut pieces = mem::take(&mut self.pieces);
        for run in runs {
            let range = run.number + run.offset..run.number + run.end();
            if self.core.fault.is_some() {
                break;
            }
            if range.end > self.table.end() {
                let text = "the peer sent content that was never listed";
                self.core.fail(TransferError::protocol(text));
                break;
            }
            pieces.clear();
            self.missing.take(range.clone(), &mut pieces);
            let new = pieces.iter().map(|piece| piece.end - piece.start).sum();
            if !self.arrives(new) {
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
            for piece in &pieces {
                let mut stay = Bytes::Stay {
                    arrived,
                    runs: &mut kept.runs,
                };
                self.place_piece(piece, &mut stay);
            }
            if let Err(why) = self.check_pieces() {
                self.core.fail(TransferError::protocol(why));
            }
        }
        self.pieces = pieces;
        kept.bytes = bytes;
        if kept.runs.is_empty() {
            self.lane_load_done(kept);
        } else {
            self.pool.push(WriteJob::Load(kept));
        }
    }

    /// Gives the buffer of a load back to the session on which the load arrived.
    pub(super) fn lane_load_done(&mut self, load: Load) {
        let Some((lanes, lane)) = self.core.lanes().zip(load.lane) else {
            return;
        };
        let last = load.runs.last().and_then(|run| self.table.get(run.number));
        let align = last.map(|slot| slot.range.start % LEAF);
        lanes.give_back(lane, load.bytes, align);
    }
}

/// A run of a large file that stays where it arrived.
pub(super) fn stays(
    into: Into,
    offset: u64,
    arrived: Arrived<'_>,
    range: &Range<u64>,
) -> Option<Run> {
    let bytes = arrived.place(range)?;
    Some(Run {
        number: into.number,
        file: into.file,
        size: into.size,
        offset,
        bytes,
    })
}
