//! Defines what rides on a session. An [`App`] is the bytes (as a [`Store`]) and the decisions. The
//! world calls the app after every turn of its session. On real sockets the app lives in the shard
//! thread; other threads reach the app through state shared with them and a waker.

use crate::{
    protocol::{Event, Session},
    store::{Extent, Sink, Store, StoreError},
    time::Instant,
};

/// An application on one session.
pub trait App: Store + Send {
    /// The session emitted an event.
    fn on_event(&mut self, now: Instant, event: Event, session: &mut dyn Session);

    /// Called after every turn of the session, when woken, and at [`Self::next_wake`].
    fn poll(&mut self, now: Instant, session: &mut dyn Session);

    /// Latest time at which to call [`Self::poll`].
    fn next_wake(&self) -> Option<Instant> {
        None
    }
}

impl Store for Box<dyn App> {
    fn fill(&mut self, extents: &[Extent], batch: &mut [u8]) -> Result<(), StoreError> {
        (**self).fill(extents, batch)
    }

    fn place(&mut self, extents: &[Extent], batch: &[u8]) -> Result<(), StoreError> {
        (**self).place(extents, batch)
    }

    fn sink(&self) -> Sink {
        (**self).sink()
    }
}

impl App for Box<dyn App> {
    fn on_event(&mut self, now: Instant, event: Event, session: &mut dyn Session) {
        (**self).on_event(now, event, session);
    }

    fn poll(&mut self, now: Instant, session: &mut dyn Session) {
        (**self).poll(now, session);
    }

    fn next_wake(&self) -> Option<Instant> {
        (**self).next_wake()
    }
}
