//! Counts the datagrams of a test at a constant rate. The sender stamps the data of each datagram with a number
//! and its time of departure, also of those that are sent again; the receiver counts numbers, and never waits for
//! what is missing.
//!
//! Each stamp is 16 bytes, big-endian: the number, then the sender's clock in nanoseconds. Only differences of
//! transit times count, so the clocks of the two ends need not agree.

use std::{ops::Range, time::Duration};

use farhaul_core::{
    store::Extent,
    time::{Instant, nanos},
};

use super::message::Datagrams;

/// Bytes of a stamp; shorter data carry none.
const STAMP: usize = 16;
/// Time after the sender's last word in which late datagrams still count.
const GRACE: Duration = Duration::from_millis(250);
/// Numbers below the newest among which a late datagram is known from a copy.
const WINDOW: u64 = 64 * WORDS;
const WORDS: u64 = 256;

/// Places of stamps in a batch, and the bytes of data that begin with each.
fn stamped(extents: &[Extent]) -> impl Iterator<Item = (Range<usize>, u64)> {
    let places = extents.iter().map(Extent::range);
    let long = places.filter(|place| place.len() >= STAMP);
    long.map(|place| (place.start..place.start + STAMP, place.len() as u64))
}

/// Numbers datagrams at the sender.
#[derive(Debug, Default)]
pub(super) struct Stamps {
    next: u64,
}

impl Stamps {
    /// Stamps the data of each datagram in `batch`.
    pub(super) fn fill(&mut self, now: Instant, extents: &[Extent], batch: &mut [u8]) {
        let time = nanos(now.since(Instant::EPOCH)).to_be_bytes();
        for (place, _) in stamped(extents) {
            let stamp = [self.next.to_be_bytes(), time];
            batch[place].copy_from_slice(stamp.as_flattened());
            self.next += 1;
        }
    }

    /// Datagrams stamped so far.
    pub(super) const fn count(&self) -> u64 {
        self.next
    }
}

/// Counts datagrams at the receiver.
#[derive(Debug)]
pub(super) struct Counter {
    counts: Datagrams,
    bytes: u64,
    /// The number after the newest that arrived.
    next: u64,
    /// Bits of the numbers below `next` that arrived.
    seen: Vec<u64>,
    /// Transit time of the latest datagram, ns on the difference of both clocks.
    transit: Option<i128>,
    /// Jitter, ns.
    jitter: f64,
    /// All datagrams that were sent, and the time until which late ones count.
    all: Option<(u64, Instant)>,
    /// Copies that the session had dropped when the test began.
    dropped: Option<u64>,
}

impl Counter {
    pub(super) fn new() -> Self {
        Self {
            counts: Datagrams::default(),
            bytes: 0,
            next: 0,
            seen: vec![0; usize::try_from(WORDS).unwrap_or(0)],
            transit: None,
            jitter: 0.0,
            all: None,
            dropped: None,
        }
    }

    /// Counts what arrived at `now`.
    pub(super) fn place(&mut self, now: Instant, extents: &[Extent], batch: &[u8]) {
        for (place, len) in stamped(extents) {
            let stamp = &batch[place];
            let read = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| stamp[at + i]));
            self.arrived(now, read(0), read(STAMP / 2), len);
        }
    }

    fn arrived(&mut self, now: Instant, number: u64, time: u64, len: u64) {
        // Sent after the end, for nobody.
        if self.all.is_some_and(|(all, _)| number >= all) || number == u64::MAX {
            return;
        }
        if number >= self.next {
            self.advance(number);
        } else if self.next - number > WINDOW || self.is_seen(number) {
            return;
        } else {
            self.counts.reordered += 1;
        }
        self.see(number);
        self.counts.received += 1;
        self.bytes += len;
        let transit = i128::from(nanos(now.since(Instant::EPOCH))) - i128::from(time);
        if let Some(last) = self.transit.replace(transit) {
            #[expect(clippy::cast_precision_loss, reason = "a time with a few digits")]
            let change = (transit - last).unsigned_abs() as f64;
            self.jitter += (change - self.jitter) / 16.0;
        }
    }

    /// Makes `number` the newest: the bits of the numbers between are those of datagrams that are missing.
    fn advance(&mut self, number: u64) {
        if number - self.next >= WINDOW {
            self.seen.fill(0);
        } else {
            for missing in self.next..=number {
                let (word, bit) = Self::bit(missing);
                self.seen[word] &= !bit;
            }
        }
        self.next = number + 1;
    }

    fn bit(number: u64) -> (usize, u64) {
        let word = usize::try_from(number / 64 % WORDS).unwrap_or(0);
        (word, 1 << (number % 64))
    }

    fn is_seen(&self, number: u64) -> bool {
        let (word, bit) = Self::bit(number);
        self.seen[word] & bit != 0
    }

    fn see(&mut self, number: u64) {
        let (word, bit) = Self::bit(number);
        self.seen[word] |= bit;
    }

    /// Notes how many copies the session has dropped so far: none of them reaches the application.
    pub(super) fn dropped(&mut self, so_far: u64) {
        let before = *self.dropped.get_or_insert(so_far);
        self.counts.duplicates = so_far.saturating_sub(before);
    }

    /// Notes at `now` that the sender has sent `all` datagrams.
    pub(super) fn all_is(&mut self, now: Instant, all: u64) {
        // Datagrams may overtake the message.
        self.all.get_or_insert((all.max(self.next), now + GRACE));
    }

    /// True if all have arrived, or the time for late ones is over.
    pub(super) fn is_complete(&self, now: Instant) -> bool {
        self.all
            .is_some_and(|(all, until)| self.counts.received >= all || now >= until)
    }

    /// Time at which late datagrams stop to count.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        self.all.map(|(_, until)| until)
    }

    /// Bytes of data that arrived, each counted once.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Counts so far.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rounded, and never negative"
    )]
    pub(super) fn datagrams(&self) -> Datagrams {
        Datagrams {
            sent: self.all.map_or(self.next, |(all, _)| all),
            jitter_ns: self.jitter as u64,
            ..self.counts
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::bench::payload::OBJECT;

    fn at(us: u64) -> Instant {
        Instant::EPOCH + Duration::from_micros(us)
    }

    /// Stamps `numbers.len()` datagrams, and places those of these numbers.
    fn placed(counter: &mut Counter, sent: u64, numbers: &[u64]) {
        let extent = Extent {
            object: OBJECT,
            offset: 0,
            len: 100,
            at: 4,
        };
        let mut stamps = Stamps::default();
        let made = (0..sent).map(|_| {
            let mut batch = vec![0; 104];
            stamps.fill(at(7), &[extent], &mut batch);
            batch
        });
        let made: Vec<_> = made.collect();
        for number in numbers {
            counter.place(at(9), &[extent], &made[usize::try_from(*number).unwrap()]);
        }
    }

    proptest! {
        #[test]
        fn datagrams_are_counted_as_a_set_counts_them(numbers in proptest::collection::vec(0_u64..300, 1..400)) {
            let mut counter = Counter::new();
            placed(&mut counter, 300, &numbers);
            let (mut seen, mut reordered) = (BTreeSet::new(), 0);
            for number in &numbers {
                let late = seen.last().is_some_and(|newest| number < newest);
                reordered += u64::from(seen.insert(*number) && late);
            }
            let counts = counter.datagrams();
            prop_assert_eq!(counts.received, seen.len() as u64);
            prop_assert_eq!(counts.reordered, reordered);
            prop_assert_eq!(counts.sent, seen.last().unwrap() + 1);
            prop_assert_eq!(counter.bytes(), 100 * seen.len() as u64);
            counter.all_is(at(10), 300);
            prop_assert_eq!(counter.datagrams().sent, 300);
        }
    }

    #[test]
    fn jitter_is_that_of_the_rfc() {
        let mut counter = Counter::new();
        // Transit times of 5, 21, 21 and 5 us.
        for (number, arrives) in [(0, 5), (1, 31), (2, 41), (3, 35)] {
            counter.arrived(at(arrives), number, number * 10_000, 100);
        }
        // 16/16, then 15/16 of that, then the last step of 16.
        let expected = 1_000.0 * (15.0 / 16.0) + (16_000.0 - 1_000.0 * 15.0 / 16.0) / 16.0;
        let jitter = counter.datagrams().jitter_ns;
        assert!(
            (f64::from(u32::try_from(jitter).unwrap()) - expected).abs() < 1.0,
            "{jitter}"
        );
    }

    #[test]
    fn a_sender_that_lies_about_numbers_is_bounded() {
        let mut counter = Counter::new();
        for number in [
            0,
            u64::MAX,
            u64::MAX - 1,
            5,
            WINDOW,
            u64::MAX - 1 - WINDOW,
            0,
        ] {
            counter.arrived(at(1), number, u64::MAX, 100);
        }
        let counts = counter.datagrams();
        assert_eq!((counts.received, counts.sent), (2, u64::MAX));
        assert_eq!(counts.lost(), u64::MAX - 2);
        // Data without room for a stamp are none.
        let short = Extent {
            object: OBJECT,
            offset: 0,
            len: 15,
            at: 0,
        };
        counter.place(at(2), &[short], &[0; 15]);
        assert_eq!(counter.datagrams().received, 2);
    }

    #[test]
    fn late_datagrams_count_for_a_while_and_later_numbers_never() {
        let mut counter = Counter::new();
        placed(&mut counter, 10, &[0, 1, 7]);
        assert!(!counter.is_complete(at(1_000_000)));
        counter.all_is(at(20), 5);
        assert_eq!(counter.datagrams().sent, 8);
        // The word is given once.
        counter.all_is(at(90), 99);
        assert!(!counter.is_complete(at(21)));
        placed(&mut counter, 10, &[4, 8]);
        assert_eq!(counter.datagrams().received, 4);
        assert_eq!(counter.next_wake(), Some(at(20) + GRACE));
        assert!(counter.is_complete(at(20) + GRACE));
    }

    #[test]
    fn copies_that_the_session_drops_are_counted_from_the_beginning_of_the_test() {
        let mut counter = Counter::new();
        counter.dropped(3);
        assert_eq!(counter.datagrams().duplicates, 0);
        counter.dropped(5);
        assert_eq!(counter.datagrams().duplicates, 2);
    }
}
