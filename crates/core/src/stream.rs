//! Runs the ordered stream on top of pieces that arrive in any order. The sender keeps what has not
//! been acknowledged and sends no more than the window beyond what the reader took. The receiver
//! keeps what is out of order in the same window. Both bounds are fixed, so neither side can make
//! the other allocate.

use std::collections::VecDeque;

use crate::{codec::NoRoom, loss::Ranges, send::STREAM, shell::Packet, store::ObjectId};

/// Bytes that may be on their way or unread.
pub const WINDOW: u64 = 4 << 20;
/// Bytes read after which credit is sent.
const CREDIT_STEP: u64 = WINDOW / 4;
/// Separate runs that may wait to be joined.
const MAX_RUNS: usize = 8_192;

/// The sending end.
#[derive(Debug, Default)]
pub struct Outgoing {
    /// Bytes from `start` on.
    bytes: VecDeque<u8>,
    start: u64,
    queued: u64,
    peer_read: u64,
}

impl Outgoing {
    /// Appends to the send buffer.
    pub fn write(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Offset and length of what may now be given to the sender.
    pub fn take_queueable(&mut self) -> Option<(u64, u64)> {
        let end = self.end().min(self.peer_read + WINDOW);
        let from = self.queued;
        (end > from).then(|| {
            self.queued = end;
            (from, end - from)
        })
    }

    /// True if something is written that the peer's window does not take yet.
    pub fn is_blocked(&self) -> bool {
        self.end() > self.queued
    }

    /// Notes that the peer has read up to `read`; false if that was never sent.
    pub fn on_credit(&mut self, read: u64) -> bool {
        self.peer_read = self.peer_read.max(read);
        read <= self.queued
    }

    /// Everything below has been acknowledged and forgotten.
    pub const fn start(&self) -> u64 {
        self.start
    }

    /// Everything below `acked` may be forgotten.
    pub fn on_acked(&mut self, acked: u64) {
        let n = acked.min(self.queued).saturating_sub(self.start);
        self.bytes.drain(..usize::try_from(n).unwrap_or_default());
        self.start += n;
    }

    /// Everything below `end` has been acknowledged by a peer that does so only when it is as good as read.
    pub fn on_taken(&mut self, end: u64) {
        self.on_acked(end);
        self.on_credit(end);
    }

    /// Bytes written and not acknowledged.
    pub fn pending(&self) -> usize {
        self.bytes.len()
    }

    /// Copies a queued piece.
    pub fn copy(&self, offset: u64, into: &mut [u8]) {
        let at = usize::try_from(offset.saturating_sub(self.start)).unwrap_or(usize::MAX);
        copy(&self.bytes, at, into);
    }

    /// Writes data into a packet, behind its header: a queued piece, or what the store is to fill in.
    pub fn fill(
        &self,
        object: ObjectId,
        offset: u64,
        len: u32,
        packet: &mut Packet<'_>,
    ) -> Result<(), NoRoom> {
        if object == STREAM {
            self.copy(offset, packet.header().reserve(len as usize)?);
        } else {
            packet.data(object, offset, len);
        }
        Ok(())
    }
}

/// Copies what `bytes` have from `at` on, as far as they go.
pub fn copy(bytes: &VecDeque<u8>, at: usize, into: &mut [u8]) {
    let (a, b) = bytes.as_slices();
    let first = a.get(at.min(a.len())..).unwrap_or_default();
    let n = first.len().min(into.len());
    into[..n].copy_from_slice(&first[..n]);
    let second = &b[at.saturating_sub(a.len()).min(b.len())..];
    let rest = second.len().min(into.len() - n);
    into[n..n + rest].copy_from_slice(&second[..rest]);
}

/// The receiving end.
#[derive(Debug)]
pub struct Incoming {
    window: u64,
    /// Bytes from `read` on, holes included.
    bytes: VecDeque<u8>,
    read: u64,
    have: Ranges,
    told: u64,
}

impl Default for Incoming {
    fn default() -> Self {
        Self::new(WINDOW)
    }
}

impl Incoming {
    /// A stream that takes `window` bytes beyond those read.
    pub fn new(window: u64) -> Self {
        Self {
            window,
            bytes: VecDeque::new(),
            read: 0,
            have: Ranges::default(),
            told: 0,
        }
    }

    /// Bytes read so far.
    pub const fn read_to(&self) -> u64 {
        self.read
    }

    /// Bytes in order that were not read.
    pub fn unread(&self) -> u64 {
        self.have.prefix() - self.read
    }

    /// Bytes kept, holes included.
    pub fn kept(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Takes a piece; `Some(true)` if there is more to read now, `None` if the peer must not send it.
    pub fn insert(&mut self, offset: u64, data: &[u8]) -> Option<bool> {
        let end = offset.checked_add(data.len() as u64)?;
        let before = self.have.prefix();
        let crowded = offset > before && self.have.len() > MAX_RUNS;
        if end > self.read + self.window || crowded {
            return None;
        }
        if end > self.read {
            let skip = usize::try_from(self.read.saturating_sub(offset)).ok()?;
            let at = usize::try_from(offset.saturating_sub(self.read)).ok()?;
            let data = &data[skip..];
            if self.bytes.len() < at + data.len() {
                self.bytes.resize(at + data.len(), 0);
            }
            let (a, b) = self.bytes.as_mut_slices();
            let split = data.len().min(a.len().saturating_sub(at));
            let (head, tail) = data.split_at(split);
            if !head.is_empty() {
                a[at..at + split].copy_from_slice(head);
            }
            let at = (at + split).saturating_sub(a.len());
            b[at..at + tail.len()].copy_from_slice(tail);
        }
        self.have.insert(offset..end);
        Some(self.have.prefix() > before)
    }

    /// Appends the data available in order.
    pub fn read(&mut self, into: &mut Vec<u8>) {
        let n = usize::try_from(self.unread()).unwrap_or_default();
        into.extend(self.bytes.drain(..n));
        self.read += n as u64;
    }

    /// True if anything ever arrived.
    pub fn is_used(&self) -> bool {
        !self.have.is_empty()
    }

    /// True if a credit update is due.
    pub const fn credit_due(&self) -> bool {
        self.read - self.told >= CREDIT_STEP
    }

    /// Takes the credit to send.
    pub fn credit(&mut self) -> u64 {
        self.told = self.read;
        self.read
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_window_holds_both_ends() {
        let (mut out, mut inc) = (Outgoing::default(), Incoming::default());
        out.write(&vec![7; 5 << 20]);
        assert_eq!(out.take_queueable(), Some((0, WINDOW)));
        assert!(out.take_queueable().is_none() && out.is_blocked());
        assert_eq!(inc.insert(WINDOW - 1, &[7]), Some(false));
        assert_eq!(inc.insert(WINDOW, &[7]), None);
        assert_eq!(inc.insert(u64::MAX, &[7]), None);
        assert!(!out.on_credit(WINDOW + 1), "never sent");
        assert!(!out.is_blocked() || out.take_queueable().is_some());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_in_order(
            writes in proptest::collection::vec((1_usize..5_000, 0_usize..8), 1..60),
        ) {
            let (mut out, mut inc) = (Outgoing::default(), Incoming::default());
            let (mut written, mut read, mut flying) = (Vec::new(), Vec::new(), Vec::new());
            for (len, late) in writes {
                let bytes: Vec<u8> = (0..len).map(|i| u8::try_from((written.len() + i) % 251).unwrap()).collect();
                out.write(&bytes);
                written.extend(bytes);
                if let Some((offset, len)) = out.take_queueable() {
                    for at in (offset..offset + len).step_by(700) {
                        let mut piece = vec![0; usize::try_from((offset + len - at).min(700)).unwrap()];
                        out.copy(at, &mut piece);
                        flying.push((at, piece));
                    }
                }
                while flying.len() > late {
                    let (at, piece) = flying.remove((late * 7) % flying.len());
                    prop_assert!(inc.insert(at, &piece).is_some());
                    prop_assert!(inc.insert(at, &piece).is_some(), "twice does no harm");
                }
                inc.read(&mut read);
                out.on_acked(read.len() as u64);
                prop_assert!(out.on_credit(inc.credit()));
            }
            for (at, piece) in flying {
                inc.insert(at, &piece);
            }
            inc.read(&mut read);
            prop_assert_eq!(read, written);
        }
    }
}
