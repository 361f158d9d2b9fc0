//! Bytes or messages in order. A slot holds one packet until those before it, or the rest of its
//! message, are here. Messages that need not wait for others are handed on as soon as they are whole.
//!
//! libudt's drop requests name one packet too many, so only packets of the message that is given up
//! are thrown away.

use std::ops::Range;

use super::{BadPayload, Taken};
use crate::udt::wire::{DataHeader, Position};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Missing,
    Here,
    /// Handed on, or given up.
    Done,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    state: State,
    len: u16,
    message: u32,
    first: bool,
    last: bool,
    in_order: bool,
}

/// Puts packets in order.
#[derive(Debug)]
pub(in crate::udt) struct Messages {
    /// Deliver whole messages behind their length, rather than bytes.
    whole: bool,
    payload: usize,
    limit: u64,
    /// The first number not handed on.
    base: u64,
    /// One past the highest number here.
    end: u64,
    slots: Vec<Slot>,
    bytes: Vec<u8>,
    ready: Vec<u8>,
}

impl Messages {
    pub(super) fn new(first: u64, payload: usize, limit: u64, whole: bool) -> Self {
        Self {
            whole,
            payload,
            limit,
            base: first,
            end: first,
            slots: Vec::new(),
            bytes: Vec::new(),
            ready: Vec::new(),
        }
    }

    fn index(&self, number: u64) -> usize {
        usize::try_from(number).unwrap_or(usize::MAX) & self.slots.len().wrapping_sub(1)
    }

    fn slot(&self, number: u64) -> Slot {
        if number < self.base || number >= self.end || self.slots.is_empty() {
            return Slot::default();
        }
        self.slots[self.index(number)]
    }

    fn place(&self, number: u64) -> Range<usize> {
        let at = self.index(number) * self.payload;
        at..at + usize::from(self.slots[self.index(number)].len)
    }

    /// Makes slots up to `number`, which the window has allowed.
    fn reach(&mut self, number: u64) {
        let wanted = usize::try_from(number + 1 - self.base).unwrap_or(usize::MAX);
        if wanted > self.slots.len() {
            let n = wanted.next_power_of_two().max(64);
            let mut slots = vec![Slot::default(); n];
            let mut bytes = vec![0; n * self.payload];
            for number in self.base..self.end {
                let from = self.place(number);
                let to = usize::try_from(number).unwrap_or(usize::MAX) & (n - 1);
                slots[to] = self.slots[self.index(number)];
                let at = to * self.payload;
                bytes[at..at + from.len()].copy_from_slice(&self.bytes[from]);
            }
            (self.slots, self.bytes) = (slots, bytes);
        }
        // A slot that is used anew knows nothing of its last use.
        for fresh in self.end..=number {
            let index = self.index(fresh);
            self.slots[index] = Slot::default();
        }
        self.end = self.end.max(number + 1);
    }

    pub(super) fn take(
        &mut self,
        number: u64,
        header: &DataHeader,
        payload: &[u8],
    ) -> Result<Taken, BadPayload> {
        if payload.len() > self.payload {
            return Err(BadPayload("a packet longer than was agreed"));
        }
        if number < self.base || number - self.base >= self.limit {
            return Err(BadPayload("a message larger than the buffer"));
        }
        let mut taken = Taken {
            data: payload.len() as u64,
            ..Taken::default()
        };
        let before = self.ready.len();
        let alone = header.position == Position::Only;
        if number == self.base && (!self.whole || alone) && self.end <= number + 1 {
            // The common case: nothing waits, and nothing is waited for.
            self.hand_on_direct(payload);
            self.base = number + 1;
            self.end = self.base;
        } else {
            self.store(number, header, payload);
            if self.whole {
                self.complete(number);
            }
            self.advance();
        }
        taken.readable = self.ready.len() > before;
        Ok(taken)
    }

    fn hand_on_direct(&mut self, payload: &[u8]) {
        if self.whole {
            let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
            self.ready.extend(len.to_be_bytes());
        }
        self.ready.extend(payload);
    }

    fn store(&mut self, number: u64, header: &DataHeader, payload: &[u8]) {
        self.reach(number);
        let index = self.index(number);
        let at = index * self.payload;
        self.bytes[at..at + payload.len()].copy_from_slice(payload);
        self.slots[index] = Slot {
            state: State::Here,
            len: u16::try_from(payload.len()).unwrap_or(u16::MAX),
            message: header.message,
            first: header.position.is_first(),
            last: header.position.is_last(),
            in_order: header.in_order,
        };
    }

    /// The packets of the message around `number`, if all are here.
    fn whole_around(&self, number: u64) -> Option<Range<u64>> {
        let message = self.slot(number).message;
        let here = |n: u64| {
            let slot = self.slot(n);
            (slot.state == State::Here && slot.message == message).then_some(slot)
        };
        let mut start = number;
        while !here(start)?.first {
            start -= 1;
        }
        let mut last = number;
        while !here(last)?.last {
            last += 1;
        }
        Some(start..last + 1)
    }

    /// Hands on the message around `number` if it is whole and need not wait.
    fn complete(&mut self, number: u64) {
        let slot = self.slot(number);
        // In the middle of what arrives in order there is nothing to find.
        if slot.in_order || (!slot.last && number + 1 == self.end) {
            return;
        }
        if let Some(range) = self.whole_around(number) {
            self.hand_on(range);
        }
    }

    fn hand_on(&mut self, range: Range<u64>) {
        if self.whole {
            let len: usize = range.clone().map(|n| usize::from(self.slot(n).len)).sum();
            let len = u32::try_from(len).unwrap_or(u32::MAX);
            self.ready.extend(len.to_be_bytes());
        }
        for number in range {
            let place = self.place(number);
            self.ready.extend_from_slice(&self.bytes[place]);
            let index = self.index(number);
            self.slots[index].state = State::Done;
        }
    }

    /// Moves the base over what is done, handing on what waited for that.
    fn advance(&mut self) {
        while self.base < self.end {
            let slot = self.slot(self.base);
            match slot.state {
                State::Done => self.base += 1,
                State::Missing => return,
                State::Here if !self.whole => self.hand_on(self.base..self.base + 1),
                // The rest of a message whose first packet was given up.
                State::Here if !slot.first => {
                    let index = self.index(self.base);
                    self.slots[index].state = State::Done;
                }
                State::Here => match self.whole_around(self.base) {
                    Some(range) => self.hand_on(range),
                    None => return,
                },
            }
        }
    }

    pub(super) fn give_up(&mut self, range: Range<u64>, message: u32) -> bool {
        let before = self.ready.len();
        let range = range.start.max(self.base)..range.end;
        if range.is_empty() || range.end - self.base > self.limit {
            return false;
        }
        self.reach(range.end - 1);
        for number in range.clone() {
            let index = self.index(number);
            let slot = &mut self.slots[index];
            if slot.state != State::Here || slot.message == message {
                slot.state = State::Done;
            }
        }
        let mut number = range.start;
        while number > self.base {
            number -= 1;
            let index = self.index(number);
            let slot = &mut self.slots[index];
            if slot.state != State::Here || slot.message != message {
                break;
            }
            slot.state = State::Done;
        }
        self.advance();
        self.ready.len() > before
    }

    /// Slots from `prefix` on that neither unread bytes nor unfinished messages take.
    pub(super) fn room(&self, prefix: u64) -> u64 {
        let unread = self.ready.len().div_ceil(self.payload) as u64;
        let waiting = prefix.saturating_sub(self.base);
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
            position: Position::new(first, last),
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
            assert_eq!(taken.readable, !in_order);
            let taken = m
                .take(FIRST, &header(1, true, true, in_order), b"x")
                .unwrap();
            assert!(taken.readable);
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
