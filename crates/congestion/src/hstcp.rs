//! High-speed TCP, which grows as Reno does up to 38 datagrams. Above, it grows by more per round
//! and gives less up on a loss the larger the window is. So at a loss rate of 1e-7 it holds 83,000
//! (RFC 3649). The closed forms of the RFC's section 5 are used; its table rounds them.

use farhaul_core::congestion::{AckEvent, CongestionController};

use crate::{
    law::{COUNTING, Law, START, with_start},
    parameters::{Kind, Parameter, Values},
    window::{Cut, Growth, Window},
};

pub(crate) const LAW: Law = Law {
    name: "hstcp",
    summary: "additive steps that rise with the window",
    citation: "RFC 3649",
    parameters: &[
        Parameter {
            name: "high_window",
            about: "window, in datagrams, that is to hold at high_p",
            kind: Kind::Number(100.0, 1e9),
            default: "83000",
        },
        Parameter {
            name: "high_p",
            about: "loss rate at which high_window is to hold",
            kind: Kind::Number(1e-12, 1e-4),
            default: "1e-7",
        },
        Parameter {
            name: "high_decrease",
            about: "fraction given up on a loss at high_window",
            kind: Kind::Number(0.01, 0.5),
            default: "0.1",
        },
        START,
        COUNTING,
    ],
    paced: false,
    receiver: None,
    make: |values: &Values| -> Box<dyn CongestionController> {
        with_start(
            values,
            HighSpeed::new(
                values.number("high_window"),
                values.number("high_p"),
                values.number("high_decrease"),
            ),
        )
    },
};

/// Datagrams up to which the law is Reno, which holds them at a loss rate of [`LOW_P`].
const LOW_WINDOW: f64 = 38.0;
const LOW_P: f64 = 1e-3;
const LOW_DECREASE: f64 = 0.5;

/// High-speed TCP's congestion avoidance.
#[derive(Clone, Copy, Debug)]
pub struct HighSpeed {
    /// Slope of ln p over ln w.
    slope: f64,
    /// Slope of b over ln w.
    fall: f64,
    /// No window gives up less.
    least: f64,
    /// The last window for which the step was computed, and the step.
    known: (f64, f64),
}

impl Default for HighSpeed {
    fn default() -> Self {
        Self::new(83_000.0, 1e-7, 0.1)
    }
}

impl HighSpeed {
    /// Holds `high_window` datagrams at a loss rate of `high_p`, giving up `high_decrease` there.
    pub fn new(high_window: f64, high_p: f64, high_decrease: f64) -> Self {
        let span = (high_window / LOW_WINDOW).ln();
        Self {
            slope: (high_p / LOW_P).ln() / span,
            fall: (high_decrease - LOW_DECREASE) / span,
            least: high_decrease.min(0.01),
            known: (0.0, 1.0),
        }
    }

    /// Datagrams added per round at a window of `w`, and the fraction of it given up on a loss.
    pub fn response(&self, w: f64) -> (f64, f64) {
        if w <= LOW_WINDOW {
            return (1.0, LOW_DECREASE);
        }
        let x = (w / LOW_WINDOW).ln();
        let b = self.fall.mul_add(x, LOW_DECREASE).max(self.least);
        let p = LOW_P * (self.slope * x).exp();
        ((2.0 * w * w * p * b / (2.0 - b)).max(1.0), b)
    }
}

impl Growth for HighSpeed {
    fn name(&self) -> &'static str {
        LAW.name
    }

    fn grow(&mut self, window: &Window, ack: &AckEvent) -> f64 {
        let w = window.packets();
        // The step goes with w^0.8: within a thousandth of w it need not be computed again.
        if (w - self.known.0).abs() > 1e-3 * w {
            self.known = (w, self.response(w).0);
        }
        window.additive(ack.acked, self.known.1)
    }

    fn keep(&mut self, window: &Window, _cut: &Cut) -> f64 {
        1.0 - self.response(window.packets()).1
    }
}
