//! Hands over the entries that a thread finds as it walks the sources.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError, mpsc},
};

use super::{Found, Give, Gone, Room, Selection, Source, scan};
use crate::{host::Host, progress::Progress};

/// Batches in flight between the scanner and the sender.
const DEPTH: usize = 16;

/// Findings of the scanner, in its order.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(super) found: mpsc::Receiver<Vec<Found>>,
    /// Requests for batches in virtual time, in which the scanner works only while it is waited
    /// for.
    wanted: Option<mpsc::Sender<()>>,
}

impl Listing {
    /// The next batch, if there is one.
    pub(crate) fn try_recv(&self) -> Result<Vec<Found>, mpsc::TryRecvError> {
        let Some(wanted) = &self.wanted else {
            return self.found.try_recv();
        };
        // A scanner that has ended is heard of below.
        let _ended = wanted.send(());
        let batch = self.found.recv();
        batch.map_err(|_| mpsc::TryRecvError::Disconnected)
    }
}

/// Starts the scanner; its channel ends when everything was listed.
pub(crate) fn start(
    sources: Vec<Source>,
    selection: Selection,
    progress: Arc<Progress>,
    host: &Host,
) -> io::Result<Listing> {
    let (to, found) = mpsc::sync_channel(DEPTH);
    let (wanted, wants) = host.simulated.is_some().then(mpsc::channel).unzip();
    let wants = Mutex::new(wants);
    // Until another batch is wanted.
    let pause = move || match &*wants.lock().unwrap_or_else(PoisonError::into_inner) {
        Some(wants) => mpsc::Receiver::recv(wants).map_err(|_| Gone),
        None => Ok(()),
    };
    std::thread::Builder::new()
        .name("farhaul-scan".into())
        .spawn(move || {
            if pause().is_err() {
                return;
            }
            let to: Give = Arc::new(move |batch| {
                to.send(batch).map_err(|_| Gone)?;
                pause()
            });
            scan(&to, &sources, selection, progress, Room::MOST);
        })?;
    Ok(Listing { found, wanted })
}
