//! FAST TCP, which grows towards the window that keeps `alpha` datagrams of its own in the queue.
//! The window goes half of the way every other round, and never more than doubles (Jin, Wei, Low,
//! INFOCOM 2004).
//!
//! Recalled: the paper was not at hand. Formula, `gamma`, `alpha` and smoothing, and the oracle
//! that tests them, have not been checked against it. Our choices: slow start ends at half of
//! alpha. The paper's multiplicative phase is left to the doubling bound, and the engine's pacing
//! replaces its burstiness control.

use farhaul_core::congestion::{AckEvent, CongestionController};

use crate::{
    law::{COUNTING, Law, counting},
    parameters::{Kind, Parameter, Values},
    rounds::Rounds,
    slow_start::Backlog,
    window::{Cut, Growth, Window, Windowed},
};

pub(crate) const LAW: Law = Law {
    name: "fast",
    summary: "a fixed number of datagrams in the queue, approached by halves",
    citation: "Jin, Wei, Low, FAST TCP, INFOCOM 2004",
    parameters: &[
        Parameter {
            name: "alpha",
            about: "datagrams to keep in the queue: 8 for 10 Mbit/s, 20 for 100, 200 for more",
            kind: Kind::Number(1.0, 1e6),
            default: "200",
        },
        Parameter {
            name: "gamma",
            about: "gain of an update",
            kind: Kind::Number(0.01, 1.0),
            default: "0.5",
        },
        COUNTING,
    ],
    paced: false,
    receiver: None,
    make: |values: &Values| -> Box<dyn CongestionController> {
        let alpha = values.number("alpha");
        let law = Fast::new(alpha, values.number("gamma"));
        Box::new(Windowed::new(Backlog::new(alpha / 2.0), law).counting(counting(values)))
    },
};

/// FAST TCP's window update.
#[derive(Clone, Copy, Debug)]
pub struct Fast {
    alpha: f64,
    gamma: f64,
    /// Smoothed rtt, s.
    rtt: Option<f64>,
    rounds: Rounds,
    /// True if the window rests in this round, so that the next shows what the update did.
    resting: bool,
}

impl Fast {
    /// Keeps `alpha` datagrams in the queue, going `gamma` of the way in an update.
    pub fn new(alpha: f64, gamma: f64) -> Self {
        Self {
            alpha,
            gamma,
            rtt: None,
            rounds: Rounds::default(),
            resting: false,
        }
    }
}

impl Growth for Fast {
    fn name(&self) -> &'static str {
        LAW.name
    }

    fn watch(&mut self, window: &Window, ack: &AckEvent) {
        self.rounds.on_ack(ack);
        let Some(sample) = ack.rtt.map(|rtt| rtt.as_secs_f64().max(1e-6)) else {
            return;
        };
        // Each packet weighs min(3/w, 1/4); this sample stands for all that were acknowledged.
        let one = (3.0 / window.packets()).min(0.25);
        let weight = -(-one * f64::from(ack.packets.max(1))).exp_m1();
        let rtt = self.rtt.unwrap_or(sample);
        self.rtt = Some(rtt + weight * (sample - rtt));
    }

    fn grow(&mut self, window: &Window, _ack: &AckEvent) -> f64 {
        let (Some(round), Some(rtt)) = (self.rounds.take_ended(), self.rtt) else {
            return 0.0;
        };
        self.resting = !self.resting;
        if !self.resting {
            return 0.0;
        }
        let w = window.packets();
        let aim = round.base / rtt * w + self.alpha;
        let next = ((1.0 - self.gamma) * w + self.gamma * aim).min(2.0 * w);
        (next - w) * window.datagram()
    }

    fn keep(&mut self, _window: &Window, _cut: &Cut) -> f64 {
        self.rounds.restart();
        0.5
    }
}
