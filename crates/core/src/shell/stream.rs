//! Carries the ordered stream on the control channel, which is ordered already: in frames. The
//! reader's end reports how much it has read, so that neither end keeps more than a window.

use std::collections::VecDeque;

use super::frame::{Frame, HEADER, MAX_FRAME};
use crate::codec::DecodeError;

/// Bytes that may be under way or unread.
const WINDOW: u32 = 1 << 20;
/// Bytes read after which credit is sent.
const CREDIT_STEP: u32 = WINDOW / 4;

/// Both directions of the stream. Counts are modulo 2^32.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// Bytes to leave.
    out: VecDeque<u8>,
    sent: u32,
    /// Read by the peer.
    peer_read: u32,
    unread: Vec<u8>,
    received: u32,
    /// Bytes read that the peer knows of.
    told: u32,
}

impl Stream {
    pub(super) fn write(&mut self, bytes: &[u8]) {
        self.out.extend(bytes);
    }

    /// Bytes written and not read by the peer, as far as it has said.
    pub(super) fn unwritten(&self) -> usize {
        self.out.len() + usize::try_from(self.sent.wrapping_sub(self.peer_read)).unwrap_or(0)
    }

    pub(super) fn read(&mut self, into: &mut Vec<u8>) {
        into.append(&mut self.unread);
    }

    /// Takes bytes that the peer wrote.
    pub(super) fn on_bytes(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        if self.unread.len() + bytes.len() > WINDOW as usize {
            return Err(DecodeError::Malformed(
                "more of the stream than was asked for",
            ));
        }
        self.unread.extend(bytes);
        self.received = self.received.wrapping_add(length(bytes.len()));
        Ok(())
    }

    /// Notes that the peer has read up to `read`.
    pub(super) fn on_credit(&mut self, read: u32) -> Result<(), DecodeError> {
        if read.wrapping_sub(self.peer_read) > self.sent.wrapping_sub(self.peer_read) {
            return Err(DecodeError::Malformed(
                "more of the stream read than was sent",
            ));
        }
        self.peer_read = read;
        Ok(())
    }

    /// Appends frames, at most `room` bytes.
    pub(super) fn poll(&mut self, room: usize, into: &mut Vec<u8>) {
        let most = into.len() + room;
        let read = self.received.wrapping_sub(length(self.unread.len()));
        let due = read.wrapping_sub(self.told) >= CREDIT_STEP || self.unread.is_empty();
        if read != self.told && due && into.len() + HEADER + 4 <= most {
            self.told = read;
            Frame::Credit(read).encode(into);
        }
        while !self.out.is_empty() {
            let allowed = WINDOW - self.sent.wrapping_sub(self.peer_read).min(WINDOW);
            let room = most.saturating_sub(into.len() + HEADER).min(MAX_FRAME);
            let room = room.min(usize::try_from(allowed).unwrap_or(0));
            let (front, _) = self.out.as_slices();
            let piece = &front[..front.len().min(room)];
            if piece.is_empty() {
                return;
            }
            let n = piece.len();
            Frame::Stream(piece).encode(into);
            self.sent = self.sent.wrapping_add(length(n));
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

    fn carry(from: &mut Stream, to: &mut Stream, room: usize) {
        let mut bytes = Vec::new();
        from.poll(room, &mut bytes);
        assert!(bytes.len() <= room);
        let mut used = 0;
        while let Some((frame, len)) = Frame::decode(&bytes[used..]).unwrap() {
            match frame {
                Frame::Stream(piece) => to.on_bytes(piece).unwrap(),
                Frame::Credit(n) => to.on_credit(n).unwrap(),
                other => panic!("{other:?}"),
            }
            used += len;
        }
    }

    #[test]
    fn a_stream_arrives_and_a_reader_who_does_not_read_stops_it() {
        let (mut a, mut b) = (Stream::default(), Stream::default());
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
        assert!(a.on_credit(1).is_err());
        assert!(b.on_bytes(&all[..=WINDOW as usize]).is_err());
    }
}
