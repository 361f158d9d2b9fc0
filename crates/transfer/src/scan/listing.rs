//! Hands over the entries that a thread finds as it walks the sources.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Mutex, PoisonError, mpsc},
};

use super::{DOING, Found, Give, Gone, Room, Selection, Source, scan};
use crate::{error::TransferError, host::Host, pool, progress::Progress};

/// Batches in flight between the scanner and the sender.
const DEPTH: usize = 16;

/// Findings of the scanner, in its order.
#[derive(Debug)]
pub(crate) struct Listing {
    /// Channel of the scanner, until it has found everything.
    pub(super) channel: Option<Channel>,
    batch: VecDeque<Found>,
}

impl Listing {
    /// True while the scanner is at work.
    pub(crate) const fn is_waiting(&self) -> bool {
        self.channel.is_some()
    }

    /// True once everything was found and taken.
    pub(crate) fn is_over(&self) -> bool {
        self.channel.is_none() && self.batch.is_empty()
    }

    /// Fetches more once all was taken; returns whether there is something.
    pub(crate) fn refill(&mut self) -> Result<bool, TransferError> {
        if let Some(channel) = self.channel.as_ref().filter(|_| self.batch.is_empty()) {
            match channel.try_recv() {
                Ok(batch) => self.batch.extend(batch),
                Err(mpsc::TryRecvError::Empty) => {}
                Err(mpsc::TryRecvError::Disconnected) => {
                    self.channel = None;
                    return Err(pool::internal(DOING, "its thread ended early"));
                }
            }
        }
        Ok(!self.batch.is_empty())
    }

    /// Takes the next finding that was fetched.
    pub(crate) fn pop(&mut self) -> Option<Found> {
        let found = self.batch.pop_front();
        if let Some(Found::End(_) | Found::Broken(_)) = found {
            self.channel = None;
        }
        found
    }
}

/// Channel of a scanner for its findings.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) found: mpsc::Receiver<Vec<Found>>,
    /// Requests for batches in virtual time, in which the scanner works only while it is waited
    /// for.
    wanted: Option<mpsc::Sender<()>>,
}

impl Channel {
    /// The next batch, if there is one.
    pub(super) fn try_recv(&self) -> Result<Vec<Found>, mpsc::TryRecvError> {
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
    Ok(Listing {
        channel: Some(Channel { found, wanted }),
        batch: VecDeque::new(),
    })
}
