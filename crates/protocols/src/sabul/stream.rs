//! What was written? The session's ordered stream rides on the control lane, which is ordered as it is;
//! the reader's end says how much it has read, so that neither end keeps more than a window.

use std::collections::VecDeque;

use super::wire::{MAX_STREAM, Message};

/// Bytes that may be under way or unread.
const WINDOW: u32 = 1 << 20;

/// More than was asked for, or heard what was never said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadStream(pub(super) &'static str);

/// Both directions of the stream. Counts are modulo 2^32.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// Bytes to leave.
    out: VecDeque<u8>,
    said: u32,
    heard: u32,
    /// Bytes to read.
    unread: Vec<u8>,
    received: u32,
    told: u32,
}

impl Streams {
    pub(super) fn write(&mut self, bytes: &[u8]) {
        self.out.extend(bytes);
    }

    /// Bytes written and not read by the peer.
    pub(super) fn unwritten(&self) -> usize {
        self.out.len() + usize::try_from(self.said.wrapping_sub(self.heard)).unwrap_or(0)
    }

    pub(super) fn read(&mut self, into: &mut Vec<u8>) {
        into.append(&mut self.unread);
    }

    /// The peer said this.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<(), BadStream> {
        if self.unread.len() + bytes.len() > WINDOW as usize {
            return Err(BadStream("more of the stream than was asked for"));
        }
        self.unread.extend(bytes);
        self.received = self.received.wrapping_add(length(bytes.len()));
        Ok(())
    }

    /// The peer has read so much.
    pub(super) fn on_heard(&mut self, heard: u32) -> Result<(), BadStream> {
        if heard.wrapping_sub(self.heard) > self.said.wrapping_sub(self.heard) {
            return Err(BadStream("more of the stream heard than was said"));
        }
        self.heard = heard;
        Ok(())
    }

    /// Appends what is to be said, at most `room` bytes.
    pub(super) fn say(&mut self, room: usize, into: &mut Vec<u8>) {
        let most = into.len() + room;
        let read = self.received.wrapping_sub(length(self.unread.len()));
        if read != self.told && into.len() + 8 <= most {
            self.told = read;
            Message::Heard(read).encode(into);
        }
        while !self.out.is_empty() {
            let allowed = WINDOW - self.said.wrapping_sub(self.heard).min(WINDOW);
            let room = most.saturating_sub(into.len() + 8).min(MAX_STREAM);
            let room = room.min(usize::try_from(allowed).unwrap_or(0));
            let (front, _) = self.out.as_slices();
            let piece = &front[..front.len().min(room)];
            if piece.is_empty() {
                return;
            }
            let n = piece.len();
            Message::Stream(piece).encode(into);
            self.said = self.said.wrapping_add(length(n));
            self.out.drain(..n);
        }
    }
}

fn length(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carry(from: &mut Streams, to: &mut Streams, room: usize) {
        let mut bytes = Vec::new();
        from.say(room, &mut bytes);
        assert!(bytes.len() <= room);
        let mut used = 0;
        while let Some((message, len)) = Message::decode(&bytes[used..]).unwrap() {
            match message {
                Message::Stream(piece) => to.take(piece).unwrap(),
                Message::Heard(n) => to.on_heard(n).unwrap(),
                other => panic!("{other:?}"),
            }
            used += len;
        }
    }

    #[test]
    fn a_stream_arrives_and_a_reader_who_does_not_read_stops_it() {
        let (mut a, mut b) = (Streams::default(), Streams::default());
        let all: Vec<u8> = (0_u32..3 << 20).map(|i| i.to_le_bytes()[1]).collect();
        a.write(&all);
        let mut read = Vec::new();
        for _ in 0..100 {
            carry(&mut a, &mut b, 64 << 10);
        }
        assert_eq!(a.unwritten(), all.len());
        assert_eq!(b.unread.len(), WINDOW as usize);
        while a.unwritten() > 0 {
            b.read(&mut read);
            carry(&mut b, &mut a, 8);
            carry(&mut a, &mut b, 4_000);
        }
        assert_eq!(read, all);
        assert!(a.on_heard(1).is_err());
        assert!(b.take(&all[..=WINDOW as usize]).is_err());
    }
}
