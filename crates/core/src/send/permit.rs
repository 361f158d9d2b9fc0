//! Decides whether a sender with a window may send now, how much, and if not, why not: the window,
//! the peer's grant, then pacing.

use super::Governor;
use crate::{stats::Why, time::Instant};

/// Leave to send, and how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    /// Nothing may leave now.
    Hold(Why),
    /// A batch of up to this many wire bytes may leave, at least one packet.
    Send {
        /// Wire bytes.
        bytes: u64,
    },
}

/// Input of [`Governor::permit`].
#[derive(Clone, Copy, Debug)]
pub struct Demand {
    /// Wire bytes in flight.
    pub in_flight: u64,
    /// Wire bytes in flight that the peer permits.
    pub granted: u64,
    /// True if something waits to be sent.
    pub has_data: bool,
    /// Packets that may be sent regardless of window and pacing (probes after a timeout).
    pub probes: u32,
}

impl Governor {
    /// Permit at `now`.
    pub fn permit(&self, now: Instant, demand: Demand) -> Permit {
        let Demand {
            in_flight,
            granted,
            has_data,
            probes,
        } = demand;
        if !has_data {
            return Permit::Hold(Why::Application);
        }
        let window = self.allowance().window.bytes();
        if in_flight >= window && probes == 0 {
            return Permit::Hold(Why::Window);
        }
        if in_flight >= granted && probes == 0 {
            return Permit::Hold(Why::Peer);
        }
        let room = window.min(granted).saturating_sub(in_flight);
        match self.pace(now) {
            // A law may pace a packet a minute; the engine stays alive regardless.
            Permit::Hold(_) if probes > 0 => Permit::Send { bytes: 1 },
            Permit::Send { bytes } => Permit::Send {
                bytes: bytes.min(room),
            },
            hold @ Permit::Hold(_) => hold,
        }
    }
}
