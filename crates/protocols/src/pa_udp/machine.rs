//! What is PA-UDP's own in a session? A file is offered, answered with a first rate, and comes; from then on the
//! receiver tells rates and what is missing, and in the end that everything is written.

use std::time::Duration;

use farhaul_core::{
    codec::DecodeError,
    protocol::CloseReason,
    pull::Source,
    send::Permit,
    session::earliest,
    shell::{Incoming, Machine, Messages, Packet},
    stats::{Stats, Why},
    store::{Extent, ObjectId, Sink},
    time::Instant,
    units::Rate,
};

use super::{
    recv::Receiver,
    wire::{HEADER, Message},
};

/// PA-UDP in a session.
#[derive(Debug)]
pub struct PaUdpMachine {
    most: Rate,
    source: Source,
    receiver: Receiver,
    datagram: u32,
    messages: Messages,
}

impl PaUdpMachine {
    pub(super) fn new(link: Rate, most: Rate) -> Self {
        Self {
            most,
            source: Source::new(most, 0),
            receiver: Receiver::new(link),
            datagram: 1,
            messages: Messages::default(),
        }
    }

    fn on_message(&mut self, now: Instant, message: Message) -> Result<(), DecodeError> {
        match message {
            Message::Offer(most, offer) => {
                let answer = self.receiver.on_offer(now, most, offer)?;
                answer.encode(self.messages.more());
            }
            Message::Start(first, rate, _) => {
                self.source.ask_all(first)?;
                let go = Message::Go(first, self.source.command(rate));
                go.encode(self.messages.more());
            }
            Message::Go(first, rate) => self.receiver.on_go(now, first, rate)?,
            Message::Rate(rate, _) => {
                self.source.heard();
                self.source.command(rate);
            }
            Message::Missing(ranges) => {
                self.source.heard();
                for range in &ranges {
                    self.source.ask(range)?;
                }
            }
            Message::Done(first) => {
                self.source.heard();
                self.source.on_done(first)?;
            }
            Message::Cut(end) => self.receiver.on_cut(end)?,
        }
        Ok(())
    }

    /// Makes the next messages, if any are due.
    fn compose(&mut self, now: Instant) {
        let bytes = self.messages.more();
        self.receiver.report(now, |message| message.encode(bytes));
        if let Some(end) = self.source.take_cut() {
            Message::Cut(end).encode(bytes);
        }
        if let Some(offer) = self.source.announce(now) {
            Message::Offer(self.most, offer.clone()).encode(bytes);
        }
    }
}

impl Machine for PaUdpMachine {
    const HEADER: usize = HEADER;

    fn open(&mut self, _now: Instant, datagram: u32, rtt: Duration) {
        self.datagram = datagram;
        let header = u32::try_from(HEADER).unwrap_or(u32::MAX);
        self.source.set_payload(datagram.saturating_sub(header));
        self.receiver.open(datagram, rtt);
    }

    fn on_datagram(
        &mut self,
        now: Instant,
        datagram: &Incoming<'_>,
        place: &mut Vec<Extent>,
    ) -> Result<(), DecodeError> {
        self.receiver.on_datagram(now, datagram, place)
    }

    fn on_control(&mut self, now: Instant, bytes: &[u8]) -> Result<usize, DecodeError> {
        let Some((message, len)) = Message::decode(bytes)? else {
            return Ok(0);
        };
        self.on_message(now, message)?;
        Ok(len)
    }

    fn poll_control(&mut self, now: Instant, room: usize, into: &mut Vec<u8>) {
        if self.messages.is_empty() {
            self.compose(now);
        }
        self.messages.leave(room, into);
    }

    fn on_sink(&mut self, _now: Instant, sink: Sink) {
        self.receiver.on_sink(sink);
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
        let look = self.receiver.due();
        let look = look.filter(|_| self.messages.is_empty());
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

    fn blocked_since(&self) -> Option<Instant> {
        self.source.silent_since()
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
