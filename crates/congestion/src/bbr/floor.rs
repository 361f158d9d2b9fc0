//! Finds the rtt without a queue: the least of the last ten seconds. After every five seconds
//! without a new least, it keeps half the bandwidth-delay product in flight for 200 ms, so that all
//! flows' queues empty.
//!
//! Source: draft-ietf-ccwg-bbr §5.3.4.

use std::time::Duration;

use farhaul_core::{time::Instant, units::Size};

use super::{Bbr, LEAST, Phase, model::Sample};

/// Time for which a minimum rtt is valid.
const MIN_RTT_WINDOW: Duration = Duration::from_secs(10);
/// Time until the next probe.
const EVERY: Duration = Duration::from_secs(5);
/// Duration of a probe once little is in flight; and a round.
const LASTS: Duration = Duration::from_millis(200);
/// Bytes in flight during a probe, over the bandwidth-delay product.
const GAIN: f64 = 0.5;

/// The rtt's floor.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Floor {
    min_rtt: Option<(Duration, Instant)>,
    /// The minimum rtt, s.
    seconds: Option<f64>,
    /// The least since the last probe.
    probed: Option<(Duration, Instant)>,
    done_at: Option<Instant>,
    round_done: bool,
    /// Delivered bytes; packets sent before were held back by a probe of the rtt.
    slowed_until: Option<Size>,
}

impl Floor {
    /// Seconds.
    pub(super) const fn min_rtt(&self) -> Option<f64> {
        self.seconds
    }

    /// True if a packet sent at this count of delivered bytes is no sign of a lower bandwidth.
    pub(super) fn slowed(&self, delivered: Option<Size>) -> bool {
        match (self.slowed_until, delivered) {
            (Some(until), Some(delivered)) => delivered < until,
            _ => false,
        }
    }

    /// Takes an rtt; true if it is time for a probe.
    fn update(&mut self, now: Instant, rtt: Option<Duration>) -> bool {
        let old = |since: Option<(Duration, Instant)>, window| {
            since.is_none_or(|(_, at)| now > at + window)
        };
        let expired = self.probed.is_some() && old(self.probed, EVERY);
        if let Some(rtt) = rtt
            && (expired || self.probed.is_none_or(|(least, _)| rtt < least))
        {
            self.probed = Some((rtt, now));
        }
        if let Some((least, _)) = self.probed
            && (old(self.min_rtt, MIN_RTT_WINDOW)
                || self.min_rtt.is_some_and(|(min, _)| least < min))
        {
            self.min_rtt = self.probed;
            self.seconds = Some(least.as_secs_f64().max(1e-6));
        }
        expired
    }
}

impl Bbr {
    /// Bytes allowed in flight while the rtt is probed.
    pub(super) fn probe_rtt_window(&self) -> f64 {
        let network = GAIN * self.bdp(self.model.bandwidth());
        (network + self.waiting()).max(LEAST * self.datagram())
    }

    /// One step of probing the rtt.
    pub(super) fn run_floor(&mut self, sample: &Sample) {
        let expired = self.floor.update(sample.now, sample.rtt);
        if self.phase != Phase::ProbeRtt && expired && !self.idle_restart {
            self.phase = Phase::ProbeRtt;
            self.prior_window = self.window;
            self.floor.done_at = None;
            self.cycle.stop();
            self.model.start_round();
        }
        if self.phase != Phase::ProbeRtt {
            return;
        }
        self.floor.slowed_until = Some(sample.delivered + self.path.in_flight);
        if self.floor.done_at.is_none() {
            if sample.in_flight <= self.probe_rtt_window() {
                self.floor.done_at = Some(sample.now + LASTS);
                self.floor.round_done = false;
                self.model.start_round();
            }
            return;
        }
        self.floor.round_done |= self.model.round_start;
        if self.floor.round_done {
            self.end_probe_rtt(sample.now);
        }
    }

    /// Leaves if the time is over.
    pub(super) fn end_probe_rtt(&mut self, now: Instant) {
        if self.floor.done_at.is_none_or(|at| now <= at) {
            return;
        }
        if let Some((_, at)) = &mut self.floor.probed {
            *at = now;
        }
        self.window = self.window.max(self.prior_window);
        self.prior_window = 0.0;
        self.model.reset_short_term();
        if self.model.full.reached {
            self.start_down(now);
            self.start_cruise();
        } else {
            self.phase = Phase::Startup;
        }
    }
}
