//! What carries control messages? A control lane (TCP, by the world), or datagrams of the shell's own.
//! Over either go [frames](super::frame): the machine's messages, the ordered stream, and the end.
//!
//! Invariant: of what the peer said, at most one frame, one delivery and [`MAX_CONTROL`] bytes of the
//! machine's messages are kept.

use std::time::Duration;

use super::{
    frame::{Frame, HEADER, MAX_FRAME, MAX_GREETING, MAX_TEXT},
    inband::InBand,
    machine::Machine,
    session::Shell,
};
use crate::{
    codec::{DecodeError, NoRoom, Writer},
    control::Control,
    protocol::CloseReason,
    time::Instant,
};

/// The longest message of a machine.
pub const MAX_CONTROL: usize = 256 << 10;
/// Between two `READY`.
const READY_AGAIN: Duration = Duration::from_millis(250);

/// A control lane.
#[derive(Debug, Default)]
pub(super) struct Lane {
    open: bool,
    gone: bool,
    /// Confirmations owed to datagrams that join.
    pub(super) joins_owed: u32,
    /// Bytes that are not a whole frame yet.
    kept: Vec<u8>,
}

/// The control channel in datagrams.
#[derive(Debug)]
pub(super) struct Datagrams {
    bytes: InBand,
    /// A client says `READY` again then, until it hears something else.
    ready_at: Option<Instant>,
    kept: Vec<u8>,
}

impl Datagrams {
    /// A datagram is due.
    pub(super) fn is_due(&self) -> bool {
        self.bytes.is_due()
    }

    /// Writes it.
    pub(super) fn write(&mut self, now: Instant, w: &mut Writer<'_>) -> Result<bool, NoRoom> {
        self.bytes.write(now, w)
    }
}

/// What carries the frames.
#[derive(Debug)]
pub(super) enum Channel {
    Lane(Lane),
    InBand(Datagrams),
}

impl Channel {
    pub(super) fn new(lane: bool) -> Self {
        if lane {
            Self::Lane(Lane::default())
        } else {
            Self::InBand(Datagrams {
                bytes: InBand::new(Duration::from_millis(100)),
                ready_at: None,
                kept: Vec::new(),
            })
        }
    }

    /// Nothing can be said any more.
    pub(super) const fn is_gone(&self) -> bool {
        matches!(self, Self::Lane(lane) if lane.gone || !lane.open)
    }

    pub(super) const fn set_rtt(&mut self, rtt: Duration) {
        if let Self::InBand(channel) = self {
            channel.bytes.set_rtt(rtt);
        }
    }

    /// An answer is owed that says nothing.
    pub(super) const fn answer(&mut self) {
        if let Self::InBand(channel) = self {
            channel.bytes.answer();
        }
    }

    pub(super) const fn says_ready(&mut self, now: Instant) {
        if let Self::InBand(channel) = self {
            channel.ready_at = Some(now);
        }
    }

    pub(super) fn take_ready(&mut self, now: Instant) -> bool {
        let Self::InBand(channel) = self else {
            return false;
        };
        let due = channel.ready_at.is_some_and(|at| at <= now);
        if due {
            channel.ready_at = Some(now + READY_AGAIN);
        }
        due
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Lane(_) => None,
            Self::InBand(channel) => {
                let times = [channel.bytes.deadline(), channel.ready_at];
                times.into_iter().flatten().min()
            }
        }
    }

    pub(super) fn on_timer(&mut self, now: Instant) {
        if let Self::InBand(channel) = self {
            channel.bytes.on_timer(now);
        }
    }
}

impl<M: Machine> Shell<M> {
    /// Something happened on the lane.
    pub(super) fn on_lane(&mut self, now: Instant, control: Control<'_>) {
        let Channel::Lane(lane) = &mut self.channel else {
            return;
        };
        match control {
            Control::Opened => {
                lane.open = true;
                self.on_lane_opened(now);
            }
            Control::Closed(why) => {
                lane.gone = true;
                self.fail(now, CloseReason::Lane(why.to_owned()));
                self.life.end();
            }
            Control::Bytes(_) if !self.life.is_open() => {}
            Control::Bytes(bytes) => {
                let mut kept = std::mem::take(&mut lane.kept);
                kept.extend(bytes);
                self.life.on_heard(now);
                self.app.stats.wire_received += bytes.len() as u64;
                let kept = self.on_frames(now, kept);
                if let Channel::Lane(lane) = &mut self.channel {
                    lane.kept = kept;
                }
            }
        }
    }

    /// A piece of the channel came in a datagram.
    pub(super) fn on_channel(&mut self, now: Instant, bytes: &[u8]) -> Result<(), DecodeError> {
        let Channel::InBand(channel) = &mut self.channel else {
            return Err(DecodeError::Malformed("control channel"));
        };
        if self.opening.is_some() {
            return Err(DecodeError::Malformed("control before the opening"));
        }
        channel.ready_at = None;
        let news = channel.bytes.on_datagram(now, bytes)?;
        if !news.is_empty() {
            let mut kept = std::mem::take(&mut channel.kept);
            kept.extend(news);
            let kept = self.on_frames(now, kept);
            if let Channel::InBand(channel) = &mut self.channel {
                channel.kept = kept;
            }
        }
        Ok(())
    }

    /// Takes the whole frames off `bytes` and gives back the rest.
    fn on_frames(&mut self, now: Instant, mut bytes: Vec<u8>) -> Vec<u8> {
        let mut used = 0;
        while self.life.is_open() {
            let taken = match Frame::decode(&bytes[used..]) {
                Ok(None) => break,
                Ok(Some((frame, n))) => self.on_frame(now, frame).map(|()| n),
                Err(error) => Err(error),
            };
            match taken {
                Ok(n) => used += n,
                Err(error) => self.violated(now, &error),
            }
        }
        bytes.drain(..used);
        if !self.life.is_open() {
            // Of a session that ends nothing is read any more.
            return Vec::new();
        }
        self.settle();
        bytes
    }

    fn on_frame(&mut self, now: Instant, frame: Frame<'_>) -> Result<(), DecodeError> {
        match frame {
            Frame::Hello(datagram, greeting) => self.agree(now, datagram, greeting),
            Frame::Ready => self.on_ready(now),
            Frame::Close(code, text) => {
                self.on_close(now, code, text);
                Ok(())
            }
            _ if self.opening.is_some() => Err(DecodeError::Malformed(
                "a message before the opening was over",
            )),
            Frame::Control(bytes) => {
                self.app.stats.feedback_received += bytes.len() as u64;
                self.control.extend(bytes);
                self.on_control(now)
            }
            Frame::Stream(bytes) => {
                self.stream.on_bytes(bytes)?;
                self.app.readable();
                Ok(())
            }
            Frame::Credit(read) => self.stream.on_credit(read),
            Frame::Ping => {
                self.signs.answer = true;
                Ok(())
            }
            Frame::Pong => Ok(()),
        }
    }

    /// Hands the machine its messages.
    fn on_control(&mut self, now: Instant) -> Result<(), DecodeError> {
        let mut used = 0;
        while used < self.control.len() {
            match self.machine.on_control(now, &self.control[used..])? {
                0 => break,
                n => used = (used + n).min(self.control.len()),
            }
        }
        self.control.drain(..used);
        if self.control.len() > MAX_CONTROL {
            return Err(DecodeError::Malformed("length of a control message"));
        }
        Ok(())
    }

    /// Appends what is to leave on the lane, at most `room` bytes.
    pub(super) fn poll_lane(&mut self, now: Instant, room: usize, into: &mut Vec<u8>) {
        let Channel::Lane(lane) = &mut self.channel else {
            return;
        };
        if !lane.open || lane.gone {
            return;
        }
        let (before, most) = (into.len(), into.len() + room);
        if self.life.is_open() {
            if self.greets() && room >= HEADER + 2 + MAX_GREETING {
                let greeting = self.own_greeting(now);
                Frame::Hello(self.datagram, &greeting).encode(into);
            }
            if self.becomes_ready() {
                Frame::Ready.encode(into);
            }
            if self.is_open() {
                self.poll_frames(now, most.saturating_sub(into.len()), into);
            }
        } else if room >= HEADER + 4 + MAX_TEXT
            && let Some((code, text)) = self.life.take_closing()
        {
            let end = text.floor_char_boundary(MAX_TEXT);
            Frame::Close(code, &text.as_bytes()[..end]).encode(into);
        }
        self.app.stats.wire_sent += (into.len() - before) as u64;
        self.settle();
    }

    /// Appends frames of an open session, at most `room` bytes.
    fn poll_frames(&mut self, now: Instant, room: usize, into: &mut Vec<u8>) {
        let most = into.len() + room;
        loop {
            let body = most.saturating_sub(into.len() + HEADER).min(MAX_FRAME);
            let mut control = Vec::new();
            self.machine.poll_control(now, body, &mut control);
            if control.is_empty() {
                break;
            }
            debug_assert!(control.len() <= body, "no more than there is room for");
            self.app.stats.feedback_sent += control.len() as u64;
            Frame::Control(&control).encode(into);
        }
        self.stream.poll(most.saturating_sub(into.len()), into);
        let signs = [
            (&mut self.signs.ask, Frame::Ping),
            (&mut self.signs.answer, Frame::Pong),
        ];
        for (due, frame) in signs {
            if into.len() + HEADER <= most && std::mem::take(due) {
                frame.encode(into);
            }
        }
    }

    /// Gives the channel in datagrams what waits for it.
    pub(super) fn pump(&mut self, now: Instant) {
        let Channel::InBand(channel) = &self.channel else {
            return;
        };
        // With less room than a frame takes a machine is told that there is none.
        let room = channel.bytes.room();
        let room = if room < HEADER + MAX_FRAME { 0 } else { room };
        let mut frames = Vec::new();
        self.poll_frames(now, room, &mut frames);
        if let Channel::InBand(channel) = &mut self.channel
            && !frames.is_empty()
        {
            channel.bytes.push(&frames);
        }
    }
}
