//! Admits requests. Each place of a request is checked by itself, then the policy, then how many
//! sessions the peer has. A ticket is used up last, before any content moves.

use farhaul_core::congestion::Sharing;

use super::{Request, Server, Share};
use crate::{
    agreed::OTHER_PATTERNS,
    confine,
    error::TransferError,
    wire::{Direction, Exit, Features, Place, RequestOptions, path},
};

impl Server {
    /// Error unless the request is of the version that both ends have.
    pub(super) fn agree(&self, request: &Request) -> Result<(), TransferError> {
        match &self.agreed {
            Some(Ok(agreed)) if request.options.pipe && !agreed.features.has(Features::PIPES) => {
                Err(TransferError::protocol("a pipe, which was not agreed on"))
            }
            Some(Ok(agreed)) if agreed.version == request.version => {
                if request.options.spec.is_ambiguous() {
                    agreed.needs(Features::PATTERNS, OTHER_PATTERNS, "the client")?;
                }
                Ok(())
            }
            Some(Err(e)) => Err(e.clone()),
            _ => Err(TransferError::protocol(
                "a request of a version that was not agreed on",
            )),
        }
    }

    /// The shares of all places, if this peer may use each of them so.
    pub(super) fn admit(
        &mut self,
        places: &[Place],
        direction: Direction,
    ) -> Result<Vec<Share>, TransferError> {
        let peer = self.peer.as_deref();
        let mut shares = Vec::with_capacity(places.len());
        for place in places {
            let found = peer
                .map(|peer| self.policy.share(place, peer))
                .transpose()?;
            let found = found.flatten();
            let found = found.filter(|(share, _)| {
                share.permits(direction) && self.policy.reaches(place, direction)
            });
            let (share, by_ticket) =
                found.ok_or_else(|| self.not_admitted(&place.share, direction))?;
            share.enter(direction)?;
            self.by_ticket |= by_ticket;
            shares.push(share);
        }
        Ok(shares)
    }

    /// Error for a share that the peer may not use. A peer that may learn of the share learns its
    /// direction, too; others learn nothing.
    fn not_admitted(&self, share: &[u8], direction: Direction) -> TransferError {
        let name = path::show(share);
        let peer = self.peer.as_deref().unwrap_or_default();
        let open = self.policy.open_share(share, peer);
        if let Some(open) = open.filter(|open| !open.permits(direction)) {
            let text = format!(
                "share '{name}' is not for that: peers may {}",
                open.access()
            );
            let fix = "name another share; `farhaul ls HOST::` lists those that you may use";
            return TransferError::new(Exit::Auth, text).fix(fix);
        }
        let text = format!("share '{name}' is unknown or not allowed");
        let fix =
            "check the name, the direction and your key or ticket with the server's administrator";
        TransferError::new(Exit::Auth, text).fix(fix)
    }

    /// Place where a delivery goes. The place of a ticket is a folder that takes entries under
    /// their own names, unless it is an existing file. Content of a pipe has no name of its own.
    pub(super) fn delivered_at(
        &self,
        share: &Share,
        place: &Place,
        options: &RequestOptions,
    ) -> Vec<u8> {
        let mut at = place.path.clone();
        if options.pipe || at.is_empty() || at.ends_with(b"/") {
            return at;
        }
        if self.has_ticket_for(&place.share, &at) && !confine::is_file(share.root(), &at) {
            at.push(b'/');
        }
        at
    }

    /// True if the peer's ticket is for this place and for nothing beside it. Admission is decided
    /// before.
    fn has_ticket_for(&self, share: &[u8], at: &[u8]) -> bool {
        let tickets = self.policy.tickets().zip(self.peer.as_deref());
        let right = tickets.and_then(|(tickets, peer)| tickets.right(peer).ok()?);
        right.is_some_and(|right| right.covers(share, at) && right.is_at(at))
    }

    /// True if the peer may create nothing in `share` but the entry of this path.
    pub(super) fn is_only_grant(&self, share: &Share, at: &[u8]) -> bool {
        self.policy.is_only(at) || self.has_ticket_for(share.name().as_bytes(), at)
    }

    /// Counts the use of a ticket, before any content is sent or taken.
    pub(super) fn redeem(&mut self, request: &Request) -> Result<(), TransferError> {
        let tickets = self
            .policy
            .tickets()
            .filter(|_| self.by_ticket && !request.options.dry);
        if let Some((tickets, peer)) = tickets.zip(self.peer.as_deref()) {
            let tag = self.own_tag(request);
            tickets.begin(peer, tag)?;
            self.redeemed = Some(tag);
        }
        Ok(())
    }

    /// Concludes a request that ended well: the same again is another use.
    pub(super) fn conclude(&mut self) {
        let well = self
            .endpoint
            .handle
            .outcome()
            .is_some_and(|o| o.error.is_none());
        let (Some(tag), true) = (self.redeemed.take(), well) else {
            return;
        };
        if let Some((tickets, peer)) = self.policy.tickets().zip(self.peer.as_deref())
            && let Err(e) = tickets.end(peer, tag)
        {
            self.endpoint.handle.warn(e.text);
        }
    }

    /// Error unless the policy requested by the peer is allowed.
    pub(super) fn permit(&self, asked: Sharing) -> Result<(), TransferError> {
        let most = self.policy.sharing;
        if asked as u8 > most as u8 {
            let text = format!("policy {asked} is not allowed by this server, {most} is");
            let fix = "omit --policy, or start the server with --max-policy high";
            return Err(TransferError::new(Exit::Auth, text).fix(fix));
        }
        Ok(())
    }

    /// Counts as one of the peer's sessions, until it ends. One more than there may be is let in.
    /// Such a session may ask for what needs no place, or for the place of a session that is dead.
    pub(super) fn take_slot(&mut self) -> Result<(), TransferError> {
        let peer = self.peer.as_deref().unwrap_or_default();
        self.session_slot = Some(self.policy.session_slot(peer, self.now)?);
        Ok(())
    }

    /// Fails for a transfer beyond those that the peer may have.
    pub(super) fn check_place(&self) -> Result<(), TransferError> {
        let slot = self.session_slot.as_ref();
        slot.map_or(Ok(()), |slot| self.policy.check_place(slot, self.now))
    }
}
