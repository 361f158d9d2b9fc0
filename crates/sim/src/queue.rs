//! Queue of events ordered by time, and by the order of their making where times are equal.
//!
//! Most events are deliveries, and a link delivers in order. So each of the first links has a lane,
//! a plain queue. Only events out of order, or of further links, go to the heap, which stays as
//! small as the number of timers.

use std::{
    cmp::Ordering,
    collections::{BinaryHeap, VecDeque},
};

use farhaul_core::time::Instant;

/// Action that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// The train with this index arrives.
    Train(u32),
    /// The timer of this end.
    Timer(u32),
    /// The control lane of this end may have to send again.
    Control(u32),
    /// Beginning of this flow.
    Start(u32),
    /// Stop of this flow.
    Stop(u32),
    /// A point of the time series is due.
    Sample,
    /// A sample of the queues is due.
    Look,
    /// The next packet of this cross traffic is due.
    Cross(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    at: Instant,
    serial: u64,
    what: What,
}

impl Entry {
    const fn key(&self) -> (Instant, u64) {
        (self.at, self.serial)
    }
}

impl Ord for Entry {
    /// Reversed: the heap's greatest is the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// More lanes than this cost more to search than the heap.
const MAX_LANES: usize = 12;

/// Pending events.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Entry>,
    lanes: Vec<VecDeque<Entry>>,
    serial: u64,
}

impl Queue {
    /// An empty queue with a lane for each of `links` links.
    pub(crate) fn new(links: usize) -> Self {
        Self {
            lanes: vec![VecDeque::new(); links.min(MAX_LANES)],
            ..Self::default()
        }
    }

    /// `what` is due at `at`.
    pub(crate) fn push(&mut self, at: Instant, what: What) {
        let entry = self.entry(at, what);
        self.heap.push(entry);
    }

    /// Like [`Self::push`], cheap if `at` is not before the events in `lane`.
    #[inline]
    pub(crate) fn push_lane(&mut self, lane: usize, at: Instant, what: What) {
        let entry = self.entry(at, what);
        match self.lanes.get_mut(lane) {
            Some(queue) if queue.back().is_none_or(|last| last.at <= at) => queue.push_back(entry),
            _ => self.heap.push(entry),
        }
    }

    /// The earliest event.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(Instant, What)> {
        let mut best = self.heap.peek().map(Entry::key);
        let mut from = None;
        for (i, lane) in self.lanes.iter().enumerate() {
            if let Some(front) = lane.front()
                && best.is_none_or(|key| front.key() < key)
            {
                best = Some(front.key());
                from = Some(i);
            }
        }
        let entry = match from {
            Some(i) => self.lanes[i].pop_front(),
            None => self.heap.pop(),
        };
        entry.map(|e| (e.at, e.what))
    }

    const fn entry(&mut self, at: Instant, what: What) -> Entry {
        self.serial += 1;
        Entry {
            at,
            serial: self.serial,
            what,
        }
    }
}

#[cfg(test)]
mod tests {
    use farhaul_core::rng::Rng;

    use super::*;

    #[test]
    fn events_come_in_order_of_time_then_of_making() {
        let mut queue = Queue::new(2);
        let mut rng = Rng::new(3);
        let mut expected = Vec::new();
        for i in 0..2_000_u32 {
            let at = Instant::from_nanos(rng.below(200));
            match rng.below(4) {
                3 => queue.push(at, What::Timer(i)),
                // There is no third lane.
                lane => queue.push_lane(usize::try_from(lane).unwrap(), at, What::Timer(i)),
            }
            expected.push((at, i));
        }
        expected.sort_unstable();
        for (at, i) in expected {
            assert_eq!(queue.pop(), Some((at, What::Timer(i))));
        }
        assert_eq!(queue.pop(), None);
    }
}
