//! Lists the sessions of a server, their progress and their limits. Each session's thread notes its
//! progress a few times a second; another thread shows or changes the session.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use farhaul_core::{
    stats::{Stats, Why},
    time::Instant,
    units::Rate,
};
use farhaul_haul::PublicKey;
use farhaul_io::Waker;
use farhaul_transfer::{
    Control, Handle, Outcome,
    server::{Probed, Server},
};
use prometheus_client::metrics::histogram::Histogram;

/// Time between two notes.
pub(super) const LOOK: Duration = Duration::from_millis(250);
/// Bounds of the histogram of round-trip times, s.
const RTTS: [f64; 12] = [
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0,
];

/// Peer of a session, and its purpose.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub(super) key: Option<PublicKey>,
    /// Name of the peer in the file.
    pub(super) name: Option<String>,
    pub(super) share: Option<String>,
    /// True if the peer delivers.
    pub(super) put: bool,
    /// True for a further parallel session of a copy.
    pub(super) lane: bool,
    /// Subject of the probe, if the session is one.
    pub(super) probe: Option<Probed>,
}

/// Progress of a session.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Figures {
    pub(super) stats: Stats,
    /// Content bytes that have arrived, wherever they go.
    pub(super) payload: u64,
    /// Content per second since the note before.
    pub(super) rate: Rate,
    at: Option<Instant>,
}

/// One session, as other threads see it.
#[derive(Debug)]
pub(super) struct View {
    pub(super) id: u64,
    pub(super) from: SocketAddr,
    pub(super) control: Arc<Control>,
    pub(super) handle: Handle,
    waker: Waker,
    state: Mutex<(Facts, Figures)>,
}

impl View {
    fn state(&self) -> MutexGuard<'_, (Facts, Figures)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn facts(&self) -> Facts {
        self.state().0.clone()
    }

    pub(super) fn figures(&self) -> Figures {
        self.state().1
    }

    /// Changes how fast it may be.
    pub(super) fn change(&self, change: impl FnOnce(&Control)) {
        change(&self.control);
        self.waker.wake();
    }

    fn note(&self, now: Instant, facts: Facts, stats: &Stats) {
        let payload = self.handle.progress().bytes_done();
        let mut state = self.state();
        state.0 = facts;
        let before = &mut state.1;
        let since = before.at.map(|at| now.since(at));
        let rate = since
            .filter(|s| *s >= LOOK / 2)
            .map(|since| Rate::of(payload.saturating_sub(before.payload), since));
        *before = Figures {
            stats: *stats,
            payload,
            rate: rate.unwrap_or(before.rate),
            at: Some(now),
        };
    }
}

/// Bytes that sessions moved, by direction as the server sees it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    /// Content delivered to the server, and fetched from it.
    pub(super) payload: [u64; 2],
    /// UDP payload, in and out.
    pub(super) wire: [u64; 2],
    pub(super) feedback: [u64; 2],
    pub(super) retransmitted: u64,
    pub(super) datagrams: u64,
    pub(super) lost: u64,
    pub(super) held: [Duration; Why::HOLDS.len()],
    /// Sent or received, in place already, failed.
    pub(super) files: [u64; 3],
}

impl Totals {
    fn add(&mut self, put: bool, figures: &Figures) {
        let stats = &figures.stats;
        self.payload[usize::from(!put)] += figures.payload;
        self.wire[0] += stats.wire_received;
        self.wire[1] += stats.wire_sent;
        self.feedback[0] += stats.feedback_received;
        self.feedback[1] += stats.feedback_sent;
        self.retransmitted += stats.repaired;
        self.datagrams += stats.datagrams_sent;
        self.lost += stats.packets_lost;
        for (total, (_, held)) in self.held.iter_mut().zip(stats.held.totals()) {
            *total += held;
        }
    }
}

/// Sessions of a server.
#[derive(Debug)]
pub(super) struct Sessions {
    live: Mutex<BTreeMap<u64, Arc<View>>>,
    /// Totals of those that have ended.
    ended: Mutex<Totals>,
    next: AtomicU64,
    pub(super) rtt: Histogram,
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            live: Mutex::default(),
            ended: Mutex::default(),
            next: AtomicU64::new(1),
            rtt: Histogram::new(RTTS),
        }
    }
}

impl Sessions {
    /// Enters one that begins.
    pub(super) fn enter(
        &self,
        from: SocketAddr,
        control: Arc<Control>,
        handle: Handle,
        waker: Waker,
    ) -> Arc<View> {
        let view = Arc::new(View {
            id: self.next.fetch_add(1, Relaxed),
            from,
            control,
            handle,
            waker,
            state: Mutex::default(),
        });
        self.live().insert(view.id, Arc::clone(&view));
        view
    }

    fn live(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<View>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sessions that go on.
    pub(super) fn all(&self) -> Vec<Arc<View>> {
        self.live().values().cloned().collect()
    }

    /// Notes how far one is.
    pub(super) fn note(&self, view: &View, now: Instant, facts: Facts, stats: &Stats) {
        if let Some(rtt) = stats.rtt_smoothed {
            self.rtt.observe(rtt.as_secs_f64());
        }
        view.note(now, facts, stats);
    }

    /// Takes one out that has ended.
    pub(super) fn leave(&self, view: &View, outcome: Option<&Outcome>) {
        // Both at once, so that a reader who sums up counts the bytes once.
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if self.live().remove(&view.id).is_none() {
            return;
        }
        let (facts, mut figures) = (view.facts(), view.figures());
        if let Some(outcome) = outcome {
            let summary = &outcome.summary;
            figures.payload = summary.bytes_payload;
            let files = summary.files;
            for (total, n) in ended
                .files
                .iter_mut()
                .zip([files.sent, files.skipped, files.failed])
            {
                *total += n;
            }
        }
        ended.add(facts.put, &figures);
    }

    /// Totals of all bytes until now.
    pub(super) fn totals(&self) -> Totals {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let mut totals = *ended;
        for view in self.live().values() {
            totals.add(view.facts().put, &view.figures());
        }
        totals
    }
}

/// Facts of the session that `app` answers.
pub(super) fn facts(app: &Server, names: &BTreeMap<Vec<u8>, String>) -> Facts {
    let key = app.peer();
    let share = app
        .asked()
        .map(|(_, share)| String::from_utf8_lossy(share).into_owned());
    Facts {
        key: key
            .and_then(|k| k.try_into().ok())
            .map(PublicKey::from_bytes),
        name: key.and_then(|k| names.get(k)).cloned(),
        put: app.probe().map_or_else(
            || app.asked().is_some_and(|(put, _)| put),
            |probed| probed != Probed::Download,
        ),
        probe: app.probe(),
        lane: app.is_lane(),
        share,
    }
}
