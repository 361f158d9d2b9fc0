//! How does a session of a server get further lanes, or become one?

use std::sync::Arc;

use super::Server;
use crate::{
    error::TransferError,
    lanes::{Token, lanes_by_cores},
    message::Message,
    version::Features,
};

impl Server {
    /// Both ends know lanes.
    pub(super) fn has_lanes(&self) -> bool {
        self.has(Features::LANES)
    }

    /// Takes further lanes for this copy: as many as were `chosen`, or as this machine has cores for. Each is a
    /// session.
    pub(super) fn open_lanes(&mut self, lanes: u32, chosen: bool) -> Result<(), TransferError> {
        let lanes = if chosen {
            lanes
        } else {
            lanes.min(lanes_by_cores())
        };
        if self.side.lanes().is_some() {
            return Err(TransferError::protocol("lanes were requested twice"));
        }
        if self.side.half.is_none() {
            // A client may ask before it knows that it was refused.
            if self.answered {
                return Ok(());
            }
            let text = "the peer did not begin with a request";
            return Err(TransferError::protocol(text));
        }
        let wake = self.host.wake.clone();
        let shared = self.side.open_lanes(lanes, wake);
        let shared =
            shared.ok_or_else(|| TransferError::protocol("lanes for what carries no content"))?;
        let peer = self.peer.as_deref().unwrap_or_default();
        let share = self.asked.as_ref().map_or(&[][..], |(_, share)| share);
        let token = self.policy.joinable().open(&shared, peer, share);
        self.out.push(&Message::Lanes { token, lanes });
        Ok(())
    }

    /// Becomes a lane of another session's copy, and one of the sessions that its peer may have.
    pub(super) fn join(&mut self, token: &Token) {
        let peer = self.peer.as_deref().unwrap_or_default();
        let seat = self.policy.seat(peer);
        let joined = seat.and_then(|seat| Ok((seat, self.policy.joinable().join(token, peer)?)));
        match joined {
            Ok((seat, (mut lane, share))) => {
                self.seat = Some(seat);
                (self.leaves, self.lane) = (None, true);
                self.asked = Some((!lane.sends(), share));
                self.side.set_put(!lane.sends());
                if let Some(wake) = &self.host.wake {
                    lane.woken_by(Arc::clone(wake));
                }
                lane.come();
                self.side.join(lane);
                self.out.push(&Message::Joined);
            }
            Err(e) => self.refuse(&e),
        }
    }
}
