//! Records segments sent, and their fates: one record per segment in sequence order, from the first
//! unacknowledged on. An acknowledgement costs what it newly reports, not the bytes in flight.
//!
//! Invariants: records are contiguous. `in_flight` is the wire bytes of those whose fate is
//! [`Fate::InFlight`], of both copies where two are on their way. A record is looked at a bounded
//! number of times per transmission.

use std::{collections::VecDeque, ops::Range};

use farhaul_core::{congestion::TxSnapshot, loss::Ranges};

use super::wire::DATA_HEADER;

/// Fate of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The segment is on its way, for all that is known.
    InFlight,
    /// Arrived out of order.
    Sacked,
    /// Believed lost and not sent again yet.
    Lost,
}

/// A run of bytes that was sent as one segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    /// First sequence number.
    pub(super) seq: u64,
    pub(super) len: u32,
    pub(super) object: u32,
    /// First byte within the object.
    pub(super) offset: u64,
    /// Number of its last transmission.
    pub(super) serial: u64,
    /// Wire bytes sent up to that, itself included.
    pub(super) sent_bytes: u64,
    /// State at the segment's last transmission.
    pub(super) facts: TxSnapshot,
    /// Times that the segment was sent.
    pub(super) sends: u16,
    pub(super) fate: Fate,
    /// True if the segment was sent again although it was not believed lost: the copy before is on
    /// its way too.
    pub(super) doubled: bool,
}

impl Segment {
    pub(super) const fn end(&self) -> u64 {
        self.seq + self.len as u64
    }

    /// Bytes that one copy counts for in flight.
    pub(super) const fn wire(&self) -> u64 {
        self.len as u64 + DATA_HEADER as u64
    }

    /// Bytes that the segment counts for now.
    const fn in_flight(&self) -> u64 {
        match self.fate {
            Fate::InFlight if self.doubled => 2 * self.wire(),
            Fate::InFlight => self.wire(),
            Fate::Sacked | Fate::Lost => 0,
        }
    }
}

/// The records.
#[derive(Debug, Default)]
pub(super) struct Scoreboard {
    segments: VecDeque<Segment>,
    /// Index of the first record; indices are never reused.
    base: u64,
    una: u64,
    nxt: u64,
    in_flight: u64,
    /// Sequence numbers acknowledged selectively.
    sacked: Ranges,
    sacked_segments: u32,
    /// Position at which the newest block ended last time.
    hint: u64,
    gaps: Vec<Range<u64>>,
}

impl Scoreboard {
    pub(super) const fn una(&self) -> u64 {
        self.una
    }

    pub(super) const fn nxt(&self) -> u64 {
        self.nxt
    }

    pub(super) const fn in_flight(&self) -> u64 {
        self.in_flight
    }

    pub(super) const fn sacked_segments(&self) -> u32 {
        self.sacked_segments
    }

    pub(super) fn outstanding(&self) -> usize {
        self.segments.len()
    }

    pub(super) fn first(&self) -> Option<&Segment> {
        self.segments.front()
    }

    /// Index of the first record.
    pub(super) const fn base(&self) -> u64 {
        self.base
    }

    /// One past the index of the last record.
    pub(super) fn end(&self) -> u64 {
        self.base + self.segments.len() as u64
    }

    pub(super) fn get(&self, index: u64) -> Option<&Segment> {
        let at = usize::try_from(index.checked_sub(self.base)?).ok()?;
        self.segments.get(at)
    }

    fn get_mut(&mut self, index: u64) -> Option<&mut Segment> {
        let at = usize::try_from(index.checked_sub(self.base)?).ok()?;
        self.segments.get_mut(at)
    }

    /// A segment left for the first time; its index.
    pub(super) fn push(&mut self, segment: Segment) -> u64 {
        self.nxt = segment.end();
        self.in_flight += segment.wire();
        self.segments.push_back(segment);
        self.end() - 1
    }

    /// Changes a record, and its count in flight.
    fn change(&mut self, index: u64, change: impl FnOnce(&mut Segment)) {
        if let Some(segment) = self.get_mut(index) {
            let before = segment.in_flight();
            change(segment);
            let after = segment.in_flight();
            self.in_flight = self.in_flight + after - before;
        }
    }

    /// A segment left again.
    pub(super) fn resent(&mut self, index: u64, serial: u64, sent_bytes: u64, facts: TxSnapshot) {
        self.change(index, |segment| {
            segment.serial = serial;
            segment.sent_bytes = sent_bytes;
            segment.facts = facts;
            segment.sends = segment.sends.saturating_add(1);
            segment.fate = Fate::InFlight;
        });
    }

    /// Two copies of a segment are on their way, as far as is known.
    pub(super) fn double(&mut self, index: u64) {
        self.change(index, |segment| {
            segment.doubled = segment.fate == Fate::InFlight;
        });
    }

    /// The first of a segment's two copies is believed lost.
    pub(super) fn settle(&mut self, index: u64) {
        self.change(index, |segment| segment.doubled = false);
    }

    /// A segment is believed lost; nothing if it was not in flight.
    pub(super) fn lose(&mut self, index: u64) -> Option<&Segment> {
        self.get(index).filter(|s| s.fate == Fate::InFlight)?;
        self.change(index, |segment| {
            segment.fate = Fate::Lost;
            segment.doubled = false;
        });
        self.get(index)
    }

    /// A segment believed lost is on its way after all.
    pub(super) fn find(&mut self, index: u64) {
        self.change(index, |segment| {
            if segment.fate == Fate::Lost {
                segment.fate = Fate::InFlight;
            }
        });
    }

    /// Everything below `ack` arrived; `visit` sees each record with the fate it had.
    pub(super) fn acknowledge(&mut self, ack: u64, mut visit: impl FnMut(&Segment)) {
        while let Some(segment) = self.segments.front_mut()
            && segment.seq < ack
        {
            if segment.end() > ack {
                self.una = ack;
                self.cut_front(ack);
                break;
            }
            visit(segment);
            self.in_flight -= segment.in_flight();
            self.sacked_segments -= u32::from(segment.fate == Fate::Sacked);
            self.segments.pop_front();
            self.base += 1;
        }
        self.una = self.una.max(ack);
        self.sacked.trim(self.una);
    }

    /// The peer cut a segment in two: the first record begins at `ack`.
    fn cut_front(&mut self, ack: u64) {
        self.change(self.base, |segment| {
            let cut = ack - segment.seq;
            segment.seq = ack;
            segment.offset += cut;
            segment.len -= u32::try_from(cut).unwrap_or(segment.len);
        });
        if let Some(segment) = self.segments.front() {
            let (rest, fate) = (segment.seq..segment.end(), segment.fate);
            if fate != Fate::Sacked && self.sacked.covers(rest) {
                self.mark_sacked(self.base);
            }
        }
    }

    /// `block` arrived out of order; `visit` sees each record newly covered, with the fate it had.
    pub(super) fn sack(&mut self, block: Range<u64>, mut visit: impl FnMut(&Segment)) {
        let mut gaps = std::mem::take(&mut self.gaps);
        gaps.extend(self.sacked.gaps(block));
        for gap in gaps.drain(..) {
            self.sacked.insert(gap.clone());
            let mut index = self.index_of(gap.start);
            while let Some(segment) = self.get(index).copied()
                && segment.seq < gap.end
            {
                let whole = gap.start <= segment.seq && segment.end() <= gap.end
                    || self.sacked.covers(segment.seq..segment.end());
                if whole && segment.fate != Fate::Sacked {
                    visit(&segment);
                    self.mark_sacked(index);
                }
                index += 1;
            }
            self.hint = index;
        }
        self.gaps = gaps;
    }

    /// Segments that a list holds before the last news in `blocks`; none if all news are above what
    /// was reported before.
    pub(super) fn scanned(&self, blocks: &[Range<u64>]) -> usize {
        let highest = self.highest_sacked().unwrap_or(0);
        let news = blocks.iter().filter_map(|block| {
            let below = block.start.max(self.una)..block.end.min(highest);
            let gap = self.sacked.gaps(below).last()?;
            usize::try_from(self.index_of(gap.start) - self.base).ok()
        });
        news.max().unwrap_or(0)
    }

    fn mark_sacked(&mut self, index: u64) {
        self.change(index, |segment| {
            segment.fate = Fate::Sacked;
            segment.doubled = false;
        });
        self.sacked_segments += 1;
    }

    /// Index of the record that `seq` is in.
    fn index_of(&self, seq: u64) -> u64 {
        let holds = |index: u64| {
            let segment = self.get(index);
            segment.is_some_and(|s| s.seq <= seq && seq < s.end())
        };
        if holds(self.hint) {
            return self.hint;
        }
        self.base + self.segments.partition_point(|s| s.end() <= seq) as u64
    }

    /// One past the highest sequence number acknowledged selectively.
    pub(super) fn highest_sacked(&self) -> Option<u64> {
        self.sacked.iter().next_back().map(|span| span.end)
    }

    /// The record that the highest byte not acknowledged in any way is in.
    pub(super) fn highest_unsacked(&self) -> Option<u64> {
        let above = self.sacked.iter().next_back();
        let end = above.filter(|span| span.end >= self.nxt);
        let end = end.map_or(self.nxt, |span| span.start);
        (end > self.una).then(|| self.index_of(end - 1))
    }

    /// Everything below has more than `bytes` acknowledged selectively above it (RFC 6675 §4).
    pub(super) fn overtaken_by(&self, bytes: u64) -> Option<u64> {
        let mut above = 0;
        for span in self.sacked.iter().rev() {
            above += span.end - span.start;
            if above > bytes {
                return Some(span.start);
            }
        }
        None
    }

    /// Selective acknowledgements are no longer believed: the peer dropped what it had.
    pub(super) fn renege(&mut self) {
        for segment in &mut self.segments {
            if segment.fate == Fate::Sacked {
                segment.fate = Fate::Lost;
            }
        }
        self.sacked = Ranges::default();
        self.sacked_segments = 0;
    }

    /// Cuts every record that is longer than `len`, for a path that turned out to be narrower.
    /// Indices begin anew.
    pub(super) fn split(&mut self, len: u32) {
        let whole = std::mem::take(&mut self.segments);
        self.base += whole.len() as u64;
        for segment in whole {
            let mut rest = segment;
            while rest.len > len {
                let head = Segment { len, ..rest };
                rest.seq = head.end();
                rest.offset += u64::from(len);
                rest.len -= len;
                self.segments.push_back(head);
            }
            self.segments.push_back(rest);
        }
        self.in_flight = self.segments.iter().map(Segment::in_flight).sum();
        let sacked = self.segments.iter().filter(|s| s.fate == Fate::Sacked);
        self.sacked_segments = u32::try_from(sacked.count()).unwrap_or(u32::MAX);
    }
}

#[cfg(test)]
mod tests;
