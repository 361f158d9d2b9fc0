//! What does a receiver have that asks for ranges? One file at a time: units are placed as they come; what a later
//! one shows to be missing is asked for, and again after a pause for as long as it is.
//!
//! Invariant: no more than [`MAX_GAPS`] separate gaps; a unit that might make one more is left, as if it were lost.

use std::{ops::Range, time::Duration};

use super::offer::Offer;
use crate::{
    codec::{DecodeError, Reader},
    protocol::CloseReason,
    recv::{Arrival, Gaps},
    shell::Incoming,
    store::Extent,
    time::Instant,
};

/// Separate gaps.
const MAX_GAPS: usize = 65_536;
/// Nothing new has come of a file for so long: it is given up.
const SILENCE: Duration = Duration::from_secs(30);
/// Bytes of a unit's number.
pub const NUMBER: usize = 8;

#[derive(Debug)]
struct File {
    offer: Offer,
    /// One past the last that is to arrive.
    end: u64,
    gaps: Gaps,
    /// Bytes that are to arrive.
    left: u64,
    /// When something new came last, and when the end was asked for as nothing did.
    heard: Instant,
    tail: Option<Instant>,
}

/// A receiver's files, one at a time.
#[derive(Debug, Default)]
pub struct Fetch {
    file: Option<File>,
    /// Number of the next file's first unit.
    next: u64,
    came: u64,
    missed: u64,
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
            offer,
        });
        Ok(())
    }

    /// A unit, its number first.
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
        self.came += 1;
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
        self.missed += skipped;
        self.placed += u64::from(data.len);
        file.left -= u64::from(data.len);
        file.offer.layout.place(n, data.at, place);
        Ok(Arrival::New)
    }

    /// The file ends before this number.
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
        file.end = end;
        Ok(())
    }

    /// The file, if there is one: the number of its first unit, and the bytes of it that are to come.
    pub fn file(&self) -> Option<(u64, u64)> {
        self.file.as_ref().map(|file| (file.offer.first, file.left))
    }

    /// All its units, unless it has none.
    pub fn whole(&self) -> Option<Range<u64>> {
        let file = self.file.as_ref();
        let whole = file.map(|file| file.offer.first..file.end);
        whole.filter(|whole| !whole.is_empty())
    }

    /// All of the file is here.
    pub fn is_complete(&self) -> bool {
        let file = self.file.as_ref();
        file.is_some_and(|f| f.gaps.is_complete() && f.gaps.next() >= f.end)
    }

    /// Something is known to be missing.
    pub fn has_gaps(&self) -> bool {
        let file = self.file.as_ref();
        file.is_some_and(|file| !file.gaps.is_complete())
    }

    /// What is offered and does not come is given up, with these words.
    pub fn failure(&self, now: Instant) -> Option<CloseReason> {
        let file = self.file.as_ref().filter(|_| !self.is_complete())?;
        let text = format!(
            "for {} s nothing has come of what the peer offered: does something on the way block UDP?",
            SILENCE.as_secs()
        );
        (now.since(file.heard) >= SILENCE).then_some(CloseReason::Lane(text))
    }

    /// When what is offered and does not come is given up.
    pub fn gives_up_at(&self) -> Option<Instant> {
        let file = self.file.as_ref().filter(|_| !self.is_complete());
        file.map(|file| file.heard + SILENCE)
    }

    /// That nothing comes has another reason than that it is lost.
    pub fn excuse(&mut self, now: Instant) {
        if let Some(file) = &mut self.file {
            file.heard = now;
        }
    }

    /// What is to be asked for now, at most `most` ranges: what was never, and what was `pause` ago. If nothing new
    /// has come for longer than `quiet`, all behind the highest that has may be missing, too.
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

    /// One past the highest unit that came or was asked for.
    pub fn reached(&self) -> u64 {
        let file = self.file.as_ref();
        file.map_or(self.next, |file| file.gaps.next())
    }

    /// Units that were asked for and have not come.
    pub fn left(&self) -> u64 {
        let file = self.file.as_ref();
        file.map_or(0, |file| file.gaps.missing())
    }

    /// Asks for what comes behind all that was asked for, at most `most` units.
    pub fn ask_onwards(&mut self, now: Instant, most: u64) -> Option<Range<u64>> {
        let file = self.file.as_mut()?;
        let start = file.gaps.next();
        let end = file.end.min(start.saturating_add(most));
        if start >= end || file.gaps.count() >= MAX_GAPS {
            return None;
        }
        file.gaps.miss_below(end);
        let asked = file.gaps.take_fresh()?;
        file.gaps.on_reported(now, asked.clone());
        Some(asked)
    }

    /// `range` is asked for again.
    pub fn ask_again(&mut self, now: Instant, range: Range<u64>) {
        if let Some(file) = &mut self.file {
            file.gaps.on_reported(now, range);
        }
    }

    /// When the oldest request was made of which something was missing when it was [settled](Self::settle).
    pub fn asked_at(&self) -> Option<Instant> {
        self.file.as_ref()?.gaps.due(Duration::ZERO)
    }

    /// Forgets the oldest requests, as far as they are answered.
    pub fn settle(&mut self) {
        if let Some(file) = &mut self.file {
            file.gaps.forget_oldest_filled();
        }
    }

    /// Takes a range that was asked for `patience` ago or earlier; some of it may have come since.
    pub fn take_due(&mut self, now: Instant, patience: Duration) -> Option<Range<u64>> {
        let file = self.file.as_mut()?;
        file.gaps.take_due(now, patience)
    }

    /// What is missing of `range`.
    pub fn within(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let file = self.file.iter();
        file.flat_map(move |file| file.gaps.within(range.clone()))
    }

    /// The file is over: the number of its first unit.
    pub fn finish(&mut self) -> Option<u64> {
        let file = self.file.take()?;
        self.next = file.offer.end();
        Some(file.offer.first)
    }

    /// Units that came, again ones too.
    pub const fn came(&self) -> u64 {
        self.came
    }

    /// Units that were not there when a later one came.
    pub const fn missed(&self) -> u64 {
        self.missed
    }

    /// Bytes that were placed.
    pub const fn placed(&self) -> u64 {
        self.placed
    }

    /// Units that were there when they came.
    pub const fn again(&self) -> u64 {
        self.again
    }
}

#[cfg(test)]
mod tests;
