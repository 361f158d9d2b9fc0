//! Log of sent packets and their states: a ring indexed by packet number. Look-up is O(1); the log
//! has one record per packet in flight and grows by doubling.

use std::time::Duration;

use crate::time::Instant;

/// State of a sent packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The packet is in flight.
    Outstanding,
    /// Acknowledged.
    Acked,
    /// Declared lost.
    Lost,
    /// Declared lost, with a copy of its data in flight.
    Copied,
    /// The packet is not tracked: neither in flight nor acknowledged.
    Quiet,
    /// Skipped number: a peer that acknowledges it violates the protocol.
    Skipped,
}

/// One packet's record.
#[derive(Clone, Copy, Debug)]
pub struct Sent<X> {
    /// Time at which the packet was last sent.
    pub at: Instant,
    /// Content of the packet.
    pub content: X,
    /// Bytes sent up to and including its first transmission, low 32 bits.
    pub sent_bytes_low: u32,
    /// Last batch of the packet, low 32 bits ([`Snapshots`](super::Snapshots)).
    pub batch: u32,
    /// UDP payload bytes.
    pub wire: u16,
    /// State of the packet.
    pub state: State,
    /// True if the packet was retransmitted.
    pub resent: bool,
}

impl<X> Sent<X> {
    /// False if the packet was retransmitted less than `trip` ago: a loss report may refer to the
    /// copy before.
    pub fn is_settled(&self, now: Instant, trip: Duration) -> bool {
        !self.resent || now.since(self.at) >= trip
    }
}

impl<X: Default> Sent<X> {
    fn empty() -> Self {
        Self {
            at: Instant::EPOCH,
            content: X::default(),
            sent_bytes_low: 0,
            batch: 0,
            wire: 0,
            state: State::Quiet,
            resent: false,
        }
    }
}

/// Records of all packets from the oldest undecided one on.
#[derive(Clone, Debug)]
pub struct SentLog<X> {
    ring: Vec<Sent<X>>,
    first: u64,
    next: u64,
}

impl<X: Copy + Default> Default for SentLog<X> {
    fn default() -> Self {
        Self {
            ring: vec![Sent::empty(); 256],
            first: 0,
            next: 0,
        }
    }
}

impl<X: Copy + Default> SentLog<X> {
    /// Numbers begin here; nothing has been recorded.
    pub const fn begin_at(&mut self, number: u64) {
        self.first = number;
        self.next = number;
    }

    /// The oldest number kept; everything below is decided.
    pub const fn first(&self) -> u64 {
        self.first
    }

    /// Records kept.
    pub const fn len(&self) -> u64 {
        self.next - self.first
    }

    /// True if nothing is kept.
    pub const fn is_empty(&self) -> bool {
        self.next == self.first
    }

    /// Skips the next number.
    pub fn skip(&mut self) {
        self.push(Sent {
            state: State::Skipped,
            ..Sent::empty()
        });
    }

    /// The number the next packet gets.
    pub const fn next(&self) -> u64 {
        self.next
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "masked by the ring's length"
    )]
    const fn slot(&self, number: u64) -> usize {
        number as usize & (self.ring.len() - 1)
    }

    /// Appends a record; returns its number.
    pub fn push(&mut self, sent: Sent<X>) -> u64 {
        if self.is_full() {
            self.grow();
        }
        let number = self.next;
        let slot = self.slot(number);
        self.ring[slot] = sent;
        self.next += 1;
        number
    }

    const fn is_full(&self) -> bool {
        self.next - self.first == self.ring.len() as u64
    }

    fn grow(&mut self) {
        let mut ring = vec![Sent::empty(); self.ring.len() * 2];
        let mask = ring.len() - 1;
        for number in self.first..self.next {
            let to = usize::try_from(number & mask as u64).unwrap_or_default();
            ring[to] = self.ring[self.slot(number)];
        }
        self.ring = ring;
    }

    /// The record of `number`, if kept.
    pub fn get(&self, number: u64) -> Option<&Sent<X>> {
        (self.first..self.next)
            .contains(&number)
            .then(|| &self.ring[self.slot(number)])
    }

    /// The record of `number`, if kept.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut Sent<X>> {
        let slot = self.slot(number);
        (self.first..self.next)
            .contains(&number)
            .then(|| &mut self.ring[slot])
    }

    /// Forgets decided records at the front, but none at or above `keep`.
    pub fn trim(&mut self, keep: u64) {
        self.forget(keep, |state| {
            !matches!(state, State::Outstanding | State::Copied)
        });
    }

    /// If the ring is full, forgets decided records at the front. Records of numbers that were left
    /// out stay: a peer that acknowledges one has to be detected.
    pub fn make_room(&mut self) {
        if !self.is_full() {
            return;
        }
        self.forget(self.next, |state| {
            !matches!(state, State::Outstanding | State::Copied | State::Skipped)
        });
    }

    fn forget(&mut self, keep: u64, may: impl Fn(State) -> bool) {
        while self.first < self.next.min(keep) && may(self.ring[self.slot(self.first)].state) {
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_number_that_was_left_out_is_known_until_it_was_told_of() {
        let mut log: SentLog<()> = SentLog::default();
        let acked = Sent {
            state: State::Acked,
            ..Sent::empty()
        };
        for _ in 0..255 {
            log.make_room();
            log.push(acked);
        }
        log.skip();
        for _ in 0..1_000 {
            log.make_room();
            log.push(acked);
        }
        assert_eq!(log.get(255).map(|sent| sent.state), Some(State::Skipped));
        log.trim(256);
        assert!(log.get(255).is_none() && log.get(256).is_some());
    }

    proptest! {
        #[test]
        fn equals_a_map(ops in proptest::collection::vec(any::<u16>(), 0..900)) {
            let (mut log, mut twin): (SentLog<u32>, _) = (SentLog::default(), BTreeMap::new());
            for op in ops {
                if op % 4 != 0 {
                    let number = log.push(Sent { content: u32::from(op), state: State::Outstanding, ..Sent::empty() });
                    twin.insert(number, u32::from(op));
                } else if let Some(number) = twin.keys().nth(usize::from(op) % twin.len().max(1)).copied() {
                    if let Some(sent) = log.get_mut(number) {
                        prop_assert_eq!(sent.content, twin[&number]);
                        sent.state = State::Acked;
                    }
                    log.trim(u64::MAX);
                }
            }
            for number in log.first()..log.next() {
                prop_assert_eq!(log.get(number).unwrap().content, twin[&number]);
            }
            prop_assert!(log.get(log.next()).is_none());
        }
    }
}
