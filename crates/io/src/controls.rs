//! Controls that can be changed about a listener while it runs: how many sessions there may be, in
//! all and from one source. They also say whether the listener takes new ones at all.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{
            AtomicBool, AtomicU64, AtomicUsize,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    time::Duration,
};

use crate::{server::ListenerStats, tunnel::Relays, waker::Waker};

/// A running listener, as other threads see it.
#[derive(Clone, Debug)]
pub struct Controls(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    max_sessions: AtomicUsize,
    max_per_source: AtomicUsize,
    max_handshakes_per_source: AtomicUsize,
    /// True once sessions that begin are closed.
    draining: AtomicBool,
    /// True once the listener ends with its sessions.
    ends: AtomicBool,
    /// Time that draining may take, ms.
    drain_millis: AtomicU64,
    /// Counters of the listener until its last turn.
    stats: Mutex<Option<ListenerStats>>,
    /// Waker of the listener's shard.
    waker: Waker,
    relays: Relays,
}

impl Controls {
    pub(crate) fn new(max_sessions: usize, waker: Waker) -> Self {
        Self(Arc::new(Inner {
            max_sessions: AtomicUsize::new(max_sessions),
            max_per_source: AtomicUsize::new(usize::MAX),
            max_handshakes_per_source: AtomicUsize::new(usize::MAX),
            draining: AtomicBool::new(false),
            ends: AtomicBool::new(false),
            drain_millis: AtomicU64::new(0),
            stats: Mutex::default(),
            waker,
            relays: Relays::default(),
        }))
    }

    /// Sets how many sessions there may be at a time. Those that are beyond it go on.
    pub fn set_max_sessions(&self, most: usize) {
        self.0.max_sessions.store(most, Relaxed);
    }

    pub(crate) fn max_sessions(&self) -> usize {
        self.0.max_sessions.load(Relaxed)
    }

    /// Sets the most sessions, and the most unfinished handshakes, at a time from one source: an
    /// IPv4 address, or a /64 of IPv6.
    pub fn set_per_source(&self, sessions: usize, handshakes: usize) {
        self.0.max_per_source.store(sessions, Relaxed);
        self.0.max_handshakes_per_source.store(handshakes, Relaxed);
    }

    pub(crate) fn max_per_source(&self) -> usize {
        self.0.max_per_source.load(Relaxed)
    }

    pub(crate) fn max_handshakes_per_source(&self) -> usize {
        self.0.max_handshakes_per_source.load(Relaxed)
    }

    /// Closes sessions that begin from now on; the listener itself goes on until [`Self::drain`].
    pub fn close(&self) {
        self.0.draining.store(true, Release);
    }

    /// Closes sessions that begin from now on; the listener ends with the last of the others, or
    /// closes them after this time.
    pub fn drain(&self, within: Duration) {
        self.close();
        let millis = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        self.0.drain_millis.store(millis, Relaxed);
        self.0.ends.store(true, Release);
        self.0.waker.wake();
    }

    /// Time that draining may take, once it is asked for.
    pub(crate) fn drains_within(&self) -> Option<Duration> {
        let millis = || Duration::from_millis(self.0.drain_millis.load(Relaxed));
        self.0.ends.load(Acquire).then(millis)
    }

    /// Tunnels to this listener.
    pub(crate) fn relays(&self) -> &Relays {
        &self.0.relays
    }

    pub(crate) fn publish(&self, stats: &ListenerStats) {
        let mut published = self.0.stats.lock().unwrap_or_else(PoisonError::into_inner);
        *published = Some(*stats);
    }

    /// Counters of the listener until its last turn, once it runs.
    pub fn stats(&self) -> Option<ListenerStats> {
        *self.0.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if [`Self::close`] or [`Self::drain`] was called.
    pub fn is_draining(&self) -> bool {
        self.0.draining.load(Acquire)
    }
}
