//! One connection of the shell: an opening, a control channel with the ordered stream on it, and a
//! [`Machine`]'s data. A connection is the shell's part of a [`Carrier`](super::Carrier)'s session.
//! `opening` and `channel` have the first two; this file holds the state, the datagrams, the clock
//! and the application's side.

use std::time::Duration;

use super::{
    Limits,
    carrier::{Connection, Refusal, SessionState},
    channel::Channel,
    datagram::{self, CHANNEL, CLOSE, HEAD, HELLO, Join, READY, WELCOME, write_head},
    frame::{Frame, HEADER, MAX_GREETING, MAX_TEXT},
    machine::{Incoming, Machine, Packet},
    opening::Opening,
    stream::Stream,
};
use crate::{
    closing::{Cause, Closing},
    codec::{DecodeError, NoRoom, Reader, Writer},
    control::{Control, Token},
    life::Life,
    protocol::{CloseReason, Turn},
    send::{Permit, STREAM},
    session::earliest,
    stats::{Stats, Why},
    store::{ObjectId, Store},
    text,
    time::Instant,
};

/// Identity of this end.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) id: u64,
    pub(super) client: bool,
    /// Token that joins the control lane; none without one.
    pub(super) token: Option<Token>,
    /// Nonce that a client repeats to prove its address.
    pub(super) nonce: [u8; 8],
}

/// Signs of life that are due.
#[derive(Debug, Default)]
pub(super) struct Signs {
    pub(super) ask: bool,
    pub(super) answer: bool,
}

/// A session's part around a [`Machine`].
pub struct Shell<M> {
    pub(super) machine: M,
    pub(super) ends: Ends,
    pub(super) limits: Limits,
    pub(super) channel: Channel,
    /// State of the opening, until the session is open.
    pub(super) opening: Option<Opening>,
    pub(super) signs: Signs,
    pub(super) stream: Stream,
    /// Bytes on the channel that are not a whole frame yet.
    pub(super) kept: Vec<u8>,
    /// The machine's control messages that are not all there.
    pub(super) control: Vec<u8>,
    /// UDP payload of a full datagram.
    pub(super) datagram: u16,
    pub(super) rtt: Duration,
}

/// The peer closes.
pub(super) fn closed(code: u32, words: &[u8]) -> CloseReason {
    let text = text::shown(words);
    CloseReason::Peer { code, text }
}

impl<M: Machine> Shell<M> {
    pub(super) fn new(machine: M, ends: Ends, limits: Limits, now: Instant, datagram: u16) -> Self {
        Self {
            machine,
            limits,
            channel: Channel::new(ends.token.is_some()),
            opening: Some(Opening::new(now, ends.client && ends.token.is_none())),
            signs: Signs::default(),
            stream: Stream::default(),
            kept: Vec::new(),
            control: Vec::new(),
            datagram,
            rtt: Duration::ZERO,
            ends,
        }
    }

    /// Bytes before those of the machine.
    const fn head_len(&self) -> usize {
        if self.ends.token.is_some() { 0 } else { HEAD }
    }

    /// Writes the head of a datagram.
    fn put_head(&self, kind: u8, w: &mut Writer<'_>) -> Result<(), NoRoom> {
        w.put(&write_head(kind, self.ends.id)[..self.head_len()])
    }

    /// A datagram of the machine.
    fn on_data(
        &mut self,
        state: &mut SessionState,
        kind: u8,
        (bytes, at): (&[u8], usize),
    ) -> Result<(), DecodeError> {
        // A listener's peer may send before its lane has said that it is ready.
        let lane = self.ends.token.is_some();
        let early = self.opening.as_ref();
        if early.is_some_and(|opening| !(opening.greeted && lane)) {
            return Err(DecodeError::Malformed("data before the opening"));
        }
        if bytes.len() > usize::from(self.datagram) {
            return Err(DecodeError::Malformed("a datagram longer than agreed"));
        }
        // It may carry as many bytes as it has.
        if (lane || kind == M::DATA) && bytes.len() as u64 > state.free {
            state.app.stats.dropped_full += 1;
            return Ok(());
        }
        let head = self.head_len();
        let incoming = Incoming {
            kind,
            bytes: &bytes[head..],
            at: at + head,
            wire: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            ecn: state.ecn,
        };
        let before = state.extents.len();
        self.machine
            .on_datagram(state.now, &incoming, &mut state.extents)?;
        let new = &state.extents[before..];
        if new.iter().any(|e| e.object == STREAM) {
            state.extents.truncate(before);
            return Err(DecodeError::Malformed("object"));
        }
        state.placed(new.iter().map(|e| u64::from(e.len)).sum());
        Ok(())
    }

    /// A datagram of the machine without data.
    fn feedback(&mut self, state: &mut SessionState, w: &mut Writer<'_>) -> Result<bool, NoRoom> {
        let rest = w.unwritten().get_mut(self.head_len()..);
        let mut body = Writer::new(rest.ok_or(NoRoom)?);
        let Some(kind) = self.machine.poll_datagram(state.now, &mut body)? else {
            return Ok(false);
        };
        let len = body.len();
        self.put_head(kind, w)?;
        w.reserve(len)?;
        state.app.stats.feedback_sent += w.len() as u64;
        Ok(true)
    }

    /// Time at which the lane works and datagrams do not for too long.
    fn blocked_at(&self) -> Option<Instant> {
        self.ends.token?;
        let since = self.machine.blocked_since()?;
        Some(since + self.limits.blocked)
    }
}

impl<M: Machine> Connection for Shell<M> {
    fn control(&self) -> usize {
        self.datagram.into()
    }

    fn shape(&self) -> (usize, usize) {
        (self.datagram.into(), self.head_len() + M::HEADER)
    }

    fn on_store(&mut self, now: Instant, store: &dyn Store) {
        self.machine.on_sink(now, store.sink());
    }

    fn on_datagram(
        &mut self,
        _turn: &mut Turn<'_>,
        state: &mut SessionState,
        bytes: &[u8],
        at: usize,
    ) -> Result<(), Refusal> {
        if self.ends.token.is_some() {
            let taken = match Join::decode(bytes) {
                Some(join) => self.on_join(join),
                None => self.on_data(state, 0, (bytes, at)),
            };
            return taken.map_err(Into::into);
        }
        let Some((kind, _)) = datagram::head(bytes).filter(|(_, id)| *id == self.ends.id) else {
            return Err(Refusal::Drop);
        };
        let body = &bytes[HEAD..];
        match kind {
            HELLO | WELCOME | READY => self.on_greeting(state, kind, body)?,
            CHANNEL => self.on_channel(state, body)?,
            CLOSE => {
                let mut r = Reader::new(body);
                let code = r.u32()?;
                let words = r.rest();
                let words = &words[..words.len().min(MAX_TEXT)];
                return Err(Refusal::End(closed(code, words)));
            }
            kind => self.on_data(state, kind, (bytes, at))?,
        }
        Ok(())
    }

    fn on_late(&mut self, now: Instant, life: &mut Life<Closing>, _bytes: &[u8]) {
        if self.closes_in_datagrams() {
            life.repeat(now);
        }
    }

    fn poll_control(
        &mut self,
        now: Instant,
        state: &mut SessionState,
        w: &mut Writer<'_>,
    ) -> Result<bool, NoRoom> {
        if let Some(join) = self.take_join(now) {
            return w.put(&join.encode()).map(|()| true);
        }
        if let Some(kind) = self.greeting_due(now) {
            self.put_head(kind, w)?;
            return self.write_greeting(now, kind, w);
        }
        if self.opening.is_some() {
            return Ok(false);
        }
        self.pump(state);
        if let Channel::InBand(channel) = &mut self.channel
            && channel.is_due()
        {
            w.put(&write_head(CHANNEL, self.ends.id))?;
            return channel.write(now, w);
        }
        self.feedback(state, w)
    }

    fn close(&mut self, now: Instant, life: &mut Life<Closing>, reason: &CloseReason) {
        let (code, text) = match reason {
            CloseReason::Local { code, text } => (*code, text.clone()),
            other => (u32::MAX, other.to_string()),
        };
        // Without a lane a client has not shown that it is there before the session is open.
        let proven = self.ends.client || self.ends.token.is_some();
        let known = self.opening.as_ref();
        let known = known.is_none_or(|opening| opening.greeted && proven);
        let unheard = matches!(
            reason,
            CloseReason::Peer { .. } | CloseReason::TimedOut | CloseReason::NoAnswer
        );
        let told = known && !unheard && !self.channel.is_gone();
        let cause = Cause::Application;
        let closing = told.then_some(Closing { cause, code, text });
        life.close(now, closing, self.rtt);
        self.machine.on_close();
    }

    fn closes_in_datagrams(&self) -> bool {
        self.ends.token.is_none()
    }

    fn write_close(
        &mut self,
        _: Instant,
        close: &Closing,
        w: &mut Writer<'_>,
    ) -> Result<(), NoRoom> {
        self.put_head(CLOSE, w)?;
        w.u32(close.code)?;
        let end = close.text.floor_char_boundary(MAX_TEXT.min(w.room()));
        w.put(&close.text.as_bytes()[..end])
    }

    fn permit(&mut self, now: Instant) -> Permit {
        if self.opening.is_some() {
            return Permit::Hold(Why::Handshake);
        }
        self.machine.permit(now)
    }

    fn extends_batch(&self, sent: u64, allowed: u64) -> bool {
        sent == 0 || sent + u64::from(self.datagram) <= allowed
    }

    fn next_packet(&mut self, now: Instant, packet: &mut Packet<'_>) -> bool {
        self.put_head(M::DATA, packet.header()).is_ok() && self.machine.next_packet(now, packet)
    }

    fn batch_sent(&mut self, now: Instant, bytes: u64) {
        self.machine.batch_sent(now, bytes);
    }

    fn deadline(&self) -> Option<(Instant, Why)> {
        if let Some(opening) = &self.opening {
            let again = opening.again.map(|at| (at, Why::Handshake));
            let end = opening.started + self.limits.answer;
            return earliest([again, Some((end, Why::Liveness))]);
        }
        earliest([
            self.blocked_at().map(|at| (at, Why::Liveness)),
            self.channel.deadline().map(|at| (at, Why::Repair)),
            self.machine.deadline(),
        ])
    }

    fn on_timer(&mut self, now: Instant) -> Result<(), CloseReason> {
        if let Some(opening) = &self.opening {
            let late = now >= opening.started + self.limits.answer;
            return if late { Err(self.unopened()) } else { Ok(()) };
        }
        self.machine.on_timer(now);
        self.channel.on_timer(now);
        if self.blocked_at().is_some_and(|at| at <= now) {
            let text = format!(
                "no datagram has reached the peer for {} s, although the control connection (TCP) works: \
                 something on the way blocks UDP",
                self.limits.blocked.as_secs()
            );
            return Err(CloseReason::Lane(text));
        }
        Ok(())
    }

    fn ask(&mut self) {
        self.signs.ask = true;
    }

    fn failure(&self) -> Option<CloseReason> {
        self.machine.failure()
    }

    fn send(&mut self, _now: Instant, object: ObjectId, offset: u64, len: u64) {
        self.machine.send(object, offset, len);
    }

    fn unsent(&self) -> u64 {
        self.machine.unsent()
    }

    fn cancel_unsent(&mut self) {
        self.machine.cancel_unsent();
    }

    fn write(&mut self, _now: Instant, bytes: &[u8]) {
        self.stream.write(bytes);
    }

    fn unwritten(&self) -> usize {
        self.stream.unwritten()
    }

    fn read(&mut self, into: &mut Vec<u8>) {
        self.stream.read(into);
    }

    fn is_delivered(&self) -> bool {
        self.opening.is_none() && self.machine.is_delivered() && self.stream.unwritten() == 0
    }

    fn token(&self) -> Option<Token> {
        self.ends.token.filter(|_| self.ends.client)
    }

    fn on_lane(
        &mut self,
        state: &mut SessionState,
        control: Control<'_>,
    ) -> Result<(), CloseReason> {
        let Channel::Lane(lane) = &mut self.channel else {
            return Ok(());
        };
        match control {
            Control::Opened => {
                lane.open = true;
                self.on_lane_opened(state.now);
            }
            Control::Closed(why) => {
                lane.gone = true;
                // Nobody hears a close any more.
                if !state.life.is_open() {
                    state.life.end();
                }
                return Err(CloseReason::Lane(why.to_owned()));
            }
            Control::Bytes(_) if !state.life.is_open() => {}
            Control::Bytes(bytes) => {
                state.life.on_heard(state.now);
                state.app.stats.wire_received += bytes.len() as u64;
                self.on_frames(state, bytes)?;
            }
        }
        Ok(())
    }

    fn poll_lane(&mut self, state: &mut SessionState, room: usize, into: &mut Vec<u8>) {
        let Channel::Lane(lane) = &mut self.channel else {
            return;
        };
        if !lane.open || lane.gone {
            return;
        }
        let (before, most) = (into.len(), into.len() + room);
        if state.life.is_open() {
            if self.greets() && room >= HEADER + 2 + MAX_GREETING {
                let greeting = self.own_greeting(state.now);
                Frame::Hello(self.datagram, &greeting).encode(into);
            }
            if self.becomes_ready(state) {
                Frame::Ready.encode(into);
            }
            if self.opening.is_none() {
                self.poll_frames(state, most.saturating_sub(into.len()), into);
            }
        } else if room >= HEADER + 4 + MAX_TEXT
            && let Some(close) = state.life.take_closing()
        {
            let end = close.text.floor_char_boundary(MAX_TEXT);
            Frame::Close(close.code, &close.text.as_bytes()[..end]).encode(into);
        }
        state.app.stats.wire_sent += (into.len() - before) as u64;
    }

    fn fill_stats(&self, stats: &mut Stats) {
        self.machine.fill_stats(stats);
        let shown = Some(self.rtt).filter(|rtt| !rtt.is_zero());
        stats.rtt_min = stats.rtt_min.or(shown);
        stats.rtt_smoothed = stats.rtt_smoothed.or(stats.rtt_min);
    }
}
