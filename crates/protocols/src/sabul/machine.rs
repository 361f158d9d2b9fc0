//! SABUL's own part of a session: options in the greeting, a sequence number before each packet,
//! and three messages: ACK, ERR, SYN.

use std::time::Duration;

use farhaul_core::{
    codec::DecodeError,
    congestion::CongestionController,
    protocol::CloseReason,
    recv::Arrival,
    send::Permit,
    session::earliest,
    shell::{Incoming, Machine, Packet},
    stats::{Stats, Why},
    store::{Extent, ObjectId},
    time::Instant,
    units::Rate,
};

use super::{
    recv::Receiver,
    send::Sender,
    seq,
    wire::{HEADER, Message, OPTIONS, Options, sequence},
};

/// SABUL in a session.
pub struct SabulMachine {
    options: Options,
    /// UDP payload of a full packet.
    datagram: u32,
    sender: Sender,
    receiver: Receiver,
    duplicates: u64,
}

impl SabulMachine {
    pub(super) fn new(
        law: Box<dyn CongestionController>,
        max_rate: Option<Rate>,
        options: Options,
    ) -> Self {
        Self {
            datagram: options.packet,
            sender: Sender::new(law, max_rate.unwrap_or(Rate::UNLIMITED)),
            receiver: Receiver::new(options.window),
            options,
            duplicates: 0,
        }
    }
}

impl Machine for SabulMachine {
    const HEADER: usize = HEADER;

    fn greeting(&self, into: &mut Vec<u8>) {
        self.options.encode(into);
    }

    fn on_greeting(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        let bytes: &[u8; OPTIONS] = bytes.try_into().map_err(|_| DecodeError::Truncated)?;
        let theirs = Options::decode(bytes)?.window;
        let window = theirs.min(self.options.window);
        self.sender.line.set_window(window.into());
        Ok(())
    }

    fn open(&mut self, now: Instant, datagram: u32, rtt: Duration) {
        self.datagram = datagram;
        let rtt = rtt.max(Duration::from_micros(100));
        self.sender.line.open(now, datagram, rtt);
        self.receiver.open(rtt);
    }

    fn on_datagram(
        &mut self,
        now: Instant,
        datagram: &Incoming<'_>,
        place: &mut Vec<Extent>,
    ) -> Result<(), DecodeError> {
        let (number, extent) = datagram.record()?;
        let last = datagram.wire < self.datagram;
        match self.receiver.on_packet(now, sequence(number)?, last) {
            Arrival::New => place.push(extent),
            Arrival::Again => self.duplicates += 1,
            Arrival::Beyond => {}
        }
        Ok(())
    }

    fn on_control(&mut self, now: Instant, bytes: &[u8]) -> Result<usize, DecodeError> {
        let Some((message, len)) = Message::decode(bytes)? else {
            return Ok(0);
        };
        match message {
            Message::Ack(next) => self.sender.on_ack(now, next)?,
            Message::Err(losses) => self.sender.on_losses(now, losses)?,
            Message::Syn(received) => self.sender.on_signal(now, received),
        }
        Ok(len)
    }

    fn poll_control(&mut self, now: Instant, room: usize, into: &mut Vec<u8>) {
        self.receiver.report(now, room, into);
    }

    fn permit(&mut self, now: Instant) -> Permit {
        self.sender.line.permit(now)
    }

    fn next_packet(&mut self, now: Instant, packet: &mut Packet<'_>) -> bool {
        let Some((number, piece)) = self.sender.line.next_packet(packet.room()) else {
            return false;
        };
        packet.record(seq::Number::wrap(number), piece);
        self.sender.sent(now, number, piece, packet.wire());
        true
    }

    fn batch_sent(&mut self, now: Instant, bytes: u64) {
        self.sender.line.batch_sent(now, bytes);
    }

    fn deadline(&self) -> Option<(Instant, Why)> {
        let report = self.receiver.deadline().map(|at| (at, Why::Feedback));
        earliest([report, self.sender.deadline()])
    }

    fn on_timer(&mut self, now: Instant) {
        self.sender.on_timer(now);
    }

    fn send(&mut self, object: ObjectId, offset: u64, len: u64) {
        self.sender.line.push(object, offset, len);
    }

    fn unsent(&self) -> u64 {
        self.sender.line.unsent()
    }

    fn cancel_unsent(&mut self) {
        self.sender.line.cancel_unsent();
    }

    fn is_delivered(&self) -> bool {
        self.sender.line.is_idle()
    }

    fn blocked_since(&self) -> Option<Instant> {
        self.sender.blocked_since()
    }

    fn failure(&self) -> Option<CloseReason> {
        self.sender.failure().map(CloseReason::Internal)
    }

    fn fill_stats(&self, stats: &mut Stats) {
        self.sender.line.fill_stats(stats);
        stats.dropped_duplicate = self.duplicates;
    }
}
