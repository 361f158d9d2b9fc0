//! Which units are in transit to a receiver that owns the window? A unit is from when it is asked for until it comes
//! or is believed lost; then it waits to be asked for again, before any that never was. Only how many they are is
//! bounded, and not how far they lie apart, so that the window moves on while a hole is open.
//!
//! Invariant: units asked for are here, in transit, or believed lost; none comes that was not asked for.

use std::{ops::Range, time::Duration};

use super::{Fetch, offer::Offer};
use crate::{
    codec::{DecodeError, Reader},
    loss::Ranges,
    recv::Arrival,
    shell::Incoming,
    store::Extent,
    time::Instant,
};

/// A receiver's units.
#[derive(Debug, Default)]
pub struct Transit {
    fetch: Fetch,
    lost: Ranges,
    /// A unit that was asked for once, and when: its answer tells the round-trip time.
    timed: Option<(u64, Instant)>,
}

impl Transit {
    /// The peer offers a file.
    pub fn on_offer(&mut self, now: Instant, offer: Offer) -> Result<(), DecodeError> {
        self.fetch.on_offer(now, offer)
    }

    /// A unit, its number first: what it was, and the round-trip time if it tells it.
    pub fn on_unit(
        &mut self,
        now: Instant,
        datagram: &Incoming<'_>,
        place: &mut Vec<Extent>,
    ) -> Result<(Arrival, Option<Duration>), DecodeError> {
        let number = Reader::new(datagram.bytes).u64()?;
        if number >= self.fetch.reached() {
            return Err(DecodeError::Malformed("a unit that was not asked for"));
        }
        let arrival = self.fetch.on_unit(now, datagram, place)?;
        if arrival != Arrival::Beyond {
            self.lost.remove(number..number + 1);
        }
        self.fetch.settle();
        let timed = self.timed.take_if(|(timed, _)| *timed == number);
        Ok((arrival, timed.map(|(_, at)| now.since(at))))
    }

    /// The file ends before this number.
    pub fn on_cut(&mut self, end: u64) -> Result<(), DecodeError> {
        self.fetch.on_cut(end)?;
        self.lost.remove(end..u64::MAX);
        self.fetch.settle();
        self.timed.take_if(|(timed, _)| *timed >= end);
        Ok(())
    }

    /// Units in transit.
    pub fn units(&self) -> u64 {
        self.fetch.left() - self.lost.total()
    }

    /// There is more to ask for.
    pub fn has_more(&self) -> bool {
        let whole = self.fetch.whole();
        !self.lost.is_empty() || whole.is_some_and(|whole| self.fetch.reached() < whole.end)
    }

    /// Asks for at most `most` units in a row: those believed lost first.
    pub fn ask(&mut self, now: Instant, most: u64) -> Option<Range<u64>> {
        if most == 0 {
            return None;
        }
        let first = self.lost.iter().next();
        if let Some(first) = first {
            let range = first.start..first.end.min(first.start.saturating_add(most));
            self.lost.remove(range.clone());
            self.fetch.ask_again(now, range.clone());
            return Some(range);
        }
        let range = self.fetch.ask_onwards(now, most)?;
        self.timed.get_or_insert((range.start, now));
        Some(range)
    }

    /// Believes lost what was asked for `patience` ago; returns in how many runs.
    pub fn expire(&mut self, now: Instant, patience: Duration) -> u64 {
        let mut runs = 0;
        while let Some(range) = self.fetch.take_due(now, patience) {
            let missing: Vec<_> = self.fetch.within(range).collect();
            for run in missing {
                runs += 1;
                self.timed.take_if(|(timed, _)| run.contains(timed));
                self.lost.insert(run);
            }
        }
        self.fetch.settle();
        runs
    }

    /// When the oldest request was made that waits for an answer.
    pub fn asked_at(&self) -> Option<Instant> {
        self.fetch.asked_at()
    }

    /// All of the file is here: the number of its first unit, once.
    pub fn finish(&mut self) -> Option<u64> {
        self.fetch.is_complete().then(|| self.fetch.finish())?
    }

    /// What came, and what is given up.
    pub const fn fetch(&self) -> &Fetch {
        &self.fetch
    }

    /// That nothing comes has another reason than that it is lost.
    pub fn excuse(&mut self, now: Instant) {
        self.fetch.excuse(now);
    }
}

#[cfg(test)]
mod tests;
