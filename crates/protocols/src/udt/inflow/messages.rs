//! Bytes or messages in order. A slot holds one packet until those before it, or the rest of its
//! message, are here. Messages that need not wait for others are handed on as soon as they are whole.
//!
//! libudt's drop requests name one packet too many, so only packets of the message that is given up
//! are thrown away.

use std::ops::Range;

use farhaul_core::{codec::DecodeError, recv::Slots};

use crate::udt::wire::DataHeader;

/// Puts packets in order.
#[derive(Debug)]
pub(in crate::udt) struct Messages {
    /// True to deliver whole messages behind their length, rather than bytes.
    whole: bool,
    payload: usize,
    limit: u64,
    slots: Slots<DataHeader>,
    ready: Vec<u8>,
}

impl Messages {
    pub(super) const fn new(first: u64, payload: usize, limit: u64, whole: bool) -> Self {
        Self {
            whole,
            payload,
            limit,
            slots: Slots::new(first, payload, limit),
            ready: Vec::new(),
        }
    }

    /// Takes packet `number`, which was not taken before; true if there is more to read.
    pub(super) fn take(
        &mut self,
        number: u64,
        header: &DataHeader,
        payload: &[u8],
    ) -> Result<bool, DecodeError> {
        const LARGE: DecodeError = DecodeError::Malformed("a message larger than the buffer");
        if payload.len() > self.payload {
            return Err(DecodeError::Malformed("a packet longer than was agreed"));
        }
        let index = self.slots.index(number).ok_or(LARGE)?;
        let before = self.ready.len();
        let alone = header.first && header.last;
        if index == 0 && self.slots.len() <= 1 && (!self.whole || alone) {
            // The common case: nothing waits, and nothing is waited for.
            self.begin(payload.len());
            self.ready.extend(payload);
            self.slots.finish(0);
        } else {
            self.slots.store(index, *header, payload);
            // In the middle of what arrives in order there is nothing to find.
            let inside = !header.last && index + 1 == self.slots.len();
            if self.whole && !header.in_order && !inside {
                self.hand_on_whole(index);
            }
        }
        self.advance();
        Ok(self.ready.len() > before)
    }

    /// `len` bytes are handed on next.
    fn begin(&mut self, len: usize) {
        if self.whole {
            let len = u32::try_from(len).unwrap_or(u32::MAX);
            self.ready.extend(len.to_be_bytes());
        }
    }

    /// True if the packet is here, and of `message`.
    fn is_of(&self, index: usize, message: u32) -> bool {
        let header = self.slots.get(index);
        header.is_some_and(|header| header.message == message)
    }

    /// Hands on the message around the packet at `index`, if all of it is here.
    fn hand_on_whole(&mut self, index: usize) -> Option<()> {
        let message = self.slots.get(index)?.message;
        let part = |i| self.slots.get(i).filter(|part| part.message == message);
        let (mut start, mut last) = (index, index);
        while !part(start)?.first {
            start = start.checked_sub(1)?;
        }
        while !part(last)?.last {
            last += 1;
        }
        self.hand_on(start..last + 1);
        Some(())
    }

    fn hand_on(&mut self, range: Range<usize>) {
        let lens = range.clone().map(|index| self.slots.bytes(index).len());
        self.begin(lens.sum());
        for index in range {
            self.ready.extend_from_slice(self.slots.bytes(index));
            self.slots.finish(index);
        }
    }

    /// Hands on messages that waited for those done.
    fn advance(&mut self) {
        loop {
            self.slots.trim();
            let Some(first) = self.slots.get(0) else {
                return;
            };
            if !self.whole {
                self.hand_on(0..1);
            } else if !first.first {
                // The rest of a message whose first packet was given up.
                self.slots.finish(0);
            } else if self.hand_on_whole(0).is_none() {
                return;
            }
        }
    }

    /// Notes that the peer gave up `range`, of this message; true if there is more to read.
    pub(super) fn give_up(&mut self, range: Range<u64>, message: u32) -> bool {
        let before = self.ready.len();
        let start = self.slots.index(range.start.max(self.slots.base()));
        let last = self.slots.index(range.end.saturating_sub(1));
        let (Some(mut start), Some(last)) = (start, last) else {
            return false;
        };
        for index in start..=last {
            if self.slots.get(index).is_none() || self.is_of(index, message) {
                self.slots.finish(index);
            }
        }
        while start > 0 && self.is_of(start - 1, message) {
            start -= 1;
            self.slots.finish(start);
        }
        self.advance();
        self.ready.len() > before
    }

    /// Slots from `prefix` on that neither unread bytes nor unfinished messages take.
    pub(super) fn room(&self, prefix: u64) -> u64 {
        let unread = self.ready.len().div_ceil(self.payload) as u64;
        let waiting = prefix.saturating_sub(self.slots.base());
        self.limit.saturating_sub(unread).saturating_sub(waiting)
    }

    pub(super) fn read(&mut self, into: &mut Vec<u8>) {
        if into.is_empty() {
            std::mem::swap(into, &mut self.ready);
        } else {
            into.append(&mut self.ready);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FIRST: u64 = 1 << 31;

    fn header(message: u32, first: bool, last: bool, in_order: bool) -> DataHeader {
        DataHeader {
            seq: 0,
            first,
            last,
            in_order,
            message,
            timestamp: 0,
            to: 0,
        }
    }

    fn read(messages: &mut Messages) -> Vec<Vec<u8>> {
        let mut bytes = Vec::new();
        messages.read(&mut bytes);
        let (mut rest, mut out) = (&bytes[..], Vec::new());
        while let Some((len, tail)) = rest.split_first_chunk() {
            let (message, tail) = tail.split_at(u32::from_be_bytes(*len) as usize);
            out.push(message.to_vec());
            rest = tail;
        }
        out
    }

    #[test]
    fn unordered_messages_overtake_holes_and_ordered_ones_wait() {
        for in_order in [false, true] {
            let mut m = Messages::new(FIRST, 10, 64, true);
            m.take(FIRST + 1, &header(2, true, false, in_order), b"ab")
                .unwrap();
            let taken = m
                .take(FIRST + 2, &header(2, false, true, in_order), b"c")
                .unwrap();
            assert_eq!(taken, !in_order);
            let taken = m
                .take(FIRST, &header(1, true, true, in_order), b"x")
                .unwrap();
            assert!(taken);
            let expected: [&[u8]; 2] = if in_order {
                [b"x", b"abc"]
            } else {
                [b"abc", b"x"]
            };
            assert_eq!(read(&mut m), expected);
            assert_eq!(m.room(FIRST + 3), 64);
        }
    }

    #[test]
    fn a_message_that_is_given_up_leaves_no_trace_and_the_next_one_arrives() {
        let mut m = Messages::new(FIRST, 10, 64, true);
        m.take(FIRST, &header(1, true, false, true), b"a").unwrap();
        m.take(FIRST + 3, &header(2, true, true, true), b"next")
            .unwrap();
        assert!(read(&mut m).is_empty());
        // One too many, as libudt says it: the last one is of the next message.
        assert!(m.give_up(FIRST + 1..FIRST + 4, 1));
        assert_eq!(read(&mut m), [b"next"]);
    }

    #[test]
    fn unread_bytes_and_oversize_packets() {
        let mut m = Messages::new(FIRST, 10, 64, false);
        m.take(FIRST, &header(1, true, true, false), b"0123456789")
            .unwrap();
        m.take(FIRST + 1, &header(1, true, true, false), b"0")
            .unwrap();
        assert_eq!(m.room(FIRST + 2), 62);
        assert!(
            m.take(FIRST + 2, &header(1, true, true, false), &[0; 11])
                .is_err()
        );
        assert!(
            m.take(FIRST + 66, &header(1, true, true, false), b"0")
                .is_err()
        );
    }

    proptest! {
        #[test]
        fn a_stream_comes_out_as_it_went_in(order in proptest::collection::vec(0_usize..12, 1..300)) {
            let mut m = Messages::new(FIRST, 4, 64, false);
            let packets: Vec<Vec<u8>> = (0..order.len())
                .map(|i| vec![u8::try_from(i % 251).unwrap(); 1 + i % 4])
                .collect();
            let mut waiting: Vec<usize> = (0..packets.len()).collect();
            let (mut out, mut late) = (Vec::new(), order.into_iter());
            while !waiting.is_empty() {
                let pick = late.next().unwrap_or(0).min(waiting.len() - 1);
                let lowest = waiting[0];
                let mut i = waiting.remove(pick);
                if i >= lowest + 60 {
                    waiting.insert(pick, i);
                    i = waiting.remove(0);
                }
                m.take(FIRST + i as u64, &header(1, false, false, false), &packets[i]).unwrap();
                m.read(&mut out);
            }
            prop_assert_eq!(out, packets.concat());
        }
    }
}
