//! Makes a protocol of a machine. An endpoint draws ids and tokens, makes sessions for clients and
//! listeners, and routes datagrams to them.

use std::{fmt, net::SocketAddr, sync::Arc, time::Duration};

use super::{
    carrier::{Carrier, SessionState},
    datagram::{self, HELLO, Join},
    machine::Machine,
    session::{Ends, Shell},
};
use crate::{
    control::Token,
    datagram::overhead,
    live::LiveIds,
    protocol::{Accepted, Descriptor, Protocol, Route, Session},
    rng::Rng,
    time::Instant,
};

/// Timeouts and datagram size of a session.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Handshake timeout.
    pub answer: Duration,
    /// Idle timeout: the session closes if nothing is received for so long.
    pub idle: Duration,
    /// Time without any datagram after which a session with a control lane closes.
    pub blocked: Duration,
    /// Largest UDP payload of a datagram.
    pub datagram: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            answer: Duration::from_secs(5),
            idle: Duration::from_secs(30),
            blocked: Duration::from_secs(30),
            datagram: u32::MAX,
        }
    }
}

/// A protocol with one [`Machine`] per session.
pub struct Endpoint<M> {
    descriptor: &'static Descriptor,
    make: Arc<dyn Fn() -> M + Send + Sync>,
    limits: Limits,
    mtu: u32,
    accepts: bool,
    live: LiveIds<u64>,
    next_id: u64,
}

impl<M: Machine> Endpoint<M> {
    /// `make` constructs each session's machine; packets have up to `mtu` bytes, IP header included. Both ends
    /// need the same descriptor.
    ///
    /// # Panics
    /// If the machine needs a control lane and the descriptor has none, or the other way round ([`Machine::LANE`]).
    pub fn new(
        descriptor: &'static Descriptor,
        mtu: u32,
        make: impl Fn() -> M + Send + Sync + 'static,
    ) -> Self {
        let lane = descriptor.control_lane;
        assert!(
            M::LANE.is_none_or(|needed| needed == lane),
            "protocol '{}': its descriptor says control_lane: {lane}, its machine is made for the opposite",
            descriptor.name
        );
        Self {
            descriptor,
            make: Arc::new(make),
            limits: Limits::default(),
            mtu,
            accepts: true,
            live: LiveIds::default(),
            next_id: 1,
        }
    }

    /// Sets other limits.
    #[must_use]
    pub const fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Makes the endpoint refuse incoming sessions.
    #[must_use]
    pub const fn client_only(mut self) -> Self {
        self.accepts = false;
        self
    }

    /// The endpoint behind its contract; one that does not `accept` takes no incoming sessions.
    pub fn boxed(self, accept: bool) -> Box<dyn Protocol>
    where
        M: 'static,
    {
        Box::new(if accept { self } else { self.client_only() })
    }

    fn session(
        &mut self,
        now: Instant,
        mtu: u32,
        (id, peer, client): (u64, SocketAddr, bool),
        (token, nonce): (Option<Token>, [u8; 8]),
    ) -> (u64, Box<dyn Session>) {
        let alive = self.live.enter(id, ());
        let ends = Ends {
            id,
            client,
            token,
            nonce,
        };
        let datagram = mtu.min(self.mtu).saturating_sub(overhead(peer));
        let datagram = datagram.min(self.limits.datagram);
        let datagram = u16::try_from(datagram).unwrap_or(u16::MAX);
        let machine = (self.make)();
        let shell = Shell::new(machine, ends, self.limits, now, datagram);
        let state = SessionState::new(now, peer, alive);
        (id, Box::new(Carrier::new(shell, state)))
    }

    const fn count_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }
}

impl<M> Clone for Endpoint<M> {
    fn clone(&self) -> Self {
        Self {
            make: Arc::clone(&self.make),
            live: LiveIds::default(),
            ..*self
        }
    }
}

impl<M> fmt::Debug for Endpoint<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(self.descriptor.name)
            .field("mtu", &self.mtu)
            .finish_non_exhaustive()
    }
}

impl<M: Machine> Protocol for Endpoint<M> {
    fn descriptor(&self) -> &'static Descriptor {
        self.descriptor
    }

    fn route(&self, bytes: &[u8]) -> Route {
        if self.descriptor.control_lane {
            return Route::Peer;
        }
        match datagram::head(bytes) {
            Some((HELLO, id)) if !self.live.contains(&id) => Route::New,
            Some((_, id)) => Route::Known(id),
            None => Route::Foreign,
        }
    }

    fn destination(&self) -> fn(&[u8]) -> Option<u64> {
        if self.descriptor.control_lane {
            |_| None
        } else {
            |bytes| datagram::head(bytes).map(|(_, id)| id)
        }
    }

    fn control_token(&self, bytes: &[u8]) -> Option<Token> {
        match Join::decode(bytes)? {
            Join::Asked(token) => Some(token).filter(|_| self.descriptor.control_lane),
            Join::Confirmed(_) => None,
        }
    }

    fn connect(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        to: SocketAddr,
        interface_mtu: Option<u32>,
    ) -> (u64, Box<dyn Session>) {
        let mtu = interface_mtu.unwrap_or(self.mtu);
        if self.descriptor.control_lane {
            let id = self.count_id();
            let token = Some(Token::draw(rng));
            return self.session(now, mtu, (id, to, true), (token, [0; 8]));
        }
        let id = rng.below(1 << 32);
        self.session(now, mtu, (id, to, true), (None, [0; 8]))
    }

    fn accept(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        from: SocketAddr,
        bytes: &[u8],
        _reply: &mut Vec<u8>,
    ) -> Accepted {
        if !self.accepts {
            return Accepted::Drop;
        }
        let (id, session) = match (self.control_token(bytes), datagram::head(bytes)) {
            (Some(token), _) => {
                let id = self.count_id();
                self.session(now, self.mtu, (id, from, false), (Some(token), [0; 8]))
            }
            (None, Some((HELLO, id))) if !self.descriptor.control_lane => {
                let mut nonce = [0; 8];
                rng.fill(&mut nonce);
                self.session(now, self.mtu, (id, from, false), (None, nonce))
            }
            _ => return Accepted::Drop,
        };
        Accepted::Session(id, session)
    }
}
