//! What is FOBS' own in a session? Chunks in segments or in passes, each packet with its number, reports of
//! what is there, and a rate that follows the loss of segments.

use std::time::Duration;

use farhaul_core::{
    codec::DecodeError,
    loss::Bitmap,
    rounds::{RoundReceiver, RoundSender, Rounds},
    send::{Permit, Schedule},
    shell::{Incoming, Machine, Messages, Packet},
    stats::{Stats, Why},
    store::{Extent, ObjectId},
    time::Instant,
    units::Rate,
};

use super::{
    config::{Config, Mode},
    law::Law,
    wire::{self, HEADER, Header, Message},
};

/// Chunks on their way at once.
const WINDOW: usize = 1;

/// FOBS in a session.
pub struct FobsMachine {
    mode: Mode,
    /// Bytes of data in a packet.
    payload: u32,
    law: Law,
    schedule: Schedule,
    sender: RoundSender,
    receiver: RoundReceiver,
    messages: Messages,
    /// Chunks whose sender is to be told that they are waited for.
    ready: Vec<u32>,
}

impl FobsMachine {
    pub(super) fn new(config: &Config) -> Self {
        let (rounds, tolerance) = match config.mode {
            Mode::Greedy { .. } => (Rounds::Unreported, 0.0),
            Mode::Segments { packets, tolerance } => {
                (Rounds::Reported(packets.max(1).into()), tolerance)
            }
        };
        Self {
            mode: config.mode,
            payload: 1,
            law: Law::new(config.highest_rate(), tolerance),
            schedule: Schedule::new(Rate::UNLIMITED, 1),
            sender: RoundSender::new(config.chunk, WINDOW).with_rounds(rounds),
            receiver: RoundReceiver::default(),
            messages: Messages::default(),
            ready: Vec::new(),
        }
    }

    /// After so many new packets the peer reports; else when it is asked.
    const fn every(&self) -> Option<u32> {
        match self.mode {
            Mode::Greedy { every } => Some(every),
            Mode::Segments { .. } => None,
        }
    }

    /// Appends the next message, if one is due.
    fn compose(&mut self, now: Instant, into: &mut Vec<u8>) {
        let every = self.every();
        let message = if let Some(first) = self.ready.pop() {
            Message::Ready(first)
        } else if let Some(first) = self.sender.take_cut() {
            Message::Cut(first)
        } else if let Some((first, layout)) = self.sender.announce() {
            Message::Chunk(first, every, layout.clone())
        } else if let Some((first, segment, sent)) = self.sender.ask(now) {
            Message::EndOfSegment {
                first,
                segment,
                sent,
            }
        } else {
            return self.report(now, into);
        };
        message.encode(into);
    }

    fn report(&mut self, now: Instant, into: &mut Vec<u8>) {
        let Some(report) = self.receiver.report(now) else {
            return;
        };
        match report.through {
            _ if report.count == report.packets => Message::Completed(report.first).encode(into),
            Some(segment) => wire::feedback(report.first, segment, &report.have, into),
            None => wire::ack(report.first, &report.have, report.packets, into),
        }
    }

    /// The peer says what it has of a chunk. One that is over may still be spoken of.
    fn on_report(
        &mut self,
        first: u32,
        through: Option<u32>,
        have: Bitmap,
    ) -> Result<(), DecodeError> {
        if self.sender.packets(first).is_some() {
            let judged = self.sender.on_report(first, through, have)?;
            if self.every().is_none() {
                self.law.on_judged(judged, self.sender.rounds_begun());
            }
        }
        Ok(())
    }
}

impl Machine for FobsMachine {
    const HEADER: usize = HEADER;

    fn open(&mut self, _now: Instant, datagram: u32, _rtt: Duration) {
        let header = u32::try_from(HEADER).unwrap_or(u32::MAX);
        self.payload = datagram.saturating_sub(header).max(1);
        self.sender.set_payload(self.payload);
        self.schedule = Schedule::new(self.law.rate(), self.payload);
    }

    fn on_datagram(
        &mut self,
        _now: Instant,
        datagram: &Incoming<'_>,
        place: &mut Vec<Extent>,
    ) -> Result<(), DecodeError> {
        let number = Header::decode(datagram.bytes)?.number;
        self.receiver.on_datagram(number, datagram, HEADER, place)
    }

    fn on_control(&mut self, now: Instant, bytes: &[u8]) -> Result<usize, DecodeError> {
        let Some((message, len)) = Message::decode(bytes)? else {
            return Ok(0);
        };
        match message {
            Message::Chunk(first, every, layout) => {
                // Without a number of packets a chunk is reported when it is whole.
                let every = every.map_or(u64::MAX, u64::from);
                self.receiver.on_block(first, layout, Some(every))?;
                self.ready.push(first);
            }
            Message::Ready(first) => self.sender.on_ready(first),
            Message::EndOfSegment {
                first,
                segment,
                sent,
            } => {
                // The chunk may have become whole while this was under way.
                if self.receiver.awaits(first) {
                    self.receiver.on_question(now, first, segment, sent)?;
                }
            }
            Message::Feedback(first, segment, have) => {
                self.on_report(first, Some(segment), have)?;
            }
            Message::Ack(first, have) => self.on_report(first, None, have)?,
            Message::Completed(first) => self.sender.on_completed(first)?,
            Message::Cut(first) => {
                self.receiver.on_cut(first);
                self.ready.retain(|ready| *ready != first);
            }
        }
        Ok(len)
    }

    fn poll_control(&mut self, now: Instant, room: usize, into: &mut Vec<u8>) {
        let mut messages = std::mem::take(&mut self.messages);
        messages.poll(room, into, |bytes| self.compose(now, bytes));
        self.messages = messages;
    }

    fn permit(&mut self, now: Instant) -> Permit {
        if self.sender.has_packets() {
            let wire = self.payload + u32::try_from(HEADER).unwrap_or(u32::MAX);
            return self.schedule.permit(now, wire);
        }
        // What comes next has a schedule of its own.
        self.schedule.stop();
        Permit::Hold(if self.sender.is_waiting() {
            Why::Peer
        } else {
            Why::Application
        })
    }

    fn next_packet(&mut self, _now: Instant, packet: &mut Packet<'_>) -> bool {
        let begun = self.sender.rounds_begun();
        let Some(leaving) = self.sender.next_packet() else {
            return false;
        };
        // A segment leaves at one rate.
        if leaving.serial == begun && self.law.rate() != self.schedule.rate() {
            self.schedule = Schedule::new(self.law.rate(), self.payload);
        }
        let header = Header {
            number: leaving.number,
            round: u16::try_from(leaving.round & 0xffff).unwrap_or(0),
        };
        header
            .encode(packet.header())
            .expect("a packet holds its header");
        packet.unit(leaving.layout, leaving.n);
        self.schedule.charge();
        true
    }

    fn batch_sent(&mut self, _now: Instant, _bytes: u64) {}

    fn deadline(&self) -> Option<(Instant, Why)> {
        let pace = self.schedule.wake().filter(|_| self.sender.has_packets());
        // What is composed next waits for what is on its way.
        let report = self.receiver.due().filter(|_| self.messages.is_empty());
        let report = report.map(|at| (at, Why::Feedback));
        let pace = pace.map(|at| (at, Why::Pacing));
        pace.into_iter().chain(report).min_by_key(|(at, _)| *at)
    }

    fn on_timer(&mut self, _now: Instant) {}

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
        self.sender.silent_since()
    }

    fn fill_stats(&self, stats: &mut Stats) {
        self.sender.counts().fill_stats(stats);
        stats.pacing_rate = self.law.rate();
        stats.datagram_size = self.payload + u32::try_from(HEADER).unwrap_or(u32::MAX);
        stats.dropped_duplicate = self.receiver.dropped();
    }
}
