//! Checks each request of a session that reads, or changes entries, when it is made, as a place of
//! a copy is checked.

use std::sync::Arc;

use farhaul_core::{protocol::Session, units::Rate};

use super::{Server, Share, Tickets};
use crate::{
    error::TransferError,
    read::{Changed, Reads, Terms, Wanted},
    wire::{
        Change, Direction, Entry, Exit, Features, Kind, Message, Place,
        path::{self, Tag},
    },
};

impl Server {
    pub(super) fn has_reads(&self) -> bool {
        self.has(Features::READS)
    }

    /// Answers reads from here on, or refuses.
    pub(super) fn begin_reads(&mut self) {
        let begun = self.may_read().and_then(|()| self.check_place());
        let begun = begun.and_then(|()| {
            let progress = Arc::clone(self.endpoint.handle.progress());
            Reads::new(progress, &self.host).map_err(|e| {
                TransferError::new(Exit::Busy, format!("the server cannot start a thread: {e}"))
            })
        });
        match begun {
            Ok(reads) => {
                self.leaves = None;
                self.endpoint.set_put(false);
                self.endpoint.play(reads);
            }
            Err(e) => self.refuse(&e),
        }
    }

    /// Passes a request on with what it is about; other messages as they are.
    pub(super) fn read_of(&mut self, message: Message) -> Result<(), TransferError> {
        let (id, place, wanted) = match message {
            Message::List { id, place } => (id, place, Wanted::List),
            Message::Stat { id, place } => (id, place, Wanted::Stat),
            Message::Read {
                id,
                place,
                offset,
                len,
            } => (id, place, Wanted::Range { offset, len }),
            Message::Change { id, place, change } if self.has(Features::CHANGES) => {
                return self.change_of(id, place, change);
            }
            other => return self.endpoint.handle(other),
        };
        if !self.policy.is_current() {
            return Err(retired());
        }
        self.reads()?.begin(id)?;
        if place.share.is_empty()
            && place.path.is_empty()
            && !matches!(wanted, Wanted::Range { .. })
        {
            let entries = match wanted {
                Wanted::List => self.shares_as_folders(),
                _ => vec![folder(Vec::new(), 0o555)],
            };
            self.reads()?.found(id, entries);
            self.endpoint.touch();
            return Ok(());
        }
        match self.readable(&place) {
            Ok(share) => {
                self.endpoint.touch();
                let reads = self.reads()?;
                reads.request(id, share.root(), place.path, &wanted);
            }
            Err(e) => self.reads()?.unanswered(id, e.code, &e.text),
        }
        Ok(())
    }

    fn change_of(&mut self, id: u32, place: Place, change: Change) -> Result<(), TransferError> {
        if !self.policy.is_current() {
            return Err(retired());
        }
        self.reads()?.begin(id)?;
        match self.changeable(&place, &change) {
            Ok(share) => {
                self.endpoint.touch();
                let terms = Terms {
                    share: place.share,
                    tell: self.tell.clone(),
                    sync: self.policy.sync,
                    quota: share.quota().cloned(),
                    busy: self.policy.busy(),
                    names: share.names(),
                };
                let reads = self.reads()?;
                reads.change(id, share.root(), place.path, (change, terms));
            }
            Err(e) => {
                if let Some(tell) = &self.tell {
                    tell(&Changed {
                        share: &place.share,
                        path: &place.path,
                        change: &change,
                        failed: Some(&e),
                    });
                }
                self.reads()?.unanswered(id, e.code, &e.text);
            }
        }
        Ok(())
    }

    /// The share in which the peer may make this change.
    fn changeable(&mut self, place: &Place, change: &Change) -> Result<Share, TransferError> {
        let to = change.to().map(|path| Place {
            share: place.share.clone(),
            path: path.to_vec(),
        });
        let mut share = None;
        for place in [Some(place), to.as_ref()].into_iter().flatten() {
            if let Some(why) = path::unchangeable(&place.path) {
                return Err(TransferError::new(Exit::Usage, why));
            }
            for direction in [Direction::Get, Direction::Put] {
                share = self.admit(std::slice::from_ref(place), direction)?.pop();
            }
        }
        let share = share.ok_or_else(|| TransferError::protocol("no share"))?;
        if matches!(
            change,
            Change::Remove | Change::RemoveFolder | Change::Move { .. }
        ) {
            if !share.permits_deletion() {
                let name = share.name();
                let text = format!(
                    "nothing may be removed or moved in share '{name}': it is not served as rw,delete"
                );
                return Err(TransferError::new(Exit::Auth, text));
            }
            if self.is_only_grant(&share, &place.path) {
                let text = "a ticket is for what is at its place, and not for removing or moving the place";
                return Err(TransferError::new(Exit::Auth, text));
            }
        }
        self.redeem_reads()?;
        if self.asked.is_none() {
            self.asked = Some((true, vec![place.clone()]));
        }
        Ok(share)
    }

    fn reads(&mut self) -> Result<&mut Reads, TransferError> {
        let reads = self.endpoint.role_as();
        reads.ok_or_else(|| TransferError::protocol("a read of a session that has none"))
    }

    fn readable(&mut self, place: &Place) -> Result<Share, TransferError> {
        if let Some(why) = path::refusal(&place.path) {
            let text = format!("not a path in a share: {why}");
            return Err(TransferError::new(Exit::Usage, text));
        }
        let shares = self.admit(std::slice::from_ref(place), Direction::Get)?;
        self.redeem_reads()?;
        let peer = self.peer.as_deref().unwrap_or_default();
        // The session has one rate, the least of those that hold for what it reads.
        let rate = self.policy.max_rate(peer, &shares);
        let brake = &mut self.endpoint.brake;
        brake.rate = brake.rate.min(rate.unwrap_or(Rate::UNLIMITED));
        if self.asked.is_none() {
            self.asked = Some((false, vec![place.clone()]));
        }
        let share = shares.into_iter().next();
        share.ok_or_else(|| TransferError::protocol("no share"))
    }

    /// A policy that holds no longer ends the session once what was asked under it is over.
    pub(super) fn poll_reads(&mut self, session: &mut dyn Session) {
        let idle = self.endpoint.role_as::<Reads>();
        let idle = idle.is_some_and(|reads| reads.is_idle());
        if idle && !self.policy.is_current() && !session.is_closed() {
            self.endpoint.fail(retired(), session);
        }
    }

    /// Error unless there is anything that the peer may read.
    fn may_read(&self) -> Result<(), TransferError> {
        let peer = self.peer.as_deref().unwrap_or_default();
        let mut open = self.policy.open_shares(peer);
        let by_ticket = |tickets: &dyn Tickets| tickets.right(peer).map(|right| right.is_some());
        if open.any(|share| share.permits(Direction::Get))
            || self.policy.tickets().map(by_ticket).transpose()? == Some(true)
        {
            return Ok(());
        }
        let text = "there is no share here from which you may fetch";
        Err(TransferError::new(Exit::Auth, text)
            .fix("ask the server's administrator for one, or deliver by `farhaul cp`"))
    }

    /// A session is one use of a ticket.
    fn redeem_reads(&mut self) -> Result<(), TransferError> {
        if !self.by_ticket || self.redeemed.is_some() {
            return Ok(());
        }
        if let Some((tickets, peer)) = self.policy.tickets().zip(self.peer.as_deref()) {
            let mut tag = Tag::default();
            farhaul_io::system_rng().fill(&mut tag);
            tickets.begin(peer, tag)?;
            self.redeemed = Some(tag);
        }
        Ok(())
    }

    /// The shares that the peer may use.
    fn shares_as_folders(&self) -> Vec<Entry> {
        let peer = self.peer.as_deref().unwrap_or_default();
        let open = self.policy.open_shares(peer);
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
        open.take(crate::wire::limits::SHARES).map(entry).collect()
    }
}

/// The client opens another session, which is judged anew.
fn retired() -> TransferError {
    let text = "the server's configuration was read again, or it is stopping";
    TransferError::new(Exit::ConnectionLost, text).fix("ask again, in another session")
}

/// Entry of a folder that has no facts of its own.
fn folder(path: Vec<u8>, mode: u16) -> Entry {
    Entry {
        mode,
        ..Entry::named(Kind::Dir, path)
    }
}
