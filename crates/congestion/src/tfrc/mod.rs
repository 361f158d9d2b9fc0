//! TFRC, which sends at the rate that a TCP of the same loss and rtt would have by the throughput
//! equation, smoothly. The loss event rate is a weighted mean over eight intervals between losses.
//!
//! Invariants: the rate is at least one datagram in 64 s (and 104 bit/s). Before the first loss it
//! doubles once per rtt at most, and is never above twice the arrival rate.
//!
//! Source: RFC 5348, §3.1, §4.2 to §4.5. Other than there: the loss event rate is computed at the
//! sender from its losses (as §8.2's sender-based variant), and the arrival rate is the delivery
//! rate of the last rtt. Feedback may be received several times per rtt. The window is what the
//! rate sends until the no-feedback timer would fire.

mod intervals;
#[cfg(test)]
mod tests;

use std::time::Duration;

use farhaul_core::{
    congestion::{AckEvent, Allowance, CcState, CongestionController, LossEvent, PathView},
    time::Instant,
    units::Rate,
};

use crate::{
    law::Law,
    parameters::Values,
    window::{MAX_WINDOW, Window, float, size},
};
use intervals::Intervals;

pub(crate) const LAW: Law = Law {
    name: "tfrc",
    summary: "the rate a TCP would have by the throughput equation, without its saw-tooth",
    citation: "RFC 5348",
    parameters: &[],
    paced: true,
    receiver: None,
    make: |_: &Values| -> Box<dyn CongestionController> { Box::new(Tfrc::new()) },
};

/// Seconds for a datagram at the least rate.
const SLOWEST: f64 = 64.0;
/// Bytes per second that the engine takes for a rate.
const LEAST: f64 = 13.0;
/// The rate over what arrives, at most.
const OVER_ARRIVAL: f64 = 2.0;
/// Weight of the past in the rtt's mean.
const PAST: f64 = 0.9;
/// The most bytes sent back to back.
const MAX_QUANTUM: f64 = 65_536.0;
/// The least rtt, s.
const MIN_RTT: f64 = 1e-6;

/// Rate of a TCP, bytes/s, with datagrams of `size` bytes, `rtt` seconds, `p` losses per packet (0
/// < p <= 1). Source: RFC 5348 §3.1 with b = 1 and a timeout of four rtts.
pub(crate) fn throughput(size: f64, rtt: f64, p: f64) -> f64 {
    let timeout = 4.0 * rtt;
    let fast = rtt * (2.0 * p / 3.0).sqrt();
    let slow = timeout * 3.0 * (3.0 * p / 8.0).sqrt() * p * (1.0 + 32.0 * p * p);
    size / (fast + slow)
}

/// The loss event rate at which [`throughput`] is `rate`, by bisection of its logarithm.
fn loss_for(size: f64, rtt: f64, rate: f64) -> f64 {
    let (mut low, mut high) = (-30.0_f64, 0.0_f64);
    for _ in 0..50 {
        let middle = f64::midpoint(low, high);
        if throughput(size, rtt, middle.exp()) > rate {
            low = middle;
        } else {
            high = middle;
        }
    }
    high.exp()
}

/// TCP-friendly rate control.
#[derive(Clone, Debug)]
pub struct Tfrc {
    /// Bytes per second.
    rate: f64,
    /// Mean rtt, s; an estimate until the first sample.
    rtt: f64,
    sampled: bool,
    intervals: Intervals,
    /// Largest arrival rate in this rtt and in the last, bytes/s.
    arrived: [f64; 2],
    rtt_began: Option<Instant>,
    /// Time at which the rate was last doubled.
    doubled_at: Option<Instant>,
    datagram: f64,
    interval: f64,
}

impl Default for Tfrc {
    fn default() -> Self {
        Self::new()
    }
}

impl Tfrc {
    /// A sender that knows nothing.
    pub fn new() -> Self {
        Self {
            rate: 14_600.0,
            rtt: 0.1,
            sampled: false,
            intervals: Intervals::default(),
            arrived: [0.0; 2],
            rtt_began: None,
            doubled_at: None,
            datagram: 1_200.0,
            interval: 0.0,
        }
    }

    fn learn(&mut self, path: &PathView) {
        self.datagram = f64::from(path.datagram.max(1));
        self.interval = path.feedback_interval.as_secs_f64();
    }

    fn slowest(&self) -> f64 {
        (self.datagram / SLOWEST).max(LEAST)
    }

    fn initial(&self) -> f64 {
        Window::initial(size(self.datagram).bytes().try_into().unwrap_or(u32::MAX)).bytes()
            / self.rtt
    }

    /// The most that may be sent for what arrives, bytes/s.
    fn limit(&self) -> f64 {
        OVER_ARRIVAL * self.arrived[0].max(self.arrived[1])
    }

    fn learn_rtt(&mut self, sample: Duration) {
        let sample = sample.as_secs_f64().max(MIN_RTT);
        self.rtt = if self.sampled {
            PAST * self.rtt + (1.0 - PAST) * sample
        } else {
            sample
        };
        self.sampled = true;
    }

    fn learn_arrival(&mut self, ack: &AckEvent) {
        let Some(sample) = ack.rate else {
            return;
        };
        let rate = (sample.rate.as_f64() / 8.0).min(MAX_WINDOW);
        let began = *self.rtt_began.get_or_insert(ack.now);
        if ack.now.since(began).as_secs_f64() >= self.rtt {
            self.rtt_began = Some(ack.now);
            // While the sender has less than it may send, what arrived before still counts.
            let kept = if sample.app_limited {
                self.arrived[0].max(self.arrived[1])
            } else {
                self.arrived[1]
            };
            self.arrived = [kept, rate];
        } else {
            self.arrived[1] = self.arrived[1].max(rate);
        }
    }

    fn set_rate(&mut self, rate: f64) {
        self.rate = rate.clamp(self.slowest(), MAX_WINDOW);
    }

    fn update(&mut self, now: Instant) {
        let limit = self.limit();
        if let Some(p) = self.intervals.rate() {
            let fair = throughput(self.datagram, self.rtt, p);
            let most = if limit > 0.0 { limit } else { fair };
            self.set_rate(fair.min(most));
        } else if limit > 0.0
            && self
                .doubled_at
                .is_none_or(|at| now.since(at).as_secs_f64() >= self.rtt)
        {
            self.doubled_at = Some(now);
            self.set_rate((2.0 * self.rate).min(limit).max(self.initial()));
        }
    }
}

impl CongestionController for Tfrc {
    fn name(&self) -> &'static str {
        LAW.name
    }

    fn on_start(&mut self, _now: Instant, path: &PathView) {
        *self = Self::new();
        self.learn(path);
        self.rtt = path.srtt.as_secs_f64().max(MIN_RTT);
        let initial = self.initial();
        self.set_rate(initial);
    }

    fn on_ack(&mut self, ack: &AckEvent) {
        self.learn(&ack.path);
        if let Some(sample) = ack.rtt {
            self.learn_rtt(sample);
        }
        self.learn_arrival(ack);
        self.intervals.passed(float(u64::from(ack.packets)));
        self.update(ack.now);
    }

    fn on_loss(&mut self, loss: &LossEvent) {
        self.learn(&loss.path);
        if !self.intervals.begun() {
            // As if the loss interval were such that the equation gives half of what arrived.
            let arrived = self.limit() / OVER_ARRIVAL;
            let arrived = if arrived > 0.0 { arrived } else { self.rate };
            let p = loss_for(self.datagram, self.rtt, arrived / 2.0);
            self.intervals.begin(1.0 / p);
        }
        let rtt = Duration::from_secs_f64(self.rtt);
        let ends = [
            (loss.span.0, loss.oldest.sent_at),
            (loss.span.1, loss.newest.sent_at),
        ];
        for (number, sent_at) in ends {
            self.intervals.lost(number, sent_at, rtt);
        }
        self.intervals.passed(float(u64::from(loss.packets)));
        self.update(loss.now);
    }

    fn on_timeout(&mut self, _now: Instant, _backoff: u32) {
        // What arrives counts for half from now on, so that the rate stays halved until feedback.
        self.set_rate(self.rate / 2.0);
        self.arrived = [0.0, self.rate / OVER_ARRIVAL];
    }

    fn sample_window(&self) -> Option<Duration> {
        let rtt = Duration::from_secs_f64(self.rtt);
        Some(rtt.clamp(Duration::from_millis(25), Duration::from_secs(1)))
    }

    fn allowance(&self) -> Allowance {
        let least = 2.0 * self.datagram;
        let timeout = (4.0 * self.rtt + self.interval).max(2.0 * self.datagram / self.rate);
        Allowance {
            window: size((self.rate * timeout).clamp(2.0 * least, MAX_WINDOW)),
            rate: Rate::from_f64(self.rate * 8.0),
            quantum: size((self.rate * 1e-3).min(MAX_QUANTUM).max(least)),
        }
    }

    fn observe(&self) -> CcState {
        CcState {
            phase: if self.intervals.begun() {
                "equation"
            } else {
                "slow start"
            },
            ssthresh: None,
            bandwidth: None,
        }
    }
}
