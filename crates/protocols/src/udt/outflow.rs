//! What goes into the next new packet? Runs of objects, which are read when they are sent, and bytes
//! that were written, which are kept until they are acknowledged. How a packet names them is the
//! [`Framing`]'s: as records the written bytes go first; in a stream, and as messages, everything goes
//! in the order of the calls.

use std::{collections::VecDeque, time::Duration};

use farhaul_core::{send::STREAM, store::ObjectId, stream, time::Instant};

use super::{Framing, seq, wire::Position};

/// Written bytes of records that may be unacknowledged.
pub(super) const STREAM_WINDOW: u64 = 4 << 20;

/// What one packet carries.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Piece {
    /// An object, or [`STREAM`] for written bytes.
    pub(super) object: ObjectId,
    pub(super) offset: u64,
    pub(super) len: u32,
    pub(super) position: Position,
    pub(super) in_order: bool,
    pub(super) message: u32,
    pub(super) expires: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    object: ObjectId,
    offset: u64,
    len: u64,
    begun: bool,
    expires: Option<Instant>,
}

/// Data waiting to be sent for the first time.
#[derive(Debug)]
pub(super) struct Outflow {
    framing: Framing,
    runs: VecDeque<Run>,
    /// Object bytes in the runs.
    unsent: u64,
    /// Written bytes from `start` on.
    bytes: VecDeque<u8>,
    start: u64,
    /// Written bytes given out once.
    given: u64,
    message: u32,
}

impl Outflow {
    pub(super) const fn new(framing: Framing) -> Self {
        Self {
            framing,
            runs: VecDeque::new(),
            unsent: 0,
            bytes: VecDeque::new(),
            start: 0,
            given: 0,
            message: 0,
        }
    }

    fn written(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    const fn terms(&self) -> (Option<Duration>, bool) {
        match self.framing {
            Framing::Messages { ttl, in_order } => (ttl, in_order),
            Framing::Records | Framing::Stream => (None, false),
        }
    }

    fn push(&mut self, now: Instant, object: ObjectId, offset: u64, len: u64) {
        if self.framing == Framing::Records
            && let Some(last) = self.runs.back_mut()
            && (last.object, last.offset + last.len) == (object, offset)
        {
            last.len += len;
            return;
        }
        self.runs.push_back(Run {
            object,
            offset,
            len,
            begun: false,
            expires: self.terms().0.map(|ttl| now + ttl),
        });
    }

    /// Queues a run of an object; as messages it is one.
    pub(super) fn send(&mut self, now: Instant, object: ObjectId, offset: u64, len: u64) {
        if len > 0 {
            self.unsent = self.unsent.saturating_add(len);
            self.push(now, object, offset, len);
        }
    }

    /// Queues bytes; as messages they are one.
    pub(super) fn write(&mut self, now: Instant, bytes: &[u8]) {
        let offset = self.written();
        self.bytes.extend(bytes);
        if self.framing != Framing::Records && !bytes.is_empty() {
            self.push(now, STREAM, offset, bytes.len() as u64);
        }
    }

    /// Written bytes that may now go as records.
    fn record(&self) -> u64 {
        let end = self.written().min(self.start + STREAM_WINDOW);
        match self.framing {
            Framing::Records => end.saturating_sub(self.given),
            Framing::Stream | Framing::Messages { .. } => 0,
        }
    }

    /// Something may go.
    pub(super) fn is_ready(&self) -> bool {
        !self.runs.is_empty() || self.record() > 0
    }

    /// Nothing waits to be sent or acknowledged here.
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.bytes.is_empty()
    }

    /// Takes the next piece of at most `max` bytes.
    pub(super) fn next(&mut self, max: u32) -> Option<Piece> {
        let in_order = self.terms().1;
        let record = self.record();
        if record > 0 {
            let len = u32::try_from(record).map_or(max, |len| len.min(max));
            let offset = self.given;
            self.given += u64::from(len);
            return Some(self.whole(STREAM, offset, len));
        }
        let run = self.runs.front_mut()?;
        let len = u32::try_from(run.len).map_or(max, |len| len.min(max));
        let (object, offset) = (run.object, run.offset);
        let (first, last) = (!run.begun, u64::from(len) == run.len);
        let expires = run.expires;
        run.begun = true;
        run.offset += u64::from(len);
        run.len -= u64::from(len);
        if last {
            self.runs.pop_front();
        }
        if object == STREAM {
            self.given = offset + u64::from(len);
        } else {
            self.unsent -= u64::from(len);
        }
        if self.framing == Framing::Records {
            return Some(self.whole(object, offset, len));
        }
        if first {
            self.message = seq::next_message(self.message);
        }
        Some(Piece {
            object,
            offset,
            len,
            position: Position::new(first, last),
            in_order,
            message: self.message,
            expires,
        })
    }

    /// A packet that is a message of its own.
    fn whole(&mut self, object: ObjectId, offset: u64, len: u32) -> Piece {
        self.message = seq::next_message(self.message);
        Piece {
            object,
            offset,
            len,
            position: Position::Only,
            in_order: false,
            message: self.message,
            expires: None,
        }
    }

    /// The rest of a message that is given up will not be sent.
    pub(super) fn give_up(&mut self, message: u32) {
        if self.message == message
            && let Some(run) = self.runs.front()
            && run.begun
        {
            if run.object == STREAM {
                self.given = run.offset + run.len;
            } else {
                self.unsent -= run.len;
            }
            self.runs.pop_front();
        }
    }

    /// A piece was acknowledged, in order: written bytes up to its end are forgotten.
    pub(super) fn retire(&mut self, piece: &Piece) {
        if piece.object == STREAM {
            self.forget(piece.offset + u64::from(piece.len));
        }
    }

    fn forget(&mut self, end: u64) {
        let n = end.min(self.given).saturating_sub(self.start);
        self.bytes.drain(..usize::try_from(n).unwrap_or_default());
        self.start += n;
    }

    /// Everything sent has been acknowledged: what was given up in between is forgotten too.
    pub(super) fn settle(&mut self) {
        self.forget(self.given);
    }

    /// Copies written bytes of a piece that is not acknowledged.
    pub(super) fn copy(&self, offset: u64, into: &mut [u8]) {
        let at = usize::try_from(offset.saturating_sub(self.start)).unwrap_or(usize::MAX);
        stream::copy(&self.bytes, at, into);
    }

    pub(super) const fn unsent(&self) -> u64 {
        self.unsent
    }

    /// Bytes written and not acknowledged.
    pub(super) fn unwritten(&self) -> usize {
        self.bytes.len()
    }

    /// Forgets object bytes that no packet has carried. A message that was begun is finished.
    pub(super) fn cancel_unsent(&mut self) {
        let messages = matches!(self.framing, Framing::Messages { .. });
        self.runs
            .retain(|run| run.object == STREAM || messages && run.begun);
        self.unsent = self
            .runs
            .iter()
            .filter(|run| run.object != STREAM)
            .map(|run| run.len)
            .sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(out: &mut Outflow, max: u32) -> Vec<(ObjectId, u64, u32, Position, u32)> {
        std::iter::from_fn(|| out.next(max))
            .map(|p| (p.object, p.offset, p.len, p.position, p.message))
            .collect()
    }

    #[test]
    fn records_send_what_was_written_first_and_name_every_packet() {
        let mut out = Outflow::new(Framing::Records);
        let now = Instant::EPOCH;
        out.send(now, 7, 0, 150);
        out.send(now, 7, 150, 50);
        out.write(now, &[1; 120]);
        assert_eq!(out.unsent(), 200);
        assert_eq!(
            drain(&mut out, 100),
            [
                (STREAM, 0, 100, Position::Only, 1),
                (STREAM, 100, 20, Position::Only, 2),
                (7, 0, 100, Position::Only, 3),
                (7, 100, 100, Position::Only, 4),
            ]
        );
        assert!(out.unsent() == 0 && !out.is_ready() && !out.is_empty());
    }

    #[test]
    fn a_stream_keeps_the_order_of_the_calls() {
        let mut out = Outflow::new(Framing::Stream);
        let now = Instant::EPOCH;
        out.write(now, b"name");
        out.send(now, 7, 1_000, 250);
        out.write(now, b"end");
        assert_eq!(
            drain(&mut out, 100),
            [
                (STREAM, 0, 4, Position::Only, 1),
                (7, 1_000, 100, Position::First, 2),
                (7, 1_100, 100, Position::Middle, 2),
                (7, 1_200, 50, Position::Last, 2),
                (STREAM, 4, 3, Position::Only, 3),
            ]
        );
        let mut copied = [0; 3];
        out.copy(4, &mut copied);
        assert_eq!(&copied, b"end");
        out.settle();
        assert!(out.is_empty());
    }

    #[test]
    fn a_message_that_is_given_up_is_not_continued() {
        let framing = Framing::Messages {
            ttl: Some(Duration::from_millis(5)),
            in_order: true,
        };
        let mut out = Outflow::new(framing);
        out.write(Instant::EPOCH, &[1; 250]);
        out.write(Instant::EPOCH, &[2; 50]);
        let first = out.next(100).unwrap();
        assert_eq!(
            first.expires,
            Some(Instant::EPOCH + Duration::from_millis(5))
        );
        assert!(first.in_order && first.position == Position::First);
        out.give_up(first.message);
        let second = out.next(100).unwrap();
        assert_eq!((second.offset, second.len, second.message), (250, 50, 2));
        let mut copied = [0; 50];
        out.copy(250, &mut copied);
        assert_eq!(copied, [2; 50]);
    }

    #[test]
    fn written_records_wait_for_the_window() {
        let mut out = Outflow::new(Framing::Records);
        out.write(Instant::EPOCH, &vec![0; 5 << 20]);
        let pieces: Vec<Piece> = std::iter::from_fn(|| out.next(1 << 20)).collect();
        assert_eq!(pieces.len(), 4);
        assert!(!out.is_ready());
        out.retire(&pieces[0]);
        assert_eq!(out.next(1 << 20).map(|p| p.offset), Some(4 << 20));
        assert_eq!(out.unwritten(), 4 << 20);
    }
}
