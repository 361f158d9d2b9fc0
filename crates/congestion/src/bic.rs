//! BIC, which grows by a binary search for the window of the last loss. Steps are large far from
//! that window, small near it, then large again away from it (Xu, Harfoush, Rhee, INFOCOM 2004).
//! Constants and the quarter step: Linux's `tcp_bic`.

use farhaul_core::congestion::{AckEvent, CongestionController};

use crate::{
    law::{COUNTING, Law, START, with_start},
    parameters::{Kind, Parameter, Values},
    window::{Cause, Cut, Growth, Window},
};

pub(crate) const LAW: Law = Law {
    name: "bic",
    summary: "a binary search for the window of the last loss",
    citation: "Xu, Harfoush, Rhee, INFOCOM 2004; Linux tcp_bic",
    parameters: &[
        Parameter {
            name: "beta",
            about: "factor applied to the window on a loss",
            kind: Kind::Number(0.1, 0.99),
            default: "0.8",
        },
        Parameter {
            name: "s_max",
            about: "most datagrams added in a round",
            kind: Kind::Number(1.0, 1e6),
            default: "16",
        },
        Parameter {
            name: "smooth",
            about: "rounds to spend on the last few datagrams around the old window",
            kind: Kind::Number(4.0, 1_000.0),
            default: "20",
        },
        Parameter {
            name: "low_window",
            about: "window, in datagrams, up to which it is Reno",
            kind: Kind::Number(0.0, 1e6),
            default: "14",
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
        with_start(
            values,
            Bic {
                beta: values.number("beta"),
                s_max: values.number("s_max"),
                smooth: values.number("smooth"),
                low_window: values.number("low_window"),
                fast_convergence: values.flag("fast_convergence"),
                w_max: None,
            },
        )
    },
};

/// The search goes this part of the way in a round.
const PART: f64 = 4.0;
/// Share of the window added per round before anything was lost.
const UNKNOWN: f64 = 0.05;

/// BIC's congestion avoidance.
#[derive(Clone, Copy, Debug)]
pub struct Bic {
    beta: f64,
    s_max: f64,
    smooth: f64,
    low_window: f64,
    fast_convergence: bool,
    /// Window before the last cut, in datagrams, lowered by fast convergence.
    w_max: Option<f64>,
}

impl Bic {
    /// Datagrams to add in a round at a window of `w`.
    fn step(&self, w: f64) -> f64 {
        if w <= self.low_window {
            return 1.0;
        }
        let w_max = self.w_max.unwrap_or(0.0);
        let slow = PART / self.smooth;
        let known = if w < w_max {
            let part = (w_max - w) / PART;
            if part <= 1.0 {
                slow
            } else {
                part.min(self.s_max)
            }
        } else if w < w_max + PART {
            slow
        } else {
            ((w - w_max) / (PART - 1.0)).min(self.s_max)
        };
        match self.w_max {
            Some(_) => known,
            None => known.max(UNKNOWN * w),
        }
    }
}

impl Growth for Bic {
    const COMPENSATES: bool = true;

    fn name(&self) -> &'static str {
        LAW.name
    }

    fn grow(&mut self, window: &Window, ack: &AckEvent) -> f64 {
        window.additive(ack.acked, self.step(window.packets()))
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
        if w <= self.low_window { 0.5 } else { self.beta }
    }
}
