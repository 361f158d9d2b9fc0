//! What leaves next? Handshakes, answers and feedback, one packet each; then data, in batches that
//! share one system call.

use std::net::SocketAddr;

use farhaul_core::{
    codec::{NoRoom, Writer},
    datagram::{Ecn, MAX_SEGMENTS, Transmit, TxBuf},
    protocol::{CloseReason, Turn},
    send::{Permit, STREAM},
    stats::Why,
    store::Extent,
    time::Instant,
};

use super::UdtSession;
use crate::udt::{
    Framing,
    inflow::{RECORD, put_record},
    outflow::Piece,
    recv::MAX_NAK,
    seq,
    wire::{Control, DataHeader, HEADER, LossList},
};

/// The longest control packet.
const MAX_CONTROL: usize = HEADER + MAX_NAK;

/// What was written of a batch.
struct Batch {
    extents: [Extent; MAX_SEGMENTS],
    filled: usize,
    count: usize,
    bytes: u64,
}

const fn transmit(to: SocketAddr) -> Transmit {
    Transmit {
        to,
        ecn: Ecn::NotEct,
    }
}

impl UdtSession {
    pub(super) fn say(&mut self, turn: &mut Turn<'_>, out: &mut TxBuf) -> Option<Transmit> {
        let now = turn.now;
        if let Some(body) = self.life.take_closing(now) {
            return self.control(&Control::Shutdown(&body), out);
        }
        if !self.life.is_open() {
            return None;
        }
        if let Some((to, ask)) = self.opening.as_mut().and_then(|o| o.ask(now)) {
            self.stats.held.set(now, Some(Why::Handshake));
            return Some(self.packet(to, &Control::Handshake(ask), out));
        }
        self.link.as_ref()?;
        if let Some(answer) = self.todo.answer.take() {
            return self.control(&Control::Handshake(answer), out);
        }
        if let Some(number) = self.todo.ack2.pop_front() {
            return self.control(&Control::Ack2 { number }, out);
        }
        if let Some(transmit) = self.feedback(now, out) {
            return Some(transmit);
        }
        if let Some((message, first, last)) = self.sender.take_given_up() {
            return self.give_up(message, first, last, out);
        }
        if std::mem::take(&mut self.todo.keep_alive) {
            return self.control(&Control::KeepAlive, out);
        }
        self.data(turn, out)
    }

    /// A control packet to the peer's socket.
    fn control(&mut self, control: &Control<'_>, out: &mut TxBuf) -> Option<Transmit> {
        let to = self.link.as_ref()?.peer;
        Some(self.packet(to, control, out))
    }

    fn packet(&mut self, to: u32, control: &Control<'_>, out: &mut TxBuf) -> Transmit {
        let now = self.now;
        out.begin(MAX_CONTROL);
        let mut w = Writer::new(out.next_segment());
        control
            .encode(to, &mut w)
            .expect("the longest control packet was begun");
        let len = w.len();
        out.commit(len, len);
        self.stats.wire_sent += len as u64;
        self.stats.datagrams_sent += 1;
        self.life.spoke(now);
        if matches!(control, Control::Ack { .. } | Control::Nak(_)) {
            self.stats.feedback_sent += len as u64;
        }
        transmit(self.peer)
    }

    fn feedback(&mut self, now: Instant, out: &mut TxBuf) -> Option<Transmit> {
        let link = self.link.as_mut()?;
        let mut list = [0; MAX_NAK];
        let len = link.receiver.nak(now, &self.rtt, &mut list);
        if let Ok(losses) = LossList::new(&list[..len]) {
            return self.control(&Control::Nak(losses), out);
        }
        let room = link.inflow.room(link.receiver.prefix());
        let ack = link.receiver.ack(now, room, &self.rtt)?;
        self.control(&ack, out)
    }

    /// Tells the peer not to wait for packets `first..=last`. libudt leaves out none; this receiver
    /// leaves out the last of several, so that one is named again by itself.
    fn give_up(
        &mut self,
        message: u32,
        first: u64,
        last: u64,
        out: &mut TxBuf,
    ) -> Option<Transmit> {
        if first < last {
            self.sender.give_up_last(message, last);
        }
        let drop = Control::Drop {
            message,
            first: seq::wrap(first),
            last: seq::wrap(last),
        };
        self.control(&drop, out)
    }

    fn data(&mut self, turn: &mut Turn<'_>, out: &mut TxBuf) -> Option<Transmit> {
        let now = turn.now;
        let bytes = match self.permit(now) {
            Permit::Send { bytes } => bytes,
            Permit::Hold(why) => {
                self.held = Some(why);
                self.stats.held.set(now, Some(why));
                return None;
            }
        };
        let batch = self.compose(now, bytes, out);
        if batch.count == 0 {
            // All that was to be sent again was given up: what is said of it comes first.
            self.held = None;
            let (message, first, last) = self.sender.take_given_up()?;
            return self.give_up(message, first, last, out);
        }
        let extents = &batch.extents[..batch.filled];
        if !extents.is_empty()
            && let Err(error) = turn.store.fill(extents, out.raw())
        {
            self.fail(now, CloseReason::Store(error.0));
            let body = self.life.take_closing(now)?;
            return self.control(&Control::Shutdown(&body), out);
        }
        self.sender.batch_sent(now, batch.bytes, &self.rtt);
        self.held = None;
        self.stats.held.set(now, None);
        self.stats.wire_sent += batch.bytes;
        self.stats.datagrams_sent += batch.count as u64;
        self.life.spoke(now);
        Some(transmit(self.peer))
    }

    fn permit(&mut self, now: Instant) -> Permit {
        let Some(link) = &mut self.link else {
            return Permit::Hold(Why::Handshake);
        };
        if link.hold.is_some_and(|at| at > now) {
            return Permit::Hold(Why::Handshake);
        }
        link.hold = None;
        self.sender.permit(now)
    }

    /// Writes the headers of about `bytes` of data, and the bytes that were written.
    fn compose(&mut self, now: Instant, bytes: u64, out: &mut TxBuf) -> Batch {
        let room = self.room();
        let datagram = self.link.as_ref().map_or(0, |link| link.datagram);
        let fit = out.begin(datagram).min(MAX_SEGMENTS);
        let mut batch = Batch {
            extents: [Extent::default(); MAX_SEGMENTS],
            filled: 0,
            count: 0,
            bytes: 0,
        };
        while batch.count < fit {
            let pair = self.sender.is_pair_due() && !self.sender.has_repairs();
            if batch.count > 0 && batch.bytes >= bytes && !pair {
                break;
            }
            let repair = self.sender.next_repair(now);
            let Some((number, piece)) = repair.or_else(|| self.sender.next_new(room)) else {
                break;
            };
            let len = self
                .segment(now, number, piece, &mut batch, out)
                .expect("a piece fits its packet");
            self.sender.sent(now, number, piece, len);
            batch.count += 1;
            batch.bytes += u64::from(len);
            if (len as usize) < datagram {
                break;
            }
        }
        batch
    }

    /// Writes one packet; its length.
    fn segment(
        &self,
        now: Instant,
        number: u64,
        piece: Piece,
        batch: &mut Batch,
        out: &mut TxBuf,
    ) -> Result<u32, NoRoom> {
        let records = self.config.framing == Framing::Records;
        let start = out.next_at();
        let segment = out.next_segment();
        let mut w = Writer::new(segment);
        let micros = now.since(self.started).as_micros();
        let header = DataHeader {
            seq: seq::wrap(number),
            position: piece.position,
            in_order: piece.in_order,
            message: piece.message,
            #[expect(clippy::cast_possible_truncation, reason = "the low 32 bits are meant")]
            timestamp: micros as u32,
            to: self.link.as_ref().map_or(0, |link| link.peer),
        };
        header.encode(&mut w)?;
        if records {
            put_record(&mut w, piece.object, piece.offset)?;
        }
        let at = w.len();
        debug_assert!(!records || at == HEADER + RECORD);
        let data = w.reserve(piece.len as usize)?;
        let len = at + piece.len as usize;
        let solid = if piece.object == STREAM {
            self.sender.out.copy(piece.offset, data);
            len
        } else {
            batch.extents[batch.filled] = Extent {
                object: piece.object,
                offset: piece.offset,
                len: piece.len,
                at: u32::try_from(start + at).unwrap_or(u32::MAX),
            };
            batch.filled += 1;
            // Without records the receiver reads the bytes themselves.
            if records { at } else { len }
        };
        out.commit(len, solid);
        Ok(u32::try_from(len).unwrap_or(u32::MAX))
    }
}
