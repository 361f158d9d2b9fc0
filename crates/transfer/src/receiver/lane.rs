//! Receives on a further parallel session: bytes of the object, of any file. They are collected in
//! loads; the first session decides what of them is missing, and of which file.

use std::{mem, ops::Range};

use farhaul_core::{
    store::{Extent, Sink, StoreError},
    time::Instant,
};

use super::{
    content::RANGES,
    place::{Arrived, LINGER},
    staging::{Into, LaneLoad, Load, Staging},
};
use crate::{
    bounds::GAPS,
    lanes::{LaneEvent, Lanes, Link},
    ranges::RangeSet,
    wire::{Message, Outbox},
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
