//! What is its own in a session? Datagrams with a unit or a request, and three messages: what is offered, that it has
//! come, and that it ends early.

use std::time::Duration;

use farhaul_core::{
    codec::{DecodeError, NoRoom, Writer},
    protocol::CloseReason,
    pull::Source,
    send::Permit,
    session::earliest,
    shell::{HEAD, Incoming, Machine, Messages, Packet},
    stats::{Stats, Why},
    store::{Extent, ObjectId, Sink},
    time::Instant,
    units::Rate,
};

use super::{
    config::Config,
    recv::Receiver,
    wire::{HEADER, Message, REQUEST, Request},
};

/// Bytes before a unit's in its datagram.
const HEADS: u32 = 13;
const _: () = assert!(HEADS as usize == HEAD + HEADER);

/// MTP's model in a session.
#[derive(Debug)]
pub struct MtpMachine {
    source: Source,
    receiver: Receiver,
    messages: Messages,
    datagram: u32,
}

impl MtpMachine {
    pub(super) fn new(config: &Config) -> Self {
        let most = config.max_rate.unwrap_or(Rate::UNLIMITED);
        let mut source = Source::new(most, HEADS);
        source.command(most);
        Self {
            source,
            receiver: Receiver::new(config),
            messages: Messages::default(),
            datagram: 1,
        }
    }
}

impl Machine for MtpMachine {
    const HEADER: usize = HEADER;

    fn open(&mut self, _now: Instant, datagram: u32, rtt: Duration) {
        self.datagram = datagram;
        self.source.set_payload(datagram.saturating_sub(HEADS));
        self.receiver.open(datagram, rtt);
    }

    fn on_datagram(
        &mut self,
        now: Instant,
        datagram: &Incoming<'_>,
        place: &mut Vec<Extent>,
    ) -> Result<(), DecodeError> {
        match datagram.kind {
            Self::DATA => self.receiver.on_unit(now, datagram, place),
            REQUEST => self.source.ask(&Request::decode(datagram.bytes)?.units),
            _ => Err(DecodeError::Malformed("type of a datagram")),
        }
    }

    fn on_control(&mut self, now: Instant, bytes: &[u8]) -> Result<usize, DecodeError> {
        let Some((message, len)) = Message::decode(bytes)? else {
            return Ok(0);
        };
        match message {
            Message::Offer(offer) => self.receiver.on_offer(now, offer)?,
            Message::End(first) => self.source.on_done(first)?,
            Message::Cut(end) => self.receiver.on_cut(end)?,
        }
        Ok(len)
    }

    fn poll_control(&mut self, now: Instant, room: usize, into: &mut Vec<u8>) {
        if self.messages.is_empty() {
            let bytes = self.messages.more();
            if let Some(first) = self.receiver.take_end() {
                Message::End(first).encode(bytes);
            }
            if let Some(end) = self.source.take_cut() {
                Message::Cut(end).encode(bytes);
            }
            if let Some(offer) = self.source.announce(now) {
                Message::Offer(offer.clone()).encode(bytes);
            }
        }
        self.messages.leave(room, into);
    }

    fn poll_datagram(&mut self, now: Instant, w: &mut Writer<'_>) -> Result<Option<u8>, NoRoom> {
        let Some(request) = self.receiver.take_request(now) else {
            return Ok(None);
        };
        request.encode(w)?;
        Ok(Some(REQUEST))
    }

    fn on_sink(&mut self, now: Instant, sink: Sink) {
        self.receiver.on_sink(now, sink);
    }

    fn permit(&mut self, now: Instant) -> Permit {
        self.source.permit(now)
    }

    fn next_packet(&mut self, now: Instant, packet: &mut Packet<'_>) -> bool {
        self.source.write(now, packet)
    }

    fn batch_sent(&mut self, now: Instant, _bytes: u64) {
        self.source.batch_sent(now);
    }

    fn deadline(&self) -> Option<(Instant, Why)> {
        let asks = self.receiver.deadline().map(|at| (at, Why::Feedback));
        earliest([self.source.deadline(), asks])
    }

    fn on_timer(&mut self, now: Instant) {
        self.receiver.on_timer(now);
        self.source.on_timer(now);
    }

    fn send(&mut self, object: ObjectId, offset: u64, len: u64) {
        self.source.push(object, offset, len);
    }

    fn unsent(&self) -> u64 {
        self.source.unsent()
    }

    fn cancel_unsent(&mut self) {
        self.source.cancel_unsent();
    }

    fn is_delivered(&self) -> bool {
        self.source.is_idle()
    }

    fn failure(&self) -> Option<CloseReason> {
        self.source.failure().or_else(|| self.receiver.failure())
    }

    fn fill_stats(&self, stats: &mut Stats) {
        self.source.fill_stats(stats);
        stats.dropped_duplicate = self.receiver.duplicates();
        stats.datagram_size = self.datagram;
    }
}
