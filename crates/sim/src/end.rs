//! One end of a flow: a protocol's endpoint, at most one session of it, and its application.
//!
//! Invariant: after any call into the session the world drains the end ([`crate::world`]); the end's
//! deadline is then the session's.

use std::net::{Ipv4Addr, SocketAddr};

use farhaul_core::{
    control::{Control, PREAMBLE, Token, read_preamble},
    datagram::{Received, Transmit, TxBuf},
    protocol::{Accepted, CloseReason, Event, Protocol, Route, Session, Turn},
    rng::Rng,
    stats::Stats,
    time::Instant,
};

use crate::app::Sink;

/// The port servers listen on.
const SERVER_PORT: u16 = 17_992;
/// Clients share one address; the first flow's port.
const FIRST_CLIENT_PORT: u16 = 20_000;

/// Address of the end `index`; even ends are clients.
pub(crate) fn address(index: u32) -> SocketAddr {
    if index & 1 == 1 {
        return (Ipv4Addr::new(10, 99, 0, 2), SERVER_PORT).into();
    }
    let flow = u16::try_from(index / 2).expect("flows are bounded by the scenario");
    (Ipv4Addr::new(10, 99, 0, 1), FIRST_CLIENT_PORT + flow).into()
}

/// Port of cross traffic: the discard port.
pub(crate) fn cross_addresses(index: usize) -> (SocketAddr, SocketAddr) {
    let port = FIRST_CLIENT_PORT + u16::try_from(index % 40_000).expect("below 40,000");
    let (from, to) = (Ipv4Addr::new(10, 99, 1, 1), Ipv4Addr::new(10, 99, 1, 2));
    ((from, port).into(), (to, 9).into())
}

/// Result of a datagram at an end.
pub(crate) enum Outcome {
    /// The session took a turn.
    Session,
    /// A stateless answer is in the buffer.
    Reply,
    /// Nothing came of the datagram.
    Nothing,
}

/// One end of a flow.
pub(crate) struct End {
    protocol: Box<dyn Protocol>,
    session: Option<(u64, Box<dyn Session>)>,
    rng: Rng,
    pub(crate) sink: Sink,
    peer: SocketAddr,
    /// Token, at a server, of the control lane that waits for its session.
    waiting: Option<Token>,
    /// The session's deadline when it was last at rest.
    deadline: Option<Instant>,
    /// Time at which the disk has written something next, or the application wants to be called.
    wake_at: Option<Instant>,
    /// The earliest pending timer event of this end that is not stale.
    pub(crate) armed: Option<Instant>,
    pub(crate) closed: Option<CloseReason>,
    /// Turns taken without time moving on, to notice a session that never rests.
    turns: u32,
    last_turn: Instant,
}

impl End {
    pub(crate) fn new(index: u32, protocol: Box<dyn Protocol>, rng: Rng) -> Self {
        Self {
            protocol,
            session: None,
            rng,
            sink: Sink::default(),
            peer: address(index ^ 1),
            waiting: None,
            deadline: None,
            wake_at: None,
            armed: None,
            closed: None,
            turns: 0,
            last_turn: Instant::EPOCH,
        }
    }

    pub(crate) fn connect(&mut self, now: Instant, interface_mtu: Option<u32>) {
        let session = self
            .protocol
            .connect(now, &mut self.rng, self.peer, interface_mtu);
        self.session = Some(session);
    }

    /// Counts the turns that this end has taken at `now`, this one included.
    pub(crate) fn count_turn(&mut self, now: Instant) -> u32 {
        if self.last_turn != now {
            self.turns = 0;
            self.last_turn = now;
        }
        self.turns += 1;
        self.turns
    }

    /// Datagrams arrived: to the session, or to the listener. A listener with a session gives it
    /// what belongs to no other, as an endpoint does that routes by address.
    pub(crate) fn on_datagrams(
        &mut self,
        now: Instant,
        batch: Received<'_>,
        reply: &mut Vec<u8>,
    ) -> Outcome {
        let first = &batch.bytes[..batch.segment.min(batch.bytes.len())];
        let route = self.protocol.route(first);
        if route == Route::Foreign {
            return Outcome::Nothing;
        }
        if self.session.is_none() {
            let joins = self.protocol.control_token(first);
            if self.has_lane() && (joins.is_none() || joins != self.waiting) {
                return Outcome::Nothing;
            }
            let from = batch.from;
            match self.protocol.accept(now, &mut self.rng, from, first, reply) {
                Accepted::Session(id, session) => self.session = Some((id, session)),
                Accepted::Reply => return Outcome::Reply,
                Accepted::Drop => return Outcome::Nothing,
            }
            if self.has_lane() {
                self.control(now, Control::Opened);
            }
        }
        let Some((_, session)) = &mut self.session else {
            return Outcome::Nothing;
        };
        if self.closed.is_some() && session.is_closed() {
            return Outcome::Nothing;
        }
        self.sink.pass(now);
        let mut turn = Turn {
            now,
            rng: &mut self.rng,
            store: &mut self.sink,
        };
        session.handle_datagrams(&mut turn, batch);
        Outcome::Session
    }

    /// True if the protocol has a control lane.
    pub(crate) fn has_lane(&self) -> bool {
        self.protocol.descriptor().control_lane
    }

    /// Bytes received on the control lane of an end that has no session yet: the token.
    pub(crate) fn greet(&mut self, bytes: &[u8]) {
        let said: Option<&[u8; PREAMBLE]> = bytes.try_into().ok();
        self.waiting = said.and_then(read_preamble);
    }

    /// True if a token was received.
    pub(crate) const fn greeted(&self) -> bool {
        self.waiting.is_some()
    }

    /// The session is notified of its control lane.
    pub(crate) fn control(&mut self, now: Instant, control: Control<'_>) {
        if let Some((_, session)) = &mut self.session
            && !(self.closed.is_some() && session.is_closed())
        {
            self.sink.pass(now);
            let mut turn = Turn {
                now,
                rng: &mut self.rng,
                store: &mut self.sink,
            };
            session.handle_control(&mut turn, control);
        }
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Acts if the session's deadline passed, or the disk or the application wakes the end.
    pub(crate) fn expire(&mut self, now: Instant) -> bool {
        let woken = self.wake_at.take_if(|at| *at <= now).is_some();
        self.expire_session(now) || woken
    }

    fn expire_session(&mut self, now: Instant) -> bool {
        let Some((_, session)) = &mut self.session else {
            return false;
        };
        if self.deadline.is_none_or(|at| at > now) {
            return false;
        }
        self.sink.pass(now);
        let mut turn = Turn {
            now,
            rng: &mut self.rng,
            store: &mut self.sink,
        };
        session.handle_timeout(&mut turn);
        true
    }

    #[inline]
    pub(crate) fn transmit(&mut self, now: Instant, out: &mut TxBuf) -> Option<Transmit> {
        let (_, session) = self.session.as_mut()?;
        self.sink.pass(now);
        let mut turn = Turn {
            now,
            rng: &mut self.rng,
            store: &mut self.sink,
        };
        session.poll_transmit(&mut turn, out)
    }

    pub(crate) fn event(&mut self) -> Option<Event> {
        self.session.as_mut()?.1.poll_event()
    }

    pub(crate) fn session(&mut self) -> Option<&mut dyn Session> {
        match &mut self.session {
            Some((_, session)) => Some(session.as_mut()),
            None => None,
        }
    }

    /// The session's deadline, now that it is at rest.
    pub(crate) fn rest(&mut self) -> Option<Instant> {
        let timeout = self.session.as_ref().and_then(|(_, s)| s.poll_timeout());
        self.deadline = timeout.map(|(at, _)| at);
        self.wake_at = self.sink.wake().filter(|_| self.session.is_some());
        self.deadline.into_iter().chain(self.wake_at).min()
    }

    /// Gives the application of this end its events, true if there were any, and then lets it
    /// decide; also without any if it has the turn.
    pub(crate) fn decide(
        &mut self,
        now: Instant,
        has_turn: bool,
        mut on_event: impl FnMut(&Event),
    ) -> bool {
        let (Some((_, session)), Some(app)) = (&mut self.session, &mut self.sink.app) else {
            return false;
        };
        let mut delivered = false;
        while let Some(event) = session.poll_event() {
            on_event(&event);
            app.on_event(now, event, session.as_mut());
            delivered = true;
        }
        if delivered || has_turn {
            app.poll(now, session.as_mut());
        }
        delivered
    }

    pub(crate) const fn has_session(&self) -> bool {
        self.session.is_some()
    }

    pub(crate) fn stats(&self) -> Stats {
        self.session
            .as_ref()
            .map(|(_, s)| s.stats())
            .unwrap_or_default()
    }
}
