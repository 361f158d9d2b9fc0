//! A shard with one session. Datagrams of its socket are that session's, unless they are addressed
//! to another one of the same peer, which are forwarded to the listener.

use farhaul_core::{app::App, protocol::CloseReason, time::Instant};
use farhaul_udp::Incoming;

use crate::{
    own_thread::Inbox,
    shard::{Admission, Router},
    slot::Slot,
    table::SessionTable,
};

/// The one session's slot, and how it ended.
pub(crate) struct Single<A> {
    pub(crate) slot: usize,
    pub(crate) others: Option<Others>,
    pub(crate) left: Option<(Slot<A>, CloseReason)>,
}

/// Destination of messages for others.
pub(crate) struct Others {
    /// The session's id.
    pub(crate) id: u64,
    pub(crate) destination: fn(&[u8]) -> Option<u64>,
    pub(crate) listener: Inbox,
}

impl Others {
    /// Hands on a message that is addressed to another session, or to one that is to begin.
    fn take(&self, message: &Incoming<'_>) -> bool {
        let to = (self.destination)(message.first());
        let other = to.is_some_and(|to| to != self.id);
        if other {
            self.listener.put(message);
        }
        other
    }
}

impl<A: App> Router<A> for Single<A> {
    fn admit(
        &mut self,
        _: &mut SessionTable<A>,
        _: Instant,
        message: &Incoming<'_>,
        _: &mut Vec<u8>,
    ) -> Admission {
        match &self.others {
            Some(others) if others.take(message) => Admission::Drop,
            _ => Admission::Slot(self.slot),
        }
    }

    fn only(&self) -> Option<usize> {
        Some(self.slot)
    }

    fn connected(&mut self, _: &mut Slot<A>) {}

    fn left(&mut self, entry: Slot<A>, reason: CloseReason) {
        self.left = Some((entry, reason));
    }
}
