//! State of a receiver that requests ranges, one file at a time. Units are placed on arrival. The
//! receiver requests units that a later unit shows to be missing, and again after a pause as long
//! as they are.
//!
//! Invariant: no more than [`MAX_GAPS`] separate gaps; a unit that might make one more is left, as if it were lost.

use std::{ops::Range, time::Duration};

use super::offer::Offer;
use crate::{
    codec::{DecodeError, Reader},
    loss::Ranges,
    protocol::CloseReason,
    recv::{Arrival, Gaps},
    shell::Incoming,
    store::Extent,
    time::Instant,
};

/// Separate gaps.
pub(super) const MAX_GAPS: usize = 65_536;
/// Time without anything new after which a file is given up.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of a unit's number.
pub const NUMBER: usize = 8;

#[derive(Debug)]
pub(super) struct File {
    offer: Offer,
    /// One past the last that is to arrive.
    pub(super) end: u64,
    pub(super) gaps: Gaps,
    /// Bytes that are to arrive.
    left: u64,
    /// Time at which something new came last, and when the end was asked for as nothing did.
    heard: Instant,
    tail: Option<Instant>,
    /// Asked for, and [believed](Fetch::expire) lost.
    pub(super) lost: Ranges,
    /// A unit [requested](Fetch::ask) once, and when: its arrival gives a round-trip time sample.
    pub(super) timed: Option<(u64, Instant)>,
}

/// Reception counters.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Units received, duplicates included.
    pub came: u64,
    /// Units found missing when a later one arrived.
    pub missed: u64,
    /// UDP payload bytes of the units received.
    pub bytes: u64,
}

impl Tally {
    /// Difference to the earlier snapshot `before`.
    #[must_use]
    pub const fn since(self, before: Self) -> Self {
        Self {
            came: self.came - before.came,
            missed: self.missed - before.missed,
            bytes: self.bytes - before.bytes,
        }
    }
}

/// State of a receiver that requests ranges; one file at a time.
#[derive(Debug, Default)]
pub struct Fetch {
    pub(super) file: Option<File>,
    /// Number of the next file's first unit.
    pub(super) next: u64,
    tally: Tally,
    placed: u64,
    again: u64,
}

impl Fetch {
    /// The peer offers a file.
    pub fn on_offer(&mut self, now: Instant, offer: Offer) -> Result<(), DecodeError> {
        if self.file.is_some() || offer.first != self.next {
            return Err(DecodeError::Malformed("an offer out of turn"));
        }
        self.file = Some(File {
            end: offer.end(),
            gaps: Gaps::new(offer.first),
            left: offer.layout.len(),
            heard: now,
            tail: None,
            lost: Ranges::default(),
            timed: None,
            offer,
        });
        Ok(())
    }

    /// Handles a unit, which begins with its number.
    pub fn on_unit(
        &mut self,
        now: Instant,
        datagram: &Incoming<'_>,
        place: &mut Vec<Extent>,
    ) -> Result<Arrival, DecodeError> {
        let number = Reader::new(datagram.bytes).u64()?;
        let data = datagram.extent(NUMBER, 0, 0)?;
        let file = self.file.as_mut().filter(|f| number >= f.offer.first);
        let Some(file) = file else {
            // One of a file that is over, or of nobody's.
            if number >= self.next {
                return Err(DecodeError::Malformed("number of a unit"));
            }
            self.again += 1;
            return Ok(Arrival::Again);
        };
        let n = number - file.offer.first;
        if data.len == 0 || data.len != file.offer.layout.packet_len(n) {
            return Err(DecodeError::Malformed("a unit of another length"));
        }
        self.tally.came += 1;
        self.tally.bytes += u64::from(datagram.wire);
        let fits = file.gaps.count() < MAX_GAPS || number == file.gaps.prefix();
        if number >= file.end || !fits {
            return Ok(Arrival::Beyond);
        }
        let skipped = number.saturating_sub(file.gaps.next());
        if !file.gaps.on_packet(number) {
            self.again += 1;
            return Ok(Arrival::Again);
        }
        file.heard = now;
        self.tally.missed += skipped;
        self.placed += u64::from(data.len);
        file.left -= u64::from(data.len);
        file.offer.layout.place(n, data.at, place);
        Ok(Arrival::New)
    }

    /// The sender truncated the file: it ends before number `end`.
    pub fn on_cut(&mut self, end: u64) -> Result<(), DecodeError> {
        let file = self.file.as_mut();
        let file = file.filter(|f| (f.offer.first..f.end).contains(&end));
        let file = file.ok_or(DecodeError::Malformed("a cut of no file"))?;
        let gone = file.offer.layout.payload();
        let of = |n: u64| {
            let bytes = (n - file.offer.first).saturating_mul(gone.into());
            bytes.min(file.offer.layout.len())
        };
        // What came from beyond has been placed.
        let beyond = end..file.gaps.next().max(end);
        let missing = file.gaps.within(beyond.clone());
        let behind = beyond.end..file.end;
        let gone = missing.chain([behind]).map(|r| of(r.end) - of(r.start));
        file.left = file.left.saturating_sub(gone.sum());
        file.gaps.give_up(beyond);
        file.gaps.forget_oldest_filled();
        file.lost.remove(end..u64::MAX);
        file.timed.take_if(|(timed, _)| *timed >= end);
        file.end = end;
        Ok(())
    }

    /// The current file, if any: number of its first unit, and bytes still missing.
    pub fn file(&self) -> Option<(u64, u64)> {
        self.file.as_ref().map(|file| (file.offer.first, file.left))
    }

    /// Range of all units of the file, unless it has none.
    pub fn whole(&self) -> Option<Range<u64>> {
        let file = self.file.as_ref();
        let whole = file.map(|file| file.offer.first..file.end);
        whole.filter(|whole| !whole.is_empty())
    }

    /// True if the file is complete.
    pub fn is_complete(&self) -> bool {
        let file = self.file.as_ref();
        file.is_some_and(|f| f.gaps.is_complete() && f.gaps.next() >= f.end)
    }

    /// True if there are known gaps.
    pub fn has_gaps(&self) -> bool {
        let file = self.file.as_ref();
        file.is_some_and(|file| !file.gaps.is_complete())
    }

    /// Reason to close the session if nothing of an offered file arrived for too long.
    pub fn failure(&self, now: Instant) -> Option<CloseReason> {
        let file = self.file.as_ref().filter(|_| !self.is_complete())?;
        let text = format!(
            "for {} s nothing has come of what the peer offered: does something on the way block UDP?",
            TIMEOUT.as_secs()
        );
        (now.since(file.heard) >= TIMEOUT).then_some(CloseReason::Lane(text))
    }

    /// Time at which [`Self::failure`] reports a timeout.
    pub fn gives_up_at(&self) -> Option<Instant> {
        let file = self.file.as_ref().filter(|_| !self.is_complete());
        file.map(|file| file.heard + TIMEOUT)
    }

    /// Restarts the timeout: reception has paused for another reason than loss.
    pub fn restart_timeout(&mut self, now: Instant) {
        if let Some(file) = &mut self.file {
            file.heard = now;
        }
    }

    /// Ranges to request now, at most `most`: those never requested, and those requested `pause`
    /// ago. If nothing new arrived for longer than `quiet`, everything beyond the highest unit
    /// received is included.
    pub fn missing(
        &mut self,
        now: Instant,
        (pause, quiet): (Duration, Duration),
        most: usize,
    ) -> Vec<Range<u64>> {
        let mut ranges = Vec::new();
        let Some(file) = &mut self.file else {
            return ranges;
        };
        let gaps = &mut file.gaps;
        let silent = |at: Instant| now.since(at) > quiet;
        if silent(file.heard) && file.tail.is_none_or(silent) && gaps.next() < file.end {
            file.tail = Some(now);
            ranges.push(gaps.next()..file.end);
        }
        while ranges.len() < most
            && let Some(range) = gaps.next_report(now, Some(pause), u64::MAX)
        {
            ranges.push(range);
        }
        ranges
    }

    /// Ends the file; returns the number of its first unit.
    pub fn finish(&mut self) -> Option<u64> {
        let file = self.file.take()?;
        self.next = file.offer.end();
        Some(file.offer.first)
    }

    /// Counters over all files.
    pub const fn tally(&self) -> Tally {
        self.tally
    }

    /// Bytes placed in the store.
    pub const fn placed(&self) -> u64 {
        self.placed
    }

    /// Duplicate units received.
    pub const fn again(&self) -> u64 {
        self.again
    }
}

#[cfg(test)]
mod tests;
