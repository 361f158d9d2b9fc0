//! The endpoint, before there is a session. It asks, or gives cookies to clients and remembers
//! nothing, or refuses. No answer has more bytes than its question.

use std::{net::SocketAddr, sync::Arc};

use farhaul_congestion::Factory;
use farhaul_core::{
    codec::Writer,
    live::{Alive, LiveIds},
    protocol::{Accepted, Descriptor, Protocol, Provenance, Route, Session},
    rng::Rng,
    shell::{Carrier, SessionState},
    time::Instant,
};

use super::{
    Behaviour, Framing, UdtConfig,
    cookie::Cookies,
    opening::{Agreed, agree},
    seq,
    session::UdtConnection,
    wire::{
        Control, Handshake, Packet, Request, SocketType, VERSION, decode, destination, is_data,
    },
};

use crate::config::{ConfigError, sending_law};

pub(super) static LIBUDT: Descriptor = Descriptor {
    name: "udt4",
    summary: "UDT version 4 as libudt 4.11 speaks it, its collapse under loss included",
    provenance: Provenance::Source,
    citation: "Gu and Grossman, Computer Networks 51(7), 2007; draft-gg-udt-03; libudt 4.11",
    sealed: false,
    control_lane: false,
    multiplexed: true,
};

pub(super) static TUNED: Descriptor = Descriptor {
    name: "udt4-tuned",
    summary: "UDT version 4 on the same wire, with what can be fixed from one side",
    ..LIBUDT
};

/// Packet size of an end that does not know the interface's, and the largest not asked for.
const USUAL_MSS: u32 = 1_500;
const JUMBO_MSS: u32 = 9_000;
/// libudt counts 28 bytes of headers also where there are 48.
const V6_MORE: u32 = 20;

/// A connection accepted: the address that asked, and its numbers.
type Asked = (SocketAddr, u32, u32);

/// A UDT endpoint.
pub struct Udt {
    config: Arc<UdtConfig>,
    law: Factory,
    accepts: bool,
    cookies: Cookies,
    /// Connections accepted, as long as they live, and how they were answered.
    live: LiveIds<Asked, Handshake>,
}

impl Udt {
    /// An endpoint that opens connections.
    pub fn client(config: UdtConfig) -> Result<Self, ConfigError> {
        Self::new(config, false)
    }

    /// An endpoint that also accepts them.
    pub fn server(config: UdtConfig) -> Result<Self, ConfigError> {
        Self::new(config, true)
    }

    fn new(config: UdtConfig, accepts: bool) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            law: sending_law(&config.law, "UDT")?,
            accepts,
            cookies: Cookies::new(config.cookie_key),
            config: Arc::new(config),
            live: LiveIds::default(),
        })
    }

    fn socket(&self) -> SocketType {
        match self.config.framing {
            Framing::Stream => SocketType::STREAM,
            Framing::Records | Framing::Messages { .. } => SocketType::DGRAM,
        }
    }

    /// Handshake of this end, with a fresh socket id and initial number.
    fn ours(&self, rng: &mut Rng, peer: SocketAddr, mtu: u32, request: Request) -> Handshake {
        let mss = self.config.mss.unwrap_or_else(|| {
            let more = if peer.is_ipv6() { V6_MORE } else { 0 };
            mtu.min(JUMBO_MSS).saturating_sub(more).max(576)
        });
        let draw = |rng: &mut Rng, n| u32::try_from(rng.below(n)).unwrap_or(0);
        Handshake {
            version: VERSION,
            socket: self.socket(),
            isn: draw(rng, 1 << 31),
            mss,
            window: self.window(mss),
            request,
            id: 1 + draw(rng, 1 << 30),
            cookie: 0,
            address: Handshake::address(peer.ip()),
        }
    }

    /// Packets of `mss` for which this end has room.
    fn window(&self, mss: u32) -> u32 {
        let config = &self.config;
        let fit = config.buffer / u64::from(mss.saturating_sub(44).max(1));
        match config.framing {
            Framing::Records => config.window,
            _ => u32::try_from(fit).map_or(config.window, |fit| fit.min(config.window)),
        }
    }

    fn session(
        &self,
        now: Instant,
        peer: SocketAddr,
        ours: Handshake,
        accepted: Option<(Agreed, Alive)>,
    ) -> (u64, Box<dyn Session>) {
        let config = Arc::clone(&self.config);
        let mut connection = UdtConnection::asking(config, self.law.make(), now, ours);
        let (agreed, alive) = accepted.unzip();
        let mut state = SessionState::new(now, peer, alive.unwrap_or_default());
        if let Some(agreed) = agreed {
            connection = connection.answering(now, agreed, &mut state.app);
        }
        (ours.id.into(), Box::new(Carrier::new(connection, state)))
    }

    /// A client returned its cookie.
    fn welcome(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        from: SocketAddr,
        theirs: &Handshake,
        reply: &mut Vec<u8>,
    ) -> Accepted {
        if !self.cookies.accepts(now, from, theirs.id, theirs.cookie) {
            return Accepted::Drop;
        }
        let asked = (from, theirs.id, theirs.isn);
        if let Some(known) = self.live.get(&asked) {
            return answer(theirs.id, *known, reply);
        }
        let mut ours = self.ours(rng, from, JUMBO_MSS, Request::RESPONSE);
        let compatible = theirs.version == VERSION && theirs.socket == self.socket();
        let Some(agreed) = agree(&ours, theirs).filter(|_| compatible) else {
            let request = Request::REJECTED;
            return answer(theirs.id, Handshake { request, ..*theirs }, reply);
        };
        ours.isn = theirs.isn;
        ours.mss = agreed.mss;
        ours.window = self.window(agreed.mss);
        ours.cookie = theirs.cookie;
        let alive = self.live.enter(asked, ours);
        let (id, session) = self.session(now, from, ours, Some((agreed, alive)));
        Accepted::Session(id, session)
    }
}

/// Answers statelessly.
fn answer(to: u32, answer: Handshake, reply: &mut Vec<u8>) -> Accepted {
    let mut bytes = [0; 64];
    let answer = Control::Handshake(answer).encode(to, &mut Writer::new(&mut bytes));
    answer.expect("a handshake takes 64 bytes");
    reply.extend_from_slice(&bytes);
    Accepted::Reply
}

impl Protocol for Udt {
    fn descriptor(&self) -> &'static Descriptor {
        match self.config.behaviour {
            Behaviour::Libudt => &LIBUDT,
            Behaviour::Fixed => &TUNED,
        }
    }

    fn route(&self, datagram: &[u8]) -> Route {
        match destination(datagram) {
            Some(0) if !is_data(datagram) => Route::New,
            Some(id) if (1..=seq::MAX).contains(&id) => Route::Known(id.into()),
            _ => Route::Foreign,
        }
    }

    /// True as libudt is: of packets delivered together it takes the link for 72 Gbit/s. The fixed
    /// receiver does not believe such pairs.
    fn measures_spacing(&self) -> bool {
        self.config.behaviour == Behaviour::Libudt
    }

    fn connect(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        to: SocketAddr,
        interface_mtu: Option<u32>,
    ) -> (u64, Box<dyn Session>) {
        let request = if self.config.rendezvous {
            Request::RENDEZVOUS
        } else {
            Request::CONNECT
        };
        let ours = self.ours(rng, to, interface_mtu.unwrap_or(USUAL_MSS), request);
        self.session(now, to, ours, None)
    }

    fn accept(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        from: SocketAddr,
        datagram: &[u8],
        reply: &mut Vec<u8>,
    ) -> Accepted {
        let Ok(Packet::Control(0, Control::Handshake(theirs))) = decode(datagram) else {
            return Accepted::Drop;
        };
        match theirs.request {
            Request::RENDEZVOUS if self.config.rendezvous => {
                let ours = self.ours(rng, from, USUAL_MSS, Request::RENDEZVOUS);
                let (id, session) = self.session(now, from, ours, None);
                Accepted::Session(id, session)
            }
            Request::CONNECT if self.accepts && !self.config.rendezvous => {
                let cookie = self.cookies.give(now, from, theirs.id);
                answer(theirs.id, Handshake { cookie, ..theirs }, reply)
            }
            Request::RESPONSE if self.accepts && !self.config.rendezvous => {
                self.welcome(now, rng, from, &theirs, reply)
            }
            _ => Accepted::Drop,
        }
    }
}
