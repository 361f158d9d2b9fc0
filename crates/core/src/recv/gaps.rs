//! Tracks missing packets and which of them were reported. Numbers go in, ranges come out: first
//! those never reported, then those reported and still missing after a pause. When a range is
//! reported, and in which format, is the protocol's.

use std::{collections::VecDeque, ops::Range, time::Duration};

use crate::{loss::Ranges, time::Instant};

/// Filled gaps that may wait beside as many as were open when they were looked through last.
const SPARE: usize = 256;

/// Classification of a received packet or unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// New.
    New,
    /// Duplicate, or given up.
    Again,
    /// The number is beyond the last one or the window.
    Beyond,
}

/// The missing packets of one sender.
#[derive(Clone, Debug, Default)]
pub struct Gaps {
    /// One past the highest number received.
    next: u64,
    missing: Ranges,
    fresh: VecDeque<Range<u64>>,
    /// Ranges and the times at which they were reported last, in that order.
    reported: VecDeque<(Instant, Range<u64>)>,
    /// Ranges of both queues at which filled ones are dropped.
    sweep_at: usize,
}

impl Gaps {
    /// The sender's numbers begin at `first`.
    pub fn new(first: u64) -> Self {
        Self {
            next: first,
            ..Self::default()
        }
    }

    /// Records packet `number`; false if it is a duplicate or was given up.
    pub fn on_packet(&mut self, number: u64) -> bool {
        if number < self.next {
            return self.missing.remove(number..number + 1) > 0;
        }
        self.miss_below(number);
        self.next = number + 1;
        true
    }

    /// Records packet `number` if it is within `window` packets of the first missing one.
    pub fn on_packet_within(&mut self, number: u64, window: u64) -> Arrival {
        let seen = self.sees(number, window);
        if seen == Arrival::New {
            self.on_packet(number);
        }
        seen
    }

    /// Classifies packet `number` without recording it.
    pub fn sees(&self, number: u64, window: u64) -> Arrival {
        if number >= self.prefix().saturating_add(window) {
            Arrival::Beyond
        } else if number >= self.next || self.missing.containing(number).is_some() {
            Arrival::New
        } else {
            Arrival::Again
        }
    }

    /// Ranges that arrived beyond [`Self::prefix`].
    pub fn ahead(&self) -> impl Iterator<Item = Range<u64>> {
        self.missing.gaps(self.prefix()..self.next)
    }

    /// Packets below `number` were sent: marks those not received as missing.
    pub fn miss_below(&mut self, number: u64) {
        let gap = self.next..number;
        if !gap.is_empty() {
            self.missing.insert(gap.clone());
            self.fresh.push_back(gap);
            self.next = number;
            self.forget_filled();
        }
    }

    /// Forgets gaps that wait to be reported and have been filled, when there are twice as many as
    /// were left the last time. Each gap costs one look on average.
    fn forget_filled(&mut self) {
        if self.fresh.len() + self.reported.len() <= self.sweep_at {
            return;
        }
        let missing = &self.missing;
        let open = |range: &Range<u64>| missing.within(range.clone()).next().is_some();
        self.fresh.retain(open);
        self.reported.retain(|(_, range)| open(range));
        self.sweep_at = 2 * (self.fresh.len() + self.reported.len()) + SPARE;
    }

    /// Gives up the packets of `range`.
    pub fn give_up(&mut self, range: Range<u64>) {
        self.missing.remove(range);
    }

    /// One past the highest number received.
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Everything below has arrived or was given up.
    pub fn prefix(&self) -> u64 {
        self.missing.first().unwrap_or(self.next)
    }

    /// True if nothing is missing below [`Self::next`].
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    /// Separate gaps.
    pub fn count(&self) -> usize {
        self.missing.len()
    }

    /// Missing packets.
    pub const fn missing(&self) -> u64 {
        self.missing.total()
    }

    /// Removes the oldest reported gaps that have been filled.
    pub fn forget_oldest_filled(&mut self) {
        while let Some((_, range)) = self.reported.front()
            && self.missing.within(range.clone()).next().is_none()
        {
            self.reported.pop_front();
        }
    }

    /// True if there are gaps never reported.
    pub fn has_fresh(&self) -> bool {
        !self.fresh.is_empty()
    }

    /// Takes a gap as it was found, never reported; some of it may have arrived since.
    pub fn take_fresh(&mut self) -> Option<Range<u64>> {
        self.fresh.pop_front()
    }

    /// Time at which something was reported `pause` ago; some of it may have arrived since.
    pub fn due(&self, pause: Duration) -> Option<Instant> {
        self.reported.front().map(|(at, _)| *at + pause)
    }

    /// Takes a range that was reported `pause` ago or earlier.
    pub fn take_due(&mut self, now: Instant, pause: Duration) -> Option<Range<u64>> {
        self.due(pause).filter(|at| *at <= now)?;
        self.reported.pop_front().map(|(_, range)| range)
    }

    /// Takes the next range to report, of at most `most` missing packets: first packets never
    /// reported, then packets reported `pause` ago (`None`: none of these). The range counts as
    /// reported now.
    pub fn next_report(
        &mut self,
        now: Instant,
        pause: Option<Duration>,
        most: u64,
    ) -> Option<Range<u64>> {
        loop {
            let due = |gaps: &mut Self| pause.and_then(|pause| gaps.take_due(now, pause));
            let found = self.take_fresh().or_else(|| due(self))?;
            let first = self.within(found.clone()).next();
            if let Some(first) = first {
                let end = first.end.min(first.start.saturating_add(most));
                if end < found.end {
                    self.fresh.push_front(end..found.end);
                }
                self.on_reported(now, first.start..end);
                return Some(first.start..end);
            }
        }
    }

    /// Makes a report of at most `most` missing packets: those of one gap never reported, or of all
    /// that were `pause` ago. They count as reported now; without room a range that is due waits as
    /// if it never had been reported.
    pub fn report(&mut self, now: Instant, pause: Duration, mut most: u64) -> Vec<Range<u64>> {
        let mut told = Vec::new();
        if most == 0 && self.fresh.is_empty() {
            while let Some(gap) = self.take_due(now, pause) {
                self.fresh.extend(self.missing.within(gap));
            }
        }
        while most > 0 {
            let fresh = self.fresh.pop_front_if(|_| told.is_empty());
            let is_fresh = fresh.is_some();
            let Some(gap) = fresh.or_else(|| self.take_due(now, pause)) else {
                break;
            };
            let mut reached = gap.end;
            for part in self.missing.within(gap.clone()) {
                reached = part.end.min(part.start.saturating_add(most));
                most -= reached - part.start;
                told.push(part.start..reached);
                if most == 0 {
                    break;
                }
            }
            match reached..gap.end {
                rest if most > 0 || rest.is_empty() => {}
                rest if is_fresh => self.fresh.push_front(rest),
                // As long ago as what was due.
                rest => self.reported.push_front((now.earlier_by(pause), rest)),
            }
            if is_fresh && !told.is_empty() {
                break;
            }
        }
        self.reported
            .extend(told.iter().map(|gap| (now, gap.clone())));
        told
    }

    /// Packets of `range` that are still missing.
    pub fn within(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        self.missing.within(range)
    }

    /// `range` is being reported.
    pub fn on_reported(&mut self, now: Instant, range: Range<u64>) {
        self.reported.push_back((now, range));
    }
}

#[cfg(test)]
mod tests;
