//! Arrived bytes: consecutive ones of a batch, and what becomes of them.

use std::{ops::Range, time::Duration};

use farhaul_core::store::Extent;

use super::staging::Run;
use crate::table::CONTENT;

/// Memory for small files that are incomplete or being written.
pub(super) const RESIDENT: usize = 6 << 20;
/// Longest time that bytes wait for others to be written with.
pub(super) const LINGER: Duration = Duration::from_millis(20);

/// Extents with consecutive offsets, and their bytes.
#[derive(Clone, Copy)]
pub(super) struct Arrived<'a> {
    extents: &'a [Extent],
    batch: &'a [u8],
}

/// Treatment of bytes of a large file.
pub(super) enum Bytes<'a, 'b> {
    /// The bytes are copied into a load.
    Copied(Arrived<'a>),
    /// The bytes are in a load already, in these runs.
    Stay {
        arrived: Arrived<'a>,
        runs: &'b mut Vec<Run>,
    },
}

impl<'a> Bytes<'a, '_> {
    pub(super) const fn arrived(&self) -> Arrived<'a> {
        match self {
            Self::Copied(arrived) | Self::Stay { arrived, .. } => *arrived,
        }
    }
}

impl<'a> Arrived<'a> {
    /// The consecutive ones of content at the front of `extents`, whose bytes are in `batch`.
    pub(super) fn front(extents: &'a [Extent], batch: &'a [u8]) -> Self {
        let mut end = extents.first().map_or(0, |first| first.offset);
        let follows = |e: &&Extent| {
            let next = e.offset == end && e.object == CONTENT && e.range().end <= batch.len();
            end = e.offset.saturating_add(u64::from(e.len));
            next
        };
        let n = extents.iter().take_while(follows).count();
        Self {
            extents: &extents[..n],
            batch,
        }
    }

    pub(super) const fn len(self) -> usize {
        self.extents.len()
    }

    /// One past the last byte, if there is any.
    pub(super) fn end(self) -> Option<u64> {
        self.extents.last().map(Extent::end)
    }

    /// Place of the bytes of `range`, if they lie together.
    pub(super) fn place(self, range: &Range<u64>) -> Option<Range<usize>> {
        let [extent] = self.extents else { return None };
        let at = |offset: u64| {
            let within = usize::try_from(offset.checked_sub(extent.offset)?).ok()?;
            Some(extent.range().start + within)
        };
        Some(at(range.start)?..at(range.end)?)
    }

    /// The bytes of `range` of the object, in pieces.
    pub(super) fn pieces(self, range: Range<u64>) -> impl Iterator<Item = &'a [u8]> {
        let first = self.extents.partition_point(|e| e.end() <= range.start);
        let batch = self.batch;
        self.extents[first..]
            .iter()
            .take_while(move |e| e.offset < range.end)
            .map(move |e| {
                let from = range.start.max(e.offset) - e.offset;
                let to = range.end.min(e.end()) - e.offset;
                let bytes = &batch[e.range()];
                // Both are within the extent, whose length is 32 bits.
                &bytes[usize::try_from(from).unwrap_or_default()
                    ..usize::try_from(to).unwrap_or_default()]
            })
    }
}
