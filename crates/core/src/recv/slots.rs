//! A reorder buffer for packets received out of order: each by its number, with metadata, its bytes
//! in a chunk. Slots are counted from the first number that was not handed on.
//!
//! Invariant: memory for bytes grows with what arrived, and nothing is kept beyond the limit.

use std::collections::VecDeque;

#[derive(Clone, Copy, Debug)]
enum Slot<T> {
    Missing,
    /// Metadata, chunk and length in bytes of a received packet.
    Here(T, usize, u16),
    /// Handed on, or given up.
    Done,
}

/// Reorder buffer.
#[derive(Debug)]
pub struct Slots<T> {
    payload: usize,
    limit: u64,
    base: u64,
    waiting: VecDeque<Slot<T>>,
    /// Chunks of `payload` bytes, and which are free.
    bytes: Vec<u8>,
    free: Vec<usize>,
}

impl<T: Copy> Slots<T> {
    /// A buffer for at most `limit` packets from number `first` on, of at most `payload` bytes.
    pub const fn new(first: u64, payload: usize, limit: u64) -> Self {
        Self {
            payload,
            limit,
            base: first,
            waiting: VecDeque::new(),
            bytes: Vec::new(),
            free: Vec::new(),
        }
    }

    /// The first number that was not handed on.
    pub const fn base(&self) -> u64 {
        self.base
    }

    /// Slots up to the highest number received.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// True if no packet waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The slot of `number`; none if it was handed on or is beyond the limit.
    pub fn index(&self, number: u64) -> Option<usize> {
        let ahead = number.checked_sub(self.base)?;
        usize::try_from(ahead).ok().filter(|_| ahead < self.limit)
    }

    fn reach(&mut self, index: usize) {
        if index >= self.waiting.len() {
            self.waiting.resize(index + 1, Slot::Missing);
        }
    }

    /// Keeps `bytes`, as many as a packet has at most; `index` is within the limit.
    pub fn store(&mut self, index: usize, note: T, bytes: &[u8]) {
        self.finish(index);
        let bytes = &bytes[..bytes.len().min(self.payload)];
        let chunk = self.free.pop().unwrap_or_else(|| {
            let end = self.bytes.len();
            self.bytes.resize(end + self.payload, 0);
            end
        });
        self.bytes[chunk..chunk + bytes.len()].copy_from_slice(bytes);
        let len = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
        self.waiting[index] = Slot::Here(note, chunk, len);
    }

    /// Metadata of the packet, if it was received.
    pub fn get(&self, index: usize) -> Option<&T> {
        match self.waiting.get(index)? {
            Slot::Here(note, ..) => Some(note),
            Slot::Missing | Slot::Done => None,
        }
    }

    /// Bytes of the packet at `index`; none if the packet is not here.
    pub fn bytes(&self, index: usize) -> &[u8] {
        match self.waiting.get(index) {
            Some(Slot::Here(_, chunk, len)) => &self.bytes[*chunk..chunk + usize::from(*len)],
            _ => &[],
        }
    }

    /// Releases the packet's slot; `index` is within the limit.
    pub fn finish(&mut self, index: usize) {
        self.reach(index);
        if let Slot::Here(_, chunk, _) = self.waiting[index] {
            self.free.push(chunk);
        }
        self.waiting[index] = Slot::Done;
    }

    /// Removes released slots at the front.
    pub fn trim(&mut self) {
        let done = |slot: &mut Slot<T>| matches!(slot, Slot::Done);
        while self.waiting.pop_front_if(done).is_some() {
            self.base += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn equals_a_map(steps in proptest::collection::vec((0_u64..40, 0_u8..4), 1..300)) {
            let mut slots = Slots::new(100, 8, 32);
            let (mut here, mut base) = (BTreeMap::new(), 100);
            let mut done = std::collections::BTreeSet::new();
            for (step, (ahead, op)) in (0_u64..).zip(steps) {
                let number = base + ahead;
                let index = slots.index(number);
                prop_assert_eq!(index.is_some(), ahead < 32);
                prop_assert_eq!(slots.index(base - 1), None);
                let Some(index) = index else { continue };
                if op == 0 {
                    slots.finish(index);
                    here.remove(&number);
                    done.insert(number);
                } else if !done.contains(&number) {
                    let bytes = step.to_be_bytes()[usize::from(op)..].to_vec();
                    slots.store(index, step, &bytes);
                    here.insert(number, (step, bytes));
                }
                slots.trim();
                while done.remove(&base) {
                    base += 1;
                }
                prop_assert_eq!(slots.base(), base);
                for number in base..base + 32 {
                    let index = slots.index(number).unwrap();
                    let known = here.get(&number);
                    prop_assert_eq!(slots.get(index), known.map(|(note, _)| note));
                    prop_assert_eq!(slots.bytes(index), known.map_or(&[][..], |(_, bytes)| bytes));
                }
                prop_assert!(slots.bytes.len() <= 8 * 32);
            }
        }
    }
}
