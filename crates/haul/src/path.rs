//! Tracks the peer's address: the source of its newest authentic datagram, once the peer has proven
//! that it receives there. A new address is sent a challenge, at most three times the bytes
//! received from it, and data follows the answer.

use std::{net::SocketAddr, time::Duration};

use farhaul_core::time::Instant;

use crate::wire::{TAG, short};

/// Bytes that may be sent to an unvalidated address per byte received from it.
const AMPLIFICATION: u64 = 3;
/// Bytes of a datagram that carries a challenge.
pub(crate) const CHALLENGE: u64 = (short::LEN + 9 + TAG) as u64;
/// Challenges before an address is given up.
const TRIES: u32 = 6;

/// An address that has yet to answer.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    address: SocketAddr,
    challenge: u64,
    received: u64,
    sent: u64,
    tries: u32,
    due: Instant,
}

impl Candidate {
    const fn has_paid(&self) -> bool {
        self.sent + CHALLENGE <= AMPLIFICATION * self.received
    }
}

/// The peer's address.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    active: SocketAddr,
    candidate: Option<Candidate>,
    /// A challenge of the peer's to be answered to its source.
    answer: Option<(SocketAddr, u64)>,
}

impl Path {
    pub(crate) const fn new(active: SocketAddr) -> Self {
        Self {
            active,
            candidate: None,
            answer: None,
        }
    }

    pub(crate) const fn active(&self) -> SocketAddr {
        self.active
    }

    /// An authentic datagram of `bytes` was received from `address`; `newest`: none with a higher number was.
    pub(crate) fn on_datagram(
        &mut self,
        now: Instant,
        address: SocketAddr,
        bytes: u64,
        newest: bool,
        fresh: impl FnOnce() -> u64,
    ) {
        if let Some(candidate) = self.candidate.as_mut().filter(|c| c.address == address) {
            candidate.received += bytes;
        } else if newest && address != self.active {
            self.candidate = Some(Candidate {
                address,
                challenge: fresh(),
                received: bytes,
                sent: 0,
                tries: 0,
                due: now,
            });
        } else if newest {
            // It is received from the old address after all.
            self.candidate = None;
        }
    }

    /// The challenge to send now, and where to, if the address has paid for it.
    pub(crate) fn poll_challenge(
        &mut self,
        now: Instant,
        rtt: Duration,
    ) -> Option<(SocketAddr, u64)> {
        let candidate = self.candidate.as_mut()?;
        if candidate.due > now || !candidate.has_paid() {
            return None;
        }
        candidate.sent += CHALLENGE;
        candidate.tries += 1;
        candidate.due =
            now + (rtt * 3 / 2 + Duration::from_millis(10)) * (1 << candidate.tries.min(4));
        let challenge = (candidate.address, candidate.challenge);
        if candidate.tries == TRIES {
            self.candidate = None;
        }
        Some(challenge)
    }

    /// The peer validates the address it sent to.
    pub(crate) const fn on_challenge(&mut self, from: SocketAddr, challenge: u64) {
        self.answer = Some((from, challenge));
    }

    pub(crate) const fn take_answer(&mut self) -> Option<(SocketAddr, u64)> {
        self.answer.take()
    }

    /// An answer: the address moved, and whether to another host.
    pub(crate) fn on_response(&mut self, response: u64) -> Option<bool> {
        let candidate = self.candidate.filter(|c| c.challenge == response)?;
        self.candidate = None;
        let moved = candidate.address.ip() != self.active.ip();
        self.active = candidate.address;
        Some(moved)
    }

    /// Time at which the next challenge may leave.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.candidate.filter(Candidate::has_paid).map(|c| c.due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_counts_once_it_answers_and_is_never_flooded() {
        let at = |s: &str| s.parse::<SocketAddr>().unwrap();
        let (old, new) = (at("10.0.0.1:1"), at("10.0.0.1:2"));
        let mut path = Path::new(old);
        let now = Instant::EPOCH;
        path.on_datagram(now, new, 20, false, || 5);
        assert!(path.due().is_none(), "late datagrams prove nothing");
        path.on_datagram(now, new, 20, true, || 5);
        let rtt = Duration::from_millis(10);
        assert_eq!(path.poll_challenge(now, rtt), Some((new, 5)));
        let later = now + Duration::from_secs(9);
        assert_eq!(path.poll_challenge(later, rtt), None, "three times 20");
        assert!(path.due().is_none(), "nothing to wake up for");
        path.on_datagram(now, new, 20, true, || 6);
        assert_eq!(path.poll_challenge(later, rtt), Some((new, 5)));
        assert_eq!(path.on_response(4), None);
        assert_eq!(path.active(), old);
        assert_eq!(path.on_response(5), Some(false));
        assert_eq!(path.active(), new);
        path.on_datagram(now, at("10.0.0.9:2"), 20, true, || 7);
        assert_eq!(path.on_response(7), Some(true));
    }

    #[test]
    fn of_many_challenges_only_the_last_is_kept_and_answered() {
        let peer: SocketAddr = "10.0.0.1:1".parse().unwrap();
        let mut path = Path::new(peer);
        for challenge in 0..1_000 {
            path.on_challenge(peer, challenge);
        }
        assert_eq!(path.take_answer(), Some((peer, 999)));
        assert_eq!(path.take_answer(), None);
    }
}
