//! How much, how fast? What each phase makes of the estimate: rate, window, and the lengths of trains.

use std::time::Duration;

use farhaul_core::{
    congestion::Allowance,
    time::Instant,
    units::{Rate, Size},
};

use super::{Haul, Phase};

/// In flight while looking, as a share of what the path holds without a queue.
const LOOK_SHARE: f64 = 0.9;

impl Haul {
    /// What must be sent for the receiver to get the estimate.
    pub(super) fn base(&self) -> Rate {
        let estimate = if self.starting() {
            self.start.proven
        } else {
            self.bandwidth
        };
        estimate.scale(self.usual_loss.factor())
    }

    /// Pace over base.
    fn gain(&self) -> f64 {
        match self.phase {
            Phase::Burst => self.start.gain(),
            Phase::Probe => 1.0 + self.probe.gain,
            Phase::Rest | Phase::Drain => 1.0 - self.depth,
            Phase::Confirm => self.start.confirming_gain(),
            Phase::Cruise | Phase::Verify | Phase::Compete | Phase::Look => 1.0,
        }
    }

    /// The rtt without a queue.
    pub(super) fn empty_rtt(&self) -> Duration {
        let rival = self.rival.as_ref().filter(|_| self.competing());
        rival.map_or(self.path.min_rtt, |rival| rival.empty_rtt)
    }

    /// A queue longer than this shows a full link: an eighth of the propagation delay, between 4 and 10 ms, but no more
    /// than half of the longest queue seen lately, for the link may have room for no longer one.
    pub(super) fn full_target(&self) -> Duration {
        let ms = Duration::from_millis;
        let target = (self.empty_rtt() / 8)
            .clamp(ms(4), ms(10))
            .min((self.peak / 2).max(ms(2)));
        self.behaviour.target(target)
    }

    /// A standing queue longer than this is congestion: on slow links ten packets are none.
    pub(super) fn queue_target(&self) -> Duration {
        let packets = self.base().time_for(10 * u64::from(self.path.datagram));
        self.full_target().max(packets)
    }

    /// How long a burst or probe at the present rate lasts.
    pub(super) fn train(&self) -> Duration {
        self.train_over(self.base())
    }

    fn train_over(&self, base: Rate) -> Duration {
        let datagram = self.path.datagram;
        if self.starting() {
            self.start.length(base, datagram)
        } else {
            self.probe.length(base, datagram)
        }
    }

    /// The queue that what is in flight beyond the path's own capacity makes, or is about to.
    pub(super) fn own_queue(&self) -> Duration {
        let held = self.base().time_for(self.path.in_flight.bytes());
        held.saturating_sub(self.path.min_rtt + self.path.feedback_interval)
    }

    /// When the outcome of what is sent until `at` is known.
    pub(super) fn outcome(&self, at: Instant) -> Instant {
        at + self.path.srtt + self.slack()
    }

    /// How much later than after a round trip that is.
    pub(super) fn slack(&self) -> Duration {
        let stretch = if self.starting() {
            self.start.stretch()
        } else {
            self.probe.stretch()
        };
        self.path.feedback_interval * (3 * stretch) + Duration::from_millis(2)
    }

    /// What is sent in this time may be in flight: worked out when the path changes.
    fn reach(&mut self) -> Duration {
        let path = (self.path.min_rtt, self.path.feedback_interval);
        if self.reach.0 != path {
            let slack = path.1 * 2 + Duration::from_millis(4);
            self.reach = (path, path.0.mul_f64(1.25) + slack);
        }
        self.reach.1
    }

    /// What is due within this time leaves together: of a short train much less than all of it.
    fn quantum(&self) -> Duration {
        let usual = Duration::from_micros(500);
        if self.phase == Phase::Burst {
            usual.min(self.train() / 10)
        } else {
            usual
        }
    }

    /// What may be sent, for the phase the law is in.
    pub(super) fn allow(&mut self) {
        if let Some(rival) = self.rival.as_ref().filter(|_| self.phase == Phase::Compete) {
            self.allowance = rival.allowance();
            return;
        }
        let (base, gain) = (self.base(), self.gain());
        let rate = base.scale(gain);
        let extra = if gain > 1.0 {
            let train = self.train_over(base);
            rate.bytes_in(train).saturating_sub(base.bytes_in(train))
        } else {
            0
        };
        let window = if self.phase == Phase::Look {
            base.bytes_in(self.empty_rtt().mul_f64(LOOK_SHARE))
        } else {
            base.bytes_in(self.reach()).saturating_add(extra)
        }
        .saturating_add(16 * u64::from(self.path.datagram));
        let floor = 2 * u64::from(self.path.datagram);
        let quantum = rate.bytes_in(self.quantum()).clamp(floor, 1 << 20);
        self.allowance = Allowance {
            window: Size::from_bytes(window),
            rate,
            quantum: Size::from_bytes(quantum),
        };
    }
}
