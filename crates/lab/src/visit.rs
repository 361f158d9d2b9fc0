//! What is the way to a server like? A short session that carries nothing: who answers, how far it is,
//! how large a datagram gets through, what the sockets here can do with it. Any server of the flagship
//! can be used, since nothing is requested of its application.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use farhaul_core::{
    protocol::{CloseReason, Event, Protocol, Session},
    stats::Stats,
    store::{Extent, Store, StoreError},
    time::Instant,
};
use farhaul_io::{App, ShardError, Stop, Waker, client};
use farhaul_udp::Capabilities;

/// The search for a larger datagram is over when it has not grown for this many round trips ...
const CALM_RTTS: u32 = 4;
/// ... and for at least this long.
const CALM: Duration = Duration::from_millis(400);
/// How long the first answer to a probe may take at least.
const UNHEARD: Duration = Duration::from_secs(3);
/// No visit is longer.
const LONGEST: Duration = Duration::from_secs(10);

/// Why a visit had no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VisitError {
    /// The socket or the thread around it failed.
    #[error(transparent)]
    Shard(#[from] ShardError),
    /// Nothing listens there.
    #[error("nothing listens at {0}/udp")]
    Refused(SocketAddr),
    /// The session ended too early.
    #[error("{0}")]
    Closed(CloseReason),
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Visit {
    /// From the first datagram to the end of the handshake.
    pub connected: Duration,
    /// The server's public key.
    pub peer_key: Option<Vec<u8>>,
    /// Every datagram is authenticated and encrypted.
    pub sealed: bool,
    /// The session's counters at the end: round-trip times, size of a full datagram.
    pub stats: Stats,
    /// What this end's socket can do.
    pub capabilities: Capabilities,
    /// Largest IP packet that got through.
    pub path_mtu: u32,
    /// IP MTU of the way out of this machine, as far as it is known.
    pub interface_mtu: Option<u32>,
}

/// Visits the server at `to`.
pub fn visit(
    to: SocketAddr,
    protocol: Box<dyn Protocol>,
    stop: Option<Stop>,
) -> Result<Visit, VisitError> {
    let sealed = protocol.descriptor().sealed;
    let found = Arc::new(Mutex::new(None));
    let app = Guest {
        found: Arc::clone(&found),
        stop: stop.clone(),
        begin: None,
        calm: None,
        wake: None,
        size: 0,
        done: false,
    };
    let mut options = client::Options::new(to);
    options.stop = stop;
    let waker = Waker::new().map_err(|e| ShardError::System("eventfd", e))?;
    let ended = client::run(&options, protocol, app, &waker)?;
    let found = found.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(found) = found.filter(|f: &Found| f.whole) else {
        return Err(if ended.refused {
            VisitError::Refused(to)
        } else {
            VisitError::Closed(ended.reason)
        });
    };
    let headers = if to.is_ipv4() { 28 } else { 48 };
    Ok(Visit {
        connected: found.connected,
        peer_key: found.peer_key,
        sealed,
        stats: found.stats,
        capabilities: ended.host.capabilities,
        path_mtu: found.stats.datagram_size + headers,
        interface_mtu: farhaul_udp::interface_mtu_to(to).ok().flatten(),
    })
}

/// What the session knew last.
#[derive(Clone, Debug)]
struct Found {
    connected: Duration,
    peer_key: Option<Vec<u8>>,
    stats: Stats,
    whole: bool,
}

/// An application without requests that closes when the path has been measured.
struct Guest {
    found: Arc<Mutex<Option<Found>>>,
    stop: Option<Stop>,
    begin: Option<Instant>,
    /// When the datagram last grew.
    calm: Option<Instant>,
    /// When it may be checked again.
    wake: Option<Instant>,
    size: u32,
    done: bool,
}

impl Guest {
    /// How long the size must be stable.
    fn timeout(stats: &Stats) -> Duration {
        let rtt = stats.rtt_smoothed.unwrap_or_default();
        (rtt * CALM_RTTS).max(CALM)
    }

    fn write(&self, with: impl FnOnce(&mut Option<Found>)) {
        with(&mut self.found.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Store for Guest {
    fn fill(&mut self, _: &[Extent], _: &mut [u8]) -> Result<(), StoreError> {
        Err(StoreError("nothing was offered".into()))
    }

    fn place(&mut self, _: &[Extent], _: &[u8]) -> Result<(), StoreError> {
        Err(StoreError("nothing was asked for".into()))
    }
}

impl App for Guest {
    fn on_event(&mut self, now: Instant, event: Event, session: &mut dyn Session) {
        if let Event::Connected { peer_key } = event {
            self.calm = Some(now);
            let connected = now.since(self.begin.unwrap_or(now));
            let stats = session.stats();
            self.write(|found| {
                *found = Some(Found {
                    connected,
                    peer_key,
                    stats,
                    whole: false,
                });
            });
        }
    }

    fn poll(&mut self, now: Instant, session: &mut dyn Session) {
        let begin = *self.begin.get_or_insert(now);
        if self.done {
            return;
        }
        if self.stop.as_ref().is_some_and(Stop::is_set) {
            self.done = true;
            session.close(now, 0, "interrupted");
            return;
        }
        let Some(calm) = self.calm else { return };
        let stats = session.stats();
        if stats.datagram_size > self.size {
            self.size = stats.datagram_size;
            self.calm = Some(now);
        }
        let over = match stats.rtt_smoothed {
            Some(_) => self.calm.unwrap_or(calm) + Self::timeout(&stats),
            // It is measured by the probes' answers; the handshake took a round trip or two.
            None => calm + (calm.since(begin) * CALM_RTTS).max(UNHEARD),
        };
        let over = over.min(begin + LONGEST);
        self.wake = Some(over);
        if now >= over {
            self.done = true;
            self.wake = None;
            self.write(|found| {
                if let Some(found) = found {
                    found.stats = stats;
                    found.whole = true;
                }
            });
            session.close(now, 0, "seen enough");
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        self.wake
    }
}
