//! What is a shard with one session? Everything that its socket receives is that session's.

use farhaul_core::{app::App, protocol::CloseReason, time::Instant};
use farhaul_udp::Incoming;

use crate::{
    seat::Seat,
    seats::Seats,
    shard::{Admission, Door},
};

/// The one session's slot, and how it ended.
pub(crate) struct Single<A> {
    pub(crate) slot: usize,
    pub(crate) left: Option<(Seat<A>, CloseReason)>,
}

impl<A: App> Door<A> for Single<A> {
    fn admit(
        &mut self,
        _: &mut Seats<A>,
        _: Instant,
        _: &Incoming<'_>,
        _: &mut Vec<u8>,
    ) -> Admission {
        Admission::Seat(self.slot)
    }

    fn only(&self) -> Option<usize> {
        Some(self.slot)
    }

    fn connected(&mut self, _: &mut Seat<A>) {}

    fn left(&mut self, seat: Seat<A>, reason: CloseReason) {
        self.left = Some((seat, reason));
    }
}
