//! What is GTP's own in a session? A file is offered; its receiver asks for ranges of it and for a rate, and closes
//! it. The sender does as it is told.

use std::time::Duration;

use farhaul_core::{
    codec::{DecodeError, NoRoom, Reader, Writer},
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
    group::Group,
    recv::{OVERHEAD, Receiver},
    wire::{COMMAND, Command, HEADER, Message},
};

/// Bytes before a unit's in its datagram.
const HEADS: u32 = 13;
const _: () = assert!(HEADS as usize == HEAD + HEADER);
/// Bytes around it in its packet.
const AROUND: u32 = OVERHEAD + HEADS;

/// GTP in a session.
#[derive(Debug)]
pub struct GtpMachine {
    source: Source,
    /// The newest command.
    number: u64,
    receiver: Receiver,
    datagram: u32,
    messages: Messages,
}

impl GtpMachine {
    pub(super) fn new(group: &Group, most: Rate) -> Self {
        Self {
            source: Source::new(most, AROUND),
            number: 0,
            receiver: Receiver::new(group),
            datagram: 1,
            messages: Messages::default(),
        }
    }

    fn obey(&mut self, command: Command) {
        // Datagrams overtake each other, and what is said on the channel.
        if command.number > self.number {
            self.number = command.number;
            self.source.command(command.rate);
        }
    }
}

impl Machine for GtpMachine {
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
            Self::DATA => self.receiver.on_datagram(now, datagram, place),
            COMMAND => {
                self.obey(Command::take(&mut Reader::new(datagram.bytes))?);
                Ok(())
            }
            _ => Err(DecodeError::Malformed("type of a datagram")),
        }
    }

    fn on_control(&mut self, now: Instant, bytes: &[u8]) -> Result<usize, DecodeError> {
        let Some((message, len)) = Message::decode(bytes)? else {
            return Ok(0);
        };
        match message {
            Message::Offer(offer) => self.receiver.on_offer(now, offer)?,
            Message::Request(command, ranges) => {
                for range in &ranges {
                    self.source.ask(range)?;
                }
                self.obey(command);
            }
            Message::Close(first) => self.source.on_done(first)?,
            Message::Cut(end) => self.receiver.on_cut(end)?,
        }
        Ok(len)
    }

    fn poll_control(&mut self, now: Instant, room: usize, into: &mut Vec<u8>) {
        if self.messages.is_empty() {
            let bytes = self.messages.more();
            self.receiver.report(now, |message| message.encode(bytes));
            if let Some(end) = self.source.take_cut() {
                Message::Cut(end).encode(bytes);
            }
            if let Some(offer) = self.source.announce(now) {
                Message::Offer(offer.clone()).encode(bytes);
            }
        }
        self.messages.leave(room, into);
    }

    fn poll_datagram(&mut self, _now: Instant, w: &mut Writer<'_>) -> Result<Option<u8>, NoRoom> {
        let Some(command) = self.receiver.take_command() else {
            return Ok(None);
        };
        command.put(w)?;
        Ok(Some(COMMAND))
    }

    fn on_sink(&mut self, _now: Instant, sink: Sink) {
        self.receiver.set_free(sink.free);
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
        // What has not left has to be taken before there is more to say.
        let look = self.receiver.due().filter(|_| self.messages.is_empty());
        earliest([self.source.deadline(), look.map(|at| (at, Why::Feedback))])
    }

    fn on_timer(&mut self, now: Instant) {
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

    fn on_close(&mut self) {
        self.receiver.on_close();
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
