//! A session of the server that reports to others its progress and its end.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use farhaul_core::{
    protocol::{CloseReason, Event, Session},
    store::{Extent, Sink, Store, StoreError},
    time::Instant,
};
use farhaul_io::{App, Waker, clock};
use farhaul_transfer::{Control, Exit, Outcome, server::Server};

use super::{
    Serving, log,
    sessions::{self, Facts, LOOK, View},
};
use crate::timetable::Timetable;

/// Detail of the reports about a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// Reports nothing.
    Quiet,
    /// Reports how the session ended.
    Ends,
    /// Reports also what was asked for.
    All,
}

/// Failed changes of a session that are reported.
const FAILED_CHANGES: u32 = 100;

/// A session that is reported.
pub(super) struct Told {
    app: Server,
    view: Arc<View>,
    serving: Arc<Serving>,
    level: Level,
    /// Highest rate of the session by time of day.
    rates: Option<Timetable>,
    /// Time at which the session is looked at next.
    look: Instant,
    /// True if its request was reported.
    asked: bool,
}

impl Told {
    /// The session of a peer at `from`, under the policy of now.
    pub(super) fn new(serving: &Arc<Serving>, from: SocketAddr, waker: &Waker) -> Self {
        let setup = serving.setup();
        let control = Arc::<Control>::default();
        let rates = setup.flags.max_rate.clone();
        let rates = rates.filter(|rates| rates.always().is_none());
        if let Some(rates) = &rates {
            control.schedule(rates.now());
        }
        let wakes = waker.clone();
        let wake = Arc::new(move || wakes.wake());
        let app = Server::new(Arc::clone(&setup.policy), Some(wake));
        let app = app.controlled(Arc::clone(&control));
        let (sessions, level) = (&serving.sessions, setup.flags.level());
        let view = sessions.enter(from, control, app.handle(), waker.clone());
        let changed = Arc::clone(&view);
        let failed = AtomicU32::new(0);
        let app = app.telling(Arc::new(move |change| {
            // A peer that may change nothing could fill the log otherwise.
            let is_told = change.failed.is_none() || failed.fetch_add(1, Relaxed) < FAILED_CHANGES;
            if level >= Level::Ends && is_told {
                log::changed(&changed, change);
            }
        }));
        Self {
            view,
            app,
            serving: Arc::clone(serving),
            level,
            rates,
            look: clock::now(),
            asked: false,
        }
    }

    /// Counts a failed handshake; true if the end of this session is to be written.
    fn note_end(&self, facts: &Facts, outcome: &Outcome) -> bool {
        let reason = outcome.error.as_ref().map_or("", |error| &error.text);
        let from = self.view.from.ip();
        facts.key.is_some() || self.serving.rejected.add(from, reason)
    }

    fn has_asked(&self) -> bool {
        self.app.asked().is_some() || self.app.probe().is_some()
    }

    fn note(&mut self, now: Instant, session: &dyn Session) {
        self.look = now + LOOK;
        if let Some(rates) = &self.rates {
            self.view.control.schedule(rates.now());
        }
        let facts = sessions::facts(&self.app, &self.serving.setup().names);
        let stats = session.stats();
        if !self.asked && (facts.share.is_some() || facts.probe.is_some()) {
            self.asked = true;
            if self.level >= Level::All {
                log::asked(&self.view, &facts);
            }
        }
        let all = &self.serving.sessions;
        all.note(&self.view, now, facts, &stats);
    }
}

/// Purpose of a client that ended its session as it should.
fn kind_of_visit(reason: &CloseReason) -> Option<&'static str> {
    match reason {
        CloseReason::Peer { code: 0, text } if text == "done" => Some("list"),
        CloseReason::Peer { code: 0, .. } => Some("doctor"),
        _ => None,
    }
}

/// Reason for which a client left a server whose key it did not accept.
fn why_it_left(reason: &CloseReason) -> Option<&'static str> {
    match reason {
        CloseReason::Denied(_) => Some("the client knows another key of this server, and left"),
        CloseReason::Peer { code, .. } if *code == u32::from(Exit::Auth.number()) => {
            Some("the client does not trust this server's key yet, and left")
        }
        _ => None,
    }
}

impl Store for Told {
    fn fill(&mut self, extents: &[Extent], batch: &mut [u8]) -> Result<(), StoreError> {
        self.app.fill(extents, batch)
    }

    fn place(&mut self, extents: &[Extent], batch: &[u8]) -> Result<(), StoreError> {
        self.app.place(extents, batch)
    }

    fn sink(&self) -> Sink {
        self.app.sink()
    }
}

impl App for Told {
    fn on_event(&mut self, now: Instant, event: Event, session: &mut dyn Session) {
        let Event::Closed(reason) = &event else {
            return self.app.on_event(now, event, session);
        };
        let left = why_it_left(reason).filter(|_| !self.has_asked());
        let visit = kind_of_visit(reason).filter(|_| !self.has_asked() && !self.app.is_lane());
        self.app.on_event(now, event, session);
        self.note(now, session);
        let outcome = self.view.handle.outcome();
        self.serving.sessions.leave(&self.view, outcome.as_ref());
        if self.level >= Level::Ends
            && let Some(mut outcome) = outcome
        {
            if let (Some(error), Some(left)) = (&mut outcome.error, left) {
                error.text = left.into();
            }
            let facts = self.view.facts();
            if !self.note_end(&facts, &outcome) {
                return;
            }
            match visit {
                Some(kind) => log::visited(&self.view, &facts, kind, outcome.summary.elapsed_s),
                None => log::ended(&self.view, &facts, &outcome),
            }
        }
    }

    fn poll(&mut self, now: Instant, session: &mut dyn Session) {
        self.app.poll(now, session);
        // Those whose handshake is not finished are not worth it.
        let connected = self.app.peer().is_some();
        if connected && now >= self.look || !self.asked && self.has_asked() {
            self.note(now, session);
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        let look = self.app.peer().map(|_| self.look);
        self.app.next_wake().into_iter().chain(look).min()
    }
}

impl Drop for Told {
    /// Reports the end, also of a session that never was, or that panicked.
    fn drop(&mut self) {
        let outcome = self.view.handle.outcome();
        self.serving.sessions.leave(&self.view, outcome.as_ref());
    }
}
