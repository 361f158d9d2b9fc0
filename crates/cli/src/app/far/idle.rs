//! Ends a server that ssh started. Its standard input ends with ssh, but ssh may not notice for
//! hours that its network is gone. So the server leaves, too, when there has been no session for a
//! while: before the first and after the last.

use std::{
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    time::Duration,
};

use farhaul_core::{
    app::App,
    protocol::{Event, Session},
    store::{Extent, Sink, Store, StoreError},
    time::Instant,
};

/// A session has begun or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Came,
    Went,
}

/// Reports the number of sessions.
#[derive(Clone, Debug)]
pub(super) struct Guests(Sender<Change>);

/// Watch on the sessions.
#[derive(Debug)]
pub(super) struct Watch(Receiver<Change>);

/// Reason that a watch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// No session for this time.
    Idle,
    /// The listener is gone.
    Gone,
}

pub(super) fn guests() -> (Guests, Watch) {
    let (sender, receiver) = mpsc::channel();
    (Guests(sender), Watch(receiver))
}

impl Watch {
    /// Returns when there has been no session for `most`, or all reporters are dropped.
    pub(super) fn until_idle(self, most: Duration) -> Over {
        let mut there: usize = 0;
        loop {
            let change = if there == 0 {
                self.0.recv_timeout(most)
            } else {
                self.0.recv().map_err(|_| RecvTimeoutError::Disconnected)
            };
            match change {
                Ok(Change::Came) => there += 1,
                Ok(Change::Went) => there = there.saturating_sub(1),
                Err(RecvTimeoutError::Timeout) => return Over::Idle,
                Err(RecvTimeoutError::Disconnected) => return Over::Gone,
            }
        }
    }
}

impl Guests {
    /// `app`, counted from the end of the handshake, which only the one that is let in can finish, until
    /// it is dropped.
    pub(super) fn counted<A: App>(&self, app: A) -> Counted<A> {
        Counted {
            app,
            guests: self.clone(),
            here: false,
        }
    }

    fn report(&self, change: Change) {
        // The watch has ended already.
        let _ignored = self.0.send(change);
    }
}

/// An app whose session is counted.
pub(super) struct Counted<A> {
    app: A,
    guests: Guests,
    here: bool,
}

impl<A> Drop for Counted<A> {
    fn drop(&mut self) {
        if self.here {
            self.guests.report(Change::Went);
        }
    }
}

impl<A: App> Store for Counted<A> {
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

impl<A: App> App for Counted<A> {
    fn on_event(&mut self, now: Instant, event: Event, session: &mut dyn Session) {
        if matches!(event, Event::Connected { .. }) && !self.here {
            self.here = true;
            self.guests.report(Change::Came);
        }
        self.app.on_event(now, event, session);
    }

    fn poll(&mut self, now: Instant, session: &mut dyn Session) {
        self.app.poll(now, session);
    }

    fn next_wake(&self) -> Option<Instant> {
        self.app.next_wake()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_app_has_no_room_for_is_not_given_to_it() {
        const FULL: Sink = Sink {
            free: 5,
            drained: 7,
        };
        struct Narrow;
        impl Store for Narrow {
            fn fill(&mut self, _: &[Extent], _: &mut [u8]) -> Result<(), StoreError> {
                Ok(())
            }
            fn place(&mut self, _: &[Extent], _: &[u8]) -> Result<(), StoreError> {
                Ok(())
            }
            fn sink(&self) -> Sink {
                FULL
            }
        }
        impl App for Narrow {
            fn on_event(&mut self, _: Instant, _: Event, _: &mut dyn Session) {}
            fn poll(&mut self, _: Instant, _: &mut dyn Session) {}
        }
        let (guests, _watch) = guests();
        assert_eq!(guests.counted(Narrow).sink(), FULL);
    }

    const SOON: Duration = Duration::from_millis(1);

    /// Result of a watch that receives these and then the end of all reporters, or times out.
    fn watched(changes: &[Change], listening: bool) -> Over {
        let (guests, watch) = guests();
        for change in changes {
            guests.report(*change);
        }
        let _kept = listening.then_some(guests);
        watch.until_idle(SOON)
    }

    #[test]
    fn a_server_without_sessions_exits_and_one_with_a_session_stays() {
        use Change::{Came, Went};
        assert_eq!(watched(&[], true), Over::Idle, "nobody came");
        assert_eq!(watched(&[Came, Went], true), Over::Idle, "the last went");
        // One still exists: only the end of all reporters ends the watch.
        assert_eq!(watched(&[Came], false), Over::Gone);
        assert_eq!(watched(&[Came, Came, Went], false), Over::Gone);
    }
}
