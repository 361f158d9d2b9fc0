//! Whose datagrams come from a relay on this machine? Sessions through tunnels count as those of the peers at the
//! tunnels' other ends.

use std::{
    collections::{BTreeMap, VecDeque},
    net::{IpAddr, Shutdown, SocketAddr, TcpStream},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use farhaul_core::time::Instant;

use crate::clock;

/// The most tunnels at a time that no session uses.
const MOST_UNUSED: usize = 64;
/// The most of those from one address.
const MOST_UNUSED_PER_SOURCE: usize = 8;
/// How long a tunnel may be without a session.
const UNUSED: Duration = Duration::from_secs(10);
/// Addresses of which it is remembered that they were heard.
const HEARD: usize = 1_024;

/// The tunnels to a listener, and who was heard by UDP.
#[derive(Debug, Default)]
pub(crate) struct Relays(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// By the address of the relay.
    tunnels: BTreeMap<SocketAddr, Open>,
    /// The latest last.
    heard: VecDeque<IpAddr>,
}

#[derive(Debug)]
struct Open {
    peer: SocketAddr,
    stream: TcpStream,
    sessions: usize,
    /// Since there is no session.
    unused: Instant,
}

impl Open {
    /// Its threads end when they notice.
    fn close(&self) {
        let _closed_already = self.stream.shutdown(Shutdown::Both);
    }
}

impl State {
    fn unused(&self) -> impl Iterator<Item = (&SocketAddr, &Open)> {
        self.tunnels.iter().filter(|(_, open)| open.sessions == 0)
    }
}

impl Relays {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a tunnel, unless its peer has as many as it may. If there are too many without a session, the oldest of
    /// them makes room.
    pub(super) fn enter(&self, relay: SocketAddr, peer: SocketAddr, stream: TcpStream) -> bool {
        let mut state = self.state();
        let same = state.unused().filter(|(_, o)| o.peer.ip() == peer.ip());
        if same.count() >= MOST_UNUSED_PER_SOURCE {
            return false;
        }
        if state.unused().count() >= MOST_UNUSED {
            let oldest = state.unused().min_by_key(|(_, open)| open.unused);
            if let Some(open) = oldest
                .map(|(at, _)| *at)
                .and_then(|at| state.tunnels.remove(&at))
            {
                open.close();
            }
        }
        let open = Open {
            peer,
            stream,
            sessions: 0,
            unused: clock::now(),
        };
        state.tunnels.insert(relay, open);
        true
    }

    /// The tunnel has ended.
    pub(super) fn leave(&self, relay: SocketAddr) {
        self.state().tunnels.remove(&relay);
    }

    /// Closes tunnels that have been unused for too long; when to look again.
    pub(super) fn expire(&self, now: Instant) -> Option<Duration> {
        let state = self.state();
        let mut next = UNUSED;
        for (_, open) in state.unused() {
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

    /// Who it is that sends from `from`.
    pub(crate) fn peer(&self, from: SocketAddr) -> SocketAddr {
        self.state()
            .tunnels
            .get(&from)
            .map_or(from, |open| open.peer)
    }

    /// A session of `from` was admitted.
    pub(crate) fn admitted(&self, from: SocketAddr) {
        if let Some(open) = self.state().tunnels.get_mut(&from) {
            open.sessions += 1;
        }
    }

    /// A session that was admitted has ended.
    pub(crate) fn ended(&self, from: SocketAddr) {
        if let Some(open) = self.state().tunnels.get_mut(&from) {
            open.sessions = open.sessions.saturating_sub(1);
            open.unused = clock::now();
        }
    }

    /// A first datagram of a session came from `ip`.
    pub(crate) fn hear(&self, ip: IpAddr) {
        let ip = ip.to_canonical();
        let mut state = self.state();
        if state.heard.back() == Some(&ip) {
            return;
        }
        state.heard.retain(|other| *other != ip);
        if state.heard.len() == HEARD {
            state.heard.pop_front();
        }
        state.heard.push_back(ip);
    }

    /// Whether [`Self::hear`] was called for it, as far as is remembered.
    pub(super) fn was_heard(&self, ip: IpAddr) -> bool {
        self.state().heard.contains(&ip.to_canonical())
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
        assert_eq!(relays.peer(at(1)), at(1));
        assert!(relays.enter(at(1), peer(7), stream()));
        assert_eq!(relays.peer(at(1)), peer(7));
        relays.leave(at(1));
        assert_eq!(relays.peer(at(1)), at(1));
    }

    #[test]
    fn one_address_has_few_tunnels_without_sessions_and_all_have_some() {
        let relays = Relays::default();
        let mut port = 0;
        let mut enter = |host: u8| {
            port += 1;
            relays.enter(at(port), peer(host), stream())
        };
        assert!((0..MOST_UNUSED_PER_SOURCE).all(|_| enter(1)));
        assert!(!enter(1), "one more than it may");
        assert!((2..120).all(&mut enter), "others are let in");
        assert_eq!(relays.state().tunnels.len(), MOST_UNUSED);
        assert!(enter(1), "its first ones have made room");
    }

    #[test]
    fn a_tunnel_without_a_session_is_closed_and_one_with_a_session_is_not() {
        let relays = Relays::default();
        let (mut streams, others): (Vec<_>, Vec<_>) = (0..2).map(|_| connection()).unzip();
        assert!(relays.enter(at(2), peer(2), streams.remove(1)));
        assert!(relays.enter(at(1), peer(1), streams.remove(0)));
        relays.admitted(at(1));
        let now = clock::now();
        assert!(relays.expire(now).unwrap() <= UNUSED);
        let is_open = |other: &TcpStream| {
            other.set_nonblocking(true).unwrap();
            (&mut &*other).read(&mut [0]).is_err()
        };
        assert!(is_open(&others[0]) && is_open(&others[1]));
        relays.expire(now + UNUSED);
        assert!(is_open(&others[0]) && !is_open(&others[1]));
        relays.ended(at(1));
        relays.expire(clock::now() + UNUSED);
        assert!(!is_open(&others[0]));
    }

    #[test]
    fn who_was_heard_is_remembered_for_a_while() {
        let relays = Relays::default();
        let ip = |n: u16| IpAddr::from([10, 0, n.to_be_bytes()[0], n.to_be_bytes()[1]]);
        relays.hear("::ffff:10.0.0.0".parse().unwrap());
        for n in (0..HEARD).map(|n| u16::try_from(n).unwrap()) {
            relays.hear(ip(n));
        }
        assert!(relays.was_heard(ip(0)));
        relays.hear(ip(u16::MAX));
        assert!(!relays.was_heard(ip(0)) && relays.was_heard(ip(1)));
        assert_eq!(relays.state().heard.len(), HEARD);
    }
}
