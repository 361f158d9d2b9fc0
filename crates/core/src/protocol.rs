//! What is a protocol to the worlds it runs in? A factory of [`Session`]s. A world (simulator,
//! sockets) sees only these traits and cannot tell which protocol it runs.

use std::{fmt, net::SocketAddr};

use crate::{
    congestion::Sharing,
    control::{Control, Token},
    datagram::{CongestionHeader, Received, Transmit, TxBuf},
    rng::Rng,
    stats::{Stats, Why},
    store::{ObjectId, Store},
    time::Instant,
    units::Rate,
};

/// One call into the engine at one instant.
pub struct Turn<'a> {
    /// Now.
    pub now: Instant,
    /// Randomness (not for keys).
    pub rng: &'a mut Rng,
    /// The application's bytes.
    pub store: &'a mut dyn Store,
}

/// Why a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// This side closed it; the peer was told the code.
    Local {
        /// Application code; 0 is success.
        code: u32,
        /// For people.
        text: String,
    },
    /// The peer closed it.
    Peer {
        /// Application code; 0 is success.
        code: u32,
        /// For people.
        text: String,
    },
    /// Nothing was heard for the idle time.
    TimedOut,
    /// The peer never answered at all.
    NoAnswer,
    /// The peer answered, but the handshake was not finished in time.
    Unfinished,
    /// No common protocol version.
    Version(String),
    /// This side refused the peer's identity.
    Auth(String),
    /// The peer refused the identity of this side.
    Denied(String),
    /// The peer broke the protocol.
    Protocol(String),
    /// The application's store failed.
    Store(String),
    /// The peer's store has taken nothing for too long.
    Starved(String),
    /// One of the session's two lanes, datagrams and control, does not work while the other does.
    Lane(String),
    /// A fault of this program, in this session alone.
    Internal(String),
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local { text, .. } => write!(f, "closed: {text}"),
            Self::Peer { text, .. } => write!(f, "closed by the peer: {text}"),
            Self::TimedOut => f.write_str("the connection was lost"),
            Self::NoAnswer => f.write_str("no answer"),
            Self::Unfinished => {
                f.write_str("the peer answered, but the handshake was not finished")
            }
            Self::Version(text) => write!(f, "no common version: {text}"),
            Self::Auth(text) => write!(f, "not authenticated: {text}"),
            Self::Denied(text) => write!(f, "the peer does not let us in: {text}"),
            Self::Protocol(text) => write!(f, "the peer violated the protocol: {text}"),
            Self::Store(text) | Self::Starved(text) | Self::Lane(text) => f.write_str(text),
            Self::Internal(text) => write!(f, "internal error: {text}"),
        }
    }
}

/// What a session tells its application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The handshake is done and the peer authenticated; its public key if it has one.
    Connected {
        /// Raw public key of the peer.
        peer_key: Option<Vec<u8>>,
    },
    /// The ordered stream has bytes to read.
    Readable,
    /// Everything given to [`Session::send`] and [`Session::write`] so far has been acknowledged.
    Delivered,
    /// The session is over; the last event.
    Closed(CloseReason),
}

/// One connection's state machine. After any `&mut` call the driver drains it: `poll_transmit` until
/// `None`, `poll_event` until `None`, then it reads `poll_timeout`.
pub trait Session: Send {
    /// Datagrams arrived.
    fn handle_datagrams(&mut self, turn: &mut Turn<'_>, batch: Received<'_>);

    /// The deadline of [`Self::poll_timeout`] passed.
    fn handle_timeout(&mut self, turn: &mut Turn<'_>);

    /// Writes the next batch to send, if anything may be sent now.
    fn poll_transmit(&mut self, turn: &mut Turn<'_>, out: &mut TxBuf) -> Option<Transmit>;

    /// When to call again, and why.
    fn poll_timeout(&self) -> Option<(Instant, Why)>;

    /// The next event.
    fn poll_event(&mut self) -> Option<Event>;

    /// Queues `len` bytes of `object` from `offset`; they are read from the store when they are sent.
    fn send(&mut self, object: ObjectId, offset: u64, len: u64);

    /// Bytes given to [`Self::send`] that have not been sent once.
    fn unsent(&self) -> u64;

    /// Forgets what was given to [`Self::send`] and not sent yet.
    fn cancel_unsent(&mut self);

    /// Appends to the ordered byte stream to the peer.
    fn write(&mut self, bytes: &[u8]);

    /// Bytes given to [`Self::write`] that have not been acknowledged.
    fn unwritten(&self) -> usize;

    /// Appends what has arrived on the ordered stream to `into`.
    fn read(&mut self, into: &mut Vec<u8>);

    /// Sends no faster than `max_rate` from now on, and claims this much of shared links; false, and
    /// nothing is changed, if this session cannot.
    fn govern(&mut self, max_rate: Rate, sharing: Sharing) -> bool {
        max_rate == Rate::UNLIMITED && sharing == Sharing::Fair
    }

    /// Whether "port unreachable" may mean that the peer has yet to start, so that a client asks on
    /// until the session itself gives up. Otherwise a few such answers are believed.
    fn ignores_port_unreachable(&self) -> bool {
        false
    }

    /// What joins this session's datagrams to its control lane: a client's, if its protocol
    /// ([`Descriptor::control_lane`]) has one.
    fn control_token(&self) -> Option<Token> {
        None
    }

    /// Something happened on the control lane.
    fn handle_control(&mut self, _turn: &mut Turn<'_>, _control: Control<'_>) {}

    /// Appends what is to leave on the control lane, at most `room` bytes; asked after every turn
    /// while the lane is open. Nothing appended: nothing waits, or it does not fit.
    fn poll_control(&mut self, _now: Instant, _room: usize, _into: &mut Vec<u8>) {}

    /// What the next batch's segments travel with where routers read it: in the simulator alone.
    fn congestion_header(&self) -> Option<CongestionHeader> {
        None
    }

    /// Routers change the window of the peer, which sent the datagrams handled next, by `bytes`.
    fn on_granted(&mut self, _bytes: f64) {}

    /// Ends the session: tells the peer `code` and `text`. Data in flight is abandoned.
    fn close(&mut self, now: Instant, code: u32, text: &str);

    /// True when the session needs no more turns.
    fn is_closed(&self) -> bool;

    /// Counters.
    fn stats(&self) -> Stats;
}

/// How a protocol's facts are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provenance {
    /// From a written specification.
    Specification,
    /// From the source code of the original.
    Source,
    /// From the paper alone.
    Paper,
    /// Fitted to published measurements; internals unknown.
    Model,
}

impl Provenance {
    /// The word used in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Specification => "specification",
            Self::Source => "source",
            Self::Paper => "paper",
            Self::Model => "model",
        }
    }
}

/// What a protocol says of itself.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor {
    /// The name by which it is chosen.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// How its facts are known.
    pub provenance: Provenance,
    /// Paper, RFC or document.
    pub citation: &'static str,
    /// Every datagram is authenticated and encrypted.
    pub sealed: bool,
    /// Its feedback needs a TCP connection beside the datagrams ([`crate::control`]).
    pub control_lane: bool,
    /// Several sessions of one peer may come from one address and port.
    pub multiplexed: bool,
}

/// Where an arriving datagram belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// To the session with this id.
    Known(u64),
    /// To the session whose peer it came from, or to none yet: the protocol's packets do not say.
    Peer,
    /// To no session yet; see [`Protocol::accept`].
    New,
    /// Not of this protocol.
    Foreign,
}

/// What a listener does with a datagram that belongs to no session.
pub enum Accepted {
    /// A new session, which must also be given the datagram, and the id by which to route to it.
    Session(u64, Box<dyn Session>),
    /// A stateless answer was written to the reply buffer.
    Reply,
    /// Nothing to do.
    Drop,
}

/// A factory of sessions; one per endpoint.
pub trait Protocol: Send {
    /// What it says of itself.
    fn descriptor(&self) -> &'static Descriptor;

    /// Where a datagram belongs, from its first bytes.
    fn route(&self, datagram: &[u8]) -> Route;

    /// Tells the id of the session that a datagram is addressed to, wherever its bytes say so. Where one
    /// peer's sessions may share an address, this tells them apart.
    fn destination(&self) -> fn(&[u8]) -> Option<u64> {
        |_| None
    }

    /// The token by which a first datagram asks to join a control lane; [`Self::accept`] is then asked
    /// only if a lane with that token waits.
    fn control_token(&self, _datagram: &[u8]) -> Option<Token> {
        None
    }

    /// Opens a session to `to`; `interface_mtu` is the IP MTU of the way out, if known.
    fn connect(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        to: SocketAddr,
        interface_mtu: Option<u32>,
    ) -> (u64, Box<dyn Session>);

    /// Answers the first datagram of a batch that belongs to no session.
    fn accept(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        from: SocketAddr,
        datagram: &[u8],
        reply: &mut Vec<u8>,
    ) -> Accepted;
}
