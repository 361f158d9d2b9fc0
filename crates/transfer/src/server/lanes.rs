//! Gives a session of a server further parallel sessions, or makes it one of them.

use std::sync::Arc;

use farhaul_core::units::Rate;

use super::Server;
use crate::{
    error::TransferError,
    lanes::{Lane, lanes_by_cores},
    wire::{Direction, Features, Message, Token},
};

impl Server {
    /// True if both ends know parallel sessions.
    pub(super) fn has_lanes(&self) -> bool {
        self.has(Features::LANES)
    }

    /// Takes further parallel sessions for this copy: as many as were `chosen`, or as this machine
    /// has cores for. Each counts as a session.
    pub(super) fn open_lanes(&mut self, lanes: u32, chosen: bool) -> Result<(), TransferError> {
        let lanes = if chosen {
            lanes
        } else {
            lanes.min(lanes_by_cores())
        };
        if self.endpoint.lanes().is_some() {
            return Err(TransferError::protocol("lanes were requested twice"));
        }
        if self.endpoint.role.is_none() {
            // A client may ask before it knows that it was refused.
            if self.answered {
                return Ok(());
            }
            let text = "the peer did not begin with a request";
            return Err(TransferError::protocol(text));
        }
        let wake = self.host.wake.clone();
        let shared = self.endpoint.open_lanes(lanes, wake);
        let shared =
            shared.ok_or_else(|| TransferError::protocol("lanes for what carries no content"))?;
        self.endpoint.brake.control.follow(&shared);
        let peer = self.peer.as_deref().unwrap_or_default();
        let places = self.asked.as_ref().map(|(_, places)| places.clone());
        let joinable = self.policy.joinable();
        let token = joinable.open(&shared, peer, places.unwrap_or_default());
        self.out.push(&Message::Lanes { token, lanes });
        Ok(())
    }

    /// Joins another session's copy as a further session, if the copy is of the same peer, and one
    /// of the sessions that it may have.
    pub(super) fn join(&mut self, token: &Token) {
        match self.enter(token) {
            Ok(lane) => {
                (self.leaves, self.lane) = (None, true);
                self.endpoint.set_put(!lane.lanes().sends);
                if let Some(wake) = &self.host.wake {
                    lane.link().woken_by(Arc::clone(wake));
                }
                self.endpoint.brake.control.follow(lane.lanes());
                self.endpoint.join(lane);
                self.out.push(&Message::Joined);
            }
            Err(e) => self.refuse(&e),
        }
    }

    /// Enters the copy of `token`, which proves that the copy is this peer's. The limits of the
    /// peer are those of this session's own policy, which may be another than that of the first.
    fn enter(&mut self, token: &Token) -> Result<Lane, TransferError> {
        let peer = self.peer.as_deref().unwrap_or_default();
        let (lanes, places) = self.policy.joinable().find(token, peer)?;
        let sends = lanes.sends;
        let direction = if sends {
            Direction::Get
        } else {
            Direction::Put
        };
        let shares = self.admit(&places, direction)?;
        if sends {
            self.permit(lanes.brake.sharing)?;
        }
        self.check_place()?;
        let peer = self.peer.as_deref().unwrap_or_default();
        let rate = self.policy.max_rate(peer, &shares);
        self.endpoint.brake.rate = rate.unwrap_or(Rate::UNLIMITED);
        let mut lane = Lane::enter(lanes)?;
        lane.come();
        self.asked = Some((!sends, places));
        Ok(lane)
    }
}
