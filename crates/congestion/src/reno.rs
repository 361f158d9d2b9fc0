//! Reno, which grows by one datagram per round and keeps half on a loss (RFC 5681, 6582).

use farhaul_core::congestion::{AckEvent, CongestionController};

use crate::{
    law::{COUNTING, Law, START, with_start},
    parameters::{Kind, Parameter, Values},
    window::{Cut, Growth, Window},
};

pub(crate) const LAW: Law = Law {
    name: "reno",
    summary: "one datagram more per round, half on loss",
    citation: "RFC 5681, RFC 6582",
    parameters: &[
        Parameter {
            name: "beta",
            about: "factor applied to the window on a loss",
            kind: Kind::Number(0.1, 0.99),
            default: "0.5",
        },
        START,
        COUNTING,
    ],
    paced: false,
    receiver: None,
    make: |values: &Values| -> Box<dyn CongestionController> {
        with_start(
            values,
            Reno {
                beta: values.number("beta"),
            },
        )
    },
};

/// NewReno's congestion avoidance.
#[derive(Clone, Copy, Debug)]
pub struct Reno {
    /// Fraction kept on a loss.
    pub beta: f64,
}

impl Default for Reno {
    fn default() -> Self {
        Self { beta: 0.5 }
    }
}

impl Growth for Reno {
    fn name(&self) -> &'static str {
        LAW.name
    }

    fn grow(&mut self, window: &Window, ack: &AckEvent) -> f64 {
        window.additive(ack.acked, 1.0)
    }

    fn keep(&mut self, _window: &Window, _cut: &Cut) -> f64 {
        self.beta
    }
}
