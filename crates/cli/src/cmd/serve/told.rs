//! How is it told what a session did? One line when it has ended.

use std::net::SocketAddr;

use farhaul_core::{
    protocol::{Event, Session},
    store::{Extent, Sink, Store, StoreError},
    time::Instant,
};
use farhaul_io::App;
use farhaul_transfer::{Handle, server::Server};

/// A session that reports on stderr how it ended.
pub(super) struct Told {
    pub(super) app: Server,
    pub(super) handle: Handle,
    pub(super) peer: SocketAddr,
    pub(super) quiet: bool,
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
        let closed = matches!(event, Event::Closed(_));
        self.app.on_event(now, event, session);
        if closed
            && !self.quiet
            && let Some(outcome) = self.handle.outcome()
        {
            // Mirrored: the client's "sent" was received here.
            let verb = if outcome.summary.direction == "put" {
                "received"
            } else {
                "sent"
            };
            let line = outcome.summary.line();
            let rest = line.split_once(' ').map_or("", |(_, rest)| rest);
            let why = outcome
                .error
                .map_or_else(String::new, |e| format!("; {}", e.text));
            errln!("{}: {verb} {rest}{why}", self.peer);
        }
    }

    fn poll(&mut self, now: Instant, session: &mut dyn Session) {
        self.app.poll(now, session);
    }

    fn next_wake(&self) -> Option<Instant> {
        self.app.next_wake()
    }
}
