//! Socket of Linux: one system call per batch both ways, with segmentation offload (GSO) on sending,
//! coalescing (GRO) and `recvmmsg` on receiving, forced buffer sizes and the kernel's own drop counter.
//!
//! A kernel or route that refuses GSO costs one failed call: the batch leaves segment by segment and
//! [`Capabilities::gso`] is false from then on.

mod control;
mod receive;
mod send;

use std::{
    io,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    os::fd::{AsFd, AsRawFd, BorrowedFd},
};

use libc::c_int;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

pub use self::receive::Inbox;
use super::{Capabilities, SocketCounters, SocketOptions, native, unmapped};

/// A non-blocking UDP socket.
#[derive(Debug)]
pub struct UdpSocket {
    socket: Socket,
    /// True if the socket's own family is IPv6: IPv4 peers are mapped.
    v6: bool,
    /// The peer of a connected socket; its batches carry no address.
    peer: Option<SocketAddr>,
    capabilities: Capabilities,
    counters: SocketCounters,
    /// The kernel's wrapping 32-bit drop counter when last seen.
    overflow_seen: u32,
}

impl UdpSocket {
    /// Opens and binds a socket.
    pub fn bind(options: &SocketOptions) -> io::Result<Self> {
        let v6 = options.bind.is_ipv6();
        let domain = if v6 { Domain::IPV6 } else { Domain::IPV4 };
        let socket = Socket::new(domain, Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
        if v6 {
            socket.set_only_v6(!options.bind.ip().is_unspecified())?;
        }
        if options.reuse_port {
            socket.set_reuse_port(true)?;
        }
        let this = Self::configured(socket, options)?;
        this.socket.bind(&SockAddr::from(options.bind))?;
        Ok(this)
    }

    /// Uses a socket that is bound already, as a service manager hands it over; `options` has its address.
    pub fn adopt(socket: std::net::UdpSocket, options: &SocketOptions) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Self::configured(Socket::from(socket), options)
    }

    fn configured(socket: Socket, options: &SocketOptions) -> io::Result<Self> {
        let v6 = options.bind.is_ipv6();
        let fd = socket.as_fd();
        let capabilities = Capabilities {
            gso: options.gso && get(fd, libc::IPPROTO_UDP, libc::UDP_SEGMENT).is_ok(),
            gso_refusal: None,
            gro: options.gro && set(fd, libc::IPPROTO_UDP, libc::UDP_GRO, 1).is_ok(),
            ecn: ask_for_marks(fd, v6).is_ok(),
            dont_fragment: !options.fragments && forbid_fragments(fd, v6).is_ok(),
            receive_buffer: grow(
                fd,
                libc::SO_RCVBUFFORCE,
                libc::SO_RCVBUF,
                options.receive_buffer,
            )?,
            send_buffer: grow(
                fd,
                libc::SO_SNDBUFFORCE,
                libc::SO_SNDBUF,
                options.send_buffer,
            )?,
        };
        // Kernels without one of these lose a figure: the drops, how long a datagram waited, or which of several addresses
        // of this host the peer wrote to, from which answers then leave.
        let _no_figure = set(fd, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1);
        let _no_figure = set(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1);
        if options.bind.ip().is_unspecified() {
            let _no_figure = ask_for_destinations(fd, v6);
        }
        Ok(Self {
            socket,
            v6,
            peer: None,
            capabilities,
            counters: SocketCounters::default(),
            overflow_seen: 0,
        })
    }

    /// Ties the socket to one peer: others' datagrams are not received, "port unreachable" is
    /// reported, and the route is looked up once.
    pub fn connect(&mut self, peer: SocketAddr) -> io::Result<()> {
        self.socket.connect(&native(peer, self.v6).into())?;
        self.peer = Some(peer);
        Ok(())
    }

    /// Connects again to `peer`, from the address that the kernel chooses now, and then from another port. An address or a
    /// port to which the socket was bound explicitly stays.
    ///
    /// # Errors
    /// There is no way to the peer; the socket is then connected to nobody.
    pub fn reconnect(&mut self, peer: SocketAddr) -> io::Result<()> {
        self.peer = None;
        // The kernel forgets the local address and port that it chose, too.
        rustix::net::connect_unspec(&self.socket)?;
        self.connect(peer)
    }

    /// The peer of a connected socket.
    pub const fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Lets other sockets of this user bind the same port from now on, if they are opened to share
    /// it.
    pub fn share_port(&self) -> io::Result<()> {
        self.socket.set_reuse_port(true)
    }

    /// Address to which the socket is bound.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let addr = self.socket.local_addr()?;
        addr.as_socket()
            .map(unmapped)
            .ok_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable))
    }

    /// The IP MTU of the way to the connected peer as far as this host knows it.
    pub fn interface_mtu(&self) -> Option<u32> {
        let v4 = self.peer.is_none_or(|p| p.is_ipv4());
        let (level, name) = if v4 {
            (libc::IPPROTO_IP, libc::IP_MTU)
        } else {
            (libc::IPPROTO_IPV6, libc::IPV6_MTU)
        };
        let mtu = get(self.socket.as_fd(), level, name).ok()?;
        u32::try_from(mtu).ok().filter(|mtu| *mtu > 0)
    }

    /// Capabilities that the kernel granted.
    pub const fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// Counters so far.
    pub const fn counters(&self) -> SocketCounters {
        self.counters
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The IP MTU of the way to `peer` as far as this host knows it.
pub fn interface_mtu_to(peer: SocketAddr) -> io::Result<Option<u32>> {
    Ok(route_to(peer)?.interface_mtu())
}

/// The address from which this host would send to `peer` now.
///
/// # Errors
/// There is no way to the peer.
pub fn source_to(peer: SocketAddr) -> io::Result<IpAddr> {
    Ok(route_to(peer)?.local_addr()?.ip())
}

/// A socket that shows what the kernel's choice of a route to `peer` is. It sends nothing.
fn route_to(peer: SocketAddr) -> io::Result<UdpSocket> {
    let any: IpAddr = if peer.is_ipv4() {
        IpAddr::from([0, 0, 0, 0])
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    let mut options = SocketOptions::new(SocketAddr::new(any, 0));
    options.receive_buffer = 0;
    options.send_buffer = 0;
    let mut socket = UdpSocket::bind(&options)?;
    socket.connect(peer)?;
    Ok(socket)
}

fn ask_for_marks(fd: BorrowedFd<'_>, v6: bool) -> io::Result<()> {
    // Also on an IPv6 socket, for mapped IPv4 peers.
    set(fd, libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?;
    if v6 {
        set(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
    }
    Ok(())
}

fn ask_for_destinations(fd: BorrowedFd<'_>, v6: bool) -> io::Result<()> {
    if v6 {
        set(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)
    } else {
        set(fd, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)
    }
}

/// DF without the kernel's own path MTU discovery, so that probes above its guess may leave.
fn forbid_fragments(fd: BorrowedFd<'_>, v6: bool) -> io::Result<()> {
    set(
        fd,
        libc::IPPROTO_IP,
        libc::IP_MTU_DISCOVER,
        libc::IP_PMTUDISC_PROBE,
    )?;
    if v6 {
        set(
            fd,
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_PROBE,
        )?;
    }
    Ok(())
}

/// Requests a buffer of `wanted` bytes, past the system's limit where privilege allows; never
/// shrinks, and a kernel that refuses leaves it as it is. Returns what there is now.
fn grow(fd: BorrowedFd<'_>, force: c_int, plain: c_int, wanted: usize) -> io::Result<usize> {
    let current = |fd| get(fd, libc::SOL_SOCKET, plain).map(|n| usize::try_from(n).unwrap_or(0));
    if current(fd)? < wanted {
        // The kernel doubles what it is given, for its own overhead.
        let half = c_int::try_from(wanted.div_ceil(2)).unwrap_or(c_int::MAX / 2);
        let _as_it_is = set(fd, libc::SOL_SOCKET, force, half)
            .or_else(|_| set(fd, libc::SOL_SOCKET, plain, half));
    }
    current(fd)
}

fn set(fd: BorrowedFd<'_>, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    // SAFETY: the pointer and the length describe `value`, which outlives the call.
    let status = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_in_32::<c_int>(),
        )
    };
    if status == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn get(fd: BorrowedFd<'_>, level: c_int, name: c_int) -> io::Result<c_int> {
    let mut value: c_int = 0;
    let mut len = size_in_32::<c_int>();
    // SAFETY: the pointers describe `value` and `len`, which outlive the call.
    let status = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw mut value).cast(),
            &raw mut len,
        )
    };
    if status == 0 {
        Ok(value)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The size of a C struct as the socket calls want it.
#[expect(
    clippy::cast_possible_truncation,
    reason = "no socket struct comes near 4 GiB"
)]
const fn size_in_32<T>() -> u32 {
    size_of::<T>() as u32
}

#[cfg(test)]
mod tests;
