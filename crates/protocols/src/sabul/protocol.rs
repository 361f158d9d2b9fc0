//! What is an endpoint? Its choices, and sessions that begin with a datagram whose token a control lane
//! has said before; there is no state for anybody else.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use farhaul_congestion::{Factory, lookup};
use farhaul_core::{
    control::Token,
    protocol::{Accepted, Descriptor, Protocol, Provenance, Route, Session},
    rng::Rng,
    time::Instant,
    units::Rate,
};

use super::{
    seq::HALF,
    session::SabulSession,
    wire::{Datagram, HEADER, Options},
};

/// What the protocol says of itself.
pub static DESCRIPTOR: Descriptor = Descriptor {
    name: "sabul",
    summary: "SABUL 2.x: data in datagrams, losses one by one over TCP",
    provenance: Provenance::Source,
    citation: "Gu, Hong, Mazzucco, Grossman, SABUL, IEEE Communications Letters, 2003; SABUL 2.x",
    sealed: false,
    control_lane: true,
    multiplexed: false,
};

/// IP and UDP headers.
const UNDER: [u32; 2] = [28, 48];

/// How an endpoint behaves.
#[derive(Clone, Debug)]
pub struct Config {
    /// Congestion law and its parameters.
    pub law: String,
    /// Never send faster.
    pub max_rate: Option<Rate>,
    /// Largest packet, bytes, IP and UDP included, 128 to 65,535; by default what the original has,
    /// 1,500.
    pub mss: u32,
    /// Packets that may be unacknowledged, 1 to 25,000,000.
    pub window: u32,
    /// A client gives up if the opening is not done in this time.
    pub answer: Duration,
    /// A sender gives up if none of its packets arrives for so long although the peer answers.
    pub blocked: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            law: "sabul".into(),
            max_rate: None,
            mss: 1_500,
            window: 25_600,
            answer: Duration::from_secs(5),
            blocked: Duration::from_secs(30),
        }
    }
}

/// Why an endpoint could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The congestion law.
    #[error("congestion law: {0}")]
    Law(#[from] farhaul_congestion::Error),
    /// The law's receiving half cannot be carried.
    #[error("the law '{0}' needs a receiving half, which SABUL does not carry")]
    Half(&'static str),
    /// A number out of its range.
    #[error("{0}")]
    Range(&'static str),
}

/// An endpoint that speaks SABUL.
pub struct Sabul {
    config: Arc<Config>,
    law: Factory,
    accepts: bool,
    next_id: u64,
}

impl Sabul {
    /// An endpoint that opens sessions.
    pub fn client(config: Config) -> Result<Self, ConfigError> {
        Self::new(config, false)
    }

    /// An endpoint that accepts them.
    pub fn server(config: Config) -> Result<Self, ConfigError> {
        Self::new(config, true)
    }

    fn new(config: Config, accepts: bool) -> Result<Self, ConfigError> {
        if !(128..=65_535).contains(&config.mss) {
            return Err(ConfigError::Range("mss is from 128 to 65,535 bytes"));
        }
        if !(1..=HALF / 2).contains(&config.window) {
            return Err(ConfigError::Range("window is from 1 to 25,000,000 packets"));
        }
        let law = lookup(&config.law)?;
        let sample = law.make();
        if sample.receiver().is_some() {
            return Err(ConfigError::Half(sample.name()));
        }
        Ok(Self {
            config: Arc::new(config),
            law,
            accepts,
            next_id: 1,
        })
    }

    fn session(
        &mut self,
        now: Instant,
        peer: SocketAddr,
        token: Token,
        client: bool,
        mtu: u32,
    ) -> (u64, Box<dyn Session>) {
        let under = UNDER[usize::from(peer.is_ipv6())];
        let packet = self.config.mss.min(mtu) - under;
        let options = Options::new(packet, self.config.window);
        let id = self.next_id;
        self.next_id += 1;
        let config = Arc::clone(&self.config);
        let law = self.law.make();
        let session = SabulSession::new(config, law, now, (peer, token), client, options);
        (id, Box::new(session))
    }
}

impl Protocol for Sabul {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }

    fn route(&self, datagram: &[u8]) -> Route {
        if datagram.len() < HEADER {
            return Route::Foreign;
        }
        Datagram::decode(datagram).map_or(Route::Foreign, |_| Route::Peer)
    }

    fn control_token(&self, datagram: &[u8]) -> Option<Token> {
        match Datagram::decode(datagram) {
            Ok(Datagram::Joins(token)) => Some(token),
            _ => None,
        }
    }

    fn connect(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        to: SocketAddr,
        interface_mtu: Option<u32>,
    ) -> (u64, Box<dyn Session>) {
        let mtu = interface_mtu.unwrap_or(1_500).clamp(576, 65_535);
        self.session(now, to, Token::draw(rng), true, mtu)
    }

    fn accept(
        &mut self,
        now: Instant,
        _rng: &mut Rng,
        from: SocketAddr,
        datagram: &[u8],
        _reply: &mut Vec<u8>,
    ) -> Accepted {
        match self.control_token(datagram).filter(|_| self.accepts) {
            Some(token) => {
                let (id, session) = self.session(now, from, token, false, 65_535);
                Accepted::Session(id, session)
            }
            None => Accepted::Drop,
        }
    }
}
