//! What is one connection? An opening, a control channel with the ordered stream on it, a [`Machine`]'s
//! data, and an end. `opening` and `channel` have the first two; this file holds the state, the
//! datagrams, the clock and the application's side.

use std::{net::SocketAddr, time::Duration};

use super::{
    Limits, batch,
    channel::Channel,
    datagram::{self, CHANNEL, CLOSE, HEAD, HELLO, Join, READY, WELCOME, write_head},
    frame::MAX_TEXT,
    machine::{Incoming, Machine},
    opening::Opening,
    stream::Stream,
};
use crate::{
    codec::{DecodeError, Reader, Writer},
    control::{Control, Token},
    datagram::{Ecn, Received, Transmit, TxBuf},
    life::Life,
    live::Alive,
    protocol::{CloseReason, Event, Session, Turn},
    send::{Permit, STREAM},
    session::{AppSide, earliest},
    stats::{Stats, Why},
    store::{Extent, ObjectId},
    text,
    time::Instant,
};

/// Code and text of a close.
pub(super) type Closing = (u32, String);

/// Who this end and the peer are.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) id: u64,
    pub(super) peer: SocketAddr,
    pub(super) client: bool,
    /// What joins the control lane; none without one.
    pub(super) token: Option<Token>,
    /// What a client has to say to show that it is at its address.
    pub(super) nonce: [u8; 8],
    /// Kept as long as the session lives, so that its endpoint can tell.
    #[expect(dead_code, reason = "held, not read")]
    pub(super) alive: Alive,
}

/// Signs of life that are due.
#[derive(Debug, Default)]
pub(super) struct Signs {
    pub(super) ask: bool,
    pub(super) answer: bool,
}

/// A session around a [`Machine`].
pub struct Shell<M> {
    pub(super) machine: M,
    pub(super) ends: Ends,
    pub(super) limits: Limits,
    pub(super) channel: Channel,
    /// Until the session is open.
    pub(super) opening: Option<Opening>,
    pub(super) life: Life<Closing>,
    pub(super) signs: Signs,
    pub(super) stream: Stream,
    /// The machine's control messages that are not all there.
    pub(super) control: Vec<u8>,
    /// UDP payload of a full datagram.
    pub(super) datagram: u16,
    pub(super) rtt: Duration,
    extents: Vec<Extent>,
    /// Bytes that the store can still take of the batch that arrived.
    free: u64,
    pub(super) app: AppSide,
}

impl<M: Machine> Shell<M> {
    pub(super) fn new(machine: M, ends: Ends, limits: Limits, now: Instant, datagram: u16) -> Self {
        Self {
            machine,
            limits,
            channel: Channel::new(ends.token.is_some()),
            opening: Some(Opening::new(now, ends.client && ends.token.is_none())),
            life: Life::new(now, limits.idle),
            signs: Signs::default(),
            stream: Stream::default(),
            control: Vec::new(),
            datagram,
            rtt: Duration::ZERO,
            extents: Vec::new(),
            free: 0,
            app: AppSide::default(),
            ends,
        }
    }

    /// The session is open and not ending.
    pub(super) fn is_open(&self) -> bool {
        self.opening.is_none() && self.life.is_open()
    }

    /// Bytes of the shell before those of the machine.
    pub(super) const fn head_len(&self) -> usize {
        if self.ends.token.is_some() { 0 } else { HEAD }
    }

    /// Ends the session for `reason`; the peer is told if it can be.
    pub(super) fn fail(&mut self, now: Instant, reason: CloseReason) {
        if !self.life.is_open() {
            return;
        }
        let closing = match &reason {
            CloseReason::Local { code, text } => Some((*code, text.clone())),
            CloseReason::Peer { .. } | CloseReason::TimedOut | CloseReason::NoAnswer => None,
            other => Some((u32::MAX, other.to_string())),
        };
        // Without a lane a client has not shown that it is there before the session is open.
        let proven = self.ends.client || self.ends.token.is_some();
        let known = self.opening.as_ref();
        let known = known.is_none_or(|opening| opening.greeted && proven);
        let reachable = known && !self.channel.is_gone();
        self.life
            .close(now, closing.filter(|_| reachable), self.rtt);
        self.machine.on_close();
        self.app.close(now, reason);
    }

    pub(super) fn violated(&mut self, now: Instant, error: &DecodeError) {
        let lane = self.ends.token.is_some();
        let place = if lane {
            "on the control connection (TCP): "
        } else {
            ""
        };
        self.fail(now, CloseReason::Protocol(format!("{place}{error}")));
    }

    /// The peer closes.
    pub(super) fn on_close(&mut self, now: Instant, code: u32, words: &[u8]) {
        let text = text::shown(words);
        self.fail(now, CloseReason::Peer { code, text });
        self.life.end();
    }

    /// Tells the application when all it gave has arrived.
    pub(super) fn settle(&mut self) {
        let done = self.machine.is_delivered() && self.stream.unwritten() == 0;
        self.app.settle(done && self.is_open());
    }

    /// One datagram, at `at` in its batch.
    fn on_datagram(
        &mut self,
        now: Instant,
        bytes: &[u8],
        at: usize,
        ecn: Ecn,
    ) -> Result<(), DecodeError> {
        if self.ends.token.is_some() {
            return match Join::decode(bytes) {
                Some(join) => self.on_join(join),
                None => self.on_data(now, 0, bytes, (at, ecn)),
            };
        }
        let Some((kind, _)) = datagram::head(bytes).filter(|(_, id)| *id == self.ends.id) else {
            return Err(DecodeError::Malformed("head"));
        };
        let body = &bytes[HEAD..];
        match kind {
            HELLO | WELCOME | READY => self.on_greeting(now, kind, body),
            CHANNEL => self.on_channel(now, body),
            CLOSE => {
                let mut r = Reader::new(body);
                let code = r.u32()?;
                let words = r.rest();
                self.on_close(now, code, &words[..words.len().min(MAX_TEXT)]);
                Ok(())
            }
            kind => self.on_data(now, kind, bytes, (at, ecn)),
        }
    }

    /// A datagram of the machine.
    fn on_data(
        &mut self,
        now: Instant,
        kind: u8,
        bytes: &[u8],
        (at, ecn): (usize, Ecn),
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
        let head = self.head_len();
        // It may carry as many bytes as it has.
        if (lane || kind == M::DATA) && bytes.len() as u64 > self.free {
            self.app.stats.dropped_full += 1;
            return Ok(());
        }
        let incoming = Incoming {
            kind,
            bytes: &bytes[head..],
            at: at + head,
            wire: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            ecn,
        };
        let before = self.extents.len();
        self.machine
            .on_datagram(now, &incoming, &mut self.extents)?;
        if self.extents[before..].iter().any(|e| e.object == STREAM) {
            self.extents.truncate(before);
            return Err(DecodeError::Malformed("object"));
        }
        let new = self.extents[before..].iter();
        let new = new.map(|e| u64::from(e.len)).sum::<u64>();
        self.app.stats.data_received += new;
        self.free = self.free.saturating_sub(new);
        Ok(())
    }

    /// A datagram that `write` fills behind the head, if it writes anything.
    fn single(
        &mut self,
        kind: u8,
        size: usize,
        out: &mut TxBuf,
        write: impl FnOnce(&mut Self, &mut Writer<'_>) -> Option<()>,
    ) -> Option<Transmit> {
        out.begin(size);
        let head = write_head(kind, self.ends.id);
        let mut w = Writer::new(out.next_segment());
        w.put(&head[..self.head_len()]).ok()?;
        write(self, &mut w)?;
        let len = w.len();
        out.commit(len, len);
        Some(self.count(out))
    }

    fn count(&mut self, out: &TxBuf) -> Transmit {
        self.app.sent(out);
        Transmit {
            to: self.ends.peer,
            ecn: Ecn::NotEct,
        }
    }

    /// What is said in datagrams and is not data.
    fn small(&mut self, now: Instant, out: &mut TxBuf) -> Option<Transmit> {
        if let Channel::InBand(_) = self.channel
            && let Some((code, text)) = self.life.take_closing()
        {
            return self.single(CLOSE, HEAD + 4 + MAX_TEXT, out, |_, w| {
                let end = text.floor_char_boundary(MAX_TEXT);
                w.u32(code).ok()?;
                w.put(&text.as_bytes()[..end]).ok()
            });
        }
        if !self.life.is_open() {
            return None;
        }
        if let Some(join) = self.take_join(now) {
            return self.single(0, datagram::JOIN, out, |_, w| w.put(&join.encode()).ok());
        }
        let size = usize::from(self.datagram);
        if let Some(kind) = self.greeting_due(now) {
            return self.single(kind, size, out, |this, w| this.write_greeting(now, kind, w));
        }
        if !self.is_open() {
            self.app.hold(now, Why::Handshake);
            return None;
        }
        self.pump(now);
        if let Channel::InBand(channel) = &mut self.channel
            && channel.is_due()
        {
            return self.single(CHANNEL, size, out, |this, w| match &mut this.channel {
                Channel::InBand(channel) => channel.write(now, w).ok()?.then_some(()),
                Channel::Lane(_) => None,
            });
        }
        self.feedback(now, size, out)
    }

    /// A datagram of the machine without data.
    fn feedback(&mut self, now: Instant, size: usize, out: &mut TxBuf) -> Option<Transmit> {
        let mut kind = None;
        let transmit = self.single(0, size, out, |this, w| {
            kind = this.machine.poll_datagram(now, w).ok()?;
            kind.map(|_| ())
        });
        if let (Some(kind), Some(_)) = (kind, &transmit) {
            if self.head_len() > 0 {
                out.raw()[0] = kind;
            }
            self.app.stats.feedback_sent += out.bytes().len() as u64;
        }
        transmit
    }

    /// A batch of data, if it may leave.
    fn data(&mut self, turn: &mut Turn<'_>, out: &mut TxBuf) -> Option<Transmit> {
        let now = turn.now;
        let bytes = match self.machine.permit(now) {
            Permit::Send { bytes } => bytes,
            Permit::Hold(why) => {
                self.app.hold(now, why);
                return None;
            }
        };
        let head = write_head(M::DATA, self.ends.id);
        let datagram = usize::from(self.datagram);
        let shape = (&head[..self.head_len()], M::HEADER, datagram);
        let machine = &mut self.machine;
        let sent = batch::compose(shape, out, &mut self.extents, |packet, sent| {
            (sent == 0 || sent + datagram as u64 <= bytes) && machine.next_packet(now, packet)
        });
        if sent == 0 {
            return None;
        }
        self.machine.batch_sent(now, sent);
        self.app.stats.held.set(now, None);
        if let Err(error) = turn.store.fill(&self.extents, out.raw()) {
            self.fail(now, CloseReason::Store(error.0));
            return self.small(now, out);
        }
        Some(self.count(out))
    }

    /// Silence that means an end.
    fn on_silence(&mut self, now: Instant) {
        if let Some(opening) = &self.opening {
            if now >= opening.started + self.limits.answer {
                let reason = self.unopened();
                self.fail(now, reason);
            }
            return;
        }
        if now >= self.life.idle_at() {
            self.fail(now, CloseReason::TimedOut);
        } else if self.blocked_at().is_some_and(|at| at <= now) {
            let text = format!(
                "no datagram has reached the peer for {} s, although the control connection (TCP) works: \
                 something on the way blocks UDP",
                self.limits.blocked.as_secs()
            );
            self.fail(now, CloseReason::Lane(text));
        } else {
            self.signs.ask |= self.life.ping(now);
        }
    }

    /// When the lane works and datagrams do not for too long.
    fn blocked_at(&self) -> Option<Instant> {
        self.ends.token?;
        let since = self.machine.blocked_since()?;
        Some(since + self.limits.blocked)
    }
}

impl<M: Machine> Session for Shell<M> {
    fn handle_datagrams(&mut self, turn: &mut Turn<'_>, batch: Received<'_>) {
        if !self.life.is_open() {
            if matches!(self.channel, Channel::InBand(_)) && batch.from == self.ends.peer {
                self.life.repeat(turn.now);
            }
            return;
        }
        self.extents.clear();
        let sink = turn.store.sink();
        self.free = sink.free;
        self.machine.on_sink(turn.now, sink);
        let segment = batch.segment.max(1);
        for (i, datagram) in batch.bytes.chunks(segment).enumerate() {
            let known = batch.from == self.ends.peer;
            let heard = known
                && self
                    .on_datagram(turn.now, datagram, i * segment, batch.ecn)
                    .is_ok();
            if heard {
                self.life.on_heard(turn.now);
                self.app.received(datagram.len());
            } else {
                self.app.stats.dropped_malformed += 1;
            }
        }
        if !self.extents.is_empty()
            && let Err(error) = turn.store.place(&self.extents, batch.bytes)
        {
            self.fail(turn.now, CloseReason::Store(error.0));
        }
        self.settle();
    }

    fn handle_timeout(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now;
        self.life.on_timeout(now);
        if !self.life.is_open() {
            return;
        }
        if self.opening.is_none() {
            self.machine.on_timer(now);
            self.channel.on_timer(now);
        }
        self.on_silence(now);
        self.settle();
    }

    fn poll_transmit(&mut self, turn: &mut Turn<'_>, out: &mut TxBuf) -> Option<Transmit> {
        self.machine.on_sink(turn.now, turn.store.sink());
        if let Some(reason) = self.machine.failure() {
            self.fail(turn.now, reason);
        }
        if let Some(transmit) = self.small(turn.now, out) {
            return Some(transmit);
        }
        if self.is_open() {
            return self.data(turn, out);
        }
        None
    }

    fn poll_timeout(&self) -> Option<(Instant, Why)> {
        if !self.life.is_open() {
            return self.life.deadline();
        }
        if let Some(opening) = &self.opening {
            let again = opening.again.map(|at| (at, Why::Handshake));
            let end = opening.started + self.limits.answer;
            return earliest([again, Some((end, Why::Liveness))]);
        }
        earliest([
            self.life.deadline(),
            self.blocked_at().map(|at| (at, Why::Liveness)),
            self.channel.deadline().map(|at| (at, Why::Repair)),
            self.machine.deadline(),
        ])
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.app.poll_event()
    }

    fn send(&mut self, object: ObjectId, offset: u64, len: u64) {
        if self.app.give(object, len) {
            self.machine.send(object, offset, len);
        }
    }

    fn unsent(&self) -> u64 {
        self.machine.unsent()
    }

    fn cancel_unsent(&mut self) {
        self.machine.cancel_unsent();
        self.settle();
    }

    fn write(&mut self, bytes: &[u8]) {
        if self.app.write(bytes) {
            self.stream.write(bytes);
        }
    }

    fn unwritten(&self) -> usize {
        self.stream.unwritten()
    }

    fn read(&mut self, into: &mut Vec<u8>) {
        self.stream.read(into);
    }

    fn control_token(&self) -> Option<Token> {
        self.ends.token.filter(|_| self.ends.client)
    }

    fn handle_control(&mut self, turn: &mut Turn<'_>, control: Control<'_>) {
        self.on_lane(turn.now, control);
    }

    fn poll_control(&mut self, now: Instant, room: usize, into: &mut Vec<u8>) {
        self.poll_lane(now, room, into);
    }

    fn close(&mut self, now: Instant, code: u32, text: &str) {
        let text = text.to_owned();
        self.fail(now, CloseReason::Local { code, text });
    }

    fn is_closed(&self) -> bool {
        self.life.is_over()
    }

    fn stats(&self) -> Stats {
        let mut stats = self.app.stats;
        self.machine.fill_stats(&mut stats);
        stats.rtt_min = stats
            .rtt_min
            .or(Some(self.rtt).filter(|rtt| !rtt.is_zero()));
        stats.rtt_smoothed = stats.rtt_smoothed.or(stats.rtt_min);
        stats
    }
}
