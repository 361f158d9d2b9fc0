//! CUBIC, which grows along a cubic of the time since the last loss, flat where that loss happened
//! (RFC 9438). It is never slower than a Reno flow of the same average.
//!
//! Units inside: packets and seconds, as in the RFC.

use farhaul_core::{
    congestion::{AckEvent, CongestionController},
    time::Instant,
};

use crate::{
    law::{COUNTING, Law, START, with_start},
    parameters::{Kind, Parameter, Values},
    window::{Cause, Cut, Growth, Window, larger, smaller},
};

pub(crate) const LAW: Law = Law {
    name: "cubic",
    summary: "a cubic of the time since the last loss",
    citation: "RFC 9438",
    parameters: &[
        Parameter {
            name: "beta",
            about: "factor applied to the window on a loss",
            kind: Kind::Number(0.1, 0.99),
            default: "0.7",
        },
        Parameter {
            name: "c",
            about: "steepness, packets/s^3",
            kind: Kind::Number(0.001, 1_000.0),
            default: "0.4",
        },
        Parameter {
            name: "fast_convergence",
            about: "fast convergence: yield when a loss occurs earlier than the last time",
            kind: Kind::Flag,
            default: "on",
        },
        START,
        COUNTING,
    ],
    paced: false,
    receiver: None,
    make: |values: &Values| -> Box<dyn CongestionController> {
        let law = Cubic::new(values.number("beta"), values.number("c"))
            .fast_convergence(values.flag("fast_convergence"));
        with_start(values, law)
    },
};

/// CUBIC's congestion avoidance.
#[derive(Clone, Copy, Debug)]
pub struct Cubic {
    beta: f64,
    c: f64,
    /// Growth per round of the Reno flow of the same average.
    alpha: f64,
    fast_convergence: bool,
    /// Window before the last cut, lowered by fast convergence.
    w_max: f64,
    /// Window before the last cut.
    prior: f64,
    epoch: Option<Epoch>,
}

/// Congestion avoidance since the last cut.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    /// Start of the epoch, moved on while the window is not in use.
    start: Instant,
    seen: Instant,
    k: f64,
    /// The window a Reno flow of the same average would have.
    w_est: f64,
}

impl Default for Cubic {
    fn default() -> Self {
        Self::new(0.7, 0.4)
    }
}

impl Cubic {
    /// CUBIC that keeps `beta` on a loss and grows with steepness `c`.
    pub const fn new(beta: f64, c: f64) -> Self {
        Self {
            beta,
            c,
            alpha: 3.0 * (1.0 - beta) / (1.0 + beta),
            fast_convergence: true,
            w_max: 0.0,
            prior: 0.0,
            epoch: None,
        }
    }

    /// Sets whether there is fast convergence.
    #[must_use]
    pub const fn fast_convergence(mut self, on: bool) -> Self {
        self.fast_convergence = on;
        self
    }

    /// Seconds from a cut at `w_max` packets to the plateau, when `w` packets are left.
    pub fn k(&self, w_max: f64, w: f64) -> f64 {
        ((w_max - w) / self.c).max(0.0).cbrt()
    }

    /// Seconds from a cut at `w` packets to the plateau.
    pub fn k_after_cut(&self, w: f64) -> f64 {
        self.k(w, w * self.beta)
    }

    fn begin(&mut self, now: Instant, w: f64) -> Epoch {
        let k = self.k(self.w_max, w);
        self.w_max = self.w_max.max(w);
        Epoch {
            start: now,
            seen: now,
            k,
            w_est: w,
        }
    }
}

impl Growth for Cubic {
    fn name(&self) -> &'static str {
        LAW.name
    }

    fn grow(&mut self, window: &Window, ack: &AckEvent) -> f64 {
        let w = window.packets();
        let n = window.count(ack.acked);
        let mut epoch = match self.epoch {
            Some(epoch) => epoch,
            None => self.begin(ack.now, w),
        };
        epoch.seen = ack.now;
        let curve = |t: f64| self.c * (t - epoch.k).powi(3) + self.w_max;
        let t = ack.now.since(epoch.start).as_secs_f64();
        let ahead = curve(t + ack.path.srtt.as_secs_f64());
        let target = smaller(larger(ahead, w), 1.5 * w);
        // dw/dn = (target - w) / w over n packets, by the midpoint.
        let half = smaller(w + (target - w) / w * n / 2.0, target);
        let mut next = smaller(w + (target - half) / half * n, target);
        let alpha = if epoch.w_est >= self.prior {
            1.0
        } else {
            self.alpha
        };
        epoch.w_est += alpha * n / w;
        if curve(t) < epoch.w_est {
            next = larger(next, epoch.w_est);
        }
        self.epoch = Some(epoch);
        (next - w) * window.datagram()
    }

    fn keep(&mut self, window: &Window, cut: &Cut) -> f64 {
        let w = window.packets();
        self.prior = w;
        self.w_max = if cut.cause == Cause::Timeout {
            0.0
        } else if self.fast_convergence && w < self.w_max {
            w * f64::midpoint(1.0, self.beta)
        } else {
            w
        };
        self.epoch = None;
        self.beta
    }

    fn on_slow_start_exit(&mut self, window: &Window) {
        self.prior = window.packets();
    }

    fn on_unused(&mut self, now: Instant) {
        if let Some(epoch) = &mut self.epoch {
            epoch.start += now.since(epoch.seen);
            epoch.seen = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plateau_is_at_the_time_of_the_rfc() {
        for (beta, w_max, expected) in [
            (0.7, 10_000.0, 19.57),
            (0.8, 10_000.0, 17.10),
            (0.7, 140_000.0, 47.2),
            (0.8, 140_000.0, 41.2),
        ] {
            let k = Cubic::new(beta, 0.4).k(w_max, beta * w_max);
            assert!((k - expected).abs() < 0.05, "{k} {expected}");
        }
    }
}
