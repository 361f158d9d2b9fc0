//! Runs a copy on its session: the transfer, and around it what ends it from outside, a signal or
//! the end of its time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use farhaul_core::{
    protocol::{Event, Session},
    store::{Extent, Sink, Store, StoreError},
    time::Instant,
};
use farhaul_io::{App, Stop};
use farhaul_transfer::{
    Control, Handle,
    client::{Download, Upload},
};

use crate::{exit::Exit, interrupt, timetable::Timetable};

/// An upload or a download.
pub(super) enum Copier {
    Up(Upload),
    Down(Download),
}

impl Copier {
    pub(super) fn handle(&self) -> Handle {
        match self {
            Self::Up(app) => app.handle(),
            Self::Down(app) => app.handle(),
        }
    }

    const fn app(&mut self) -> &mut dyn App {
        match self {
            Self::Up(app) => app,
            Self::Down(app) => app,
        }
    }
}

/// Passes on to the transfer what ends it from outside, and its rate by time of day.
pub(super) struct Stoppable {
    pub(super) app: Copier,
    pub(super) stop: Stop,
    pub(super) cancel: Arc<AtomicU8>,
    /// Time at which the copy has to end.
    pub(super) until: Option<Instant>,
    pub(super) rates: Option<Rates>,
}

/// A copy's highest rate by time of day, and what keeps to it.
pub(super) struct Rates {
    timetable: Timetable,
    control: Arc<Control>,
    read: Option<Instant>,
}

impl Rates {
    pub(super) const fn new(timetable: Timetable, control: Arc<Control>) -> Self {
        Self {
            timetable,
            control,
            read: None,
        }
    }
}

/// Time between two looks at the time of day.
const LOOK: Duration = Duration::from_secs(1);

impl Store for Stoppable {
    fn fill(&mut self, extents: &[Extent], batch: &mut [u8]) -> Result<(), StoreError> {
        self.app.app().fill(extents, batch)
    }

    fn place(&mut self, extents: &[Extent], batch: &[u8]) -> Result<(), StoreError> {
        self.app.app().place(extents, batch)
    }

    fn sink(&self) -> Sink {
        match &self.app {
            Copier::Up(app) => app.sink(),
            Copier::Down(app) => app.sink(),
        }
    }
}

impl App for Stoppable {
    fn on_event(&mut self, now: Instant, event: Event, session: &mut dyn Session) {
        self.app.app().on_event(now, event, session);
    }

    fn poll(&mut self, now: Instant, session: &mut dyn Session) {
        let code = if self.stop.is_set() {
            Exit::Signal(interrupt::signal()).number()
        } else if self.until.is_some_and(|until| until <= now) {
            Exit::Limit.number()
        } else {
            Exit::Ok.number()
        };
        self.cancel.store(code, Ordering::Relaxed);
        if let Some(rates) = &mut self.rates {
            rates.control.schedule(rates.timetable.now());
            rates.read = Some(now);
        }
        self.app.app().poll(now, session);
    }

    fn next_wake(&self) -> Option<Instant> {
        let app = match &self.app {
            Copier::Up(app) => app.next_wake(),
            Copier::Down(app) => app.next_wake(),
        };
        let look = self.rates.as_ref().and_then(|rates| rates.read);
        let look = look.map(|at| at + LOOK);
        app.into_iter().chain(self.until).chain(look).min()
    }
}
