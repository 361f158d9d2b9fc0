//! Which packets are missing, and of which has the sender been told? Numbers in, ranges out: first
//! those that were never reported, then those that were and are still missing after a pause. What is
//! reported when, and how it looks, is the protocol's.

use std::{collections::VecDeque, ops::Range, time::Duration};

use crate::{loss::Ranges, time::Instant};

/// Filled gaps that may wait beside as many as were open when they were looked through last.
const SPARE: usize = 256;

/// What a packet, or a unit, was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// New.
    New,
    /// It was there, or nobody waits for it any more.
    Again,
    /// There is none of that number, or none that may be under way.
    Beyond,
}

/// The missing packets of one sender.
#[derive(Clone, Debug, Default)]
pub struct Gaps {
    /// One past the highest number received.
    next: u64,
    missing: Ranges,
    fresh: VecDeque<Range<u64>>,
    /// When they were reported last, in that order.
    reported: VecDeque<(Instant, Range<u64>)>,
    /// So many of both are looked through for filled ones.
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

    /// Packet `number` arrived; false if it had before, or nobody waits for it.
    pub fn on_packet(&mut self, number: u64) -> bool {
        if number < self.next {
            return self.missing.remove(number..number + 1) > 0;
        }
        self.miss_below(number);
        self.next = number + 1;
        true
    }

    /// Packet `number` arrived, of which no more than `window` from the first missing one on are under way.
    pub fn on_packet_within(&mut self, number: u64, window: u64) -> Arrival {
        if number >= self.prefix().saturating_add(window) {
            Arrival::Beyond
        } else if self.on_packet(number) {
            Arrival::New
        } else {
            Arrival::Again
        }
    }

    /// The packets below `number` have been sent: those that did not come are missing.
    pub fn miss_below(&mut self, number: u64) {
        let gap = self.next..number;
        if !gap.is_empty() {
            self.missing.insert(gap.clone());
            self.fresh.push_back(gap);
            self.next = number;
            self.forget_filled();
        }
    }

    /// Forgets gaps that wait to be reported and have been filled, when there are twice as many as were left the last
    /// time: each costs one look on average.
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

    /// Nobody waits for the packets of `range` any more.
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

    /// Nothing is missing below [`Self::next`].
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

    /// Forgets what was reported first and has come since.
    pub fn forget_oldest_filled(&mut self) {
        while let Some((_, range)) = self.reported.front()
            && self.missing.within(range.clone()).next().is_none()
        {
            self.reported.pop_front();
        }
    }

    /// Something was never reported.
    pub fn has_fresh(&self) -> bool {
        !self.fresh.is_empty()
    }

    /// Takes a gap as it was found, never reported; some of it may have arrived since.
    pub fn take_fresh(&mut self) -> Option<Range<u64>> {
        self.fresh.pop_front()
    }

    /// When something was reported `pause` ago; some of it may have arrived since.
    pub fn due(&self, pause: Duration) -> Option<Instant> {
        self.reported.front().map(|(at, _)| *at + pause)
    }

    /// Takes a range that was reported `pause` ago or earlier.
    pub fn take_due(&mut self, now: Instant, pause: Duration) -> Option<Range<u64>> {
        self.due(pause).filter(|at| *at <= now)?;
        self.reported.pop_front().map(|(_, range)| range)
    }

    /// What is to be reported next, at most `most` missing packets in one range: what never was, then what was `pause`
    /// ago, or nothing of that. It counts as reported now.
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
                    self.put_back(end..found.end);
                }
                self.on_reported(now, first.start..end);
                return Some(first.start..end);
            }
        }
    }

    /// What is still missing of `range`.
    pub fn within(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        self.missing.within(range)
    }

    /// `range` is being reported.
    pub fn on_reported(&mut self, now: Instant, range: Range<u64>) {
        self.reported.push_back((now, range));
    }

    /// `range` could not be reported: it goes first next time.
    pub fn put_back(&mut self, range: Range<u64>) {
        self.fresh.push_front(range);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const PAUSE: Duration = Duration::from_millis(30);

    #[test]
    fn gaps_that_were_filled_unreported_are_forgotten() {
        let mut gaps = Gaps::new(0);
        for pair in 0..100_000 {
            assert!(gaps.on_packet(2 * pair + 1) && gaps.on_packet(2 * pair));
        }
        assert!(gaps.fresh.len() <= SPARE + 3, "{}", gaps.fresh.len());
        assert!(gaps.is_complete());
    }

    /// One gap that is told of packet by packet, and not filled: what comes behind it stays cheap.
    #[test]
    fn a_gap_told_of_in_pieces_is_not_looked_through_again_and_again() {
        let mut gaps = Gaps::new(0);
        gaps.on_packet(50_000);
        let now = Instant::EPOCH;
        while gaps.next_report(now, Some(PAUSE), 1).is_some() {}
        let mut sweeps = 0;
        for number in 25_001..50_000 {
            let before = gaps.sweep_at;
            gaps.on_packet(2 * number);
            sweeps += u32::from(gaps.sweep_at != before);
        }
        assert!(sweeps <= 2, "{sweeps}");
    }

    proptest! {
        /// A naive receiver knows what came; each missing packet is told of at once, and again after
        /// each pause for as long as it is missing.
        #[test]
        fn every_missing_packet_is_told_of_in_time(
            steps in proptest::collection::vec((0_u64..60, 0_u8..6), 1..300),
            most in prop_oneof![1_u64..5, Just(u64::MAX)],
        ) {
            let (mut gaps, mut came, mut end) = (Gaps::new(100), BTreeSet::new(), 100_u64);
            let mut told: Vec<(u64, Instant)> = Vec::new();
            for (i, (x, op)) in steps.into_iter().enumerate() {
                let now = Instant::from_nanos(10_000_000 * i as u64);
                let number = (end + 5).saturating_sub(x).max(100);
                match op {
                    0 => {
                        gaps.give_up(number..number + 4);
                        came.extend((number..number + 4).filter(|n| *n < end));
                    }
                    1 => {
                        gaps.miss_below(number);
                        end = end.max(number);
                    }
                    _ => {
                        prop_assert_eq!(gaps.on_packet(number), came.insert(number));
                        end = end.max(number + 1);
                    }
                }
                let missing: Vec<u64> = (100..end).filter(|n| !came.contains(n)).collect();
                prop_assert_eq!(gaps.prefix(), missing.first().copied().unwrap_or(end));
                prop_assert_eq!(gaps.is_complete(), missing.is_empty());
                prop_assert_eq!(gaps.next(), end);
                prop_assert_eq!(gaps.missing(), missing.len() as u64);
                gaps.forget_oldest_filled();
                let mut fresh = true;
                while let Some(part) = gaps.next_report(now, (!fresh).then_some(PAUSE), most) {
                    prop_assert!(part.end - part.start <= most);
                    let again = part.clone().filter(|n| told.iter().any(|(m, _)| m == n)).count();
                    prop_assert!(!fresh || again == 0);
                    told.extend(part.map(|n| (n, now)));
                    fresh &= gaps.has_fresh();
                }
                while let Some(part) = gaps.next_report(now, Some(PAUSE), most) {
                    told.extend(part.map(|n| (n, now)));
                }
                prop_assert!(!gaps.has_fresh());
                for n in missing {
                    let last = told.iter().rev().find(|(m, _)| *m == n).map(|(_, at)| *at);
                    prop_assert!(last.is_some_and(|at| now.since(at) < PAUSE), "{n} at {now:?}");
                }
            }
        }
    }
}
