//! Vegas, which grows by one datagram a round while fewer than two of its own are in a queue. It
//! shrinks by one when more than four are (Brakmo, Peterson, SIGCOMM 1994). Constants and the form
//! of the difference: Linux's `tcp_vegas`.
//!
//! Linux wants three rtt samples in a round; here feedback is sparser, and three packets suffice.

use farhaul_core::congestion::{AckEvent, CongestionController};

use crate::{
    law::{COUNTING, Law, counting},
    parameters::{Kind, Parameter, Values},
    rounds::Rounds,
    slow_start::Backlog,
    window::{Cut, Growth, Window, Windowed},
};

pub(crate) const LAW: Law = Law {
    name: "vegas",
    summary: "two to four datagrams in the queue",
    citation: "Brakmo, Peterson, SIGCOMM 1994; Linux tcp_vegas",
    parameters: &[
        Parameter {
            name: "alpha",
            about: "datagrams in the queue below which it grows",
            kind: Kind::Number(0.1, 1e6),
            default: "2",
        },
        Parameter {
            name: "beta",
            about: "datagrams in the queue above which it shrinks",
            kind: Kind::Number(0.1, 1e6),
            default: "4",
        },
        Parameter {
            name: "gamma",
            about: "datagrams in the queue that end slow start",
            kind: Kind::Number(0.1, 1e6),
            default: "1",
        },
        COUNTING,
    ],
    paced: false,
    receiver: None,
    make: |values: &Values| -> Box<dyn CongestionController> {
        let law = Vegas::new(values.number("alpha"), values.number("beta"));
        let start = Backlog::new(values.number("gamma"));
        Box::new(Windowed::new(start, law).counting(counting(values)))
    },
};

/// Packets in a round that make its rtt worth believing.
const ENOUGH: u32 = 3;

/// Vegas's congestion avoidance.
#[derive(Clone, Copy, Debug)]
pub struct Vegas {
    alpha: f64,
    beta: f64,
    rounds: Rounds,
    /// True if slow start just ended: give back what it put into the queue.
    leaving: bool,
}

impl Vegas {
    /// Keeps `alpha` to `beta` datagrams in the queue.
    pub fn new(alpha: f64, beta: f64) -> Self {
        Self {
            alpha,
            beta,
            rounds: Rounds::default(),
            leaving: false,
        }
    }
}

impl Growth for Vegas {
    fn name(&self) -> &'static str {
        LAW.name
    }

    fn watch(&mut self, _window: &Window, ack: &AckEvent) {
        self.rounds.on_ack(ack);
    }

    fn grow(&mut self, window: &Window, _ack: &AckEvent) -> f64 {
        let Some(round) = self.rounds.take_ended() else {
            return 0.0;
        };
        let w = window.packets();
        let backlog = round.backlog(w);
        let step = if std::mem::take(&mut self.leaving) {
            (w * round.base / round.min + 1.0 - w).min(0.0)
        } else if round.packets < ENOUGH || backlog < self.alpha {
            1.0
        } else if backlog > self.beta {
            -1.0
        } else {
            0.0
        };
        step * window.datagram()
    }

    fn keep(&mut self, _window: &Window, _cut: &Cut) -> f64 {
        self.rounds.restart();
        0.5
    }

    fn on_slow_start_exit(&mut self, _window: &Window) {
        self.leaving = true;
    }
}
