//! Fills the next new packet. It takes runs of objects, which are read when they are sent, and
//! written bytes, which are kept until they are acknowledged. The [`Framing`] decides how a packet
//! names them. As records the written bytes go first; in a stream, and as messages, everything goes
//! in the order of the calls.

use std::collections::VecDeque;

use farhaul_core::{
    codec::NoRoom,
    send::STREAM,
    shell::Packet,
    store::ObjectId,
    stream::{Outgoing, WINDOW},
    time::Instant,
};

use super::{Framing, seq};

/// Content of one packet, or content that waits to be cut into such pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Piece {
    /// An object, or [`STREAM`] for written bytes.
    pub(super) object: ObjectId,
    pub(super) offset: u64,
    pub(super) len: u32,
    /// True if the piece begins or ends its message.
    pub(super) first: bool,
    pub(super) last: bool,
    pub(super) in_order: bool,
    pub(super) message: u32,
    /// Time from which on the piece is given up rather than sent again.
    pub(super) expires: Option<Instant>,
}

/// Data waiting to be sent for the first time.
#[derive(Debug)]
pub(super) struct Outflow {
    framing: Framing,
    /// The next piece of each run, and bytes to its end.
    runs: VecDeque<(Piece, u64)>,
    /// Object bytes in the runs.
    unsent: u64,
    stream: Outgoing,
    message: u32,
}

impl Outflow {
    pub(super) fn new(framing: Framing) -> Self {
        let mut stream = Outgoing::default();
        if framing != Framing::Records {
            // What is under way has the packets' window alone.
            stream.on_credit(u64::MAX - WINDOW);
        }
        Self {
            framing,
            runs: VecDeque::new(),
            unsent: 0,
            stream,
            message: 0,
        }
    }

    /// Queues a run of an object; as messages it is one.
    pub(super) fn send(&mut self, now: Instant, object: ObjectId, offset: u64, len: u64) {
        self.unsent = self.unsent.saturating_add(len);
        self.queue(now, object, offset, len);
    }

    /// Queues bytes; as messages they are one message.
    pub(super) fn write(&mut self, now: Instant, bytes: &[u8]) {
        self.stream.write(bytes);
        self.queue_stream(now);
    }

    /// Queues as many of the written bytes as may be under way.
    fn queue_stream(&mut self, now: Instant) {
        if let Some((offset, len)) = self.stream.take_queueable() {
            self.queue(now, STREAM, offset, len);
        }
    }

    fn queue(&mut self, now: Instant, object: ObjectId, offset: u64, len: u64) {
        let runs = &mut self.runs;
        let mut run = Piece {
            object,
            offset,
            first: true,
            ..Piece::default()
        };
        if let Framing::Messages { ttl, in_order } = self.framing {
            (run.expires, run.in_order) = (ttl.map(|ttl| now + ttl), in_order);
        }
        if self.framing != Framing::Records {
            return runs.push_back((run, len));
        }
        let stream = object == STREAM;
        let last = runs.len().saturating_sub(1);
        let near = if stream { 0 } else { last };
        match runs.get_mut(near) {
            Some((near, rest)) if (near.object, near.offset + *rest) == (object, offset) => {
                *rest += len;
            }
            _ if stream => runs.push_front((run, len)),
            _ => runs.push_back((run, len)),
        }
    }

    /// True if something may go.
    pub(super) fn is_ready(&self) -> bool {
        !self.runs.is_empty()
    }

    /// True if nothing waits to be sent or acknowledged here.
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.stream.pending() == 0
    }

    /// Takes the next piece of at most `max` bytes.
    pub(super) fn next(&mut self, max: u32) -> Option<Piece> {
        let alone = self.framing == Framing::Records;
        let (run, rest) = self.runs.front_mut()?;
        if run.first {
            self.message = seq::next_message(self.message);
        }
        let len = u32::try_from(*rest).map_or(max, |rest| rest.min(max));
        let mut piece = Piece {
            len,
            message: self.message,
            ..*run
        };
        run.first = alone;
        run.offset += u64::from(len);
        *rest -= u64::from(len);
        piece.last = alone || *rest == 0;
        if *rest == 0 {
            self.runs.pop_front();
        }
        if piece.object != STREAM {
            self.unsent -= u64::from(len);
        }
        Some(piece)
    }

    /// The rest of a message that is given up will not be sent.
    pub(super) fn give_up(&mut self, message: u32) {
        if self.message == message
            && let Some((run, rest)) = self.runs.pop_front_if(|(run, _)| !run.first)
            && run.object != STREAM
        {
            self.unsent -= rest;
        }
    }

    /// A piece was acknowledged, in order: written bytes up to its end are forgotten.
    pub(super) fn retire(&mut self, now: Instant, piece: &Piece) {
        if piece.object == STREAM {
            self.stream.on_taken(piece.offset + u64::from(piece.len));
            self.queue_stream(now);
        }
    }

    /// Forgets messages given up in between, as everything sent has been acknowledged.
    pub(super) fn settle(&mut self) {
        let waits = self.runs.iter().find(|(run, _)| run.object == STREAM);
        self.stream
            .on_acked(waits.map_or(u64::MAX, |(run, _)| run.offset));
    }

    /// Writes the data of a piece that is not acknowledged.
    pub(super) fn fill(&self, piece: Piece, packet: &mut Packet<'_>) -> Result<(), NoRoom> {
        self.stream
            .fill(piece.object, piece.offset, piece.len, packet)
    }

    pub(super) const fn unsent(&self) -> u64 {
        self.unsent
    }

    /// Bytes written and not acknowledged.
    pub(super) fn unwritten(&self) -> usize {
        self.stream.pending()
    }

    /// Forgets object bytes that no packet has carried. A message that was begun is finished.
    pub(super) fn cancel_unsent(&mut self) {
        let messages = matches!(self.framing, Framing::Messages { .. });
        self.runs
            .retain(|(run, _)| run.object == STREAM || messages && !run.first);
        let objects = self.runs.iter().filter(|(run, _)| run.object != STREAM);
        self.unsent = objects.map(|(_, rest)| rest).sum();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    type Drained = (ObjectId, u64, u32, (bool, bool), u32);

    fn drain(out: &mut Outflow, max: u32) -> Vec<Drained> {
        std::iter::from_fn(|| out.next(max))
            .map(|p| (p.object, p.offset, p.len, (p.first, p.last), p.message))
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
                (STREAM, 0, 100, (true, true), 1),
                (STREAM, 100, 20, (true, true), 2),
                (7, 0, 100, (true, true), 3),
                (7, 100, 100, (true, true), 4),
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
                (STREAM, 0, 4, (true, true), 1),
                (7, 1_000, 100, (true, false), 2),
                (7, 1_100, 100, (false, false), 2),
                (7, 1_200, 50, (false, true), 2),
                (STREAM, 4, 3, (true, true), 3),
            ]
        );
        let mut copied = [0; 3];
        out.stream.copy(4, &mut copied);
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
        assert!(first.in_order && first.first && !first.last);
        out.give_up(first.message);
        let second = out.next(100).unwrap();
        assert_eq!((second.offset, second.len, second.message), (250, 50, 2));
        let mut copied = [0; 50];
        out.stream.copy(250, &mut copied);
        assert_eq!(copied, [2; 50]);
    }

    #[test]
    fn written_records_wait_for_the_window() {
        let mut out = Outflow::new(Framing::Records);
        out.write(Instant::EPOCH, &vec![0; 5 << 20]);
        let pieces: Vec<Piece> = std::iter::from_fn(|| out.next(1 << 20)).collect();
        assert_eq!(pieces.len(), 4);
        assert!(!out.is_ready());
        out.retire(Instant::EPOCH, &pieces[0]);
        assert_eq!(out.next(1 << 20).map(|p| p.offset), Some(4 << 20));
        assert_eq!(out.unwritten(), 4 << 20);
    }
}
