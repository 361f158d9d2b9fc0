//! Carries segments of control lanes over the links, as packets of their own, each by its number;
//! their bytes stay with the stream.

use farhaul_core::{datagram::Ecn, time::Instant};

use super::{Network, Segment, index};
use crate::{lane::MORE, trace::Mark};

impl Network<'_> {
    /// The end that sent what travels this way; none for cross traffic.
    pub(super) fn end_of(&self, from: u32) -> Option<usize> {
        let from = from as usize;
        let control = from.checked_sub(self.controls);
        control.or(Some(from).filter(|end| *end < self.ends))
    }

    /// Segment `number` of the control lane of the end `e` leaves, with `len` bytes.
    pub(crate) fn control(&mut self, now: Instant, e: u32, number: u64, len: usize) {
        let from = index(self.controls) + e;
        let len = len + MORE;
        self.note(now, Mark::Control, e, len);
        let way = self.ways[from as usize];
        let link = self.hops[way.first] as usize;
        let head = number.to_be_bytes();
        let mut segment = Segment {
            from,
            ecn: Ecn::NotEct,
            header: None,
            head: &head,
            len,
        };
        if let Some((at, ..)) = self.offer(now, link, &mut segment) {
            let open = self.append(from, None, at, Ecn::NotEct, len);
            self.trains[open.index as usize].push(&segment);
            self.ship(link, open);
        }
    }

    /// The end whose control lane the train is of, and the segment in it.
    pub(crate) fn control_in(&self, index: u32) -> Option<(u32, u64)> {
        let train = &self.trains[index as usize];
        let end = (train.from as usize).checked_sub(self.controls)?;
        let number = train.first().first_chunk()?;
        Some((u32::try_from(end).ok()?, u64::from_be_bytes(*number)))
    }
}
