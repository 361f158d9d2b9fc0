//! Lends a session of a server as a probe of the path. The peer asks, as for any transfer: it needs
//! a key that a share is for, and the probe counts as one of its sessions. Then the session is lent
//! to an application that the owner of the server provides, which exchanges its own messages on the
//! stream.
//!
//! - Whatever that application and the peer agree on, the session ends when its time is over. The
//!   rates of the server and the peer hold, and a server lends one session at a time.

use std::{
    fmt, io,
    os::fd::BorrowedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use farhaul_core::{
    congestion::Sharing,
    protocol::{CloseReason, Event, Session},
    store::{Extent, Sink, StoreError},
    time::Instant,
    units::Rate,
};
use farhaul_io::App;

use super::Server;
use crate::{
    error::TransferError,
    wire::{Exit, Features, Message},
};

/// Time that a probe takes besides its own: to begin, and for packets on their way at the end.
const BEGIN_AND_END: Duration = Duration::from_secs(10);
/// Room that is shown where a rate limits what may arrive.
const ROOM: u64 = 1 << 40;

/// Terms of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Time for which either end sends.
    pub time: Duration,
    /// Highest rate.
    pub rate: Rate,
    /// The largest claim to shared links.
    pub sharing: Sharing,
}

/// Probes that a server allows.
#[derive(Clone)]
pub struct Probes {
    /// Longest duration.
    pub most: Duration,
    /// Makes the server's end of one.
    pub make: Arc<dyn Fn(Terms) -> Box<dyn App> + Send + Sync>,
    /// Measures the disk of a folder, with no more bytes than this, and leaves nothing there.
    pub disk: Arc<MeasureDisk>,
}

/// Measures a disk.
pub(super) type MeasureDisk = dyn Fn(BorrowedFd<'_>, u64) -> io::Result<DiskSpeed> + Send + Sync;

/// Speed of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskSpeed {
    /// Bytes that were written, synced, and read back.
    pub bytes: u64,
    /// Rate at which files were written and synced.
    pub write: Rate,
    /// Rate at which the files were read.
    pub read: Rate,
}

/// Subjects of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probed {
    /// The path from the peer to here.
    Upload,
    /// The path to the peer.
    Download,
    /// The disk of a share.
    Disk,
}

impl fmt::Debug for Probes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Probes of {:?}", self.most)
    }
}

/// The one probe of a server, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn(Arc<AtomicBool>);

impl Turn {
    /// Takes the place; none if it is taken.
    pub(super) fn take(taken: &Arc<AtomicBool>) -> Option<Self> {
        let free = taken.compare_exchange(false, true, SeqCst, SeqCst).is_ok();
        free.then(|| Self(Arc::clone(taken)))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.store(false, SeqCst);
    }
}

/// A session that is lent.
pub(super) struct Probe {
    app: Box<dyn App>,
    /// True if the server sends.
    sends: bool,
    ends: Instant,
    /// Bytes that have arrived.
    placed: u64,
    _turn: Turn,
}

impl Server {
    /// Subject of the session's probe, if it is one.
    pub fn probe(&self) -> Option<Probed> {
        self.probed
    }

    /// True if both ends know probes.
    pub(super) fn has_probes(&self) -> bool {
        self.has(Features::PROBES)
    }

    /// Lends the session for a probe of `millis`, or refuses.
    pub(super) fn begin_probe(&mut self, millis: u64, sends: bool, session: &mut dyn Session) {
        let wanted = Duration::from_millis(millis);
        let terms = self.lend(wanted, sends, session);
        match terms {
            Ok(terms) => self.out.push(&Message::Probe {
                millis: u64::try_from(terms.time.as_millis()).unwrap_or(u64::MAX),
                bps: match terms.rate {
                    Rate::UNLIMITED => 0,
                    rate => rate.bps(),
                },
            }),
            Err(e) => self.refuse(&e),
        }
    }

    fn lend(
        &mut self,
        wanted: Duration,
        sends: bool,
        session: &mut dyn Session,
    ) -> Result<Terms, TransferError> {
        let peer = self.peer.as_deref().unwrap_or_default();
        let (turn, probes, terms) = self.policy.probe(peer, wanted)?;
        self.check_place()?;
        self.leaves = None;
        self.probed = Some(if sends {
            Probed::Download
        } else {
            Probed::Upload
        });
        self.endpoint.set_put(!sends);
        self.endpoint.brake.rate = terms.rate;
        let mut probe = Probe {
            app: (probes.make)(terms),
            sends,
            ends: self.now + terms.time + BEGIN_AND_END,
            placed: 0,
            _turn: turn,
        };
        let peer_key = self.peer.clone();
        let connected = Event::Connected { peer_key };
        probe.app.on_event(self.now, connected, session);
        self.lent = Some(probe);
        Ok(terms)
    }

    /// Moves a probe on.
    pub(super) fn poll_probe(&mut self, session: &mut dyn Session) {
        let Some(probe) = &mut self.lent else { return };
        if probe.ends <= self.now {
            let e = TransferError::new(Exit::Limit, "the time of the probe is over");
            self.endpoint.fail(e, session);
            self.let_go();
            return;
        }
        if !self.endpoint.brake.keep(self.now, probe.sends, session) {
            let e = TransferError::new(Exit::Internal, "this session keeps to no rate");
            self.endpoint.fail(e, session);
            self.let_go();
            return;
        }
        probe.app.poll(self.now, session);
    }

    /// The session of a probe is over.
    pub(super) fn probe_closed(&mut self, reason: &CloseReason, session: &mut dyn Session) {
        if let Some(probe) = &mut self.lent {
            let event = Event::Closed(reason.clone());
            probe.app.on_event(self.now, event, session);
        }
        match reason {
            CloseReason::Peer { code: 0, .. } => self.endpoint.end(),
            reason => self.endpoint.closed(reason),
        }
    }
}

impl Probe {
    pub(super) fn on_readable(&mut self, now: Instant, session: &mut dyn Session) {
        self.app.on_event(now, Event::Readable, session);
    }

    pub(super) fn fill(&mut self, extents: &[Extent], batch: &mut [u8]) -> Result<(), StoreError> {
        if !self.sends {
            return Err(StoreError("this end of the probe receives".into()));
        }
        self.app.fill(extents, batch)
    }

    pub(super) fn place(&mut self, extents: &[Extent], batch: &[u8]) -> Result<(), StoreError> {
        if self.sends {
            return Err(StoreError("content from the end that receives".into()));
        }
        self.placed += extents.iter().map(|e| u64::from(e.len)).sum::<u64>();
        self.app.place(extents, batch)
    }

    /// Room without end, which a rate may limit.
    pub(super) const fn sink(&self) -> Sink {
        Sink {
            free: ROOM,
            drained: self.placed,
        }
    }

    pub(super) fn next_wake(&self) -> Instant {
        let app = self.app.next_wake();
        app.map_or(self.ends, |at| at.min(self.ends))
    }
}
