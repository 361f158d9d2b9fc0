//! Observes a run. An [`Observer`] is notified of packets that enter links and of sessions that
//! change, as they happen; it cannot change the run. [`crate::Pcapng`] and [`crate::Qlog`] are two.

use std::net::SocketAddr;

use farhaul_core::{datagram::Ecn, stats::Stats, time::Instant};
use farhaul_link::DropCause;

/// A packet at the entrance of a link.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Time at which the packet was offered.
    pub at: Instant,
    /// Number of the link.
    pub link: usize,
    /// Flow that the packet belongs to; cross traffic belongs to none.
    pub flow: Option<usize>,
    /// Sender's address.
    pub from: SocketAddr,
    /// Receiver's address.
    pub to: SocketAddr,
    /// ECN bits of the packet when it was offered.
    pub ecn: Ecn,
    /// Known part of the UDP payload: the leading bytes that mean something to the protocol.
    pub head: &'a [u8],
    /// Length of the whole UDP payload.
    pub len: usize,
    /// Reason why the link dropped the packet, if it did.
    pub dropped: Option<DropCause>,
}

/// Event of a session.
#[derive(Clone, Copy, Debug)]
pub enum Moment<'a> {
    /// The client connects.
    Started,
    /// The handshake is done.
    Connected,
    /// Everything has been acknowledged.
    Delivered,
    /// The session is over, for this reason.
    Closed(&'a str),
    /// The session took a turn, after which it counts this.
    Turn(&'a Stats),
    /// A point of the time series is due.
    Sample(&'a Stats),
}

/// End of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The sender.
    Client,
    /// The receiver.
    Server,
}

/// Observes a run. Both functions do nothing by default.
pub trait Observer {
    /// A packet was offered to a link.
    fn on_packet(&mut self, _packet: &Packet<'_>) {}

    /// Called when something happened to a session.
    fn on_session(&mut self, _at: Instant, _flow: usize, _side: Side, _moment: Moment<'_>) {}
}
