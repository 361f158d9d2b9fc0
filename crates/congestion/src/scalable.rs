//! Scalable TCP, which grows by a hundredth of what is acknowledged. So recovery from a loss takes
//! the same number of rounds at any speed (Kelly, "Scalable TCP", CCR 33(2), 2003).
//!
//! Constants: the paper's. Below `reno_below` datagrams it is Reno, as the paper has it; Linux instead
//! takes the larger of both growths at any window.

use farhaul_core::congestion::{AckEvent, CongestionController};

use crate::{
    law::{COUNTING, Law, START, with_start},
    parameters::{Kind, Parameter, Values},
    window::{Cut, Growth, Window, float},
};

pub(crate) const LAW: Law = Law {
    name: "scalable",
    summary: "a hundredth of what is acknowledged, an eighth less on loss",
    citation: "Kelly, Scalable TCP, CCR 33(2), 2003",
    parameters: &[
        Parameter {
            name: "a",
            about: "share of the acknowledged bytes that is added",
            kind: Kind::Number(0.0001, 1.0),
            default: "0.01",
        },
        Parameter {
            name: "beta",
            about: "factor applied to the window on a loss",
            kind: Kind::Number(0.1, 0.99),
            default: "0.875",
        },
        Parameter {
            name: "reno_below",
            about: "window, in datagrams, up to which it is Reno",
            kind: Kind::Number(0.0, 1e6),
            default: "16",
        },
        START,
        COUNTING,
    ],
    paced: false,
    receiver: None,
    make: |values: &Values| -> Box<dyn CongestionController> {
        with_start(
            values,
            Scalable {
                a: values.number("a"),
                beta: values.number("beta"),
                reno_below: values.number("reno_below"),
            },
        )
    },
};

/// Scalable TCP's congestion avoidance.
#[derive(Clone, Copy, Debug)]
pub struct Scalable {
    a: f64,
    beta: f64,
    reno_below: f64,
}

impl Growth for Scalable {
    fn name(&self) -> &'static str {
        LAW.name
    }

    fn grow(&mut self, window: &Window, ack: &AckEvent) -> f64 {
        if window.packets() <= self.reno_below {
            window.additive(ack.acked, 1.0)
        } else {
            self.a * float(ack.acked.bytes())
        }
    }

    fn keep(&mut self, window: &Window, _cut: &Cut) -> f64 {
        if window.packets() <= self.reno_below {
            0.5
        } else {
            self.beta
        }
    }
}
