//! May the peer read that? Each request of a session that reads is checked as a place of a copy is, when it is made.

use std::sync::Arc;

use farhaul_core::{protocol::Session, units::Rate};

use super::{Server, Share};
use crate::{
    ask::Place,
    error::{Code, TransferError},
    half::Half,
    message::{Direction, Entry, Kind, Message},
    path,
    read::{Reads, Wanted},
    version::Features,
};

impl Server {
    pub(super) fn has_reads(&self) -> bool {
        self.has(Features::READS)
    }

    /// Answers reads from here on, or refuses.
    pub(super) fn begin_reads(&mut self) {
        let begun = self.take_session_slot().and_then(|()| {
            let progress = Arc::clone(self.side.handle.progress());
            Reads::new(progress, &self.host).map_err(|e| {
                TransferError::new(Code::Busy, format!("the server cannot start a thread: {e}"))
            })
        });
        match begun {
            Ok(reads) => {
                self.leaves = None;
                self.side.set_put(false);
                self.side.half = Some(Half::Reads(Box::new(reads)));
            }
            Err(e) => self.refuse(&e),
        }
    }

    /// Passes a request on with what it is about; other messages as they are.
    pub(super) fn read_of(
        &mut self,
        message: Message,
        session: &mut dyn Session,
    ) -> Result<(), TransferError> {
        let (id, place, wanted) = match message {
            Message::List { id, place } => (id, place, Wanted::List),
            Message::Stat { id, place } => (id, place, Wanted::Stat),
            Message::Read {
                id,
                place,
                offset,
                len,
            } => (id, place, Wanted::Range { offset, len }),
            other => return self.side.handle(other, session),
        };
        self.reads()?.begin(id)?;
        self.side.touch();
        if place.share.is_empty()
            && place.path.is_empty()
            && !matches!(wanted, Wanted::Range { .. })
        {
            let entries = match wanted {
                Wanted::List => self.shares_as_folders(),
                _ => vec![folder(Vec::new(), 0o555)],
            };
            self.reads()?.found(id, entries);
            return Ok(());
        }
        match self.readable(&place) {
            Ok(share) => {
                let reads = self.reads()?;
                reads.request(id, share.root(), place.path, &wanted);
            }
            Err(e) => self.reads()?.unanswered(id, e.code, &e.text),
        }
        Ok(())
    }

    fn reads(&mut self) -> Result<&mut Reads, TransferError> {
        match &mut self.side.half {
            Some(Half::Reads(reads)) => Ok(reads),
            _ => Err(TransferError::protocol("a read of a session that has none")),
        }
    }

    fn readable(&mut self, place: &Place) -> Result<Share, TransferError> {
        if let Some(why) = path::refusal(&place.path) {
            let text = format!("not a path in a share: {why}");
            return Err(TransferError::new(Code::Usage, text));
        }
        let shares = self.admit(std::slice::from_ref(place), Direction::Get)?;
        self.redeem_reads()?;
        let peer = self.peer.as_deref().unwrap_or_default();
        // The session has one rate, the least of those that hold for what it reads.
        let rate = self.policy.max_rate(peer, &shares);
        let brake = &mut self.side.brake;
        brake.rate = brake.rate.min(rate.unwrap_or(Rate::UNLIMITED));
        if self.asked.is_none() {
            self.asked = Some((false, vec![place.clone()]));
        }
        let share = shares.into_iter().next();
        share.ok_or_else(|| TransferError::protocol("no share"))
    }

    /// A session is one use of a ticket.
    fn redeem_reads(&mut self) -> Result<(), TransferError> {
        if !self.by_ticket || self.redeemed.is_some() {
            return Ok(());
        }
        if let Some((tickets, peer)) = self.policy.tickets().zip(self.peer.as_deref()) {
            let tag = path::digest(&[&b"reads"[..], peer].concat());
            tickets.begin(peer, tag)?;
            self.redeemed = Some(tag);
        }
        Ok(())
    }

    /// The shares that the peer may use.
    fn shares_as_folders(&self) -> Vec<Entry> {
        let peer = self.peer.as_deref().unwrap_or_default();
        let shares = self.policy.shares().iter();
        let open = shares.filter(|share| {
            let name = share.name().as_bytes();
            self.policy.open_share(name, peer).is_some()
        });
        let entry = |share: &Share| {
            let read = if share.permits(Direction::Get) {
                0o555
            } else {
                0o111
            };
            let write = if share.permits(Direction::Put) {
                0o200
            } else {
                0
            };
            folder(share.name().into(), read | write)
        };
        open.take(crate::bounds::SHARES).map(entry).collect()
    }
}

/// What has no facts of its own.
const fn folder(path: Vec<u8>, mode: u16) -> Entry {
    Entry {
        kind: Kind::Dir,
        path,
        mode,
        mtime: 0,
        mtime_nanos: 0,
        size: 0,
        allocated: 0,
        target: Vec::new(),
        facts: None,
    }
}
