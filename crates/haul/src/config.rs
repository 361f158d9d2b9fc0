//! Configuration of an endpoint: identity, expected peer, and two options of the sender.

use std::{fmt, sync::Arc, time::Duration};

use farhaul_core::units::Rate;

use crate::{
    identity::{KeyError, PublicKey},
    memory::PathMemory,
};

/// Policy for keys accepted inside the handshake.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PeerPolicy {
    /// Everybody's; the application decides on the key it is shown.
    #[default]
    Any,
    /// Any of these keys.
    Keys(Vec<PublicKey>),
    /// Keys that the judge accepts, asked each time.
    Judge(Judge),
}

impl PeerPolicy {
    /// True if `key` may connect.
    pub fn accepts(&self, key: &PublicKey) -> bool {
        match self {
            Self::Any => true,
            Self::Keys(keys) => keys.contains(key),
            Self::Judge(Judge(judge)) => judge(key),
        }
    }
}

/// Decides on keys, and may change its mind.
#[derive(Clone)]
pub struct Judge(Arc<dyn Fn(&PublicKey) -> bool + Send + Sync>);

impl Judge {
    /// A judge that calls `judge` in handshakes, so `judge` must not block.
    pub fn new(judge: impl Fn(&PublicKey) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(judge))
    }
}

impl fmt::Debug for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Judge")
    }
}

impl PartialEq for Judge {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Judge {}

/// Behaviour of an endpoint.
#[derive(Clone, Debug)]
pub struct HaulConfig {
    /// Ed25519 seed (32 bytes) or PKCS#8 document.
    pub identity: Vec<u8>,
    /// Keys accepted.
    pub peers: PeerPolicy,
    /// Congestion law and its parameters.
    pub law: String,
    /// The law where a byte stream carries the datagrams. A stream controls congestion itself and
    /// never loses any, but may hold all of them up for a round trip. A client that has it declares
    /// that they are carried so; a server that has it sends to such clients by it.
    pub tunnel_law: Option<String>,
    /// Highest rate at which to send.
    pub max_rate: Option<Rate>,
    /// Parameters that earlier connections proved of paths, to begin with on the same ones; none:
    /// every path is new.
    pub memory: Option<Arc<PathMemory>>,
    /// True for no sealing; for the simulator only.
    pub plain: bool,
    /// Idle timeout after which a connection is lost.
    pub idle: Duration,
    /// A client gives up if nothing answers this long.
    pub answer: Duration,
    /// The largest UDP payload sent or taken, 1,200 to 65,507. More than a jumbo frame's saves little,
    /// while a lost datagram and the sockets' buffers grow with it.
    pub max_datagram: u32,
    /// Declaration of the application in the handshake, for the peer's application; at most
    /// [`MAX_APP`](crate::wire::params::MAX_APP) bytes.
    pub app: Vec<u8>,
    /// Half-open sessions that a server has begun within three times [`answer`](Self::answer) for
    /// clients whose addresses are not validated. A source (an IPv4 address, or a /64 of IPv6) has
    /// at most a quarter of them. Beyond that clients get a token first, which costs them a round
    /// trip; 0: always.
    pub max_unvalidated: usize,
    /// Datagrams sealed before the keys are changed; at most half of what the cipher allows.
    pub key_update_after: u64,
}

impl HaulConfig {
    /// Everything but the identity at its default.
    pub fn new(identity: impl Into<Vec<u8>>) -> Self {
        Self {
            identity: identity.into(),
            peers: PeerPolicy::Any,
            law: "haul".into(),
            tunnel_law: None,
            max_rate: None,
            memory: None,
            plain: false,
            idle: Duration::from_secs(30),
            answer: Duration::from_secs(5),
            max_datagram: 9_216,
            app: Vec::new(),
            max_unvalidated: 64,
            key_update_after: 1 << 22,
        }
    }
}

/// Reason why an endpoint could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The identity.
    #[error("identity: {0}")]
    Identity(#[from] KeyError),
    /// The congestion law.
    #[error("congestion law: {0}")]
    Law(#[from] farhaul_congestion::Error),
    /// The congestion law is for the simulator.
    #[error(
        "congestion law {0} needs routers that write into packets, and no real path has them: \
         run it by `farhaul sim run` over a link with router = \"{0}\", or choose another law, such as haul"
    )]
    NeedsRouters(&'static str),
    /// The TLS library.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// A number out of its range.
    #[error("{0}")]
    Range(&'static str),
}
