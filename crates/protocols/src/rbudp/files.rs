//! Speaks as the original's `sendfile` and `recvfile` do. The receiver asks for a name over TCP,
//! the sender reports the file's size and sends it as one block, numbered from 0. Here are both
//! ends without sockets and disks. The caller gives a receiver all datagrams that are there before
//! what came over TCP.
//!
//! Nothing on the wire distinguishes a packet of this block from a late one of another. What can be
//! seen is that two packets with one number differ: [`Got::Again`] asks for that comparison.

use farhaul_core::{
    codec::DecodeError,
    layout::{Layout, Run},
    rounds::{Arrived, MAX_PACKETS, RoundReceiver, RoundSender},
    send::{Permit, Schedule},
    time::Instant,
};

use super::{
    Config,
    wire::{DONE, REQUEST, decode_report, done, encode_report, report_len},
};

/// Port of both programs: TCP and the sender's datagrams; the receiver's datagrams go to the next.
pub const PORT: u16 = 38_000;
/// Bytes in a file at most: the original counts them in 31 bits.
pub const MAX_FILE: u64 = (1 << 31) - 1;
/// Rounds in a row in which less than a hundredth arrives, after which an end gives up. The port of
/// iRODS does after as many in which nothing arrives.
const FRUITLESS: u32 = 10;

/// Bytes of the size of a file.
const SIZE: usize = 8;

/// Message that a sender heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// No message is whole.
    Nothing,
    /// A report of what has arrived.
    Report,
    /// The name that is asked for; an empty one is the end.
    Request(Vec<u8>),
}

/// The sender's end.
pub struct FileSender {
    config: Config,
    payload: u32,
    sender: RoundSender,
    schedule: Schedule,
    /// Bytes that came over TCP and are not a whole message.
    kept: Vec<u8>,
    out: Vec<u8>,
    state: Sending,
    fruitless: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sending {
    /// The next bytes are a request, or it is being answered.
    Idle,
    Block,
    /// A file without bytes: its report is waited for.
    Empty,
}

impl FileSender {
    /// Packets of `payload` bytes, at most 65,000, at the rate of `config`.
    pub fn new(config: Config, payload: u32) -> Self {
        Self {
            payload: payload.clamp(1, 65_000),
            sender: RoundSender::new(MAX_FILE, 1),
            schedule: Schedule::new(config.pace(payload), payload.max(1)),
            kept: Vec::new(),
            out: Vec::new(),
            state: Sending::Idle,
            fruitless: 0,
            config,
        }
    }

    /// Bytes came over TCP.
    pub fn on_control(&mut self, bytes: &[u8]) -> Result<Heard, DecodeError> {
        if bytes.is_empty() {
            return Ok(Heard::Nothing);
        }
        self.kept.extend(bytes);
        let packets = self.sender.asked(0);
        let wanted = match (self.state, packets) {
            (Sending::Idle, _) => REQUEST,
            (Sending::Empty, _) => report_len(0),
            (Sending::Block, Some(packets)) => report_len(packets),
            (Sending::Block, None) => 0,
        };
        if self.kept.len() > wanted {
            return Err(DecodeError::Malformed("words that nobody waits for"));
        }
        if self.kept.len() < wanted {
            return Ok(Heard::Nothing);
        }
        let words = std::mem::take(&mut self.kept);
        match self.state {
            Sending::Idle => {
                let end = words.iter().position(|b| *b == 0);
                let end = end.ok_or(DecodeError::Malformed("a name without an end"))?;
                return Ok(Heard::Request(words[..end].to_vec()));
            }
            Sending::Empty => self.state = Sending::Idle,
            Sending::Block => self.on_report(&words, packets.unwrap_or(0))?,
        }
        Ok(Heard::Report)
    }

    fn on_report(&mut self, words: &[u8], packets: u64) -> Result<(), DecodeError> {
        let before = self.sender.counts();
        let have = decode_report(words, packets)?;
        self.sender.on_report(0, Some(u32::MAX), have)?;
        let news = self.sender.counts().acked - before.acked;
        let fruitful = news.saturating_mul(100) >= before.in_flight;
        self.fruitless = if fruitful { 0 } else { self.fruitless + 1 };
        if self.fruitless >= FRUITLESS {
            return Err(DecodeError::Malformed("reports: nothing arrives"));
        }
        if self.sender.is_idle() {
            self.state = Sending::Idle;
        }
        Ok(())
    }

    /// Offers the file that was asked for, of `size` bytes; false if it has too many.
    #[must_use]
    pub fn offer(&mut self, size: u64) -> bool {
        if size > MAX_FILE || size.div_ceil(self.payload.into()) > MAX_PACKETS {
            return false;
        }
        self.out.extend(size.to_be_bytes());
        if size == 0 {
            self.out.extend(done(0));
            self.state = Sending::Empty;
            return true;
        }
        self.sender = RoundSender::new(MAX_FILE, 1);
        self.sender.set_payload(self.payload);
        self.sender.push(0, 0, size);
        let announced = self.sender.announce().is_some();
        debug_assert!(announced, "a new sender's first block");
        self.sender.on_ready(0);
        self.schedule = Schedule::new(self.config.pace(self.payload), self.payload);
        self.state = Sending::Block;
        self.fruitless = 0;
        true
    }

    /// True if packets may leave.
    pub fn permit(&mut self, now: Instant) -> bool {
        if !self.sender.has_packets() {
            self.schedule.stop();
            return false;
        }
        matches!(self.schedule.permit(now, 1), Permit::Send { .. })
    }

    /// The next packet: its number, and the bytes of the file in it.
    pub fn next_packet(&mut self) -> Option<(u32, u64, u32)> {
        let leaving = self.sender.next_packet()?;
        let piece = leaving.layout.pieces(leaving.n).next()?;
        self.schedule.charge();
        Some((leaving.number, piece.offset, piece.len))
    }

    /// Time at which packets may leave again.
    pub fn wake(&self) -> Option<Instant> {
        self.schedule.wake().filter(|_| self.sender.has_packets())
    }

    /// Appends the bytes to leave over TCP: after the packets that left before.
    pub fn poll_control(&mut self, now: Instant, into: &mut Vec<u8>) {
        into.append(&mut self.out);
        if let Some((_, round, _)) = self.sender.ask(now) {
            into.extend(done(round));
        }
    }

    /// True if a file is on its way.
    pub fn is_sending(&self) -> bool {
        self.state != Sending::Idle
    }
}

/// Content of a datagram behind its number, with the place in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Got {
    /// Bytes to be written there.
    New(u64),
    /// Bytes that are there already, and must be the same.
    Again(u64),
    /// The datagram has nothing of this file.
    Stale,
}

/// The receiver's end.
pub struct FileReceiver {
    payload: u32,
    receiver: RoundReceiver,
    /// Numbers come in the other byte order, or not, once that is known.
    swapped: Option<bool>,
    /// Packets that had come when it was asked last, and how often it was since there were fewer.
    count: u64,
    /// Reports made.
    round: u32,
    fruitless: u32,
    kept: Vec<u8>,
    out: Vec<u8>,
    size: Option<u64>,
    over: bool,
}

impl FileReceiver {
    /// Asks for `name`, at most 255 bytes and none of them zero, in packets of `payload` bytes.
    pub fn new(name: &[u8], payload: u32) -> Self {
        let mut out = name.to_vec();
        out.resize(REQUEST, 0);
        Self {
            payload,
            receiver: RoundReceiver::default(),
            swapped: None,
            count: 0,
            round: 0,
            fruitless: 0,
            kept: Vec::new(),
            out,
            size: None,
            over: false,
        }
    }

    /// Bytes in the file, once that was said.
    pub const fn size(&self) -> Option<u64> {
        self.size
    }

    /// True if all of it is here, and the sender is being informed.
    pub const fn is_over(&self) -> bool {
        self.over
    }

    /// Bytes came over TCP.
    pub fn on_control(&mut self, now: Instant, bytes: &[u8]) -> Result<(), DecodeError> {
        self.kept.extend(bytes);
        if self.size.is_none() {
            let Some((size, rest)) = self.kept.split_first_chunk::<SIZE>() else {
                return Ok(());
            };
            let size = u64::from_be_bytes(*size);
            self.kept = rest.to_vec();
            self.begin(size)?;
        }
        // The sender says no more before it is answered.
        if self.kept.len() > DONE || (self.over && !self.kept.is_empty()) {
            return Err(DecodeError::Malformed("words that nobody waits for"));
        }
        if self.kept.len() == DONE {
            self.kept.clear();
            self.answer(now)?;
        }
        Ok(())
    }

    fn begin(&mut self, size: u64) -> Result<(), DecodeError> {
        if size > MAX_FILE {
            return Err(DecodeError::Malformed("size of a file"));
        }
        self.size = Some(size);
        let mut layout = Layout::new(self.payload);
        let (object, offset) = (0, 0);
        let run = Run {
            object,
            offset,
            len: size,
        };
        if size > 0 && layout.push(run) {
            self.receiver.on_block(0, layout, None)?;
        }
        Ok(())
    }

    fn answer(&mut self, now: Instant) -> Result<(), DecodeError> {
        if self.size == Some(0) {
            self.over = true;
            self.out.extend([1, 0xff]);
            return Ok(());
        }
        // What the question says of its round is not read, as in the original.
        self.receiver.on_question(now, 0, self.round, MAX_PACKETS)?;
        self.round += 1;
        if let Some(report) = self.receiver.report(now) {
            let (packets, have) = (report.packets, report.have);
            self.over = report.count == packets;
            self.fruitless = if report.count > self.count {
                0
            } else {
                self.fruitless + 1
            };
            self.count = report.count;
            if self.fruitless >= FRUITLESS {
                return Err(DecodeError::Malformed("rounds: nothing arrives"));
            }
            encode_report(&have, packets, self.over, &mut self.out);
        }
        Ok(())
    }

    /// A datagram came; its number is the first [`HEADER`](super::wire::HEADER) bytes.
    pub fn on_datagram(&mut self, bytes: &[u8]) -> Result<Got, DecodeError> {
        let (number, data) = bytes.split_first_chunk().ok_or(DecodeError::Truncated)?;
        let len = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let orders = [u32::from_le_bytes(*number), u32::from_be_bytes(*number)];
        let packets = self.size.unwrap_or(0).div_ceil(self.payload.into());
        let fits = orders.map(|number| u64::from(number) < packets);
        // The first number that can only be meant one way says how all are meant.
        if self.swapped.is_none() && fits[0] != fits[1] {
            self.swapped = Some(fits[1]);
        }
        let number = orders[usize::from(self.swapped == Some(true))];
        Ok(match self.receiver.on_packet(number, len)? {
            Arrived::New(layout, n) => Got::New(n * u64::from(layout.payload())),
            Arrived::Again => Got::Again(u64::from(number) * u64::from(self.payload)),
            Arrived::Stale => Got::Stale,
        })
    }

    /// Appends the bytes to leave over TCP.
    pub fn poll_control(&mut self, into: &mut Vec<u8>) {
        into.append(&mut self.out);
    }
}

#[cfg(test)]
mod tests;
