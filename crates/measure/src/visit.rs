//! Visits a server by a short session that carries nothing. The visit finds who answers, how far
//! the server is, and how much that distance varies. It also finds how large a datagram gets
//! through, and what the sockets here can do with it. Any server of the flagship can be used, since
//! nothing is requested of its application.

use std::{
    net::{SocketAddr, UdpSocket},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use farhaul_core::{
    protocol::{CloseReason, Event, Protocol, Session},
    stats::Stats,
    store::{Extent, Store, StoreError},
    time::Instant,
};
use farhaul_io::{App, ShardError, Stop, Unsent, Waker, client};
use farhaul_udp::Capabilities;

/// The search for a larger datagram is over when it has not grown for this many round trips ...
const CALM_RTTS: u32 = 4;
/// ... and for at least this long.
const CALM: Duration = Duration::from_millis(400);
/// Least time allowed for the first answer to a probe.
const UNHEARD: Duration = Duration::from_secs(3);
/// No visit is longer.
const LONGEST: Duration = Duration::from_secs(10);
/// Acknowledgements that the peer is then asked for ...
const PINGS: u32 = 30;
/// ... one each: a receiver reports about ten times a second to a peer that sends little.
const PING_EVERY: Duration = Duration::from_millis(80);
/// Time beyond two round trips allowed for the last acknowledgement.
const LATE: Duration = Duration::from_millis(100);

/// Reason why a visit had no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VisitError {
    /// The socket or the thread around it failed.
    #[error(transparent)]
    Shard(#[from] ShardError),
    /// Nothing listens there.
    #[error("nothing listens at {0}/udp")]
    Refused(SocketAddr),
    /// There was no answer, and this is why datagrams could not be sent last.
    #[error("datagrams cannot be sent: {0:?}")]
    Unsent(Unsent),
    /// The session ended too early.
    #[error("{0}")]
    Closed(CloseReason),
}

/// Findings of a visit.
#[derive(Clone, Debug)]
pub struct Visit {
    /// Time from the first datagram to the end of the handshake.
    pub connected: Duration,
    /// The server's public key.
    pub peer_key: Option<Vec<u8>>,
    /// Declaration of the server's application.
    pub peer_app: Vec<u8>,
    /// Round-trip times while nothing else was sent; none if the protocol takes no samples.
    pub idle: Option<Idle>,
    /// True if every datagram is authenticated and encrypted.
    pub sealed: bool,
    /// The session's counters at the end: round-trip times, size of a full datagram.
    pub stats: Stats,
    /// Capabilities of this end's socket.
    pub capabilities: Capabilities,
    /// Largest IP packet that got through.
    pub path_mtu: u32,
    /// IP MTU of the way out of this machine, as far as it is known.
    pub interface_mtu: Option<u32>,
}

/// Round-trip times of a path that carries nothing else of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idle {
    /// Samples taken.
    pub samples: usize,
    /// Least of the samples.
    pub min: Duration,
    /// The median.
    pub median: Duration,
    /// The 95th percentile.
    pub p95: Duration,
    /// The largest.
    pub max: Duration,
}

impl Idle {
    fn of(mut samples: Vec<Duration>) -> Option<Self> {
        samples.sort_unstable();
        let nearest = |per_cent: usize| (samples.len() * per_cent).div_ceil(100).saturating_sub(1);
        Some(Self {
            samples: samples.len(),
            min: *samples.first()?,
            median: *samples.get(nearest(50))?,
            p95: *samples.get(nearest(95))?,
            max: *samples.last()?,
        })
    }

    /// The 95th percentile of the delay variation, each sample's difference from the least one (RFC 5481, PDV),
    /// of round trips.
    pub fn jitter(&self) -> Duration {
        self.p95.saturating_sub(self.min)
    }
}

/// Visits the server at `to`.
///
/// # Errors
/// See [`VisitError`].
pub fn visit(
    to: SocketAddr,
    protocol: Box<dyn Protocol>,
    stop: Option<Stop>,
) -> Result<Visit, VisitError> {
    visit_by(to, None, protocol, stop)
}

/// Visits a server by a `socket` that is there already, as that of a tunnel.
///
/// # Errors
/// See [`VisitError`].
pub fn visit_by(
    to: SocketAddr,
    socket: Option<Arc<UdpSocket>>,
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
        pinging: None,
        samples: Vec::new(),
        done: false,
    };
    let mut options = client::Options::new(to);
    options.stop = stop;
    options.socket = socket;
    let waker = Waker::new().map_err(|e| ShardError::System("eventfd", e))?;
    let ended = client::run(&options, protocol, app, &waker)?;
    let found = found.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(found) = found.filter(|f: &Found| f.whole) else {
        return Err(if ended.refused {
            VisitError::Refused(to)
        } else if let (CloseReason::NoAnswer, Some(unsent)) = (&ended.reason, ended.host.unsent) {
            VisitError::Unsent(unsent)
        } else {
            VisitError::Closed(ended.reason)
        });
    };
    let headers = if to.is_ipv4() { 28 } else { 48 };
    Ok(Visit {
        connected: found.connected,
        peer_key: found.peer_key,
        peer_app: found.peer_app,
        idle: Idle::of(found.samples),
        sealed,
        stats: found.stats,
        capabilities: ended.host.capabilities,
        path_mtu: found.stats.datagram_size + headers,
        interface_mtu: farhaul_udp::interface_mtu_to(to).ok().flatten(),
    })
}

/// Last state of the session.
#[derive(Clone, Debug)]
struct Found {
    connected: Duration,
    peer_key: Option<Vec<u8>>,
    peer_app: Vec<u8>,
    samples: Vec<Duration>,
    stats: Stats,
    whole: bool,
}

/// An application without requests that closes when the path has been measured.
struct Guest {
    found: Arc<Mutex<Option<Found>>>,
    stop: Option<Stop>,
    begin: Option<Instant>,
    /// Time at which the datagram last grew.
    calm: Option<Instant>,
    /// Time at which the size may be checked again.
    wake: Option<Instant>,
    size: u32,
    pinging: Option<Pinging>,
    samples: Vec<Duration>,
    done: bool,
}

/// Sends pings at even intervals, and counts the samples that come of them.
#[derive(Debug)]
struct Pinging {
    sent: u32,
    next: Instant,
    /// Samples of the session that have been seen.
    seen: u64,
}

impl Guest {
    /// Takes samples; true while more are to come.
    fn ping(&mut self, now: Instant, stats: &Stats, session: &mut dyn Session) -> bool {
        let pinging = self.pinging.get_or_insert(Pinging {
            sent: 0,
            next: now,
            seen: stats.rtt_samples,
        });
        // Of several in one turn the latest is known.
        if stats.rtt_samples != pinging.seen {
            pinging.seen = stats.rtt_samples;
            self.samples.extend(stats.rtt_latest);
        }
        if now < pinging.next {
            return true;
        }
        if pinging.sent < PINGS {
            pinging.sent += 1;
            pinging.next = now + PING_EVERY;
            if pinging.sent == PINGS {
                // The last ones are on their way.
                pinging.next = now + stats.rtt_smoothed.unwrap_or_default() * 2 + LATE;
            }
            return session.ping();
        }
        false
    }

    /// Time for which the size must be stable.
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
            let peer_app = session.peer_app().to_vec();
            self.write(|found| {
                *found = Some(Found {
                    connected,
                    peer_key,
                    peer_app,
                    samples: Vec::new(),
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
        let latest = begin + LONGEST;
        self.wake = Some(over.min(latest));
        if now < latest && now < over && self.pinging.is_none() {
            return;
        }
        let answers = stats.rtt_smoothed.is_some();
        if now < latest && answers && self.ping(now, &stats, session) {
            let next = self.pinging.as_ref().map_or(latest, |p| p.next);
            self.wake = Some(next.min(latest));
        } else {
            self.done = true;
            self.wake = None;
            let samples = std::mem::take(&mut self.samples);
            self.write(|found| {
                if let Some(found) = found {
                    found.samples = samples;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_is_the_95th_percentile_over_the_least() {
        let ms = Duration::from_millis;
        assert_eq!(Idle::of(Vec::new()), None);
        let idle = Idle::of((1..=100).rev().map(ms).collect()).unwrap();
        assert_eq!(
            (idle.min, idle.median, idle.p95, idle.max, idle.samples),
            (ms(1), ms(50), ms(95), ms(100), 100)
        );
        assert_eq!(idle.jitter(), ms(94));
        let one = Idle::of(vec![ms(7)]).unwrap();
        assert_eq!((one.p95, one.jitter()), (ms(7), ms(0)));
    }
}
