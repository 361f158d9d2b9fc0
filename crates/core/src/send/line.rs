//! Chooses the next packet of a sender with a window in packets. Lost packets go first, the
//! smallest number first; then new packets, as far as the window and the law go: of the ordered
//! stream, then of objects. The protocol decides which packets are lost, and when.

use std::{ops::Range, time::Duration};

use super::{Acked, Flight, Lost, Outbox, Permit, Piece, STREAM, Sent, Signals, State};
use crate::{
    codec::NoRoom,
    congestion::CongestionController,
    shell::Packet,
    stats::{Stats, Why},
    store::ObjectId,
    stream::Outgoing,
    time::Instant,
    units::Rate,
};

/// Send queue and packets in flight, with a window in packets.
pub struct Line {
    /// Packets in flight.
    pub flight: Flight<Piece>,
    out: Outbox,
    stream: Outgoing,
    /// Packets from the first that is not acknowledged on.
    window: u64,
}

impl Line {
    /// Governed by `law`, never faster than `max_rate`; the peer reports each `interval`. No window yet.
    pub fn new(law: Box<dyn CongestionController>, max_rate: Rate, interval: Duration) -> Self {
        let mut flight = Flight::keeping(law, max_rate);
        flight.path.feedback_interval = interval;
        Self {
            flight,
            out: Outbox::default(),
            stream: Outgoing::default(),
            window: 0,
        }
    }

    /// Starts or restarts the law, with packets of `datagram` bytes and round-trip time `rtt`.
    pub fn open(&mut self, now: Instant, datagram: u32, rtt: Duration) {
        let path = &mut self.flight.path;
        (path.datagram, path.srtt, path.min_rtt) = (datagram, rtt, rtt);
        self.flight.start(now);
    }

    /// Sets the peer's window, in unacknowledged packets.
    pub const fn set_window(&mut self, packets: u64) {
        self.window = packets;
    }

    /// Queues data.
    pub fn push(&mut self, object: ObjectId, offset: u64, len: u64) {
        self.out.push(object, offset, len);
    }

    /// Queues bytes of the ordered stream.
    pub fn write(&mut self, bytes: &[u8]) {
        self.stream.write(bytes);
        self.queue_stream();
    }

    /// Queues as much of the stream as may be under way.
    fn queue_stream(&mut self) {
        while let Some((offset, len)) = self.stream.take_queueable() {
            self.out.push(STREAM, offset, len);
        }
    }

    /// Bytes written and not acknowledged.
    pub fn unwritten(&self) -> usize {
        self.stream.pending()
    }

    /// Writes the data of a packet to send.
    pub fn fill(&self, piece: Piece, packet: &mut Packet<'_>) -> Result<(), NoRoom> {
        self.stream
            .fill(piece.object, piece.offset, piece.len, packet)
    }

    /// Bytes of objects queued and never sent.
    pub const fn unsent(&self) -> u64 {
        self.out.unsent()
    }

    /// Discards object data queued and never sent.
    pub fn cancel_unsent(&mut self) {
        self.out.cancel_unsent();
    }

    /// True if nothing is in flight.
    pub fn is_clear(&self) -> bool {
        self.flight.log().is_empty()
    }

    /// True if everything given has been acknowledged.
    pub fn is_idle(&self) -> bool {
        self.is_clear() && self.has_nothing()
    }

    /// True if nothing is queued and the stream is acknowledged.
    pub fn has_nothing(&self) -> bool {
        self.out.is_empty() && self.unwritten() == 0
    }

    /// Permit of the windows to send a new packet.
    fn may_send_new(&self) -> Result<(), Why> {
        if self.out.is_empty() {
            Err(Why::Application)
        } else if self.flight.log().len() >= self.window {
            Err(Why::Peer)
        } else {
            self.flight.fits(self.flight.count.in_flight)
        }
    }

    /// Permit to send anything at `now`.
    pub fn permit(&mut self, now: Instant) -> Permit {
        self.flight.permit(now, self.may_send_new())
    }

    /// The next packet to send: its number and its data.
    pub fn next_packet(&mut self, room: u32) -> Option<(u64, Piece)> {
        if let Some(lost) = self.flight.next_lost() {
            return Some(lost);
        }
        self.may_send_new().ok()?;
        Some((self.flight.log().next(), self.out.next(room)?))
    }

    /// Records a packet of `wire` bytes as sent.
    pub fn sent(&mut self, now: Instant, number: u64, piece: Piece, wire: u32) {
        self.flight.send(now, number, piece, (piece.len, wire));
    }

    /// A batch of `bytes` was sent.
    pub fn batch_sent(&mut self, now: Instant, bytes: u64) {
        self.flight.batch_sent(now, bytes, self.out.is_empty());
    }

    /// Cumulative acknowledgement up to `next`; stream data counts as read. The law receives it with `signals`.
    pub fn ack_below(&mut self, now: Instant, next: u64, signals: Signals) {
        let (mut acked, mut data, mut stream) = (Acked::default(), 0, 0);
        self.flight.ack_below(next, &mut acked, |sent| {
            let (piece, len) = (sent.content, u64::from(sent.content.len));
            data += len;
            if piece.object == STREAM {
                stream = piece.offset + len;
            }
        });
        self.flight.count.data_acked += data;
        self.stream.on_taken(stream);
        self.queue_stream();
        let signals = Signals {
            round_start: self.flight.round(next - 1),
            app_limited: self.out.is_empty(),
            ..signals
        };
        self.flight.tell_acks(now, &acked, signals);
    }

    /// Declares unacknowledged packets of `ranges` lost, except those retransmitted less than `trip` ago.
    pub fn mark_lost(
        &mut self,
        now: Instant,
        trip: Duration,
        ranges: impl IntoIterator<Item = Range<u64>>,
    ) {
        let before = self.flight.count.in_flight;
        let mut lost = Lost::default();
        let is_lost = |sent: &Sent<Piece>| sent.state != State::Acked && sent.is_settled(now, trip);
        for range in ranges {
            self.flight.mark_lost_if(range, &mut lost, is_lost);
        }
        if let Some((_, last)) = lost.span() {
            self.flight.tell_losses(now, before, &lost, last);
        }
    }

    /// Adds the line's counters.
    pub fn fill_stats(&self, stats: &mut Stats) {
        self.flight.fill_stats(stats);
        stats.peer_window = Some(self.window * u64::from(stats.datagram_size));
    }
}

#[cfg(test)]
mod tests;
