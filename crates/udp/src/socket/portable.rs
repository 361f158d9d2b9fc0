//! Socket of systems other than Linux, on `quinn-udp`: offloads, marks and addresses as far as the
//! system has them.
//!
//! - The system's socket is never connected, since not every system sends to an address over a
//!   connected one. Datagrams of others than the peer are dropped here, and "port unreachable" is
//!   reported only where the system reports it on an unconnected socket.
//! - The system reports no drops, and no MTU of an interface. Fragments cannot be allowed.

use std::{
    io::{self, ErrorKind, IoSliceMut},
    net::{IpAddr, Ipv6Addr, SocketAddr},
    time::UNIX_EPOCH,
};

#[cfg(unix)]
use std::os::fd::{AsFd, BorrowedFd};
#[cfg(windows)]
use std::os::windows::io::{AsSocket, BorrowedSocket};

use farhaul_core::datagram::{Ecn, MAX_BATCH, MAX_SEGMENTS};
use quinn_udp::{BATCH_SIZE, EcnCodepoint, RecvMeta, Transmit, UdpSocketState, is_msg_size_err};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::{
    Capabilities, Incoming, Outgoing, ReceiveOutcome, SLOT, SendOutcome, Slot, SocketCounters,
    SocketOptions, native, unmapped,
};

/// Buffers for one receive call, and what it found.
#[derive(Debug)]
pub struct Inbox {
    bytes: Vec<u8>,
    slots: [Slot; BATCH_SIZE],
    found: [RecvMeta; BATCH_SIZE],
    filled: usize,
}

impl Default for Inbox {
    fn default() -> Self {
        Self::new()
    }
}

impl Inbox {
    /// Empty buffers.
    pub fn new() -> Self {
        Self {
            bytes: vec![0; SLOT * BATCH_SIZE],
            slots: [Slot::EMPTY; BATCH_SIZE],
            found: [RecvMeta::default(); BATCH_SIZE],
            filled: 0,
        }
    }

    /// Messages of the last receive call.
    pub fn messages(&mut self) -> impl Iterator<Item = Incoming<'_>> {
        self.slots[..self.filled]
            .iter()
            .zip(self.bytes.chunks_mut(SLOT))
            .filter(|(slot, _)| slot.len > 0)
            .map(|(slot, bytes)| slot.message(bytes))
    }
}

/// A non-blocking UDP socket.
#[derive(Debug)]
pub struct UdpSocket {
    socket: Socket,
    state: UdpSocketState,
    options: SocketOptions,
    /// The peer whose datagrams alone are received, if there is one, and the address of this host that
    /// the system chose for it.
    tied: Option<(SocketAddr, IpAddr)>,
    capabilities: Capabilities,
    counters: SocketCounters,
}

impl UdpSocket {
    /// Opens and binds a socket.
    pub fn bind(options: &SocketOptions) -> io::Result<Self> {
        let v6 = options.bind.is_ipv6();
        let domain = if v6 { Domain::IPV6 } else { Domain::IPV4 };
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        if v6 {
            socket.set_only_v6(!options.bind.ip().is_unspecified())?;
        }
        if options.reuse_port {
            share_port()?;
        }
        socket.bind(&SockAddr::from(options.bind))?;
        Self::configured(socket, options)
    }

    /// Uses a socket that is bound already, as a service manager hands it over; `options` has its address.
    pub fn adopt(socket: std::net::UdpSocket, options: &SocketOptions) -> io::Result<Self> {
        Self::configured(Socket::from(socket), options)
    }

    fn configured(socket: Socket, options: &SocketOptions) -> io::Result<Self> {
        let state = UdpSocketState::new((&socket).into())?;
        // A system that refuses a size leaves the buffer as it is; the capabilities report what there is.
        if socket.recv_buffer_size()? < options.receive_buffer {
            let _as_it_is = state.set_recv_buffer_size((&socket).into(), options.receive_buffer);
        }
        if socket.send_buffer_size()? < options.send_buffer {
            let _as_it_is = state.set_send_buffer_size((&socket).into(), options.send_buffer);
        }
        let capabilities = Capabilities {
            gso: options.gso && state.max_gso_segments() > 1,
            gso_refusal: None,
            gro: state.gro_segments() > 1,
            ecn: true,
            dont_fragment: !state.may_fragment(),
            receive_buffer: socket.recv_buffer_size()?,
            send_buffer: socket.send_buffer_size()?,
        };
        Ok(Self {
            socket,
            state,
            options: options.clone(),
            tied: None,
            capabilities,
            counters: SocketCounters::default(),
        })
    }

    /// Ties the socket to one peer: others' datagrams are not received.
    pub fn connect(&mut self, peer: SocketAddr) -> io::Result<()> {
        self.tied = Some((peer, source_to(peer)?));
        Ok(())
    }

    /// Connects again to `peer`, from another port. A port to which the socket was bound explicitly stays.
    ///
    /// # Errors
    /// There is no way to the peer; the socket is then connected to nobody.
    pub fn reconnect(&mut self, peer: SocketAddr) -> io::Result<()> {
        self.tied = None;
        if self.options.bind.port() == 0 {
            let counters = self.counters;
            *self = Self::bind(&self.options)?;
            self.counters = counters;
        }
        self.connect(peer)
    }

    /// The peer of a connected socket.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.tied.map(|(peer, _)| peer)
    }

    /// Lets other sockets of this user bind the same port from now on, which this system does not.
    pub fn share_port(&self) -> io::Result<()> {
        share_port()
    }

    /// Address to which the socket is bound; that of the way to the peer if it is bound to every address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let addr = self.socket.local_addr()?.as_socket();
        let mut addr = addr.ok_or_else(|| io::Error::from(ErrorKind::AddrNotAvailable))?;
        if let Some((_, source)) = self.tied
            && addr.ip().is_unspecified()
        {
            addr.set_ip(source);
        }
        Ok(unmapped(addr))
    }

    /// The IP MTU of the way to the connected peer: these systems do not tell.
    pub const fn interface_mtu(&self) -> Option<u32> {
        None
    }

    /// Capabilities that the kernel granted.
    pub const fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// Counters so far.
    pub const fn counters(&self) -> SocketCounters {
        self.counters
    }

    /// Sends a batch.
    ///
    /// # Panics
    /// If the stride is zero.
    pub fn send(&mut self, batch: &Outgoing<'_>) -> SendOutcome {
        assert!(batch.segment > 0, "a batch needs a stride");
        let v6 = self.options.bind.is_ipv6();
        let mut sent = 0;
        while sent < batch.bytes.len() {
            let most = self.segments(batch.segment) * batch.segment;
            let rest = &batch.bytes[sent..];
            let piece = &rest[..rest.len().min(most)];
            let transmit = Transmit {
                destination: native(batch.to, v6),
                ecn: EcnCodepoint::from_bits(batch.ecn.bits()),
                contents: piece,
                segment_size: Some(batch.segment),
                src_ip: batch.from,
            };
            self.counters.send_calls += 1;
            match self.state.try_send((&self.socket).into(), &transmit) {
                Ok(()) => {
                    sent += piece.len();
                    self.counters.bytes_sent += piece.len() as u64;
                    self.counters.datagrams_sent += piece.len().div_ceil(batch.segment) as u64;
                }
                Err(error) => {
                    let offloaded = piece.len() > batch.segment;
                    if let Some(outcome) = self.settle(error, offloaded, sent) {
                        return outcome;
                    }
                }
            }
        }
        SendOutcome::Sent
    }

    /// Segments of `segment` bytes that may leave in one call.
    fn segments(&self, segment: usize) -> usize {
        if self.capabilities.gso {
            let most = MAX_SEGMENTS.min(MAX_BATCH / segment);
            self.state.max_gso_segments().min(most).max(1)
        } else {
            1
        }
    }

    /// Counts a refusal and reports it; `None` where the same segments may be sent again.
    fn settle(&mut self, error: io::Error, offloaded: bool, sent: usize) -> Option<SendOutcome> {
        let (counter, outcome) = match error.kind() {
            ErrorKind::Interrupted => return None,
            ErrorKind::WouldBlock => (&mut self.counters.blocked, SendOutcome::Blocked { sent }),
            _ if is_no_memory(&error) => {
                self.counters.no_memory += 1;
                (&mut self.counters.blocked, SendOutcome::Blocked { sent })
            }
            ErrorKind::ConnectionRefused => (&mut self.counters.refused, SendOutcome::Refused),
            // The system does not segment, as `quinn-udp` noticed: segments leave one by one from now on, and show
            // whether they are too large.
            _ if offloaded && self.state.max_gso_segments() == 1 => {
                self.capabilities.gso = false;
                self.capabilities.gso_refusal = error.raw_os_error();
                self.counters.gso_refused += 1;
                return None;
            }
            _ if is_msg_size_err(&error) => (&mut self.counters.too_large, SendOutcome::TooLarge),
            _ => (&mut self.counters.failed, SendOutcome::Failed(error)),
        };
        *counter += 1;
        Some(outcome)
    }

    /// Receives the messages that are there, as far as `inbox` has room, without waiting.
    pub fn receive(&mut self, inbox: &mut Inbox) -> ReceiveOutcome {
        inbox.filled = 0;
        let mut buffers = inbox.bytes.chunks_mut(SLOT);
        let mut buffers: [_; BATCH_SIZE] =
            std::array::from_fn(|_| IoSliceMut::new(buffers.next().unwrap_or_default()));
        self.counters.receive_calls += 1;
        let received = self
            .state
            .recv((&self.socket).into(), &mut buffers, &mut inbox.found);
        let filled = match received {
            Ok(filled) => filled.min(BATCH_SIZE),
            Err(error) => return self.nothing(error),
        };
        inbox.filled = filled;
        for (slot, found) in inbox.slots.iter_mut().zip(&inbox.found[..filled]) {
            *slot = self.read_slot(found);
        }
        ReceiveOutcome::Some { more: true }
    }

    /// Outcome of a receive call that failed with `error`.
    fn nothing(&mut self, error: io::Error) -> ReceiveOutcome {
        match error.kind() {
            ErrorKind::WouldBlock => ReceiveOutcome::Empty,
            ErrorKind::Interrupted => ReceiveOutcome::Some { more: true },
            // Windows reports "port unreachable" as a reset.
            ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset => {
                self.counters.refused += 1;
                ReceiveOutcome::Refused
            }
            _ => ReceiveOutcome::Failed(error),
        }
    }

    /// Facts of a message; an empty slot if another host than the peer sent the message.
    fn read_slot(&mut self, found: &RecvMeta) -> Slot {
        let from = unmapped(found.addr);
        let len = found.len.min(SLOT);
        if self.peer().is_some_and(|peer| peer != from) {
            return Slot::EMPTY;
        }
        let segment = found.stride.clamp(1, len.max(1));
        self.counters.messages_received += 1;
        self.counters.datagrams_received += len.div_ceil(segment).max(1) as u64;
        self.counters.bytes_received += len as u64;
        Slot {
            from,
            // As Linux reports: the address matters only on a socket bound to a wildcard.
            to: found
                .dst_ip
                .map(|ip| ip.to_canonical())
                .filter(|_| self.options.bind.ip().is_unspecified()),
            ecn: found
                .ecn
                .map_or(Ecn::NotEct, |ecn| Ecn::from_bits(ecn as u8)),
            segment,
            arrived: found
                .timestamp
                .and_then(|since| UNIX_EPOCH.checked_add(since)),
            len,
        }
    }
}

#[cfg(unix)]
impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(windows)]
impl AsSocket for UdpSocket {
    fn as_socket(&self) -> BorrowedSocket<'_> {
        self.socket.as_socket()
    }
}

/// True if the system has no memory for what is sent: the device's queue is full.
fn is_no_memory(error: &io::Error) -> bool {
    #[cfg(unix)]
    let number = libc::ENOBUFS;
    #[cfg(windows)]
    // WSAENOBUFS.
    let number = 10_055;
    error.raw_os_error() == Some(number)
}

/// Refuses: the system ties no socket to a peer, so sockets on one port would get each other's datagrams.
fn share_port() -> io::Result<()> {
    let text = "sockets share no port on this system";
    Err(io::Error::new(ErrorKind::Unsupported, text))
}

/// The IP MTU of the way to `peer`: these systems do not tell.
pub fn interface_mtu_to(peer: SocketAddr) -> io::Result<Option<u32>> {
    source_to(peer).map(|_| None)
}

/// The address from which this host would send to `peer` now.
///
/// # Errors
/// There is no way to the peer.
pub fn source_to(peer: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = if peer.is_ipv4() {
        IpAddr::from([0, 0, 0, 0])
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    let socket = std::net::UdpSocket::bind((any, 0))?;
    socket.connect(peer)?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests;
