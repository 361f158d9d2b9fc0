//! What was sent, and what became of it? One record per segment in sequence order, from the first
//! unacknowledged on. An acknowledgement costs what it newly tells, not what is in flight.
//!
//! Invariants: records are contiguous; `in_flight` is the wire bytes of those whose fate is
//! [`Fate::InFlight`]; a record is looked at a bounded number of times per transmission.

use std::{collections::VecDeque, ops::Range};

use farhaul_core::{congestion::Facts, loss::Ranges};

use super::wire::DATA_HEADER;

/// What is known of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// On its way, for all that is known.
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
    /// What was so at its last transmission.
    pub(super) facts: Facts,
    /// Times it was sent.
    pub(super) sends: u16,
    pub(super) fate: Fate,
}

impl Segment {
    pub(super) const fn end(&self) -> u64 {
        self.seq + self.len as u64
    }

    /// What it counts for in flight.
    pub(super) const fn wire(&self) -> u64 {
        self.len as u64 + DATA_HEADER as u64
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
    /// Where the newest block ended last time.
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

    /// A segment left again.
    pub(super) fn resent(&mut self, index: u64, serial: u64, sent_bytes: u64, facts: Facts) {
        let Some(segment) = self.get_mut(index) else {
            return;
        };
        let was = segment.fate;
        segment.serial = serial;
        segment.sent_bytes = sent_bytes;
        segment.facts = facts;
        segment.sends = segment.sends.saturating_add(1);
        segment.fate = Fate::InFlight;
        let wire = segment.wire();
        if was == Fate::Lost {
            self.in_flight += wire;
        }
    }

    /// A segment is believed lost; false if it was not in flight.
    pub(super) fn lose(&mut self, index: u64) -> bool {
        let Some(segment) = self.get_mut(index) else {
            return false;
        };
        if segment.fate != Fate::InFlight {
            return false;
        }
        segment.fate = Fate::Lost;
        let wire = segment.wire();
        self.in_flight -= wire;
        true
    }

    /// A segment believed lost is on its way after all.
    pub(super) fn find(&mut self, index: u64) {
        if let Some(segment) = self.get_mut(index)
            && segment.fate == Fate::Lost
        {
            segment.fate = Fate::InFlight;
            let wire = segment.wire();
            self.in_flight += wire;
        }
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
            match segment.fate {
                Fate::InFlight => self.in_flight -= segment.wire(),
                Fate::Sacked => self.sacked_segments -= 1,
                Fate::Lost => {}
            }
            self.segments.pop_front();
            self.base += 1;
        }
        self.una = self.una.max(ack);
        self.sacked.trim(self.una);
    }

    /// The peer cut a segment in two: the first record begins at `ack`.
    fn cut_front(&mut self, ack: u64) {
        if let Some(segment) = self.segments.front_mut() {
            let cut = ack - segment.seq;
            segment.seq = ack;
            segment.offset += cut;
            segment.len -= u32::try_from(cut).unwrap_or(segment.len);
            if segment.fate == Fate::InFlight {
                self.in_flight -= cut;
            }
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

    fn mark_sacked(&mut self, index: u64) {
        let Some(segment) = self.get_mut(index) else {
            return;
        };
        let (was, wire) = (segment.fate, segment.wire());
        segment.fate = Fate::Sacked;
        self.sacked_segments += 1;
        if was == Fate::InFlight {
            self.in_flight -= wire;
        }
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
        let (mut flight, mut sacked) = (0, 0);
        for segment in &self.segments {
            match segment.fate {
                Fate::InFlight => flight += segment.wire(),
                Fate::Sacked => sacked += 1,
                Fate::Lost => {}
            }
        }
        self.in_flight = flight;
        self.sacked_segments = sacked;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn segment(seq: u64, len: u32) -> Segment {
        Segment {
            seq,
            len,
            object: 0,
            offset: seq,
            serial: 0,
            sent_bytes: 0,
            facts: Facts::default(),
            sends: 1,
            fate: Fate::InFlight,
        }
    }

    /// Sums what the invariants promise.
    fn check(board: &Scoreboard, twin: &[(bool, bool)]) {
        let live = (board.base..board.end()).map(|i| board.get(i).unwrap());
        let flight: u64 = live
            .clone()
            .filter(|s| s.fate == Fate::InFlight)
            .map(Segment::wire)
            .sum();
        assert_eq!(board.in_flight(), flight);
        for s in live {
            let covered = twin[usize::try_from(s.seq).unwrap()..usize::try_from(s.end()).unwrap()]
                .iter()
                .all(|(sacked, _)| *sacked);
            assert_eq!(s.fate == Fate::Sacked, covered, "{s:?}");
        }
    }

    proptest! {
        #[test]
        fn equals_a_naive_scoreboard(
            ops in proptest::collection::vec((0_u8..4, 0_u64..400, 1_u64..120), 1..80),
        ) {
            let mut board = Scoreboard::default();
            // Per sequence number: selectively acknowledged, seen as arrived.
            let mut twin: Vec<(bool, bool)> = Vec::new();
            for (op, at, len) in ops {
                let una = board.una();
                match op {
                    0 => {
                        board.push(segment(board.nxt(), u32::try_from(len).unwrap()));
                        twin.resize(usize::try_from(board.nxt()).unwrap(), (false, false));
                    }
                    1 => {
                        let start = (una + at).min(board.nxt());
                        let end = (start + len).min(board.nxt());
                        twin[usize::try_from(start).unwrap()..usize::try_from(end).unwrap()]
                            .iter_mut()
                            .for_each(|b| b.0 = true);
                        if start < end {
                            board.sack(start..end, |s| assert!(s.fate != Fate::Sacked));
                        }
                    }
                    2 => {
                        let ack = (una + at % 90).min(board.nxt());
                        board.acknowledge(ack, |_| {});
                        prop_assert_eq!(board.una(), ack);
                    }
                    _ => {
                        let index = board.base() + at % 8;
                        if board.lose(index) && at % 2 == 0 {
                            board.find(index);
                        }
                    }
                }
                check(&board, &twin);
            }
        }

        #[test]
        fn splitting_changes_no_byte(lens in proptest::collection::vec(1_u32..300, 1..20), len in 1_u32..200) {
            let mut board = Scoreboard::default();
            for n in lens {
                board.push(segment(board.nxt(), n));
            }
            let end = board.nxt();
            board.sack(0..end / 3 + 1, |_| {});
            board.split(len);
            let mut at = 0;
            for i in board.base()..board.end() {
                let s = board.get(i).unwrap();
                prop_assert_eq!((s.seq, s.offset), (at, at));
                prop_assert!(s.len <= len);
                at = s.end();
            }
            prop_assert_eq!(at, end);
        }
    }

    #[test]
    fn overtaken_is_by_bytes_above() {
        let mut board = Scoreboard::default();
        for i in 0..10 {
            board.push(segment(i * 100, 100));
        }
        board.sack(300..400, |_| {});
        board.sack(600..800, |_| {});
        assert_eq!(board.overtaken_by(200), Some(300));
        assert_eq!(board.overtaken_by(300), None);
        assert_eq!(board.highest_sacked(), Some(800));
        assert_eq!(board.sacked_segments(), 3);
    }
}
