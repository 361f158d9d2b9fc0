//! Defines a protocol, as the worlds that run it see it: a factory of [`Session`]s. A world
//! (simulator, sockets) sees only these traits and does not know which protocol it runs.

use std::{fmt, net::SocketAddr};

use crate::{
    congestion::Sharing,
    control::{Control, Token},
    datagram::{Received, Transmit, TxBuf},
    rng::Rng,
    stats::{Stats, Why},
    store::{ObjectId, Store},
    time::Instant,
    units::Rate,
};

/// One call into the engine at one instant.
pub struct Turn<'a> {
    /// Time of the turn.
    pub now: Instant,
    /// Randomness (not for keys).
    pub rng: &'a mut Rng,
    /// The application's bytes.
    pub store: &'a mut dyn Store,
}

/// Reason of a session's end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// Close by this side; the code was sent to the peer.
    Local {
        /// Application code; 0 is success.
        code: u32,
        /// Text for people.
        text: String,
    },
    /// The peer closed the session.
    Peer {
        /// Application code; 0 is success.
        code: u32,
        /// Text for people.
        text: String,
    },
    /// The idle timeout expired: nothing was received (RFC 9000 §10.1).
    TimedOut,
    /// The handshake timed out without any reply from the peer.
    NoAnswer,
    /// The peer replied, but the handshake did not complete in time.
    Unfinished,
    /// No common protocol version.
    Version(String),
    /// Refusal of the peer's identity by this side.
    Auth(String),
    /// The peer refused the identity of this side.
    Denied(String),
    /// The peer broke the protocol.
    Protocol(String),
    /// The application's store failed.
    Store(String),
    /// The peer's store accepted no data for too long.
    Starved(String),
    /// Either the datagrams or the control lane fail while the other works.
    Lane(String),
    /// Internal error in this session.
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

/// Events that a session reports to its application.
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

    /// Time to call again, and why.
    fn poll_timeout(&self) -> Option<(Instant, Why)>;

    /// The next event.
    fn poll_event(&mut self) -> Option<Event>;

    /// Queues `len` bytes of `object` from `offset`; they are read from the store when they are sent.
    fn send(&mut self, object: ObjectId, offset: u64, len: u64);

    /// Bytes given to [`Self::send`] that have not been sent once.
    fn unsent(&self) -> u64;

    /// Discards data queued with [`Self::send`] that was never sent.
    fn cancel_unsent(&mut self);

    /// Appends to the ordered byte stream to the peer.
    fn write(&mut self, bytes: &[u8]);

    /// Bytes given to [`Self::write`] that have not been acknowledged.
    fn unwritten(&self) -> usize;

    /// Moves the data received on the ordered stream to the end of `into`.
    fn read(&mut self, into: &mut Vec<u8>);

    /// Asks the peer for an acknowledgement, which without data is a sample of the round-trip time.
    /// Returns false, and sends nothing, if the protocol has nothing of the kind or the session is
    /// not open.
    fn ping(&mut self) -> bool {
        false
    }

    /// Notes that this host sends from another address now, maybe over another path. By default the
    /// session pings the peer, so that the peer learns the address.
    fn path_changed(&mut self, _now: Instant) {
        self.ping();
    }

    /// Declaration that the peer's application made in the handshake, authenticated; empty before
    /// the handshake is done, and where the application or the protocol declares nothing.
    fn peer_app(&self) -> &[u8] {
        &[]
    }

    /// True if the peer has proven that it receives at its address (RFC 9000 §8.1). A listener
    /// counts a session by its source from then on only: nobody takes places from an address by
    /// sending in its name.
    fn is_address_validated(&self) -> bool {
        true
    }

    /// Limits the sending rate to `max_rate`, in place of an earlier limit set so, and sets the
    /// share of contended links to claim. Returns false, and changes nothing, if this session
    /// cannot.
    fn govern(&mut self, max_rate: Rate, sharing: Sharing) -> bool {
        max_rate == Rate::UNLIMITED && sharing == Sharing::Fair
    }

    /// Sends at `rate` from `now` on, whatever is lost, in place of the congestion law: for measurements that
    /// both ends agreed to. Returns false, and changes nothing, if this session cannot.
    fn send_constantly(&mut self, _now: Instant, _rate: Rate) -> bool {
        false
    }

    /// Makes this session one of `lanes` parallel sessions that claim the share of one together;
    /// false, and nothing is changed, if the session cannot.
    fn split(&mut self, lanes: u32) -> bool {
        lanes == 1
    }

    /// True if ICMP "port unreachable" is ignored, as the peer may not have started yet: a client
    /// retransmits until its handshake times out. Otherwise a few such errors end the session.
    fn ignores_port_unreachable(&self) -> bool {
        false
    }

    /// Token that associates this session's datagrams with its control lane: a client's, if its protocol
    /// ([`Descriptor::control_lane`]) has one.
    fn control_token(&self) -> Option<Token> {
        None
    }

    /// Handles an event of the control lane: opened, data, closed.
    fn handle_control(&mut self, _turn: &mut Turn<'_>, _control: Control<'_>) {}

    /// Appends data to send on the control lane, at most `room` bytes; called after every turn
    /// while the lane is open. Appends nothing if nothing is pending or it does not fit.
    fn poll_control(&mut self, _now: Instant, _room: usize, _into: &mut Vec<u8>) {}

    /// Ends the session, and sends `code` and `text` to the peer. Data in flight is abandoned.
    fn close(&mut self, now: Instant, code: u32, text: &str);

    /// True once the session is closed and can be dropped.
    fn is_closed(&self) -> bool;

    /// Counters.
    fn stats(&self) -> Stats;
}

/// Source that an implementation is based on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provenance {
    /// A written specification.
    Specification,
    /// The source code of the original.
    Source,
    /// The paper alone.
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

/// Static description of a protocol.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor {
    /// Name used on the command line.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// Source that the implementation is based on.
    pub provenance: Provenance,
    /// Paper, RFC or document.
    pub citation: &'static str,
    /// True if every datagram is authenticated and encrypted.
    pub sealed: bool,
    /// True if feedback needs a TCP connection beside the datagrams ([`crate::control`]).
    pub control_lane: bool,
    /// True if several sessions of one peer may come from one address and port.
    pub multiplexed: bool,
}

/// Destination of an arriving datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The session with this id.
    Known(u64),
    /// The session of the source address, or a new one: the packets carry no session id.
    Peer,
    /// No session yet; see [`Protocol::accept`].
    New,
    /// Nowhere: the datagram is none of this protocol.
    Foreign,
}

/// Answer of a listener to a datagram that belongs to no session.
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
    /// Static description of the protocol.
    fn descriptor(&self) -> &'static Descriptor;

    /// Destination of a datagram, from its first bytes.
    fn route(&self, datagram: &[u8]) -> Route;

    /// Function that extracts the destination session id from a datagram, if the format has one. Where one
    /// peer's sessions share an address and port, this distinguishes them.
    fn destination(&self) -> fn(&[u8]) -> Option<u64> {
        |_| None
    }

    /// True if the receiver measures the path by the time from datagram to datagram. Datagrams that
    /// are delivered together then mislead it.
    fn measures_spacing(&self) -> bool {
        false
    }

    /// Control lane token in a client's first datagram; [`Self::accept`] is then called
    /// only if a lane with that token is open.
    fn control_token(&self, _datagram: &[u8]) -> Option<Token> {
        None
    }

    /// Opens a session to `to`; `interface_mtu` is the IP MTU of the outgoing interface, if known.
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
