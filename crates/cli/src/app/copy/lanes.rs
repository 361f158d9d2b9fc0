//! Runs the further parallel sessions of a copy. Each has a thread, a socket and a session of its
//! own, to where the first went and with the same keys.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
};

use farhaul_haul::{Haul, HaulConfig, PeerPolicy};
use farhaul_io::{Waker, client};
use farhaul_transfer::client::{Lane, OpenLane};

use super::trust::Seen;

/// Threads of further parallel sessions.
#[derive(Default)]
pub(super) struct Threads(Arc<Mutex<Vec<JoinHandle<()>>>>);

impl Threads {
    /// Opens parallel sessions to the server at `to`, which has to have the key that was `seen`
    /// there, configured as the first session. One that cannot be opened is dropped, which its copy
    /// reports.
    pub(super) fn opener(&self, to: SocketAddr, config: &HaulConfig, seen: &Seen) -> OpenLane {
        let (threads, config, seen) = (Arc::clone(&self.0), config.clone(), Arc::clone(seen));
        Arc::new(move |lane| {
            let mut config = config.clone();
            let key = *seen.lock().unwrap_or_else(PoisonError::into_inner);
            config.peers = PeerPolicy::Keys(key.into_iter().collect());
            let mut threads = threads.lock().unwrap_or_else(PoisonError::into_inner);
            let name = format!("lane-{}", threads.len() + 2);
            let run = move || run(to, config, lane);
            threads.extend(thread::Builder::new().name(name).spawn(run));
        })
    }

    /// Waits for all of them; the first session is over, so they end.
    pub(super) fn join(self) {
        let threads = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // One that panicked has been reported by the copy as lost.
            let _lost = thread.join();
        }
    }
}

fn run(to: SocketAddr, config: HaulConfig, lane: Lane) {
    // A failure here drops the session.
    let Ok(waker) = Waker::new() else { return };
    let wake = waker.clone();
    lane.woken_by(Arc::new(move || wake.wake()));
    if let Ok(haul) = Haul::client(config) {
        let _told_to_the_lane =
            client::run(&client::Options::new(to), Box::new(haul), lane, &waker);
    }
}
