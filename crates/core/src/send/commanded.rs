//! Paces a sender whose rate the peer sets. The next packet leaves a gap after the one before,
//! whatever the rate was then. A sender that was kept from sending catches up a few milliseconds. A
//! gap is counted from when a packet was due and not from when it left. So the gap covers the cost
//! of sending, which need not be measured.

use super::{Pacer, Permit, QUANTUM};
use crate::{stats::Why, time::Instant, units::Rate};

/// A pacer whose rate the peer sets.
#[derive(Clone, Debug)]
pub struct Commanded {
    rate: Rate,
    most: Rate,
    pacer: Pacer,
}

impl Commanded {
    /// Limited to `most`; sends nothing until a rate is [set](Self::set).
    pub const fn new(most: Rate) -> Self {
        Self {
            rate: Rate::ZERO,
            most,
            pacer: Pacer::new(),
        }
    }

    /// Sets the rate, capped at [`Self::most`].
    pub fn set(&mut self, rate: Rate) {
        self.rate = rate.min(self.most);
    }

    /// The rate.
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// Maximum rate.
    pub const fn most(&self) -> Rate {
        self.most
    }

    fn quantum(&self) -> u64 {
        self.rate.bytes_in(QUANTUM).max(1)
    }

    /// Permit to send packets at `now`.
    pub fn permit(&self, now: Instant) -> Permit {
        if self.rate == Rate::ZERO {
            return Permit::Hold(Why::Peer);
        }
        match self.pacer.grant(now, self.rate, self.quantum()) {
            Some(bytes) => Permit::Send { bytes },
            None => Permit::Hold(Why::Pacing),
        }
    }

    /// Charges `bytes` sent, as the rate counts them.
    pub fn charge(&mut self, now: Instant, bytes: u64) {
        self.pacer.charge(now, bytes, self.rate, Pacer::MAX_LAG);
    }

    /// Time at which more may be sent.
    pub fn wake(&self) -> Option<Instant> {
        let wake = self.pacer.wake(self.rate, self.quantum());
        wake.filter(|_| self.rate > Rate::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_rate_is_what_was_said_last_and_exact() {
        let mut commanded = Commanded::new(Rate::mbit(500));
        let mut now = Instant::from_nanos(7);
        assert_eq!(commanded.permit(now), Permit::Hold(Why::Peer));
        assert_eq!(commanded.wake(), None);
        for (said, mbit) in [(80, 80), (3, 3), (900, 500)] {
            commanded.set(Rate::mbit(said));
            let (began, mut sent) = (now, 0);
            while now.since(began) < Duration::from_secs(1) {
                while matches!(commanded.permit(now), Permit::Send { .. }) {
                    commanded.charge(now, 1_000);
                    sent += 1_000_u64;
                }
                // It takes a while to get to it.
                now = commanded.wake().unwrap() + Duration::from_micros(50);
            }
            let wanted = mbit * 125_000;
            assert!(sent.abs_diff(wanted) <= wanted / 100, "{sent} of {wanted}");
        }
    }
}
