//! Event that ends a sleep: a descriptor that is readable from a signal until the event is emptied.

use std::io;

use rustix::fd::{AsFd, BorrowedFd};

#[cfg(target_os = "linux")]
type Descriptor = std::os::fd::OwnedFd;
/// A socket of the loopback device that is its own peer, since every system can wait for a socket.
#[cfg(not(target_os = "linux"))]
type Descriptor = std::net::UdpSocket;

/// A descriptor that other threads make readable.
#[derive(Debug)]
pub(super) struct Event(Descriptor);

#[cfg(target_os = "linux")]
impl Event {
    pub(super) fn new() -> io::Result<Self> {
        use rustix::event::{EventfdFlags, eventfd};
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self(eventfd(0, flags)?))
    }

    /// Makes the descriptor readable.
    pub(super) fn signal(&self) {
        // The write fails only when the counter is full, and then the reader is woken anyway.
        let _full = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Makes the descriptor unreadable.
    pub(super) fn empty(&self) {
        let _empty_already = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

#[cfg(not(target_os = "linux"))]
impl Event {
    pub(super) fn new() -> io::Result<Self> {
        let socket = std::net::UdpSocket::bind((std::net::Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(socket.local_addr()?)?;
        socket.set_nonblocking(true)?;
        Ok(Self(socket))
    }

    /// Makes the descriptor readable.
    pub(super) fn signal(&self) {
        // The send fails only when the buffer is full, and then the reader is woken anyway.
        let _full = self.0.send(&[0]);
    }

    /// Makes the descriptor unreadable.
    pub(super) fn empty(&self) {
        while self.0.recv(&mut [0]).is_ok() {}
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
