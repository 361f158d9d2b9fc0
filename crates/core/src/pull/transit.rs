//! Tracks units in transit to a receiver that owns the window. A unit is in transit from its
//! request until it arrives or is declared lost; a lost unit is requested again, before any new
//! one. Only the number of units is bounded, and not how far they lie apart, so that the window
//! moves on while a hole is open.
//!
//! Invariant: units requested are received, in transit, or declared lost; unrequested ones are rejected.

use std::{ops::Range, time::Duration};

use super::fetch::{Fetch, MAX_GAPS};
use crate::{
    codec::{DecodeError, Reader},
    recv::Arrival,
    shell::Incoming,
    store::Extent,
    time::Instant,
};

impl Fetch {
    /// Handles a requested unit: whether it is new, and a round-trip time sample if there is one.
    pub fn on_answer(
        &mut self,
        now: Instant,
        datagram: &Incoming<'_>,
        place: &mut Vec<Extent>,
    ) -> Result<(Arrival, Option<Duration>), DecodeError> {
        let number = Reader::new(datagram.bytes).u64()?;
        let reached = self.file.as_ref().map_or(self.next, |f| f.gaps.next());
        if number >= reached {
            return Err(DecodeError::Malformed("a unit that was not asked for"));
        }
        let arrival = self.on_unit(now, datagram, place)?;
        let file = self.file.as_mut();
        let timed = file.and_then(|file| {
            if arrival != Arrival::Beyond {
                file.lost.remove(number..number + 1);
            }
            file.gaps.forget_oldest_filled();
            file.timed.take_if(|(timed, _)| *timed == number)
        });
        Ok((arrival, timed.map(|(_, at)| now.since(at))))
    }

    /// Units in transit.
    pub fn in_transit(&self) -> u64 {
        let file = self.file.as_ref();
        file.map_or(0, |f| f.gaps.missing() - f.lost.total())
    }

    /// True if more units can be requested.
    pub fn has_more(&self) -> bool {
        let file = self.file.as_ref();
        file.is_some_and(|f| !f.lost.is_empty() || f.gaps.next() < f.end)
    }

    /// Requests at most `most` consecutive units: those declared lost first.
    pub fn ask(&mut self, now: Instant, most: u64) -> Option<Range<u64>> {
        let file = self.file.as_mut().filter(|_| most > 0)?;
        let up_to = |start: u64, end: u64| start..end.min(start.saturating_add(most));
        let first = file.lost.iter().next();
        let range = if let Some(first) = first {
            let range = up_to(first.start, first.end);
            file.lost.remove(range.clone());
            range
        } else {
            let range = up_to(file.gaps.next(), file.end);
            if range.is_empty() || file.gaps.count() >= MAX_GAPS {
                return None;
            }
            file.gaps.miss_below(range.end);
            file.timed.get_or_insert((range.start, now));
            file.gaps.take_fresh()?
        };
        file.gaps.on_reported(now, range.clone());
        Some(range)
    }

    /// Declares lost the units requested `timeout` ago; returns the number of contiguous ranges.
    pub fn expire(&mut self, now: Instant, timeout: Duration) -> u64 {
        let mut runs = 0;
        let Some(file) = &mut self.file else {
            return runs;
        };
        while let Some(range) = file.gaps.take_due(now, timeout) {
            for run in file.gaps.within(range) {
                runs += 1;
                file.timed.take_if(|(timed, _)| run.contains(timed));
                file.lost.insert(run);
            }
        }
        file.gaps.forget_oldest_filled();
        runs
    }

    /// Time of the oldest unanswered request.
    pub fn asked_at(&self) -> Option<Instant> {
        self.file.as_ref()?.gaps.due(Duration::ZERO)
    }
}

#[cfg(test)]
mod tests;
