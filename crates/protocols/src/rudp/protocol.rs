//! The endpoint, which opens a session, or makes one for each client: segments show by their
//! addresses alone to whom they belong.

use std::net::SocketAddr;

use farhaul_core::{
    datagram::overhead,
    live::LiveIds,
    protocol::{Accepted, Descriptor, Protocol, Route, Session},
    rng::Rng,
    shell::{Carrier, SessionState},
    time::Instant,
};

use super::{
    Config, DESCRIPTOR,
    connection::{Begun, Connection},
    wire::{HEAD, Kind, Segment},
};

/// Packet size of an end that does not know the interface's.
const USUAL_MTU: u32 = 1_500;

/// An endpoint that speaks Reliable UDP.
#[derive(Debug)]
pub struct Rudp {
    config: Config,
    accepts: bool,
    live: LiveIds<u32>,
}

impl Rudp {
    /// An endpoint that opens sessions.
    pub fn client(config: &Config) -> Self {
        Self {
            config: *config,
            accepts: false,
            live: LiveIds::default(),
        }
    }

    /// An endpoint that also accepts them.
    pub fn server(config: &Config) -> Self {
        Self {
            accepts: true,
            ..Self::client(config)
        }
    }

    fn session(
        &mut self,
        (now, rng): (Instant, &mut Rng),
        peer: SocketAddr,
        mtu: u32,
        client: bool,
    ) -> (u64, Box<dyn Session>) {
        let id = self.live.fresh(rng);
        let alive = self.live.enter(id, ());
        let datagram = mtu.min(self.config.mtu).saturating_sub(overhead(peer));
        let datagram = u16::try_from(datagram).unwrap_or(u16::MAX);
        let begun = Begun {
            client,
            first: rng.below(256),
            syn: self.config.syn(id, datagram),
            max_rate: self.config.max_rate,
        };
        let connection = Connection::new(now, begun);
        let state = SessionState::new(now, peer, alive);
        (id.into(), Box::new(Carrier::new(connection, state)))
    }
}

impl Protocol for Rudp {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }

    fn route(&self, datagram: &[u8]) -> Route {
        if datagram.len() < HEAD {
            Route::Foreign
        } else {
            Route::Peer
        }
    }

    fn connect(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        to: SocketAddr,
        interface_mtu: Option<u32>,
    ) -> (u64, Box<dyn Session>) {
        let mtu = interface_mtu.unwrap_or(USUAL_MTU);
        self.session((now, rng), to, mtu, true)
    }

    fn accept(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        from: SocketAddr,
        datagram: &[u8],
        _reply: &mut Vec<u8>,
    ) -> Accepted {
        let segment = Segment::decode(datagram).ok();
        let asks = segment.is_some_and(|s| matches!(s.kind, Kind::Syn(_)) && s.acked.is_none());
        if !(asks && self.accepts) {
            return Accepted::Drop;
        }
        let (id, session) = self.session((now, rng), from, self.config.mtu, false);
        Accepted::Session(id, session)
    }
}
