//! Moves batches into and out of the kernel cheaply.
//!
//! Invariants:
//! - no call allocates; [`UdpSocket::receive`] writes only into the [`Inbox`] it is given;
//! - every datagram leaves with DF set, so the interface MTU is a hard limit and path MTU is the
//!   session's business;
//! - IPv4 peers are IPv4 addresses to the caller also on a dual-stack socket.
//!
//! Two implementations have the same types: Linux has its own, every other system one on `quinn-udp`.

#[cfg(all(target_os = "linux", not(feature = "portable")))]
mod linux;
#[cfg(any(not(target_os = "linux"), feature = "portable"))]
mod portable;

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::SystemTime,
};

use farhaul_core::datagram::Ecn;

#[cfg(all(target_os = "linux", not(feature = "portable")))]
pub use self::linux::{Inbox, UdpSocket, interface_mtu_to, source_to};
#[cfg(any(not(target_os = "linux"), feature = "portable"))]
pub use self::portable::{Inbox, UdpSocket, interface_mtu_to, source_to};

/// True if sockets tied to peers share a port with one that is tied to none, and get what their peers send.
pub const SHARES_PORTS: bool = cfg!(all(target_os = "linux", not(feature = "portable")));
/// Bytes of the longest message: the longest run that coalescing makes.
const SLOT: usize = 1 << 16;

/// Options for opening a socket.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent wishes, not a state"
)]
pub struct SocketOptions {
    /// Local address; port 0 lets the kernel choose. `[::]` also takes IPv4 peers.
    pub bind: SocketAddr,
    /// True if several sockets share the port and the kernel spreads flows over them.
    pub reuse_port: bool,
    /// Wanted receive buffer, bytes as the kernel counts them (its own overhead included).
    pub receive_buffer: usize,
    /// Wanted send buffer, bytes as the kernel counts them.
    pub send_buffer: usize,
    /// True to use segmentation offload where the kernel has it.
    pub gso: bool,
    /// True to use receive coalescing where the kernel has it.
    pub gro: bool,
    /// True if datagrams longer than the MTU leave as fragments, instead of being refused.
    pub fragments: bool,
}

impl SocketOptions {
    /// The defaults for a socket at `bind`: 64 MiB to receive (50 ms at 10 Gbit/s), 8 MiB to send,
    /// offloads on.
    pub const fn new(bind: SocketAddr) -> Self {
        Self {
            bind,
            reuse_port: false,
            receive_buffer: 64 << 20,
            send_buffer: 8 << 20,
            gso: true,
            gro: true,
            fragments: false,
        }
    }
}

/// Capabilities that the kernel granted; `gso` may turn false later.
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts, not a state"
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// True if several segments leave in one send.
    pub gso: bool,
    /// The error number with which GSO was refused, once it was.
    pub gso_refusal: Option<i32>,
    /// True if several segments arrive in one message.
    pub gro: bool,
    /// True if marks of arriving datagrams are seen.
    pub ecn: bool,
    /// True if datagrams are never fragmented on the way.
    pub dont_fragment: bool,
    /// Receive buffer, bytes as the kernel counts them.
    pub receive_buffer: usize,
    /// Send buffer, bytes as the kernel counts them.
    pub send_buffer: usize,
}

/// Counters of a socket, which only go up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketCounters {
    /// System calls that sent or tried to.
    pub send_calls: u64,
    /// System calls that received or tried to.
    pub receive_calls: u64,
    /// Datagrams handed to the kernel.
    pub datagrams_sent: u64,
    /// UDP payload bytes of these datagrams.
    pub bytes_sent: u64,
    /// Messages received; with GRO each is one or more datagrams.
    pub messages_received: u64,
    /// Datagrams received.
    pub datagrams_received: u64,
    /// UDP payload bytes of these datagrams.
    pub bytes_received: u64,
    /// Datagrams the kernel dropped because the receive buffer was full (`SO_RXQ_OVFL`; with GRO it
    /// counts messages).
    pub overflowed: u64,
    /// Messages longer than their buffer, dropped.
    pub truncated: u64,
    /// Batches re-sent segment by segment because GSO was refused.
    pub gso_refused: u64,
    /// Sends that found the socket full.
    pub blocked: u64,
    /// Failures for which the kernel had no memory (`ENOBUFS`).
    pub no_memory: u64,
    /// Datagrams larger than the interface takes.
    pub too_large: u64,
    /// "Port unreachable" answers seen.
    pub refused: u64,
    /// Sends that failed for any other reason; the batch is lost.
    pub failed: u64,
}

impl SocketCounters {
    /// Adds those of another socket.
    pub const fn add(&mut self, other: &Self) {
        self.send_calls += other.send_calls;
        self.receive_calls += other.receive_calls;
        self.datagrams_sent += other.datagrams_sent;
        self.bytes_sent += other.bytes_sent;
        self.messages_received += other.messages_received;
        self.datagrams_received += other.datagrams_received;
        self.bytes_received += other.bytes_received;
        self.overflowed += other.overflowed;
        self.truncated += other.truncated;
        self.gso_refused += other.gso_refused;
        self.blocked += other.blocked;
        self.no_memory += other.no_memory;
        self.too_large += other.too_large;
        self.refused += other.refused;
        self.failed += other.failed;
    }
}

/// A batch to send: segments of `segment` bytes, only the last may be shorter.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Destination.
    pub to: SocketAddr,
    /// The local address to send from; `None` lets the kernel choose.
    pub from: Option<IpAddr>,
    /// The mark to send with.
    pub ecn: Ecn,
    /// Stride in bytes.
    pub segment: usize,
    /// The segments.
    pub bytes: &'a [u8],
}

/// Fate of a batch.
#[derive(Debug)]
pub enum SendOutcome {
    /// The batch left.
    Sent,
    /// The socket is full: `sent` bytes (whole segments) left, the rest may be offered when the
    /// socket is writable.
    Blocked {
        /// Bytes that left.
        sent: usize,
    },
    /// The rest is larger than the interface takes, as an MTU probe may be; it is lost.
    TooLarge,
    /// An earlier datagram was answered with "port unreachable"; the rest of this batch is lost.
    Refused,
    /// The rest is lost.
    Failed(io::Error),
}

/// One message: datagrams from one peer, `segment` bytes apart; only the last may be shorter.
#[derive(Debug)]
pub struct Incoming<'a> {
    /// Source address.
    pub from: SocketAddr,
    /// Local address that the datagrams were sent to, on a socket bound to a wildcard.
    pub to: Option<IpAddr>,
    /// Mark with which the datagrams arrived.
    pub ecn: Ecn,
    /// Stride in bytes; at least 1.
    pub segment: usize,
    /// Time at which the kernel received the first of them from the device, if reported.
    pub arrived: Option<SystemTime>,
    /// The datagrams; never empty.
    pub bytes: &'a mut [u8],
}

impl Incoming<'_> {
    /// The first datagram.
    pub fn first(&self) -> &[u8] {
        &self.bytes[..self.segment.min(self.bytes.len())]
    }
}

/// Result of a receive call.
#[derive(Debug)]
pub enum ReceiveOutcome {
    /// Messages are in the inbox; `more` if the socket may hold others.
    Some {
        /// True if every slot was filled.
        more: bool,
    },
    /// There is nothing to receive now.
    Empty,
    /// A datagram sent earlier was answered with "port unreachable"; receive again.
    Refused,
    /// The call failed.
    Failed(io::Error),
}

/// Facts of one received message.
#[derive(Clone, Copy, Debug)]
struct Slot {
    from: SocketAddr,
    to: Option<IpAddr>,
    ecn: Ecn,
    segment: usize,
    arrived: Option<SystemTime>,
    len: usize,
}

impl Slot {
    const EMPTY: Self = Self {
        from: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
        to: None,
        ecn: Ecn::NotEct,
        segment: 1,
        arrived: None,
        len: 0,
    };

    /// The message in `bytes`, the slot's storage.
    fn message<'a>(&self, bytes: &'a mut [u8]) -> Incoming<'a> {
        Incoming {
            from: self.from,
            to: self.to,
            ecn: self.ecn,
            segment: self.segment,
            arrived: self.arrived,
            bytes: &mut bytes[..self.len],
        }
    }
}

/// `addr` as a socket of its family takes it: IPv4 peers are mapped on one of IPv6.
fn native(addr: SocketAddr, v6: bool) -> SocketAddr {
    match addr {
        SocketAddr::V4(v4) if v6 => SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port()),
        other => other,
    }
}

fn unmapped(addr: SocketAddr) -> SocketAddr {
    match addr {
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(v4) => SocketAddr::new(v4.into(), v6.port()),
            None => addr,
        },
        SocketAddr::V4(_) => addr,
    }
}
