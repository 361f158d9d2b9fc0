//! Turns the estimate into each phase's rate, window, and lengths of trains.

use std::time::Duration;

use farhaul_core::{
    congestion::Allowance,
    time::Instant,
    units::{Rate, Size},
};

use super::{Haul, Phase};

/// Bytes in flight while looking, as a share of what the path holds without a queue.
const LOOK_SHARE: f64 = 0.9;
/// Time within which due packets leave together: the least, and the time where queues are long.
const QUANTUM: (Duration, Duration) = (Duration::from_micros(60), Duration::from_micros(500));
/// Quanta that a late sender may catch up.
const QUANTA_LATE: u32 = 8;
/// Packets that find room even in a short queue.
pub(super) const QUEUED: u64 = 10;
/// A packet that takes longer leaves alone.
const LONG: Duration = Duration::from_millis(4);

impl Haul {
    /// Rate to send at for the receiver to get the estimate.
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

    /// Queue that shows a full link if it is longer: an eighth of the propagation delay, between 4
    /// and 10 ms. The target is no more than half of the longest queue seen lately, for the link
    /// may have room for no longer one. The queue of two packets is none, which on slow links is
    /// longer.
    pub(super) fn full_target(&self) -> Duration {
        let ms = Duration::from_millis;
        let target = (self.empty_rtt() / 8)
            .clamp(ms(4), ms(10))
            .min((self.peak / 2).max(ms(2)));
        self.behaviour.target(target).max(self.time_of(2))
    }

    /// A standing queue longer than this is congestion: on slow links ten packets are none.
    pub(super) fn queue_target(&self) -> Duration {
        self.full_target().max(self.time_of(QUEUED))
    }

    /// Time of `packets` packets at the estimate.
    pub(super) fn time_of(&self, packets: u64) -> Duration {
        self.base()
            .time_for(packets * u64::from(self.path.datagram))
    }

    /// Duration of a burst or probe at the present rate.
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

    /// Queue that bytes in flight beyond the path's own capacity make, or are about to.
    pub(super) fn own_queue(&self) -> Duration {
        let held = self.base().time_for(self.path.in_flight.bytes());
        held.saturating_sub(self.path.min_rtt + self.path.feedback_interval)
    }

    /// Time at which the outcome of packets sent until `at` is known.
    pub(super) fn outcome(&self, at: Instant) -> Instant {
        at + self.path.srtt + self.slack()
    }

    /// Time after a round trip until an outcome is known.
    pub(super) fn slack(&self) -> Duration {
        let stretch = if self.starting() {
            self.start.stretch()
        } else {
            self.probe.stretch()
        };
        self.path.feedback_interval * (3 * stretch) + Duration::from_millis(2)
    }

    /// Time whose bytes may be in flight: worked out when the path changes.
    fn reach(&mut self) -> Duration {
        let path = (self.path.min_rtt, self.path.feedback_interval);
        if self.reach.0 != path {
            let slack = path.1 * 2 + Duration::from_millis(4);
            self.reach = (path, path.0.mul_f64(1.25) + slack);
        }
        self.reach.1
    }

    /// Time within which due packets leave together: `usual`, or for a short train much less than
    /// all of it.
    fn quantum(&self, usual: Duration) -> Duration {
        match self.phase {
            Phase::Burst => usual.min(self.train() / 10),
            Phase::Probe => usual.min(self.train() / 40),
            _ => usual,
        }
    }

    /// Two packets, but on slow links one: their queue may hold no more.
    fn least_quantum(&self, rate: Rate) -> u64 {
        let datagram = u64::from(self.path.datagram);
        if rate.time_for(datagram) > LONG {
            datagram
        } else {
            2 * datagram
        }
    }

    /// Sets the allowance for the phase that the law is in.
    pub(super) fn allow(&mut self) {
        // What is as long as a probe that overflows a queue does so, too.
        let least = self.time_of(QUEUED).clamp(QUANTUM.0, QUANTUM.1);
        let usual = self.probe.shortened(QUANTUM.1).max(least);
        self.max_lag = usual * QUANTA_LATE;
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
        let floor = self.least_quantum(rate);
        let quantum = rate.bytes_in(self.quantum(usual)).clamp(floor, 1 << 20);
        self.allowance = Allowance {
            window: Size::from_bytes(window),
            rate,
            quantum: Size::from_bytes(quantum),
        };
    }
}

#[cfg(test)]
mod tests {
    use farhaul_core::congestion::{CongestionController, Sharing};

    use super::{super::BETWEEN_PROBES, *};

    /// A flow with this estimate on a path of 80 ms, on which the queue was `peak` at most.
    fn cruising(sharing: Sharing, estimate: Rate, peak: Duration) -> Haul {
        let mut law = Haul {
            phase: Phase::Cruise,
            bandwidth: estimate,
            peak,
            ..Haul::new(sharing)
        };
        law.path.min_rtt = Duration::from_millis(80);
        law.path.datagram = 1_250;
        law
    }

    #[test]
    fn a_queue_of_two_packets_fills_no_link() {
        let ms = Duration::from_millis;
        for (kbit, fair, low) in [
            (64, 312_500, 312_500),
            (1_000, 20_000, 20_000),
            (2_500, 10_000, 8_000),
            (10_000, 10_000, 5_000),
            (1_000_000, 10_000, 5_000),
        ] {
            let estimate = Rate::from_bps(kbit * 1_000);
            for (sharing, us) in [(Sharing::Fair, fair), (Sharing::Low, low)] {
                let law = cruising(sharing, estimate, ms(100));
                let expected = Duration::from_micros(us);
                assert_eq!(law.full_target(), expected, "{kbit} kbit/s, {sharing:?}");
                assert!(law.queue_target() >= law.full_target());
            }
        }
        // However short the queues seen are.
        let law = cruising(Sharing::Fair, Rate::mbit(1), Duration::ZERO);
        assert_eq!(law.full_target(), ms(20));
        let law = cruising(Sharing::Fair, Rate::gbit(1), Duration::ZERO);
        assert_eq!(law.full_target(), ms(2));
    }

    #[test]
    fn what_leaves_together_follows_the_queue() {
        let us = Duration::from_micros;
        for (mbit, halvings, quantum, lag) in [
            (1_000, 0, us(500), us(4_000)),
            (1_000, 1, us(250), us(2_000)),
            (1_000, 4, us(100), us(800)),
            (10_000, 4, us(60), us(480)),
            (10, 4, us(500), us(4_000)),
        ] {
            let mut law = cruising(Sharing::Fair, Rate::mbit(mbit), Duration::ZERO);
            law.probe.set_halvings(halvings);
            law.allow();
            let least = 2 * 1_250;
            let bytes = law.bandwidth.bytes_in(quantum).max(least);
            assert_eq!(law.allowance.quantum.bytes(), bytes, "{mbit}, {halvings}");
            assert_eq!(law.max_lag, lag, "{mbit}, {halvings}");
        }
    }

    #[test]
    fn alone_on_the_link_reports_are_frequent_on_probes_only() {
        let ms = Duration::from_millis;
        let between = Some(BETWEEN_PROBES);
        let mut law = cruising(Sharing::Fair, Rate::gbit(1), ms(1));
        for (halvings, often) in [(0, ms(4)), (4, ms(4) / 16)] {
            law.probe.set_halvings(halvings);
            law.phase = Phase::Probe;
            assert_eq!(law.feedback_request().longest, between);
            assert_eq!(law.feedback_request().shortest, BETWEEN_PROBES);
            assert_eq!(law.feedback_request().train, Some(often));
            law.phase = Phase::Rest;
            assert_eq!(law.feedback_request().longest, between);
            assert_eq!(law.feedback_request().train, None);
        }
        // All are, where no queue was seen, and beside others.
        let often = Some(ms(4) / 16);
        law.peak = law.time_of(QUEUED);
        assert_eq!(law.feedback_request().longest, often);
        law.peak = ms(1);
        law.probe.share = 0.5;
        assert_eq!(law.feedback_request().longest, often);
        law.probe.share = 1.0;
        law.shared_probes = 1;
        assert_eq!(law.feedback_request().longest, often);
        law.probe(Instant::EPOCH);
        assert_eq!(law.feedback_request().longest, between);
        law.path.min_rtt = ms(20);
        assert_eq!(law.feedback_request().shortest, ms(5));
        law.vain_drains = 1;
        assert_eq!(law.feedback_request().shortest, Duration::ZERO);
        law.vain_drains = 0;
        for phase in [Phase::Burst, Phase::Confirm, Phase::Compete, Phase::Look] {
            law.phase = phase;
            assert_eq!(law.feedback_request().train, None);
            assert_eq!(law.feedback_request().shortest, Duration::ZERO);
            assert!(law.feedback_request().longest < between);
        }
    }

    #[test]
    fn packets_of_slow_links_leave_alone() {
        for (kbit, packets) in [(64, 1), (2_000, 1), (3_000, 2), (10_000, 2)] {
            let estimate = Rate::from_bps(kbit * 1_000);
            let mut law = cruising(Sharing::Fair, estimate, Duration::ZERO);
            law.allow();
            assert_eq!(law.allowance.quantum.bytes(), 1_250 * packets, "{kbit}");
        }
    }
}
