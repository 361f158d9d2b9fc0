//! What is RBUDP's own in a session? Blocks in rounds, each packet with its number, a report for each
//! round, and a rate that nothing changes.

use std::time::Duration;

use farhaul_core::{
    codec::DecodeError,
    rounds::{RoundReceiver, RoundSender},
    send::{Permit, Schedule},
    shell::{Incoming, Machine, Messages, Packet},
    stats::{Stats, Why},
    store::{Extent, ObjectId},
    time::Instant,
    units::Rate,
};

use super::{
    Config,
    wire::{
        HEADER, Message, decode_number, decode_report, encode_number, encode_report,
        missing_ranges, report_len, without,
    },
};

/// There is one round at a time: a report is of that which was asked for.
const ANY: Option<u32> = Some(u32::MAX);

/// RBUDP in a session.
pub struct RbudpMachine {
    config: Config,
    /// Bytes of data in a packet.
    payload: u32,
    schedule: Schedule,
    sender: RoundSender,
    receiver: RoundReceiver,
    messages: Messages,
    /// Blocks whose sender is to be told that they are waited for.
    ready: Vec<u32>,
}

impl RbudpMachine {
    pub(super) fn new(config: Config) -> Self {
        Self {
            payload: 1,
            schedule: Schedule::new(Rate::UNLIMITED, 1),
            sender: RoundSender::new(config.block, config.window),
            receiver: RoundReceiver::default(),
            messages: Messages::default(),
            ready: Vec::new(),
            config,
        }
    }

    /// Appends the next message, if one is due.
    fn compose(&mut self, now: Instant, into: &mut Vec<u8>) {
        let message = if let Some(first) = self.ready.pop() {
            Message::Ready(first)
        } else if let Some(first) = self.sender.take_cut() {
            Message::Cut(first)
        } else if let Some((first, layout)) = self.sender.announce() {
            Message::Block(first, layout.clone())
        } else if let Some((first, round, sent)) = self.sender.ask(now) {
            Message::Done { first, round, sent }
        } else {
            return self.report(now, into);
        };
        message.encode(into);
    }

    fn report(&mut self, now: Instant, into: &mut Vec<u8>) {
        let Some(report) = self.receiver.report(now) else {
            return;
        };
        let (first, packets, have) = (report.first, report.packets, report.have);
        let all = report.count == packets;
        let ranges = missing_ranges(&have, packets).filter(|_| self.config.overlaps() && !all);
        if let Some(ranges) = ranges {
            Message::Missing(first, ranges).encode(into);
        } else {
            Message::Report(first).encode(into);
            encode_report(&have, packets, all, into);
        }
    }

    /// The packets of a block of which the peer may report.
    fn asked(&self, first: u32) -> Result<u64, DecodeError> {
        let asked = self.sender.asked(first);
        asked.ok_or(DecodeError::Malformed("a report that nobody asked for"))
    }
}

impl Machine for RbudpMachine {
    const HEADER: usize = HEADER;

    fn open(&mut self, _now: Instant, datagram: u32, rtt: Duration) {
        let header = u32::try_from(HEADER).unwrap_or(u32::MAX);
        let most = datagram.saturating_sub(header);
        self.payload = self.config.payload.unwrap_or(most).min(most);
        self.sender.set_payload(self.payload);
        self.schedule = Schedule::new(self.config.pace(self.payload), self.payload);
        if self.config.overlaps() {
            self.receiver.set_grace(rtt / 8);
        }
    }

    fn on_datagram(
        &mut self,
        _now: Instant,
        datagram: &Incoming<'_>,
        place: &mut Vec<Extent>,
    ) -> Result<(), DecodeError> {
        let number = decode_number(datagram.bytes)?;
        self.receiver.on_datagram(number, datagram, HEADER, place)
    }

    fn on_control(&mut self, now: Instant, bytes: &[u8]) -> Result<usize, DecodeError> {
        let Some((message, len)) = Message::decode(bytes)? else {
            return Ok(0);
        };
        match message {
            Message::Block(first, layout) => {
                self.receiver.on_block(first, layout, None)?;
                self.ready.push(first);
            }
            Message::Ready(first) => self.sender.on_ready(first),
            Message::Done { first, round, sent } => {
                self.receiver.on_question(now, first, round, sent)?;
            }
            Message::Report(first) => {
                let packets = self.asked(first)?;
                let end = len + report_len(packets);
                let Some(report) = bytes.get(len..end) else {
                    return Ok(0);
                };
                let have = decode_report(report, packets)?;
                self.sender.on_report(first, ANY, have)?;
                return Ok(end);
            }
            Message::Missing(first, ranges) => {
                let have = without(&ranges, self.asked(first)?)?;
                self.sender.on_report(first, ANY, have)?;
            }
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
        let Some(leaving) = self.sender.next_packet() else {
            return false;
        };
        encode_number(packet.header(), leaving.number).expect("a packet holds its number");
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
        stats.pacing_rate = self.schedule.rate();
        stats.datagram_size = self.payload + u32::try_from(HEADER).unwrap_or(u32::MAX);
        stats.dropped_duplicate = self.receiver.dropped();
    }
}
