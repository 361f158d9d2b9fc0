//! Lists the shares that a peer may use: those that it could ask for by name. The existence of
//! others is not disclosed.

use super::{ASKS_WITHIN, Access, Server};
use crate::wire::{
    Features, Message, Shared,
    limits::{SHARES, SHARES_BYTES},
};

impl Server {
    /// True if both ends have the feature.
    pub(super) fn has(&self, feature: Features) -> bool {
        let agreed = self.agreed.as_ref().and_then(|agreed| agreed.as_ref().ok());
        agreed.is_some_and(|agreed| agreed.features.has(feature))
    }

    /// Access as the peer knows it.
    fn told(&self, access: Access) -> Access {
        match access {
            Access::Delete if !self.has(Features::CHANGES) => Access::ReadWrite,
            access => access,
        }
    }

    /// Sends the peer its shares, as many as a message holds.
    pub(super) fn send_shares(&mut self) {
        let peer = self.peer.as_deref().unwrap_or_default();
        let mut room = SHARES_BYTES;
        let shares = self.policy.open_shares(peer).map(|share| Shared {
            name: share.name().into(),
            access: self.told(share.granted()),
        });
        let fit = |share: &Shared| {
            let left = room.checked_sub(share.name.len());
            room = left.unwrap_or(0);
            left.is_some()
        };
        let shares = shares.take(SHARES).take_while(fit).collect();
        self.leaves = Some(self.now + ASKS_WITHIN);
        self.out.push(&Message::Shares(shares));
    }
}
