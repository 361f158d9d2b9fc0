//! RWTP's own part of a session: the size of the buffer in the greeting, a number before each
//! packet, and two messages. They are a status, and a note that a packet is missing.

use std::time::Duration;

use farhaul_core::{
    codec::{DecodeError, NoRoom, Reader, Writer},
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
    config::Config,
    recv::Receiver,
    send::Sender,
    wire::{HEADER, LOSS, Numbers, STATUS, Status, decode_loss},
};

/// Least bytes of buffers that each packet counts for.
const LEAST_PACKET: u32 = 1_200;

/// RWTP's model in a session.
pub struct RwtpMachine {
    buffer: u64,
    /// The peer's buffer, or the smaller of both.
    theirs: u64,
    sender: Sender,
    receiver: Receiver,
    duplicates: u64,
}

impl RwtpMachine {
    pub(super) fn new(config: &Config) -> Self {
        let rate = config.rate.min(config.max_rate.unwrap_or(Rate::UNLIMITED));
        Self {
            buffer: config.buffer,
            theirs: config.buffer,
            sender: Sender::new(rate, config.blocked),
            receiver: Receiver::default(),
            duplicates: 0,
        }
    }
}

impl Machine for RwtpMachine {
    const HEADER: usize = HEADER;

    fn greeting(&self, into: &mut Vec<u8>) {
        into.extend(self.buffer.to_be_bytes());
    }

    fn on_greeting(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        let mut r = Reader::new(bytes);
        self.theirs = r.u64()?.min(self.buffer);
        Ok(())
    }

    fn open(&mut self, now: Instant, datagram: u32, rtt: Duration) {
        // A peer that agrees on tiny datagrams gets no more of them than of usual ones.
        let packets = |buffer: u64| (buffer / u64::from(datagram.max(LEAST_PACKET))).max(1);
        self.sender.line.set_window(packets(self.theirs));
        self.sender.line.open(now, datagram, rtt);
        self.receiver.set_window(packets(self.buffer));
    }

    fn on_datagram(
        &mut self,
        now: Instant,
        datagram: &Incoming<'_>,
        place: &mut Vec<Extent>,
    ) -> Result<(), DecodeError> {
        match datagram.kind {
            Self::DATA => {
                let (number, extent) = datagram.record()?;
                match self.receiver.on_packet(now, number) {
                    Arrival::New => place.push(extent),
                    Arrival::Again => self.duplicates += 1,
                    Arrival::Beyond => {}
                }
                Ok(())
            }
            STATUS => self.sender.on_status(now, Status::decode(datagram.bytes)?),
            LOSS => self.sender.on_loss(now, decode_loss(datagram.bytes)?),
            _ => Err(DecodeError::Malformed("type")),
        }
    }

    fn poll_datagram(&mut self, now: Instant, w: &mut Writer<'_>) -> Result<Option<u8>, NoRoom> {
        self.receiver.report(now, w)
    }

    fn permit(&mut self, now: Instant) -> Permit {
        self.sender.line.permit(now)
    }

    fn next_packet(&mut self, now: Instant, packet: &mut Packet<'_>) -> bool {
        let Some((number, piece)) = self.sender.line.next_packet(packet.room()) else {
            return false;
        };
        packet.record(Numbers::wrap(number), piece);
        self.sender.sent(now, number, piece, packet.wire());
        true
    }

    fn batch_sent(&mut self, now: Instant, bytes: u64) {
        self.sender.batch_sent(now, bytes);
    }

    fn deadline(&self) -> Option<(Instant, Why)> {
        let report = self.receiver.deadline().map(|at| (at, Why::Feedback));
        earliest([report, self.sender.deadline()])
    }

    fn on_timer(&mut self, now: Instant) {
        self.receiver.on_timer(now);
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

    fn fill_stats(&self, stats: &mut Stats) {
        self.sender.line.fill_stats(stats);
        stats.dropped_duplicate = self.duplicates;
    }
}
