//! May I send, how much, and if not, why not? The only place that says yes or no.

use super::Pacer;
use crate::{congestion::Allowance, stats::Why, time::Instant};

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    /// Not now.
    Hold(Why),
    /// Up to this many wire bytes in this batch, at least one packet.
    Send {
        /// Wire bytes.
        bytes: u64,
    },
}

/// Everything the answer depends on.
#[derive(Clone, Copy, Debug)]
pub struct Budget<'a> {
    /// What the law allows.
    pub allowance: Allowance,
    /// What has left recently.
    pub pacer: &'a Pacer,
    /// Wire bytes in flight.
    pub in_flight: u64,
    /// Wire bytes that may be, as far as the peer is concerned.
    pub granted: u64,
    /// Something waits to be sent.
    pub has_data: bool,
    /// Packets that may leave regardless of window and pacing (probes after a timeout).
    pub probes: u32,
}

impl Budget<'_> {
    /// May anything leave at `now`?
    pub fn permit(&self, now: Instant) -> Permit {
        if !self.has_data {
            return Permit::Hold(Why::Application);
        }
        let window = self.allowance.window.bytes();
        if self.in_flight >= window && self.probes == 0 {
            return Permit::Hold(Why::Window);
        }
        if self.in_flight >= self.granted && self.probes == 0 {
            return Permit::Hold(Why::Peer);
        }
        let room = window.min(self.granted).saturating_sub(self.in_flight);
        match self
            .pacer
            .grant(now, self.allowance.rate, self.allowance.quantum.bytes())
        {
            // A law may pace a packet a minute; the engine stays alive regardless.
            None if self.probes > 0 => Permit::Send { bytes: 1 },
            None => Permit::Hold(Why::Pacing),
            Some(paced) => Permit::Send {
                bytes: paced.min(room),
            },
        }
    }
}
