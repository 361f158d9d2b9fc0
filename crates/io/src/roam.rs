//! Another source address for a client whose host loses the one that it sends from. A connected socket keeps its source
//! address also when that is gone: a Wi-Fi network was left, a lease ended, a VPN began. The socket is then connected again,
//! from the address that the kernel would choose now, and the session goes on from there.
//!
//! Invariants: nothing is done while datagrams arrive and leave; a socket that was bound to an address stays bound to it.

use std::{io, net::SocketAddr, time::Duration};

use farhaul_core::time::Instant;
use farhaul_udp::{UdpSocket, source_to};

/// Silence after which the kernel's choice is looked up: the loss of an IPv6 address is not
/// reported to the sender.
const SILENCE: Duration = Duration::from_secs(2);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(500);

/// The address that a client sends from.
#[derive(Debug)]
pub(crate) struct Roam {
    /// The peer's address.
    to: SocketAddr,
    /// Time at which something was received last.
    heard: Instant,
    /// True if a batch was refused since the last look.
    refused: bool,
    /// Time before which there is no look.
    next: Instant,
}

impl Roam {
    /// Roaming state of a socket connected to `to`.
    pub(crate) const fn new(now: Instant, to: SocketAddr) -> Self {
        Self {
            to,
            heard: now,
            refused: false,
            next: now,
        }
    }

    /// Datagrams were received.
    pub(crate) const fn on_heard(&mut self, now: Instant) {
        self.heard = now;
    }

    /// The kernel did not take a batch.
    pub(crate) const fn on_refused(&mut self) {
        self.refused = true;
    }

    /// Time at which the next look is due.
    pub(crate) fn due(&self) -> Instant {
        if self.refused {
            self.next
        } else {
            self.next.max(self.heard + SILENCE)
        }
    }

    /// Looks whether the kernel would choose another source address; then connects `socket` again and returns true.
    pub(crate) fn look(&mut self, now: Instant, socket: &mut UdpSocket) -> bool {
        (self.refused, self.next) = (false, now + PAUSE);
        // The session may have followed its peer.
        self.to = socket.peer().unwrap_or(self.to);
        // Without a way to the peer the old address may come back as well as another.
        self.move_to_new_source(socket).unwrap_or(false)
    }

    fn move_to_new_source(&self, socket: &mut UdpSocket) -> io::Result<bool> {
        let source = source_to(self.to)?;
        if socket.peer().is_some() && socket.local_addr()?.ip() == source {
            return Ok(false);
        }
        socket.reconnect(self.to)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use farhaul_udp::SocketOptions;

    use super::*;

    fn to(host: u8) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, host], 9))
    }

    fn socket(at: [u8; 4]) -> UdpSocket {
        UdpSocket::bind(&SocketOptions::new((at, 0).into())).unwrap()
    }

    #[test]
    fn a_look_is_due_after_a_refusal_or_in_silence_and_not_too_often() {
        let now = Instant::EPOCH + Duration::from_secs(9);
        let mut roam = Roam::new(now, to(1));
        let mut socket = socket([0; 4]);
        socket.connect(to(1)).unwrap();
        assert_eq!(roam.due(), now + SILENCE);
        roam.on_heard(now + PAUSE);
        assert_eq!(roam.due(), now + PAUSE + SILENCE);
        roam.on_refused();
        assert_eq!(roam.due(), now);
        assert!(!roam.look(now, &mut socket), "the same address");
        roam.on_refused();
        assert_eq!(roam.due(), now + PAUSE);
    }

    #[test]
    fn another_source_is_used_and_that_of_the_user_is_kept() {
        // The kernel chooses 127.0.0.1 for every address of the loopback network.
        let now = Instant::EPOCH;
        let (mut free, mut bound) = (socket([0; 4]), socket([127, 0, 0, 7]));
        free.connect(to(1)).unwrap();
        bound.connect(to(1)).unwrap();
        assert!(!Roam::new(now, to(1)).look(now, &mut free));
        Roam::new(now, to(1)).look(now, &mut bound);
        let kept = bound.local_addr().unwrap().ip();
        assert_eq!(kept, IpAddr::from([127, 0, 0, 7]));
        assert_eq!(bound.peer(), Some(to(1)));
    }
}
