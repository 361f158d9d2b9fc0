//! Which bytes are in a unit? Runs of objects' bytes, one behind the other, cut into units of one length,
//! the last of which may be shorter.

use crate::store::ObjectId;

/// Bytes of one object inside a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Which object.
    pub object: ObjectId,
    /// Its first byte.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    object: ObjectId,
    offset: u64,
    len: u64,
    /// One past its last byte, on the line.
    end: u64,
}

/// Runs as one line of units.
#[derive(Clone, Debug)]
pub struct Layout {
    unit: u32,
    runs: Vec<Run>,
}

impl Layout {
    /// Nothing, in units of `unit` bytes, at least one.
    pub fn new(unit: u32) -> Self {
        Self {
            unit: unit.max(1),
            runs: Vec::new(),
        }
    }

    /// Appends a run; false, and nothing is changed, if it is empty or beyond what numbers can count.
    pub fn push(&mut self, object: ObjectId, offset: u64, len: u64) -> bool {
        let end = self.bytes().checked_add(len);
        let (Some(end), Some(_), true) = (end, offset.checked_add(len), len > 0) else {
            return false;
        };
        if let Some(last) = self.runs.last_mut()
            && last.object == object
            && last.offset + last.len == offset
        {
            last.len += len;
            last.end = end;
        } else {
            self.runs.push(Run {
                object,
                offset,
                len,
                end,
            });
        }
        true
    }

    /// The runs: object, offset, length.
    pub fn runs(&self) -> impl ExactSizeIterator<Item = (ObjectId, u64, u64)> {
        self.runs
            .iter()
            .map(|run| (run.object, run.offset, run.len))
    }

    /// Bytes in all.
    pub fn bytes(&self) -> u64 {
        self.runs.last().map_or(0, |run| run.end)
    }

    /// Units, the last one included.
    pub fn units(&self) -> u64 {
        self.bytes().div_ceil(self.unit.into())
    }

    /// What a unit consists of, in order; nothing, if there is none of that number.
    pub fn pieces(&self, unit: u64) -> impl Iterator<Item = Piece> {
        let begin = unit.saturating_mul(self.unit.into());
        let end = begin.saturating_add(self.unit.into());
        let first = self.runs.partition_point(|run| run.end <= begin);
        self.runs[first..]
            .iter()
            .map(move |run| {
                let start = run.end - run.len;
                let (from, to) = (start.max(begin), run.end.min(end));
                Piece {
                    object: run.object,
                    offset: run.offset + (from - start),
                    len: u32::try_from(to.saturating_sub(from)).unwrap_or(0),
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
    fn what_cannot_be_counted_is_refused() {
        let mut layout = Layout::new(10);
        assert!(layout.push(1, 5, 20) && layout.push(1, 25, 1));
        assert_eq!(layout.runs().collect::<Vec<_>>(), [(1, 5, 21)]);
        assert!(!layout.push(2, 0, 0) && !layout.push(2, u64::MAX, 1));
        assert!(!layout.push(2, 0, u64::MAX));
        assert_eq!((layout.bytes(), layout.units()), (21, 3));
        assert_eq!(
            layout.pieces(3).count() + layout.pieces(u64::MAX).count(),
            0
        );
    }

    proptest! {
        #[test]
        fn equals_a_list_of_bytes(
            unit in 1_u32..40,
            runs in proptest::collection::vec((0_u32..3, 0_u64..50, 0_u64..90), 0..12),
        ) {
            let (mut layout, mut twin) = (Layout::new(unit), Vec::new());
            for (object, offset, len) in runs {
                prop_assert_eq!(layout.push(object, offset, len), len > 0);
                twin.extend((offset..offset + len).map(|at| (object, at)));
            }
            prop_assert_eq!(layout.bytes(), twin.len() as u64);
            let chunks: Vec<_> = twin.chunks(unit as usize).collect();
            prop_assert_eq!(layout.units(), chunks.len() as u64);
            for (n, chunk) in (0..).zip(&chunks) {
                let bytes: Vec<_> = layout
                    .pieces(n)
                    .flat_map(|p| (p.offset..p.offset + u64::from(p.len)).map(move |at| (p.object, at)))
                    .collect();
                prop_assert_eq!(&bytes[..], *chunk);
            }
        }
    }
}
