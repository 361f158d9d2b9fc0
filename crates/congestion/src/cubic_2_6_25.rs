//! CUBIC of Linux 2.6.25, the kernel of the sender in Iwanaga et al.'s measurements. Version 2.1
//! has beta 819/1024 and at most 16 datagrams per 100 ms beyond the plateau. Before the first loss
//! it has 2 % a round, and no `HyStart`.
//!
//! From a copy of version 2.1's growth function and the kernel's log; which release carried it is
//! inferred from dates. Left out: integer rounding, which makes steps near the plateau one datagram or
//! a hundredth, and the recomputation at most 32 times a second. For the ratio of packets to
//! acknowledgements see `counting=acks`.

use farhaul_core::{
    congestion::{AckEvent, CongestionController},
    time::Instant,
};

use crate::{
    law::{COUNTING, Law, START, with_start},
    parameters::{Kind, Parameter, Values},
    rounds::Base,
    window::{Cause, Cut, Growth, Window},
};

pub(crate) const LAW: Law = Law {
    name: "cubic-2.6.25",
    summary: "CUBIC as Linux had it in 2008, for old measurements",
    citation: "Linux tcp_cubic 2.1; Ha, Rhee, Xu, SIGOPS 42(5), 2008",
    parameters: &[
        Parameter {
            name: "beta",
            about: "factor applied to the window on a loss",
            kind: Kind::Number(0.1, 0.99),
            default: "0.7998",
        },
        Parameter {
            name: "c",
            about: "steepness, packets/s^3",
            kind: Kind::Number(0.001, 1_000.0),
            default: "0.4",
        },
        Parameter {
            name: "max_increment",
            about: "most datagrams added per 100 ms beyond the plateau",
            kind: Kind::Number(1.0, 1e6),
            default: "16",
        },
        Parameter {
            name: "fast_convergence",
            about: "fast convergence: yield when a loss occurs earlier than the last time",
            kind: Kind::Flag,
            default: "on",
        },
        Parameter {
            default: "classic",
            ..START
        },
        COUNTING,
    ],
    paced: false,
    receiver: None,
    make: |values: &Values| -> Box<dyn CongestionController> {
        let beta = values.number("beta");
        with_start(
            values,
            OldCubic {
                beta,
                alpha: 3.0 * (1.0 - beta) / (1.0 + beta),
                c: values.number("c"),
                max_increment: values.number("max_increment"),
                fast_convergence: values.flag("fast_convergence"),
                w_max: None,
                epoch: None,
                base: Base::default(),
            },
        )
    },
};

/// Datagrams a round adds when the window is at or above the curve.
const CREEP: f64 = 0.01;
/// Share of the window added per round before the first loss.
const UNKNOWN: f64 = 0.02;

/// Congestion avoidance of CUBIC 2.1.
#[derive(Clone, Copy, Debug)]
pub struct OldCubic {
    beta: f64,
    /// Growth per round of the Reno flow of the same average.
    alpha: f64,
    c: f64,
    max_increment: f64,
    fast_convergence: bool,
    /// Window before the last cut, in datagrams, lowered by fast convergence.
    w_max: Option<f64>,
    epoch: Option<Epoch>,
    base: Base,
}

/// Congestion avoidance since the last cut.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    start: Instant,
    seen: Instant,
    k: f64,
    plateau: f64,
    /// The window a Reno flow of the same average would have.
    w_est: f64,
}

impl OldCubic {
    fn begin(&self, now: Instant, w: f64) -> Epoch {
        let plateau = self.w_max.unwrap_or(0.0).max(w);
        Epoch {
            start: now,
            seen: now,
            k: ((plateau - w) / self.c).cbrt(),
            plateau,
            w_est: w,
        }
    }

    /// Datagrams to add in a round at a window of `w`, `t` seconds after the cut.
    fn step(&self, epoch: &Epoch, w: f64, t: f64, rtt_min: f64) -> f64 {
        let beyond = t - epoch.k;
        let target = self.c * beyond.powi(3) + epoch.plateau;
        let mut step = (target - w).max(CREEP);
        if beyond >= 0.0 {
            step = step.min(self.max_increment * rtt_min / 0.1);
        }
        if self.w_max.is_none() {
            step = UNKNOWN * w;
        }
        step.max(epoch.w_est - w).min(w)
    }
}

impl Growth for OldCubic {
    const COMPENSATES: bool = true;

    fn name(&self) -> &'static str {
        LAW.name
    }

    fn watch(&mut self, _window: &Window, ack: &AckEvent) {
        self.base.on_ack(ack);
    }

    fn grow(&mut self, window: &Window, ack: &AckEvent) -> f64 {
        let w = window.packets();
        let mut epoch = match self.epoch {
            Some(epoch) => epoch,
            None => self.begin(ack.now, w),
        };
        epoch.seen = ack.now;
        epoch.w_est += self.alpha * window.count(ack.acked) / w;
        let rtt_min = self.base.seconds().unwrap_or(0.1);
        let t = ack.now.since(epoch.start).as_secs_f64() + rtt_min;
        let step = self.step(&epoch, w, t, rtt_min);
        self.epoch = Some(epoch);
        window.additive(ack.acked, step)
    }

    fn keep(&mut self, window: &Window, cut: &Cut) -> f64 {
        let w = window.packets();
        self.w_max = if cut.cause == Cause::Timeout {
            None
        } else if self.fast_convergence && self.w_max.is_some_and(|old| w < old) {
            Some(w * f64::midpoint(1.0, self.beta))
        } else {
            Some(w)
        };
        self.epoch = None;
        self.beta
    }

    fn on_unused(&mut self, now: Instant) {
        if let Some(epoch) = &mut self.epoch {
            epoch.start += now.since(epoch.seen);
            epoch.seen = now;
        }
    }
}
