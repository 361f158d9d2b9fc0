//! One end of a session, driven by hand: a protocol's endpoint, at most one session of it, its
//! application's bytes and events. The caller delivers what arrives and takes what leaves: a
//! [`crate::Pair`], a fuzz target, a peer that lies.

use std::{fmt, net::SocketAddr, time::Duration};

use farhaul_core::{
    control::Control,
    datagram::{Ecn, Received, Transmit, TxBuf},
    protocol::{Accepted, CloseReason, Event, Protocol, Route, Session, Turn},
    rng::Rng,
    store::Store,
    time::Instant,
};

use crate::Pattern;

/// A session that sends more batches than this at one instant will never stop.
const MAX_BATCHES: usize = 10_000;

/// Action of an application at once on an event.
pub type Reaction = Box<dyn FnMut(Instant, &Event, &mut dyn Session)>;

/// One end. Tests may change any of it at any time.
pub struct Driver<S = Pattern> {
    /// Address from which the end sends.
    pub address: SocketAddr,
    /// The factory of its session.
    pub protocol: Box<dyn Protocol>,
    /// Session of the end with its id, if there is one.
    pub session: Option<(u64, Box<dyn Session>)>,
    /// Random numbers for the turns.
    pub rng: Rng,
    /// Content of the session.
    pub store: S,
    /// Events so far.
    pub events: Vec<Event>,
    /// Called with each event before anything else is done.
    pub reaction: Option<Reaction>,
    /// Bytes read from the ordered stream so far.
    pub stream: Vec<u8>,
    /// True if the application reads the ordered stream.
    pub reads: bool,
    /// Time for which arriving datagrams have lain in the host.
    pub waited: Duration,
    /// Datagrams sent so far.
    pub sent: u64,
    connects: bool,
}

/// A datagram that an end sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Destination.
    pub to: SocketAddr,
    /// Mark with which the datagram leaves.
    pub ecn: Ecn,
    /// Bytes of the datagram, all of it.
    pub bytes: Vec<u8>,
    /// Length of the beginning that is the protocol's; the rest is content.
    pub solid: usize,
}

/// Fate of a datagram at an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// The datagram is for the session, which it may have begun.
    Session,
    /// The datagram is answered without a session.
    Reply(Vec<u8>),
    /// Nothing came of the datagram.
    Nothing,
}

impl<S> fmt::Debug for Driver<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver")
            .field("events", &self.events)
            .field("sent", &self.sent)
            .field("stats", &self.session.as_ref().map(|(_, s)| s.stats()))
            .finish_non_exhaustive()
    }
}

impl<S: Store> Driver<S> {
    /// An end without a session.
    pub fn new(protocol: Box<dyn Protocol>, address: SocketAddr, store: S, rng: Rng) -> Self {
        Self {
            address,
            protocol,
            session: None,
            rng,
            store,
            events: Vec::new(),
            reaction: None,
            stream: Vec::new(),
            reads: true,
            waited: Duration::ZERO,
            sent: 0,
            connects: false,
        }
    }

    /// Opens a session to `to`, over an interface of `mtu` bytes.
    pub fn connect(&mut self, now: Instant, to: SocketAddr, mtu: Option<u32>) {
        self.connects = true;
        self.session = Some(self.protocol.connect(now, &mut self.rng, to, mtu));
    }

    /// The session.
    ///
    /// # Panics
    /// If there is none yet.
    pub fn session(&mut self) -> &mut dyn Session {
        &mut *self.session.as_mut().expect("there is a session").1
    }

    /// The id of the session.
    pub fn id(&self) -> Option<u64> {
        self.session.as_ref().map(|(id, _)| *id)
    }

    /// The session with its turn, if there is one.
    pub fn turn(&mut self, now: Instant) -> Option<(&mut dyn Session, Turn<'_>)> {
        let turn = Turn {
            now,
            rng: &mut self.rng,
            store: &mut self.store,
        };
        let (_, session) = self.session.as_mut()?;
        Some((&mut **session, turn))
    }

    /// True if the end has a session that needs no more turns.
    pub fn is_closed(&self) -> bool {
        self.session.as_ref().is_some_and(|(_, s)| s.is_closed())
    }

    /// True if the application was notified that the session is connected.
    pub fn connected(&self) -> bool {
        let mut events = self.events.iter();
        events.any(|event| matches!(event, Event::Connected { .. }))
    }

    /// True if the application was notified that all was delivered.
    pub fn delivered(&self) -> bool {
        self.events.contains(&Event::Delivered)
    }

    /// Reason of the session's end, if the application was notified.
    pub fn closed(&self) -> Option<&CloseReason> {
        self.events.iter().find_map(|event| match event {
            Event::Closed(reason) => Some(reason),
            _ => None,
        })
    }

    /// Time at which its session's timer expires.
    pub fn deadline(&self) -> Option<Instant> {
        let (_, session) = self.session.as_ref()?;
        session.poll_timeout().map(|(at, _)| at)
    }

    /// A datagram that is not its session's is for the listener, if it is one. What the listener does
    /// not match is given to the session, as where sessions are identified by the address of their peer.
    ///
    /// # Panics
    /// If an unvalidated address is sent more than three times the bytes received.
    pub fn admit(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) -> Admitted {
        let known = match self.protocol.route(datagram) {
            Route::Foreign => return Admitted::Nothing,
            Route::Known(id) => self.id() == Some(id),
            Route::Peer => self.session.is_some(),
            Route::New => false,
        };
        if !known && !self.connects {
            let mut reply = Vec::new();
            let (protocol, rng) = (&mut self.protocol, &mut self.rng);
            match protocol.accept(now, rng, from, datagram, &mut reply) {
                Accepted::Session(id, session) if self.session.is_none() => {
                    self.session = Some((id, session));
                }
                Accepted::Reply => {
                    assert!(reply.len() <= 3 * datagram.len(), "amplification");
                    return Admitted::Reply(reply);
                }
                Accepted::Session(..) | Accepted::Drop => {}
            }
        }
        match self.session {
            Some(_) => Admitted::Session,
            None => Admitted::Nothing,
        }
    }

    /// Gives the session a batch, whatever its destination.
    pub fn feed_batch(&mut self, now: Instant, batch: Received<'_>) {
        if let Some((session, mut turn)) = self.turn(now) {
            session.handle_datagrams(&mut turn, batch);
        }
    }

    /// Gives the session a datagram, whatever its destination.
    pub fn feed(&mut self, now: Instant, from: SocketAddr, bytes: &mut [u8]) {
        let batch = Received {
            from,
            ecn: Ecn::NotEct,
            segment: bytes.len().max(1),
            bytes,
            waited: self.waited,
            granted: None,
        };
        self.feed_batch(now, batch);
    }

    /// A datagram arrives; a stateless answer to it.
    pub fn on_datagram(
        &mut self,
        now: Instant,
        from: SocketAddr,
        bytes: &mut [u8],
    ) -> Option<Vec<u8>> {
        match self.admit(now, from, bytes) {
            Admitted::Session => self.feed(now, from, bytes),
            Admitted::Reply(reply) => return Some(reply),
            Admitted::Nothing => {}
        }
        None
    }

    /// Gives the session an event of the control lane.
    pub fn control(&mut self, now: Instant, control: Control<'_>) {
        if let Some((session, mut turn)) = self.turn(now) {
            session.handle_control(&mut turn, control);
        }
    }

    /// Lets the session's timer expire, if it is due.
    pub fn expire(&mut self, now: Instant) -> bool {
        let due = self.deadline().is_some_and(|at| at <= now);
        if due && let Some((session, mut turn)) = self.turn(now) {
            session.handle_timeout(&mut turn);
        }
        due
    }

    /// The next batch that its session sends now.
    pub fn transmit(&mut self, now: Instant, out: &mut TxBuf) -> Option<Transmit> {
        let (session, mut turn) = self.turn(now)?;
        session.poll_transmit(&mut turn, out)
    }

    /// All that its session sends now.
    ///
    /// # Panics
    /// If it never stops.
    pub fn drain(&mut self, now: Instant, out: &mut TxBuf) -> Vec<Sent> {
        let mut sent = Vec::new();
        for _ in 0..MAX_BATCHES {
            let Some(Transmit { to, ecn }) = self.transmit(now, out) else {
                return sent;
            };
            sent.extend(out.segments().map(|(segment, solid)| Sent {
                to,
                ecn,
                bytes: segment.to_vec(),
                solid,
            }));
        }
        panic!("{} never stops sending at {now:?}", self.address);
    }

    /// Takes its session's events, and what it may read.
    pub fn listen(&mut self, now: Instant) {
        let Some((_, session)) = &mut self.session else {
            return;
        };
        while let Some(event) = session.poll_event() {
            if let Some(reaction) = &mut self.reaction {
                reaction(now, &event, &mut **session);
            }
            self.events.push(event);
        }
        if self.reads {
            session.read(&mut self.stream);
        }
    }
}
