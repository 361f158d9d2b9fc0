//! Carries control messages: over a control lane (TCP, by the world), or over datagrams of the
//! shell's own. Over either go [frames](super::frame): the machine's messages, the ordered stream,
//! and the end.
//!
//! Invariant: of what the peer said, at most one frame, one delivery and [`MAX_CONTROL`] bytes of the
//! machine's messages are kept.

use std::time::Duration;

use super::{
    carrier::{Refusal, SessionState},
    frame::{Frame, HEADER, MAX_FRAME},
    inband::InBand,
    machine::Machine,
    session::{Shell, closed},
};
use crate::{
    codec::{DecodeError, NoRoom, Writer},
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
    pub(super) open: bool,
    pub(super) gone: bool,
    /// Confirmations due to datagrams that join.
    pub(super) joins_owed: u32,
}

/// The control channel in datagrams.
#[derive(Debug)]
pub(super) struct Datagrams {
    bytes: InBand,
    /// Time at which a client says `READY` again, until it hears something else.
    ready_at: Option<Instant>,
}

impl Datagrams {
    /// True if a datagram is due.
    pub(super) fn is_due(&self) -> bool {
        self.bytes.is_due()
    }

    /// Writes the datagram.
    pub(super) fn write(&mut self, now: Instant, w: &mut Writer<'_>) -> Result<bool, NoRoom> {
        self.bytes.write(now, w)
    }
}

/// Carrier of the frames.
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
            })
        }
    }

    /// True if nothing can be said any more.
    pub(super) const fn is_gone(&self) -> bool {
        matches!(self, Self::Lane(lane) if lane.gone || !lane.open)
    }

    pub(super) const fn set_rtt(&mut self, rtt: Duration) {
        if let Self::InBand(channel) = self {
            channel.bytes.set_rtt(rtt);
        }
    }

    /// Makes an answer due that carries nothing.
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
    /// A piece of the channel came in a datagram.
    pub(super) fn on_channel(
        &mut self,
        state: &mut SessionState,
        bytes: &[u8],
    ) -> Result<(), Refusal> {
        // Nothing comes before the opening is over.
        let (Channel::InBand(channel), None) = (&mut self.channel, &self.opening) else {
            return Err(Refusal::Drop);
        };
        channel.ready_at = None;
        let news = channel.bytes.on_datagram(state.now, bytes)?;
        self.on_frames(state, news).map_err(Refusal::End)
    }

    /// Bytes of frames came.
    pub(super) fn on_frames(
        &mut self,
        state: &mut SessionState,
        news: &[u8],
    ) -> Result<(), CloseReason> {
        let mut bytes = std::mem::take(&mut self.kept);
        bytes.extend(news);
        let place = match self.ends.token {
            Some(_) => "on the control connection (TCP): ",
            None => "",
        };
        let violated = |error| CloseReason::Protocol(format!("{place}{error}"));
        let mut used = 0;
        while let Some((frame, n)) = Frame::decode(&bytes[used..]).map_err(violated)? {
            if let Frame::Close(code, text) = frame {
                return Err(closed(code, text));
            }
            self.on_frame(state, frame).map_err(violated)?;
            used += n;
        }
        bytes.drain(..used);
        self.kept = bytes;
        Ok(())
    }

    fn on_frame(&mut self, state: &mut SessionState, frame: Frame<'_>) -> Result<(), DecodeError> {
        match frame {
            Frame::Hello(datagram, greeting) => self.agree(state.now, datagram, greeting),
            Frame::Ready => self.on_ready(state),
            _ if self.opening.is_some() => Err(DecodeError::Malformed(
                "a message before the opening was over",
            )),
            Frame::Control(bytes) => {
                state.app.stats.feedback_received += bytes.len() as u64;
                self.control.extend(bytes);
                self.on_control(state.now)
            }
            Frame::Stream(bytes) => {
                self.stream.on_bytes(bytes)?;
                state.app.readable();
                Ok(())
            }
            Frame::Credit(read) => self.stream.on_credit(read),
            Frame::Ping => {
                self.signs.answer = true;
                Ok(())
            }
            Frame::Pong | Frame::Close(..) => Ok(()),
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

    /// Appends frames of an open session, at most `room` bytes.
    pub(super) fn poll_frames(
        &mut self,
        state: &mut SessionState,
        room: usize,
        into: &mut Vec<u8>,
    ) {
        let most = into.len() + room;
        loop {
            let body = most.saturating_sub(into.len() + HEADER).min(MAX_FRAME);
            let mut control = Vec::new();
            self.machine.poll_control(state.now, body, &mut control);
            if control.is_empty() {
                break;
            }
            debug_assert!(control.len() <= body, "no more than there is room for");
            state.app.stats.feedback_sent += control.len() as u64;
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
    pub(super) fn pump(&mut self, state: &mut SessionState) {
        let Channel::InBand(channel) = &self.channel else {
            return;
        };
        // With less room than a frame takes a machine gets none.
        let room = channel.bytes.room();
        let room = if room < HEADER + MAX_FRAME { 0 } else { room };
        let mut frames = Vec::new();
        self.poll_frames(state, room, &mut frames);
        if let Channel::InBand(channel) = &mut self.channel
            && !frames.is_empty()
        {
            channel.bytes.push(&frames);
        }
    }
}
