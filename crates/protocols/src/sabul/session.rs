//! What is one connection? It opens when the control lane is there, datagrams pass both ways, and each
//! end has the other's options; then either end may send. `talk` is what goes over the control lane;
//! this file holds the state, the datagrams, the clock and the application's side.

mod talk;

use std::{collections::VecDeque, net::SocketAddr, sync::Arc, time::Duration};

use farhaul_core::{
    codec::Writer,
    congestion::CongestionController,
    control::{Control, Token},
    datagram::{Ecn, Received, Transmit, TxBuf},
    protocol::{CloseReason, Event, Session, Turn},
    send::{Permit, STREAM},
    stats::{Stats, Why},
    store::{Extent, ObjectId},
    time::Instant,
    units::Rate,
};

use self::talk::Talk;
use super::{
    protocol::Config,
    recv::{Arrival, Receiver},
    send::Sender,
    seq,
    stream::Streams,
    wire::{Datagram, HEADER, JOIN, Options},
};

/// A datagram that joins is repeated after the first, then after twice as long, up to the second: it may
/// overtake the token on the control lane.
const JOIN_AGAIN: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(100)];
/// A session ends when nothing was heard for so long.
const IDLE: Duration = Duration::from_secs(30);
/// Something is said at least so often.
const ALIVE: Duration = Duration::from_secs(5);
/// How long a farewell waits for the peer to hang up.
const FAREWELL: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Opening,
    Open,
    /// The peer is being told, at most until then.
    Leaving(Instant),
    Over,
}

/// How far the opening is.
#[derive(Debug)]
struct Opening {
    /// The control lane is there.
    lane: bool,
    /// Datagrams came back (client).
    joined: bool,
    /// The peer's options came.
    agreed: bool,
    join_at: Option<Instant>,
    join_wait: Duration,
    gives_up: Instant,
}

/// A session of SABUL.
pub(super) struct SabulSession {
    config: Arc<Config>,
    peer: SocketAddr,
    token: Token,
    client: bool,
    phase: Phase,
    opening: Opening,
    /// Answers owed to datagrams that join.
    joins_owed: u32,
    options: Options,
    /// UDP payload of a full packet, once agreed.
    datagram: u32,
    sender: Sender,
    receiver: Option<Receiver>,
    streams: Streams,
    talk: Talk,
    heard: Instant,
    undelivered: bool,
    extents: Vec<Extent>,
    events: VecDeque<Event>,
    stats: Stats,
}

impl SabulSession {
    pub(super) fn new(
        config: Arc<Config>,
        law: Box<dyn CongestionController>,
        now: Instant,
        (peer, token): (SocketAddr, Token),
        client: bool,
        options: Options,
    ) -> Self {
        let max_rate = config.max_rate.unwrap_or(Rate::UNLIMITED);
        Self {
            opening: Opening {
                lane: false,
                joined: false,
                agreed: false,
                join_at: None,
                join_wait: JOIN_AGAIN[0],
                gives_up: now + config.answer,
            },
            config,
            peer,
            token,
            client,
            phase: Phase::Opening,
            joins_owed: 0,
            datagram: options.packet,
            options,
            sender: Sender::new(law, max_rate),
            receiver: None,
            streams: Streams::default(),
            talk: Talk::new(now),
            heard: now,
            undelivered: false,
            extents: Vec::new(),
            events: VecDeque::new(),
            stats: Stats::default(),
        }
    }

    /// Ends the session for `reason`; the peer is told if it can be.
    fn fail(&mut self, now: Instant, reason: CloseReason) {
        if matches!(self.phase, Phase::Leaving(_) | Phase::Over) {
            return;
        }
        let (code, text) = match &reason {
            CloseReason::Local { code, text } => (*code, text.clone()),
            CloseReason::Peer { .. } => (0, String::new()),
            other => (u32::MAX, other.to_string()),
        };
        let tells = self.talk.is_open() && !matches!(reason, CloseReason::Peer { .. });
        self.phase = if tells {
            self.talk.say_farewell(code, &text);
            Phase::Leaving(now + FAREWELL)
        } else {
            Phase::Over
        };
        self.stats.held.set(now, None);
        self.events.push_back(Event::Closed(reason));
    }

    /// The peer's options are here and `exchange` is how long it took to ask; both halves begin.
    fn agree(&mut self, now: Instant, theirs: &Options, exchange: Duration) {
        self.opening.agreed = true;
        self.datagram = self.options.packet.min(theirs.packet);
        self.sender.start(self.datagram, theirs.window);
        self.receiver = Some(Receiver::new(now, self.options.window));
        self.time_path(now, exchange);
    }

    /// How long an exchange takes is known now.
    fn time_path(&mut self, now: Instant, exchange: Duration) {
        self.sender.time_path(now, exchange);
        if let Some(receiver) = &mut self.receiver {
            receiver.time_path(exchange);
        }
        self.stats.rtt_min = Some(exchange);
        self.stats.rtt_smoothed = Some(exchange);
    }

    /// Opens the session if all is there that it takes.
    fn check_open(&mut self) {
        let ready = self.opening.agreed && (!self.client || self.opening.joined);
        if self.phase == Phase::Opening && ready && self.talk.greeted() {
            self.phase = Phase::Open;
            self.opening.join_at = None;
            self.events.push_back(Event::Connected { peer_key: None });
        }
    }

    /// Why the opening was not done in time.
    fn unopened(&self) -> CloseReason {
        let text = match (&self.opening, self.client) {
            (Opening { lane: false, .. }, true) => {
                "no answer to the control connection (TCP): is somebody there, and is the TCP port of \
                 that number open?"
            }
            (Opening { agreed: true, .. }, true) => {
                "datagrams reach the peer, but none comes back: does something on the way block UDP \
                 from there? The control connection (TCP) works"
            }
            (_, true) => {
                "the control connection (TCP) works, but the peer does not answer to it: does \
                 something on the way block UDP, or is it not SABUL that listens there?"
            }
            (_, false) => return CloseReason::Unfinished,
        };
        CloseReason::Lane(text.into())
    }

    /// One datagram, at `at` in its batch.
    fn on_datagram(&mut self, now: Instant, bytes: &[u8], at: usize) -> Option<()> {
        match Datagram::decode(bytes).ok()? {
            Datagram::Joins(token) if token == self.token && !self.client => {
                self.joins_owed = self.joins_owed.saturating_add(1).min(8);
            }
            Datagram::Joined(token) if token == self.token && self.client => {
                self.opening.joined = true;
                self.check_open();
            }
            Datagram::Data {
                sequence,
                object,
                offset,
            } => {
                let receiver = self.receiver.as_mut()?;
                let len = u32::try_from(bytes.len() - HEADER)
                    .ok()
                    .filter(|n| *n > 0)?;
                offset.checked_add(len.into())?;
                if bytes.len() > self.datagram as usize || object == STREAM {
                    return None;
                }
                let last = bytes.len() < self.datagram as usize;
                match receiver.on_packet(now, sequence, last) {
                    Arrival::New => {
                        self.stats.data_received += u64::from(len);
                        self.extents.push(Extent {
                            object,
                            offset,
                            len,
                            at: u32::try_from(at + HEADER).ok()?,
                        });
                    }
                    Arrival::Again => self.stats.dropped_duplicate += 1,
                    Arrival::Beyond => {}
                }
            }
            Datagram::Joins(_) | Datagram::Joined(_) => return None,
        }
        self.heard = now;
        Some(())
    }

    /// A datagram without data, if one is due.
    fn write_join(&mut self, now: Instant, out: &mut TxBuf) -> bool {
        let datagram = if self.joins_owed > 0 {
            self.joins_owed -= 1;
            Datagram::Joined(self.token)
        } else if self.opening.join_at.is_some_and(|at| at <= now) {
            self.opening.join_at = Some(now + self.opening.join_wait);
            self.opening.join_wait = (self.opening.join_wait * 2).min(JOIN_AGAIN[1]);
            Datagram::Joins(self.token)
        } else {
            return false;
        };
        out.begin(JOIN);
        let mut w = Writer::new(out.next_segment());
        datagram.encode(&mut w).expect("a token fits its datagram");
        out.commit(JOIN, JOIN);
        true
    }

    /// A batch of data, if the law lets it.
    fn write_data(&mut self, turn: &mut Turn<'_>, out: &mut TxBuf) -> bool {
        let now = turn.now;
        let permit = self.sender.permit(now);
        self.stats.held.set(now, self.sender.held());
        let Permit::Send { bytes } = permit else {
            return false;
        };
        let full = self.datagram as usize;
        let room = out.begin(full) as u64;
        let most = room.min((bytes / full as u64).max(1));
        self.extents.clear();
        let mut sent = 0;
        for _ in 0..most {
            let Some((number, piece)) = self.sender.next_packet() else {
                break;
            };
            let at = u32::try_from(out.next_at() + HEADER).unwrap_or(u32::MAX);
            let head = Datagram::Data {
                sequence: seq::wrap(number),
                object: piece.object,
                offset: piece.offset,
            };
            head.encode(&mut Writer::new(out.next_segment()))
                .expect("a packet holds its header");
            self.sender.sent(now, number, piece);
            let wire = piece.len as usize + HEADER;
            out.commit(wire, HEADER);
            sent += wire as u64;
            self.extents.push(Extent {
                object: piece.object,
                offset: piece.offset,
                len: piece.len,
                at,
            });
            if wire < full {
                break;
            }
        }
        if sent == 0 {
            return false;
        }
        self.sender.batch_sent(now, sent);
        if let Err(error) = turn.store.fill(&self.extents, out.raw()) {
            self.fail(now, CloseReason::Store(error.0));
            return false;
        }
        true
    }

    /// Tells the application when all it gave has arrived.
    fn settle(&mut self) {
        let idle = self.sender.is_idle() && self.streams.unwritten() == 0;
        if self.undelivered && idle && self.phase == Phase::Open {
            self.undelivered = false;
            self.events.push_back(Event::Delivered);
        }
    }

    fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// When a silence means the end.
    fn patience(&self) -> Instant {
        match self.phase {
            Phase::Opening => self.opening.gives_up,
            Phase::Leaving(until) => until,
            Phase::Open | Phase::Over => self.heard + IDLE,
        }
    }

    fn on_patience(&mut self, now: Instant) {
        if now < self.patience() {
            let blocked = self.sender.blocked_since();
            if self.is_open() && blocked.is_some_and(|at| now >= at + self.config.blocked) {
                let text = format!(
                    "no datagram has reached the peer for {} s, although the control connection (TCP) \
                     works: something on the way blocks UDP",
                    self.config.blocked.as_secs()
                );
                self.fail(now, CloseReason::Lane(text));
            }
            return;
        }
        match self.phase {
            Phase::Opening => {
                let reason = self.unopened();
                self.fail(now, reason);
            }
            Phase::Open => self.fail(now, CloseReason::TimedOut),
            Phase::Leaving(_) => self.phase = Phase::Over,
            Phase::Over => {}
        }
    }
}

impl Session for SabulSession {
    fn handle_datagrams(&mut self, turn: &mut Turn<'_>, batch: Received<'_>) {
        if matches!(self.phase, Phase::Leaving(_) | Phase::Over) {
            return;
        }
        self.extents.clear();
        let segment = batch.segment.max(1);
        for (i, datagram) in batch.bytes.chunks(segment).enumerate() {
            if self.on_datagram(turn.now, datagram, i * segment).is_some() {
                self.stats.datagrams_received += 1;
                self.stats.wire_received += datagram.len() as u64;
            } else {
                self.stats.dropped_malformed += 1;
            }
        }
        if !self.extents.is_empty()
            && let Err(error) = turn.store.place(&self.extents, batch.bytes)
        {
            self.fail(turn.now, CloseReason::Store(error.0));
        }
    }

    fn handle_timeout(&mut self, turn: &mut Turn<'_>) {
        if self.is_open() {
            self.sender.on_timer(turn.now);
        }
        self.on_patience(turn.now);
    }

    fn poll_transmit(&mut self, turn: &mut Turn<'_>, out: &mut TxBuf) -> Option<Transmit> {
        if let Some(text) = self.sender.failure() {
            self.fail(turn.now, CloseReason::Internal(text));
        }
        if matches!(self.phase, Phase::Leaving(_) | Phase::Over) {
            return None;
        }
        let wrote = self.write_join(turn.now, out) || self.is_open() && self.write_data(turn, out);
        if !wrote {
            return None;
        }
        self.stats.wire_sent += out.bytes().len() as u64;
        self.stats.datagrams_sent += out.count() as u64;
        Some(Transmit {
            to: self.peer,
            ecn: Ecn::NotEct,
        })
    }

    fn poll_timeout(&self) -> Option<(Instant, Why)> {
        let patience = (self.patience(), Why::Liveness);
        match self.phase {
            Phase::Over => return None,
            Phase::Leaving(_) => return Some(patience),
            Phase::Opening | Phase::Open => {}
        }
        // Before the greeting is over nothing is reported, whatever has arrived.
        let receiver = self.receiver.as_ref().filter(|_| self.talk.is_ready());
        let receiver = receiver.and_then(Receiver::deadline);
        let blocked = self
            .sender
            .blocked_since()
            .map(|at| at + self.config.blocked);
        [
            Some(patience),
            self.opening.join_at.map(|at| (at, Why::Handshake)),
            receiver.map(|at| (at, Why::Feedback)),
            self.talk.alive_at().map(|at| (at, Why::Liveness)),
            self.sender.deadline().filter(|_| self.is_open()),
            blocked
                .filter(|_| self.is_open())
                .map(|at| (at, Why::Liveness)),
        ]
        .into_iter()
        .flatten()
        .min_by_key(|(at, _)| *at)
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn send(&mut self, object: ObjectId, offset: u64, len: u64) {
        if matches!(self.phase, Phase::Opening | Phase::Open) && object != STREAM && len > 0 {
            self.sender.push(object, offset, len);
            self.undelivered = true;
        }
    }

    fn unsent(&self) -> u64 {
        self.sender.unsent()
    }

    fn cancel_unsent(&mut self) {
        self.sender.cancel_unsent();
        self.settle();
    }

    fn write(&mut self, bytes: &[u8]) {
        if matches!(self.phase, Phase::Opening | Phase::Open) && !bytes.is_empty() {
            self.streams.write(bytes);
            self.undelivered = true;
        }
    }

    fn unwritten(&self) -> usize {
        self.streams.unwritten()
    }

    fn read(&mut self, into: &mut Vec<u8>) {
        self.streams.read(into);
    }

    fn control_token(&self) -> Option<Token> {
        self.client.then_some(self.token)
    }

    fn handle_control(&mut self, turn: &mut Turn<'_>, control: Control<'_>) {
        self.hear_control(turn.now, control);
    }

    fn poll_control(&mut self, now: Instant, room: usize, into: &mut Vec<u8>) {
        self.say_control(now, room, into);
    }

    fn close(&mut self, now: Instant, code: u32, text: &str) {
        let text = text.to_owned();
        self.fail(now, CloseReason::Local { code, text });
    }

    fn is_closed(&self) -> bool {
        self.phase == Phase::Over
    }

    fn stats(&self) -> Stats {
        let mut stats = self.stats;
        self.sender.fill_stats(&mut stats);
        stats
    }
}
