//! Writes what leaves next: handshakes, answers and feedback, one packet each; then data, in
//! batches that share one system call.

use farhaul_core::{codec::NoRoom, shell::Packet, time::Instant};

use super::UdtConnection;
use crate::udt::{
    Framing,
    outflow::Piece,
    recv::MAX_NAK,
    seq,
    wire::{Control, DataHeader, LossList},
};

impl UdtConnection {
    /// Control packet that is due to the peer's socket; a report of losses is written into `list`.
    pub(super) fn next_control<'a>(
        &mut self,
        now: Instant,
        list: &'a mut [u8; MAX_NAK],
    ) -> Option<(u32, Control<'a>)> {
        let link = self.link.as_mut()?;
        let to = link.peer;
        if let Some(answer) = self.answer.take() {
            return Some((to, Control::Handshake(answer)));
        }
        if let Some(number) = self.ack2.pop_front() {
            return Some((to, Control::Ack2 { number }));
        }
        let len = link.receiver.nak(now, &self.sender.rtt, list);
        if let Ok(losses) = LossList::new(&list[..len]) {
            return Some((to, Control::Nak(losses)));
        }
        let room = link.inflow.room(link.receiver.prefix());
        if let Some(ack) = link.receiver.ack(now, room, &self.sender.rtt) {
            return Some((to, ack));
        }
        if let Some((message, first, last)) = self.sender.given_up.pop_front() {
            // libudt leaves out none of several; this receiver leaves out the last, so that it is named
            // again by itself.
            if first < last {
                self.sender.given_up.push_front((message, last, last));
            }
            let [first, last] = [first, last].map(seq::Number::wrap);
            let drop = Control::Drop {
                message,
                first,
                last,
            };
            return Some((to, drop));
        }
        std::mem::take(&mut self.keep_alive).then_some((to, Control::KeepAlive))
    }

    /// Writes data packet `number`.
    pub(super) fn fill(
        &self,
        now: Instant,
        number: u64,
        piece: Piece,
        packet: &mut Packet<'_>,
    ) -> Result<(), NoRoom> {
        let records = self.config.framing == Framing::Records;
        let micros = now.since(self.started).as_micros();
        let header = DataHeader {
            seq: seq::Number::wrap(number),
            first: piece.first,
            last: piece.last,
            in_order: piece.in_order,
            message: piece.message,
            #[expect(clippy::cast_possible_truncation, reason = "the low 32 bits are meant")]
            timestamp: micros as u32,
            to: self.link.as_ref().map_or(0, |link| link.peer),
        };
        header.encode(packet.header())?;
        if records {
            packet.header().u32(piece.object)?;
            packet.header().u64(piece.offset)?;
        } else {
            packet.is_read();
        }
        self.sender.out.fill(piece, packet)
    }
}
