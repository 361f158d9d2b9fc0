//! How does the ordered stream ride on segments? Its bytes are an object of their own, sent before
//! other data; the sender keeps them until they are acknowledged, the receiver keeps what is out of
//! order. Memory is spent on bytes that arrived, never on numbers that were claimed.

use std::collections::{BTreeMap, VecDeque};

/// Runs out of order that wait to be joined.
const MAX_RUNS: usize = 8_192;
/// Bytes out of order or unread beyond which a segment is not taken.
const MAX_BYTES: u64 = 64 << 20;

/// The sending end.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    bytes: VecDeque<u8>,
    start: u64,
}

impl Outgoing {
    /// Appends; the offset at which.
    pub(super) fn write(&mut self, bytes: &[u8]) -> u64 {
        let at = self.start + self.bytes.len() as u64;
        self.bytes.extend(bytes);
        at
    }

    /// Everything below `acked` may be forgotten.
    pub(super) fn on_acked(&mut self, acked: u64) {
        let n = usize::try_from(acked.saturating_sub(self.start)).unwrap_or(usize::MAX);
        let n = n.min(self.bytes.len());
        self.bytes.drain(..n);
        self.start += n as u64;
    }

    /// Bytes written and not acknowledged.
    pub(super) fn pending(&self) -> usize {
        self.bytes.len()
    }

    /// Copies what was written from `offset` on; false if that has been forgotten.
    pub(super) fn copy(&self, offset: u64, into: &mut [u8]) -> bool {
        let Some(at) = offset.checked_sub(self.start) else {
            return false;
        };
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        if at.saturating_add(into.len()) > self.bytes.len() {
            return false;
        }
        let (a, b) = self.bytes.as_slices();
        let first = &a[at.min(a.len())..];
        let n = first.len().min(into.len());
        into[..n].copy_from_slice(&first[..n]);
        let second = at.saturating_sub(a.len());
        let rest = into.len() - n;
        into[n..].copy_from_slice(&b[second..second + rest]);
        true
    }
}

/// The receiving end.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    ready: VecDeque<u8>,
    /// Offset of the first byte not ready.
    next: u64,
    later: BTreeMap<u64, Vec<u8>>,
    held: u64,
}

impl Incoming {
    /// There is room for `len` bytes at `offset`.
    pub(super) fn takes(&self, offset: u64, len: u32) -> bool {
        let held = self.held + self.ready.len() as u64 + u64::from(len);
        held <= MAX_BYTES && (offset <= self.next || self.later.len() < MAX_RUNS)
    }

    /// Takes a segment's bytes; true if there is more to read.
    pub(super) fn insert(&mut self, offset: u64, bytes: &[u8]) -> bool {
        if offset > self.next {
            let known = self.later.entry(offset).or_default();
            if bytes.len() > known.len() {
                self.held += (bytes.len() - known.len()) as u64;
                *known = bytes.to_vec();
            }
            return false;
        }
        let before = self.next;
        self.append(offset, bytes);
        while let Some(first) = self.later.first_entry()
            && *first.key() <= self.next
        {
            let (offset, bytes) = first.remove_entry();
            self.held -= bytes.len() as u64;
            self.append(offset, &bytes);
        }
        self.next > before
    }

    fn append(&mut self, offset: u64, bytes: &[u8]) {
        let known = usize::try_from(self.next - offset).unwrap_or(usize::MAX);
        if let Some(new) = bytes.get(known..) {
            self.ready.extend(new);
            self.next += new.len() as u64;
        }
    }

    /// Appends what is there in order.
    pub(super) fn read(&mut self, into: &mut Vec<u8>) {
        into.extend(self.ready.drain(..));
    }

    /// Bytes in order that were not read.
    pub(super) fn unread(&self) -> u64 {
        self.ready.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read_in_order(
            pieces in proptest::collection::vec((1_usize..300, 0_usize..6, any::<bool>()), 1..60),
        ) {
            let (mut out, mut inc) = (Outgoing::default(), Incoming::default());
            let (mut written, mut read, mut flying) = (Vec::new(), Vec::new(), Vec::new());
            for (len, late, twice) in pieces {
                let bytes: Vec<u8> = (0..len).map(|i| u8::try_from((written.len() + i) % 251).unwrap()).collect();
                let at = out.write(&bytes);
                written.extend(&bytes);
                let mut copy = vec![0; len];
                prop_assert!(out.copy(at, &mut copy));
                prop_assert_eq!(&copy, &bytes);
                flying.push((at, copy));
                while flying.len() > late {
                    let (at, bytes) = flying.remove((late * 7) % flying.len());
                    prop_assert!(inc.takes(at, u32::try_from(bytes.len()).unwrap()));
                    inc.insert(at, &bytes);
                    if twice {
                        prop_assert!(!inc.insert(at, &bytes));
                    }
                }
                inc.read(&mut read);
                out.on_acked(read.len() as u64);
                prop_assert_eq!(out.pending(), written.len() - read.len());
            }
            for (at, bytes) in flying {
                inc.insert(at, &bytes);
            }
            inc.read(&mut read);
            prop_assert_eq!(&read, &written);
            prop_assert_eq!(inc.held, 0);
            prop_assert!(!out.copy(0, &mut [0; 1]) || out.start == 0);
        }
    }

    #[test]
    fn claims_cost_nothing() {
        let mut inc = Incoming::default();
        assert!(!inc.insert(u64::MAX - 5, b"x"));
        assert_eq!(inc.held, 1);
        for n in 1..MAX_RUNS as u64 {
            inc.insert(2 * n, b"x");
        }
        assert!(!inc.takes(9, 1) && inc.takes(0, 1));
        assert!(!inc.takes(0, u32::MAX));
    }
}
