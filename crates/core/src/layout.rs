//! Lays out bytes in packets: runs of bytes of objects, one behind the other, cut into packets of
//! one length; the last may be shorter.

use std::ops::Range;

use crate::{
    codec::{DecodeError, Reader},
    send::{Outbox, Piece, STREAM},
    store::{Extent, ObjectId},
};

/// Maximum number of runs in one announcement.
pub const MAX_RUNS: usize = 4_096;
/// Bytes of a run on the wire.
const RUN: usize = 20;

/// A run of `len` bytes of `object` from `offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The object that the run belongs to.
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

    /// Takes up to `most` bytes in `runs` runs from `out`, in packets of `payload` bytes.
    pub fn gather(out: &mut Outbox, payload: u32, most: u64, runs: usize) -> Self {
        let mut layout = Self::new(payload);
        while layout.len() < most && layout.runs.len() < runs {
            let room = u32::try_from(most - layout.len()).unwrap_or(u32::MAX);
            let Some(piece) = out.next(room) else {
                break;
            };
            let run = Run {
                object: piece.object,
                offset: piece.offset,
                len: piece.len.into(),
            };
            if !layout.push(run) {
                break;
            }
        }
        layout
    }

    /// Appends the runs: how many (4 bytes), then the object (4), offset and length (8 each) of each.
    pub fn encode_runs(&self, into: &mut Vec<u8>) {
        let count = u32::try_from(self.runs.len()).unwrap_or(u32::MAX);
        into.extend(count.to_be_bytes());
        for run in self.runs() {
            into.extend(run.object.to_be_bytes());
            into.extend(run.offset.to_be_bytes());
            into.extend(run.len.to_be_bytes());
        }
    }

    /// Reads runs, at least one and at most `most`, for packets of `payload` bytes. Those that belong together are
    /// one, and none is of the ordered stream.
    pub fn decode_runs(r: &mut Reader<'_>, payload: u32, most: usize) -> Result<Self, DecodeError> {
        const BAD: DecodeError = DecodeError::Malformed("runs of bytes");
        let count = usize::try_from(r.u32()?).map_err(|_| BAD)?;
        if count == 0 || count > most {
            return Err(BAD);
        }
        let mut runs = Reader::new(r.take(RUN * count)?);
        let mut layout = Self::new(payload);
        while !runs.is_empty() {
            let (object, offset, len) = (runs.u32()?, runs.u64()?, runs.u64()?);
            let run = Run {
                object,
                offset,
                len,
            };
            if object == STREAM || len == 0 || !layout.push(run) {
                return Err(BAD);
            }
        }
        if layout.runs.len() == count {
            Ok(layout)
        } else {
            Err(BAD)
        }
    }

    /// Adds where the bytes of packet `n` belong, which are at `at` in their batch.
    pub fn place(&self, n: u64, mut at: u32, place: &mut Vec<Extent>) {
        for piece in self.pieces(n) {
            place.push(Extent {
                object: piece.object,
                offset: piece.offset,
                len: piece.len,
                at,
            });
            at = at.saturating_add(piece.len);
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

    /// True if there are no bytes.
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

    /// Pieces of packet `n`, in order.
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
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn runs_that_nobody_may_send_are_refused() {
        let bytes = |runs: &[(u32, u64, u64)]| {
            let mut bytes = u32::try_from(runs.len()).unwrap().to_be_bytes().to_vec();
            for (object, offset, len) in runs {
                bytes.extend(object.to_be_bytes());
                bytes.extend([offset.to_be_bytes(), len.to_be_bytes()].concat());
            }
            bytes
        };
        let decode = |bytes: &[u8]| Layout::decode_runs(&mut Reader::new(bytes), 10, 2);
        assert!(decode(&bytes(&[(1, 0, 5), (2, 5, 5)])).is_ok());
        for runs in [
            &[][..],
            &[(1, 0, 0)],
            &[(STREAM, 0, 1)],
            &[(1, 1, u64::MAX)],
            // One run in two.
            &[(1, 0, 5), (1, 5, 5)],
            &[(1, 0, 1), (2, 0, 1), (3, 0, 1)],
        ] {
            let refused = decode(&bytes(runs));
            assert_eq!(refused, Err(DecodeError::Malformed("runs of bytes")));
        }
        let short = &bytes(&[(1, 0, 5)])[..23];
        assert_eq!(decode(short), Err(DecodeError::Truncated));
    }

    #[test]
    fn what_waits_is_gathered_as_far_as_it_may() {
        let mut out = Outbox::default();
        out.push(1, 0, 100);
        out.push(2, 0, 100);
        out.push(3, 0, 100);
        let lens = |layout: Layout| layout.runs().map(|run| run.len).collect::<Vec<_>>();
        assert_eq!(lens(Layout::gather(&mut out, 10, 150, 9)), [100, 50]);
        assert_eq!(lens(Layout::gather(&mut out, 10, 900, 1)), [50]);
        assert_eq!(lens(Layout::gather(&mut out, 10, 900, 9)), [100]);
    }

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
            prop_assert_eq!(&listed, &twin);
            let mut placed = Vec::new();
            for n in 0..layout.packets() {
                let from = placed.len();
                layout.place(n, 7, &mut placed);
                let mut at = 7;
                for extent in &placed[from..] {
                    prop_assert_eq!(extent.at, at);
                    at += extent.len;
                }
            }
            let bytes = placed.iter().flat_map(|e| (e.offset..e.end()).map(|at| (e.object, at)));
            prop_assert!(bytes.eq(twin));
            let mut bytes = Vec::new();
            layout.encode_runs(&mut bytes);
            let again = Layout::decode_runs(&mut Reader::new(&bytes), payload, 12);
            prop_assert_eq!(again.ok(), (!layout.is_empty()).then_some(layout.clone()));
            prop_assert!(layout.runs().all(|run| run.len > 0));
        }
    }
}
