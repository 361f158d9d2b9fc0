//! Finds the peers whose datagrams come from a relay on this machine. Sessions through tunnels
//! count as those of the peers at the tunnels' other ends.

use std::{
    collections::{BTreeMap, VecDeque},
    net::{IpAddr, Shutdown, SocketAddr, TcpStream},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use farhaul_core::{prefix::client_prefix, time::Instant};

use rustix::net::sockopt;

use crate::{clock, half_open::HalfOpen};

/// The most tunnels at a time that no session uses.
const MOST_UNUSED: usize = 64;
/// The most of those from one source.
const MOST_UNUSED_PER_SOURCE: usize = 8;
/// Longest time that a tunnel may be without a session.
const UNUSED: Duration = Duration::from_secs(10);
/// Most addresses that are remembered as having sent by UDP.
const UDP_PEERS: usize = 1_024;
/// Time for which an arrival counts: an earlier one says nothing of the network now.
const LATELY: Duration = Duration::from_mins(1);

/// The tunnels to a listener, and the peers that sent by UDP.
#[derive(Debug, Default)]
pub(crate) struct Relays(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Tunnels by the address of the relay.
    tunnels: BTreeMap<SocketAddr, Open>,
    /// Tunnels without a session.
    unused: HalfOpen,
    /// Count of tunnels so far.
    came: u64,
    /// The latest last.
    udp_from: VecDeque<(IpAddr, Instant)>,
}

#[derive(Debug)]
struct Open {
    number: u64,
    peer: SocketAddr,
    stream: TcpStream,
    sessions: usize,
    /// True if the handshake of some session was finished.
    trusted: bool,
    /// Time since which there is no session.
    unused: Instant,
}

impl Open {
    /// Closes the tunnel, whose threads end when they notice. Bytes not acknowledged are not kept
    /// for a peer that never was a session's.
    fn close(&self) {
        if !self.trusted {
            let _kept = sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO));
        }
        let _closed_already = self.stream.shutdown(Shutdown::Both);
    }
}

impl State {
    fn numbered(&mut self, number: u64) -> Option<&mut Open> {
        let mut all = self.tunnels.values_mut();
        all.find(|open| open.number == number)
    }

    fn remove(&mut self, relay: SocketAddr) {
        if let Some(open) = self.tunnels.remove(&relay) {
            self.unused.remove(open.peer.ip(), open.number);
            open.close();
        }
    }
}

impl Relays {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a tunnel, unless its source has as many as it may. If there are too many without a session, the oldest of the
    /// most crowded network makes room.
    pub(super) fn enter(&self, relay: SocketAddr, peer: SocketAddr, stream: TcpStream) -> bool {
        let mut state = self.state();
        let ip = client_prefix(peer.ip());
        let same = state.tunnels.values();
        let same = same.filter(|open| open.sessions == 0 && client_prefix(open.peer.ip()) == ip);
        if same.count() >= MOST_UNUSED_PER_SOURCE {
            return false;
        }
        if state.unused.len() >= MOST_UNUSED
            && let Some(number) = state.unused.to_evict()
        {
            let mut all = state.tunnels.iter();
            let found = all.find(|(_, open)| open.number == number);
            if let Some(relay) = found.map(|(relay, _)| *relay) {
                state.remove(relay);
            }
        }
        state.came += 1;
        let open = Open {
            number: state.came,
            peer,
            stream,
            sessions: 0,
            trusted: false,
            unused: clock::now(),
        };
        state.unused.insert(peer.ip(), open.number);
        state.tunnels.insert(relay, open);
        true
    }

    /// The tunnel has ended.
    pub(super) fn leave(&self, relay: SocketAddr) {
        self.state().remove(relay);
    }

    /// Closes tunnels that have been unused for too long; when to look again.
    pub(super) fn expire(&self, now: Instant) -> Option<Duration> {
        let state = self.state();
        let mut next = UNUSED;
        for open in state.tunnels.values().filter(|open| open.sessions == 0) {
            let left = (open.unused + UNUSED).since(now);
            if left.is_zero() {
                // It is gone when its threads have noticed.
                open.close();
            } else {
                next = next.min(left);
            }
        }
        (!state.tunnels.is_empty()).then_some(next)
    }

    /// Address of the peer that sends from `from`, and the number of the tunnel if it is one.
    pub(crate) fn peer(&self, from: SocketAddr) -> (SocketAddr, Option<u64>) {
        let state = self.state();
        let open = state.tunnels.get(&from);
        open.map_or((from, None), |open| (open.peer, Some(open.number)))
    }

    /// A session of this tunnel was admitted.
    pub(crate) fn admitted(&self, number: u64) {
        let mut state = self.state();
        let Some(open) = state.numbered(number) else {
            return;
        };
        open.sessions += 1;
        open.trusted = true;
        let (ip, first) = (open.peer.ip(), open.sessions == 1);
        if first {
            state.unused.remove(ip, number);
        }
    }

    /// A session that was admitted has ended.
    pub(crate) fn ended(&self, number: u64) {
        let mut state = self.state();
        let Some(open) = state.numbered(number) else {
            return;
        };
        open.sessions = open.sessions.saturating_sub(1);
        open.unused = clock::now();
        let (ip, last) = (open.peer.ip(), open.sessions == 0);
        if last {
            state.unused.insert(ip, number);
        }
    }

    /// A first datagram of a session came from `from`, by UDP unless that is a relay.
    pub(crate) fn note_udp(&self, from: SocketAddr, now: Instant) {
        let ip = from.ip().to_canonical();
        let mut state = self.state();
        if state.tunnels.contains_key(&from) {
            return;
        }
        if let Some((_, at)) = state.udp_from.back_mut().filter(|(last, _)| *last == ip) {
            *at = now;
            return;
        }
        state.udp_from.retain(|(other, _)| *other != ip);
        if state.udp_from.len() == UDP_PEERS {
            state.udp_from.pop_front();
        }
        state.udp_from.push_back((ip, now));
    }

    /// True if [`Self::note_udp`] was called for it lately, as far as is remembered.
    pub(super) fn had_udp_from(&self, ip: IpAddr, now: Instant) -> bool {
        let ip = ip.to_canonical();
        let state = self.state();
        let mut peers = state.udp_from.iter();
        peers.any(|(other, at)| *other == ip && now.since(*at) < LATELY)
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read as _, net::TcpListener};

    use super::*;

    fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (stream, listener.accept().unwrap().0)
    }

    fn stream() -> TcpStream {
        connection().0
    }

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn peer(host: u8) -> SocketAddr {
        SocketAddr::from(([198, 51, 100, host], 9))
    }

    #[test]
    fn a_session_is_its_peers_wherever_it_comes_from() {
        let relays = Relays::default();
        assert_eq!(relays.peer(at(1)), (at(1), None));
        assert!(relays.enter(at(1), peer(7), stream()));
        assert_eq!(relays.peer(at(1)), (peer(7), Some(1)));
        relays.leave(at(1));
        assert_eq!(relays.peer(at(1)), (at(1), None));
    }

    #[test]
    fn one_source_has_few_tunnels_without_sessions_and_a_crowd_makes_room_for_others() {
        let relays = Relays::default();
        let mut port = 0;
        let mut enter = |address: &str| {
            port += 1;
            let peer = SocketAddr::new(address.parse().unwrap(), 9);
            relays.enter(at(port), peer, stream())
        };
        let one = |n: usize| format!("2001:db8::{n:x}");
        assert!((0..MOST_UNUSED_PER_SOURCE).all(|n| enter(&one(n))));
        assert!(!enter(&one(99)), "one more of a /64");
        assert!(enter("192.0.2.7"));
        assert!((0..99).all(|n| enter(&format!("198.51.100.{n}"))));
        let state = relays.state();
        assert_eq!(state.tunnels.len(), MOST_UNUSED);
        let lonely = |open: &Open| open.peer.ip() == IpAddr::from([192, 0, 2, 7]);
        assert!(state.tunnels.values().any(lonely), "the crowd made room");
        assert_eq!(state.unused.len(), MOST_UNUSED);
    }

    #[test]
    fn a_tunnel_without_a_session_is_closed_and_one_with_a_session_is_not() {
        let relays = Relays::default();
        let (mut streams, others): (Vec<_>, Vec<_>) = (0..2).map(|_| connection()).unzip();
        assert!(relays.enter(at(2), peer(2), streams.remove(1)));
        assert!(relays.enter(at(1), peer(1), streams.remove(0)));
        relays.admitted(2);
        let now = clock::now();
        assert!(relays.expire(now).unwrap() <= UNUSED);
        let is_open = |other: &TcpStream| {
            other.set_nonblocking(true).unwrap();
            (&mut &*other).read(&mut [0]).is_err()
        };
        assert!(is_open(&others[0]) && is_open(&others[1]));
        relays.expire(now + UNUSED);
        assert!(is_open(&others[0]) && !is_open(&others[1]));
        relays.ended(2);
        relays.expire(clock::now() + UNUSED);
        assert!(!is_open(&others[0]));
    }

    #[test]
    fn who_sent_by_udp_is_remembered_for_a_while() {
        let relays = Relays::default();
        let ip = |n: u16| IpAddr::from([10, 0, n.to_be_bytes()[0], n.to_be_bytes()[1]]);
        let now = clock::now();
        relays.note_udp("[::ffff:10.0.0.0]:9".parse().unwrap(), now);
        for n in (0..UDP_PEERS).map(|n| u16::try_from(n).unwrap()) {
            relays.note_udp((ip(n), 9).into(), now);
        }
        assert!(relays.had_udp_from(ip(0), now));
        relays.note_udp((ip(u16::MAX), 9).into(), now);
        assert!(!relays.had_udp_from(ip(0), now) && relays.had_udp_from(ip(1), now));
        // An hour later the network may be another one.
        let later = now + LATELY;
        assert!(!relays.had_udp_from(ip(1), later));
        relays.note_udp((ip(u16::MAX), 9).into(), later);
        assert!(relays.had_udp_from(ip(u16::MAX), later));
        assert_eq!(relays.state().udp_from.len(), UDP_PEERS);
        // What a relay sends did not come by UDP.
        assert!(relays.enter(at(1), peer(1), stream()));
        relays.note_udp(at(1), now);
        assert!(!relays.had_udp_from(at(1).ip(), now));
    }
}
