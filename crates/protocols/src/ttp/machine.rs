//! Tsunami's own part of a session: revision and parameters in the greeting; a block number and a
//! type before each block. Files, permissions and feedback go on the control lane. Both ends may
//! send, each at the rate that the other wants.

use std::time::Duration;

use farhaul_core::{
    codec::{DecodeError, Reader},
    protocol::CloseReason,
    send::Permit,
    session::earliest,
    shell::{Incoming, Machine, Messages, Packet},
    stats::{Stats, Why},
    store::{Extent, ObjectId},
    time::Instant,
    units::Rate,
};

use super::{
    message::{self, Message, put_feedback, put_go},
    protocol::Loss,
    recv::{Output, Receiver},
    send::Sender,
    wire::{HEADER, Parameters, REVISION},
};

/// Factor by which a receiver waits longer than a sender.
const LONGER: u32 = 2;

/// Both halves of a session.
#[derive(Debug)]
pub struct TtpMachine {
    wanted: Parameters,
    block: u32,
    sender: Sender,
    receiver: Receiver,
    messages: Messages,
}

impl TtpMachine {
    pub(super) fn new(
        wanted: Parameters,
        loss: Loss,
        max_rate: Option<Rate>,
        timeout: Duration,
    ) -> Self {
        Self {
            wanted,
            block: 1,
            sender: Sender::new(max_rate.unwrap_or(Rate::UNLIMITED), timeout),
            receiver: Receiver::new(wanted, loss, timeout * LONGER),
            messages: Messages::default(),
        }
    }
}

impl Machine for TtpMachine {
    const HEADER: usize = HEADER as usize;

    fn greeting(&self, into: &mut Vec<u8>) {
        into.extend(REVISION.to_be_bytes());
        self.wanted.encode(into);
    }

    fn on_greeting(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        let mut r = Reader::new(bytes);
        if r.u32()? != REVISION {
            return Err(DecodeError::Malformed("protocol revision"));
        }
        self.sender.set_wanted(Parameters::decode(r.rest())?);
        Ok(())
    }

    fn open(&mut self, _now: Instant, datagram: u32, _rtt: Duration) {
        self.block = datagram.saturating_sub(HEADER).max(1);
        self.sender.open(self.block);
        self.receiver.open(self.block);
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
        let Some((message, len)) = message::decode(bytes, self.block)? else {
            return Ok(0);
        };
        match message {
            Message::File(layout, blocks) => self.receiver.on_file(now, layout, blocks)?,
            Message::Go => self.sender.on_go(now)?,
            Message::Feedback(feedback) => self.sender.on_feedback(now, feedback)?,
            Message::Cut(last) => self.receiver.on_cut(last)?,
        }
        Ok(len)
    }

    fn poll_control(&mut self, now: Instant, room: usize, into: &mut Vec<u8>) {
        let (receiver, sender) = (&mut self.receiver, &mut self.sender);
        self.messages.poll(room, into, |bytes| {
            receiver.poll_output(now, |said| match said {
                Output::Go => put_go(bytes),
                Output::Feedback(feedback) => put_feedback(bytes, feedback),
            });
            sender.poll_output(now, bytes);
        });
    }

    fn permit(&mut self, now: Instant) -> Permit {
        self.sender.permit(now)
    }

    fn next_packet(&mut self, now: Instant, packet: &mut Packet<'_>) -> bool {
        self.sender.next_packet(now, packet)
    }

    fn deadline(&self) -> Option<(Instant, Why)> {
        earliest([self.sender.deadline(), self.receiver.deadline()])
    }

    fn on_timer(&mut self, now: Instant) {
        self.sender.on_timer(now);
        self.receiver.on_timer(now);
    }

    fn send(&mut self, object: ObjectId, offset: u64, len: u64) {
        self.sender.push(object, offset, len);
    }

    fn unsent(&self) -> u64 {
        self.sender.unsent()
    }

    fn cancel_unsent(&mut self) {
        self.sender.cancel_unsent();
    }

    fn is_delivered(&self) -> bool {
        self.sender.is_idle()
    }

    fn blocked_since(&self) -> Option<Instant> {
        self.sender.blocked_since()
    }

    fn failure(&self) -> Option<CloseReason> {
        self.sender.failure().or_else(|| self.receiver.failure())
    }

    fn fill_stats(&self, stats: &mut Stats) {
        self.sender.fill_stats(stats);
        self.receiver.fill_stats(stats);
    }
}
