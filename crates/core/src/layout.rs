//! Which bytes are sent together, and which of them in a packet? Runs of bytes of objects, one behind the
//! other, cut into packets of one length; the last may be shorter.

use std::ops::Range;

use crate::{
    send::Piece,
    store::{Extent, ObjectId},
};

/// So many bytes of `object` from `offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Which object.
    pub object: ObjectId,
    /// First byte within the object.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// A block's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes in a packet.
    payload: u32,
    /// Each with the place of its end within the block.
    runs: Vec<(u64, Run)>,
}

impl Layout {
    /// No bytes yet, for packets of `payload` bytes, at least one.
    pub fn new(payload: u32) -> Self {
        Self {
            payload: payload.max(1),
            runs: Vec::new(),
        }
    }

    /// Appends a run; false, and nothing is changed, if the block or the object would have more bytes
    /// than can be counted.
    #[must_use]
    pub fn push(&mut self, run: Run) -> bool {
        let (Some(end), Some(last)) = (
            self.len().checked_add(run.len),
            run.offset.checked_add(run.len),
        ) else {
            return false;
        };
        match self.runs.last_mut() {
            _ if run.len == 0 => {}
            Some((at, before))
                if before.object == run.object && before.offset + before.len == run.offset =>
            {
                *at = end;
                before.len = last - before.offset;
            }
            _ => self.runs.push((end, run)),
        }
        true
    }

    /// Bytes in all.
    pub fn len(&self) -> u64 {
        self.runs.last().map_or(0, |(end, _)| *end)
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Bytes in a packet but the last.
    pub const fn payload(&self) -> u32 {
        self.payload
    }

    /// Packets in all.
    pub fn packets(&self) -> u64 {
        self.len().div_ceil(self.payload.into())
    }

    /// The runs, in their order.
    pub fn runs(&self) -> impl ExactSizeIterator<Item = Run> {
        self.runs.iter().map(|(_, run)| *run)
    }

    /// The bytes of packet `n` as places within the block.
    fn range(&self, n: u64) -> Range<u64> {
        let start = n.saturating_mul(self.payload.into()).min(self.len());
        start..start.saturating_add(self.payload.into()).min(self.len())
    }

    /// Bytes in packet `n`; 0 if there is no such packet.
    pub fn packet_len(&self, n: u64) -> u32 {
        let range = self.range(n);
        u32::try_from(range.end - range.start).unwrap_or(u32::MAX)
    }

    /// What packet `n` holds, in order.
    pub fn pieces(&self, n: u64) -> impl Iterator<Item = Piece> {
        let range = self.range(n);
        let first = self.runs.partition_point(|(end, _)| *end <= range.start);
        self.runs[first..]
            .iter()
            .map(move |(end, run)| {
                let start = end - run.len;
                let from = range.start.max(start);
                let len = range.end.min(*end).saturating_sub(from);
                Piece {
                    object: run.object,
                    offset: run.offset + (from - start),
                    len: u32::try_from(len).unwrap_or(u32::MAX),
                    repair: false,
                }
            })
            .take_while(|piece| piece.len > 0)
    }

    /// Adds where the bytes of packet `n` belong, which are at `at` of their batch.
    pub fn place(&self, n: u64, mut at: u32, into: &mut Vec<Extent>) {
        for piece in self.pieces(n) {
            into.push(Extent {
                object: piece.object,
                offset: piece.offset,
                len: piece.len,
                at,
            });
            at = at.saturating_add(piece.len);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_cannot_be_counted_is_refused() {
        let mut layout = Layout::new(0);
        let run = |offset, len| Run {
            object: 1,
            offset,
            len,
        };
        assert!(layout.push(run(0, 0)) && layout.is_empty());
        assert!(!layout.push(run(5, u64::MAX)));
        assert!(layout.push(run(0, u64::MAX)) && !layout.push(run(0, 1)));
        assert_eq!(layout.packet_len(u64::MAX), 0);
        assert_eq!(layout.pieces(u64::MAX).count(), 0);
    }

    proptest! {
        /// A naive twin lists every byte.
        #[test]
        fn packets_hold_every_byte_in_order(
            payload in 1_u32..9,
            runs in proptest::collection::vec((0_u32..3, 0_u64..40, 0_u64..20), 0..12),
        ) {
            let mut layout = Layout::new(payload);
            let mut twin = Vec::new();
            for (object, offset, len) in runs {
                let run = Run { object, offset, len };
                prop_assert!(layout.push(run));
                twin.extend((offset..offset + len).map(|at| (object, at)));
            }
            prop_assert_eq!(layout.len(), twin.len() as u64);
            let mut listed = Vec::new();
            for n in 0..layout.packets() {
                let before = listed.len();
                for piece in layout.pieces(n) {
                    let end = piece.offset + u64::from(piece.len);
                    listed.extend((piece.offset..end).map(|at| (piece.object, at)));
                }
                prop_assert_eq!(listed.len() - before, layout.packet_len(n) as usize);
            }
            prop_assert_eq!(listed, twin);
            prop_assert!(layout.runs().all(|run| run.len > 0));
        }
    }
}
