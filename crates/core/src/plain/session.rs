//! A session around an [`Engine`]: hello until welcome, then whatever the engine sends, close in three
//! copies. Every datagram starts with a type and the session's id in four bytes.

use std::{collections::VecDeque, net::SocketAddr, time::Duration};

use crate::{
    codec::{DecodeError, NoRoom, Reader, Writer},
    datagram::{Ecn, Received, Transmit, TxBuf},
    protocol::{CloseReason, Event, Route, Session, Turn},
    stats::{Stats, Why},
    store::{Extent, ObjectId, StoreError},
    time::Instant,
};

/// Type of the first datagram; has no body, as the next two.
pub const HELLO: u8 = 0x40;
/// The answer to [`HELLO`]. An engine's own types are above it and below [`CLOSE`].
pub const WELCOME: u8 = 0x41;
/// The last datagram.
pub const CLOSE: u8 = 0x4f;
/// Bytes of type and id.
pub const HEAD: usize = 5;

/// Type and id.
pub fn head(datagram: &[u8]) -> Option<(u8, u64)> {
    let mut r = Reader::new(datagram);
    let kind = r.u8().ok()?;
    let id = r.u32().ok()?;
    (HELLO..=CLOSE)
        .contains(&kind)
        .then_some((kind, u64::from(id)))
}

/// Writes type and id.
pub fn put_head(w: &mut Writer<'_>, kind: u8, id: u64) -> Result<(), NoRoom> {
    w.u8(kind)?;
    w.u32(u32::try_from(id).unwrap_or(u32::MAX))
}

/// Where a datagram belongs.
pub fn route(datagram: &[u8]) -> Route {
    match head(datagram) {
        Some((HELLO, _)) => Route::New,
        Some((_, id)) => Route::Known(id),
        None => Route::Foreign,
    }
}

/// Where a datagram lies in its batch and how it came.
#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    /// Its bytes.
    pub len: usize,
    /// Place of its first byte in the batch.
    pub at: usize,
    /// Its mark.
    pub ecn: Ecn,
}

/// What was written into the batch buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrote {
    /// Nothing.
    Nothing,
    /// Data, whose places are in the extents.
    Data,
    /// Feedback or control.
    Control {
        /// Bytes of it that are feedback.
        feedback: u64,
    },
}

/// The part of a session that moves data.
pub trait Engine: Send {
    /// The session is open; the greeting took `rtt`.
    fn open(&mut self, now: Instant, rtt: Duration);
    /// A datagram of one of the engine's types; `r` is behind the head. Adds what is to be placed.
    fn hear(
        &mut self,
        now: Instant,
        kind: u8,
        r: &mut Reader<'_>,
        arrived: Arrived,
        extents: &mut Vec<Extent>,
    ) -> Result<(), DecodeError>;
    /// Writes a batch, if one may leave.
    fn write(&mut self, now: Instant, id: u64, out: &mut TxBuf, extents: &mut Vec<Extent>)
    -> Wrote;
    /// The deadline passed.
    fn on_timer(&mut self, now: Instant);
    /// Why the session must end, if its law has failed.
    fn failure(&self) -> Option<String> {
        None
    }
    /// When to call again, and why.
    fn deadline(&self) -> Option<(Instant, Why)>;
    /// Queues data.
    fn send(&mut self, object: ObjectId, offset: u64, len: u64);
    /// Bytes queued and not sent once.
    fn unsent(&self) -> u64;
    /// Forgets them.
    fn cancel_unsent(&mut self);
    /// All that was queued is acknowledged.
    fn is_idle(&self) -> bool;
    /// Adds its counters.
    fn fill_stats(&self, stats: &mut Stats);
}

/// Hello is repeated after this.
const RETRY: Duration = Duration::from_millis(250);
/// A session ends when nothing was heard for so long.
const IDLE: Duration = Duration::from_secs(30);
/// The rtt as a server sees it, which did not time a greeting.
const GUESS: Duration = Duration::from_millis(100);
/// Copies of a close.
const FAREWELLS: u8 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Greeting,
    Open,
    Over,
}

/// A session that greets, sends what its engine sends, and takes leave.
#[derive(Debug)]
pub struct PlainSession<E> {
    id: u64,
    to: SocketAddr,
    client: bool,
    phase: Phase,
    /// Hello (client) or welcome (server) is due.
    greet_at: Option<Instant>,
    greeted: Option<Instant>,
    heard: Instant,
    farewells: u8,
    delivered: bool,
    engine: E,
    events: VecDeque<Event>,
    extents: Vec<Extent>,
    stats: Stats,
}

impl<E: Engine> PlainSession<E> {
    /// Session `id` with `to`; a client greets first.
    pub fn new(engine: E, now: Instant, id: u64, to: SocketAddr, client: bool) -> Self {
        Self {
            id,
            to,
            client,
            phase: Phase::Greeting,
            greet_at: client.then_some(now),
            greeted: None,
            heard: now,
            farewells: 0,
            delivered: true,
            engine,
            events: VecDeque::new(),
            extents: Vec::new(),
            stats: Stats::default(),
        }
    }

    fn finish(&mut self, reason: CloseReason) {
        if self.phase != Phase::Over {
            self.phase = Phase::Over;
            self.events.push_back(Event::Closed(reason));
        }
    }

    fn connect(&mut self, now: Instant) {
        if self.phase == Phase::Greeting {
            self.phase = Phase::Open;
            self.events.push_back(Event::Connected { peer_key: None });
            let rtt = self.greeted.map_or(GUESS, |at| now.since(at));
            self.engine.open(now, rtt.max(Duration::from_micros(1)));
        }
    }

    /// One datagram.
    fn hear(&mut self, now: Instant, datagram: &[u8], arrived: Arrived) -> Result<(), DecodeError> {
        let Some((kind, _)) = head(datagram).filter(|(_, id)| *id == self.id) else {
            return Err(DecodeError::Malformed("head"));
        };
        let mut r = Reader::new(&datagram[HEAD..]);
        self.heard = now;
        match kind {
            HELLO if !self.client => {
                self.connect(now);
                self.greet_at = Some(now);
            }
            WELCOME if self.client => {
                self.greet_at = None;
                self.connect(now);
            }
            HELLO | WELCOME => {}
            CLOSE => self.finish(CloseReason::Peer {
                code: 0,
                text: String::new(),
            }),
            kind => {
                let before = self.extents.len();
                self.engine
                    .hear(now, kind, &mut r, arrived, &mut self.extents)?;
                let placed = self.extents[before..].iter().map(|e| u64::from(e.len));
                self.stats.data_received += placed.sum::<u64>();
            }
        }
        Ok(())
    }

    /// A packet without a body.
    fn bare(&self, kind: u8, out: &mut TxBuf) {
        out.begin(HEAD);
        let mut w = Writer::new(out.next_segment());
        put_head(&mut w, kind, self.id).expect("the head was begun");
        out.commit(HEAD, HEAD);
    }

    fn write(&mut self, turn: &mut Turn<'_>, out: &mut TxBuf) -> Result<bool, StoreError> {
        let now = turn.now;
        if self.farewells > 0 {
            self.farewells -= 1;
            self.bare(CLOSE, out);
            return Ok(true);
        }
        if self.phase == Phase::Over {
            return Ok(false);
        }
        if self.greet_at.is_some_and(|at| at <= now) {
            self.greet_at = self.client.then_some(now + RETRY);
            self.greeted.get_or_insert(now);
            self.bare(if self.client { HELLO } else { WELCOME }, out);
            return Ok(true);
        }
        if self.phase != Phase::Open {
            return Ok(false);
        }
        self.extents.clear();
        match self.engine.write(now, self.id, out, &mut self.extents) {
            Wrote::Nothing => return Ok(false),
            Wrote::Data => turn.store.fill(&self.extents, out.raw())?,
            Wrote::Control { feedback } => self.stats.feedback_sent += feedback,
        }
        Ok(true)
    }

    fn check_delivered(&mut self) {
        if !self.delivered && self.engine.is_idle() {
            self.delivered = true;
            self.events.push_back(Event::Delivered);
        }
    }
}

impl<E: Engine> Session for PlainSession<E> {
    fn handle_datagrams(&mut self, turn: &mut Turn<'_>, batch: Received<'_>) {
        if self.phase == Phase::Over {
            return;
        }
        self.extents.clear();
        let segment = batch.segment.max(1);
        for (i, datagram) in batch.bytes.chunks(segment).enumerate() {
            let arrived = Arrived {
                len: datagram.len(),
                at: i * segment,
                ecn: batch.ecn,
            };
            if self.hear(turn.now, datagram, arrived).is_err() {
                self.stats.dropped_malformed += 1;
            } else {
                self.stats.datagrams_received += 1;
                self.stats.wire_received += datagram.len() as u64;
            }
        }
        if !self.extents.is_empty()
            && let Err(error) = turn.store.place(&self.extents, batch.bytes)
        {
            self.finish(CloseReason::Store(error.0));
        }
        self.check_delivered();
    }

    fn handle_timeout(&mut self, turn: &mut Turn<'_>) {
        if turn.now >= self.heard + IDLE {
            self.finish(CloseReason::TimedOut);
        }
        if self.phase == Phase::Open {
            self.engine.on_timer(turn.now);
        }
    }

    fn poll_transmit(&mut self, turn: &mut Turn<'_>, out: &mut TxBuf) -> Option<Transmit> {
        if let Some(text) = self.engine.failure() {
            self.finish(CloseReason::Internal(text));
        }
        match self.write(turn, out) {
            Ok(true) => {
                self.stats.wire_sent += out.bytes().len() as u64;
                self.stats.datagrams_sent += out.count() as u64;
                Some(Transmit {
                    to: self.to,
                    ecn: Ecn::NotEct,
                })
            }
            Ok(false) => None,
            Err(error) => {
                self.finish(CloseReason::Store(error.0));
                None
            }
        }
    }

    fn poll_timeout(&self) -> Option<(Instant, Why)> {
        if self.phase == Phase::Over {
            return None;
        }
        let engine = self.engine.deadline().filter(|_| self.phase == Phase::Open);
        [
            engine,
            self.greet_at.map(|at| (at, Why::Handshake)),
            Some((self.heard + IDLE, Why::Liveness)),
        ]
        .into_iter()
        .flatten()
        .min_by_key(|(at, _)| *at)
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn send(&mut self, object: ObjectId, offset: u64, len: u64) {
        self.delivered &= len == 0;
        self.engine.send(object, offset, len);
    }

    fn unsent(&self) -> u64 {
        self.engine.unsent()
    }

    fn cancel_unsent(&mut self) {
        self.engine.cancel_unsent();
    }

    fn write(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.finish(CloseReason::Local {
                code: 1,
                text: "this protocol has no ordered stream".into(),
            });
        }
    }

    fn unwritten(&self) -> usize {
        0
    }

    fn read(&mut self, _into: &mut Vec<u8>) {}

    fn close(&mut self, _now: Instant, code: u32, text: &str) {
        if self.phase != Phase::Over {
            self.farewells = FAREWELLS;
            self.finish(CloseReason::Local {
                code,
                text: text.into(),
            });
        }
    }

    fn is_closed(&self) -> bool {
        self.phase == Phase::Over && self.farewells == 0
    }

    fn stats(&self) -> Stats {
        let mut stats = self.stats;
        self.engine.fill_stats(&mut stats);
        stats
    }
}
