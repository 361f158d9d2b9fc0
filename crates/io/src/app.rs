//! What rides on a session? An [`App`]: the bytes (as a [`Store`]) and the decisions. It lives in the
//! shard thread beside its session and is called after every turn; other threads reach it through
//! whatever it shares with them and a [`Waker`](crate::Waker).

use farhaul_core::{
    protocol::{Event, Session},
    store::Store,
    time::Instant,
};

/// An application on one session.
pub trait App: Store + Send {
    /// The session has something to tell.
    fn on_event(&mut self, now: Instant, event: Event, session: &mut dyn Session);

    /// Called after every turn of the session, when woken, and at [`Self::next_wake`].
    fn poll(&mut self, now: Instant, session: &mut dyn Session);

    /// When [`Self::poll`] is wanted at the latest.
    fn next_wake(&self) -> Option<Instant> {
        None
    }
}
