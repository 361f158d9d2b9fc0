//! Governs how much may be sent, and when: the congestion law behind its guard, the pacer, and the
//! user's maximum rate.

use std::{
    ops::{Deref, DerefMut},
    time::Duration,
};

use super::{Pacer, Permit};
use crate::{
    congestion::{Allowance, CongestionController, Guard, Sharing},
    stats::{Stats, Why},
    time::Instant,
    units::Rate,
};

/// A congestion law with its pacer and rate limits.
pub struct Governor {
    guard: Guard,
    pacer: Pacer,
    max_rate: Rate,
    /// Rate limit as it was configured, which is never exceeded.
    configured: Rate,
    /// True if the law's rate is kept to.
    paced: bool,
    /// Most that the peer takes.
    taken: Rate,
}

impl Governor {
    /// Governed by `law`, never faster than `max_rate`.
    pub fn new(law: Box<dyn CongestionController>, max_rate: Rate) -> Self {
        Self {
            guard: Guard::new(law),
            pacer: Pacer::new(),
            max_rate,
            configured: max_rate,
            paced: true,
            taken: Rate::UNLIMITED,
        }
    }

    /// Sets whether the law's rate is paced too, beside the limits of user and peer.
    #[must_use]
    pub const fn with_pacing(mut self, paced: bool) -> Self {
        self.paced = paced;
        self
    }

    /// Rate limit that the governor was made with.
    pub const fn configured(&self) -> Rate {
        self.configured
    }

    /// Sets the rate limit to `max_rate`, but no higher than it was configured, and sets the share of contended links to claim.
    /// False, and nothing is changed, if the law does not support it.
    pub fn govern(&mut self, max_rate: Rate, sharing: Sharing) -> bool {
        let can = self.guard.set_sharing(sharing);
        if can {
            self.max_rate = self.configured.min(max_rate);
        }
        can
    }

    /// Replaces the law by another; the limits of user and peer stay.
    pub fn replace_law(&mut self, law: Box<dyn CongestionController>) {
        self.guard = Guard::new(law);
    }

    /// True if the user's limit, not the path, is what the law would be held to.
    pub fn is_held_by_user(&self) -> bool {
        self.max_rate < self.guard.allowance().rate.scale(1.25)
    }

    /// Makes the flow one of several that have one share together; false if the law does not
    /// support it.
    pub fn split(&mut self, lanes: u32) -> bool {
        self.guard.set_lanes(lanes)
    }

    /// Sets the rate limit of the peer.
    pub const fn set_taken(&mut self, rate: Rate) {
        self.taken = rate;
    }

    /// Window, rate and quantum allowed now.
    pub fn allowance(&self) -> Allowance {
        let mut allowance = self.guard.allowance();
        allowance.rate = allowance.rate.min(self.max_rate).min(self.taken);
        allowance
    }

    /// The rate to keep to, and how much may leave together.
    fn pacing(&self) -> (Rate, u64) {
        let allowance = self.allowance();
        let rate = if self.paced {
            allowance.rate
        } else {
            self.max_rate.min(self.taken)
        };
        (rate, allowance.quantum.bytes())
    }

    /// Permit of pacing alone at `now`.
    pub fn pace(&self, now: Instant) -> Permit {
        let (rate, quantum) = self.pacing();
        match self.pacer.grant(now, rate, quantum) {
            Some(bytes) => Permit::Send { bytes },
            None => Permit::Hold(Why::Pacing),
        }
    }

    /// Charges `bytes` sent.
    pub fn charge(&mut self, now: Instant, bytes: u64) {
        let (rate, _) = self.pacing();
        self.pacer.charge(now, bytes, rate, self.guard.max_lag());
    }

    /// Delays the next departure by `time`.
    pub fn delay(&mut self, now: Instant, time: Duration) {
        self.pacer.delay(now, time);
    }

    /// Time at which pacing permits the next batch.
    pub fn wake(&self) -> Option<Instant> {
        let (rate, quantum) = self.pacing();
        self.pacer.wake(rate, quantum)
    }

    /// Gives the law its tick, if it is due; true if it was.
    pub fn on_timer(&mut self, now: Instant) -> bool {
        let due = self.next_tick().is_some_and(|at| at <= now);
        if due {
            self.notify(now, |law| law.on_tick(now));
        }
        due
    }

    /// Adds what the law allows and shows.
    pub fn fill_stats(&self, stats: &mut Stats) {
        let allowance = self.allowance();
        stats.pacing_rate = allowance.rate;
        stats.window = allowance.window.bytes();
        let seen = self.law().observe();
        stats.ssthresh = seen.ssthresh;
        stats.phase = seen.phase;
        (stats.law_faults, stats.law_fault) = self.faults();
    }
}

impl Deref for Governor {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

impl DerefMut for Governor {
    fn deref_mut(&mut self) -> &mut Guard {
        &mut self.guard
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        congestion::{AckEvent, LossEvent},
        units::Size,
    };

    /// A byte each microsecond.
    struct Slow(Duration);

    impl CongestionController for Slow {
        fn name(&self) -> &'static str {
            "slow"
        }
        fn on_ack(&mut self, _: &AckEvent) {}
        fn on_loss(&mut self, _: &LossEvent) {}
        fn max_lag(&self) -> Duration {
            self.0
        }
        fn allowance(&self) -> Allowance {
            Allowance {
                window: Size::UNLIMITED,
                rate: Rate::mbit(8),
                quantum: Size::from_bytes(100),
            }
        }
    }

    #[test]
    fn a_late_sender_catches_up_as_far_as_the_law_permits() {
        let ms = Duration::from_millis;
        for (lag, bytes) in [(ms(0), 100), (ms(1), 1_100), (ms(9), 4_100)] {
            let mut governor = Governor::new(Box::new(Slow(lag)), Rate::UNLIMITED);
            governor.charge(Instant::EPOCH, 100);
            let permit = governor.pace(Instant::EPOCH + ms(20));
            assert!(
                matches!(permit, Permit::Send { bytes: may } if may == bytes),
                "{lag:?}: {permit:?}"
            );
        }
    }
}
