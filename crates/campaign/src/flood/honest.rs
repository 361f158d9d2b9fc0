//! Measures how long honest clients wait for a session. One opens sessions, one after the other, at
//! a rate.

use std::{
    io,
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use farhaul_core::{
    app::App,
    protocol::{Event, Session},
    store::{Extent, Store, StoreError},
    time::Instant,
};
use farhaul_haul::{Haul, HaulConfig};
use farhaul_io::{Buffers, Waker, client, clock};

use crate::program::pause;

/// Time between the beginnings of two sessions.
const PACE: Duration = Duration::from_millis(25);

/// Leaves as soon as it is let in.
#[derive(Default)]
struct Visitor {
    connected: Option<Instant>,
}

impl Store for Visitor {
    fn fill(&mut self, _: &[Extent], _: &mut [u8]) -> Result<(), StoreError> {
        Err(StoreError("internal: nothing is sent here".into()))
    }

    fn place(&mut self, _: &[Extent], _: &[u8]) -> Result<(), StoreError> {
        Err(StoreError("nothing was asked for".into()))
    }
}

impl App for Visitor {
    fn on_event(&mut self, now: Instant, event: Event, session: &mut dyn Session) {
        if let Event::Connected { .. } = event {
            self.connected = Some(now);
            session.close(now, 0, "");
        }
    }

    fn poll(&mut self, _: Instant, _: &mut dyn Session) {}
}

/// Times that sessions took to open, and the number of those that did not.
pub(super) fn open_sessions(to: SocketAddr, stop: &AtomicBool) -> io::Result<(Vec<Duration>, u64)> {
    let mut options = client::Options::new(to);
    options.buffers = Buffers {
        receive: 1 << 20,
        send: 1 << 20,
        ..Buffers::default()
    };
    let waker = Waker::new()?;
    let (mut took, mut failed) = (Vec::new(), 0);
    while !stop.load(Relaxed) {
        let haul = Haul::client(HaulConfig::new([7; 32])).map_err(io::Error::other)?;
        let began = clock::now();
        let outcome = client::run(&options, Box::new(haul), Visitor::default(), &waker)
            .map_err(io::Error::other)?;
        match outcome.app.connected {
            Some(at) => took.push(at.since(began)),
            None => failed += 1,
        }
        pause(PACE.saturating_sub(clock::now().since(began)));
    }
    Ok((took, failed))
}
