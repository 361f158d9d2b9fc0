//! Compound TCP, whose window is the sum of two: a loss window that is Reno's, and a delay window.
//! The delay window grows fast while the queue is short and gives way when it is not (Tan, Song,
//! Zhang, Sridharan, INFOCOM 2006; draft-sridharan-tcpm-ctcp). Gamma follows the queue that Reno
//! alone would build.
//!
//! Formulas from the 2006 Linux port and from ports of the draft, whose text was not at hand. The
//! point at which the low window folds the delay window into the other is our choice.

use farhaul_core::congestion::{AckEvent, CongestionController};

use crate::{
    law::{COUNTING, Law, START, with_start},
    parameters::{Kind, Parameter, Values},
    rounds::Rounds,
    window::{Cause, Cut, Growth, Window},
};

pub(crate) const LAW: Law = Law {
    name: "compound",
    summary: "Reno's window plus one that avoids queues",
    citation: "Tan et al., Compound TCP, INFOCOM 2006; draft-sridharan-tcpm-ctcp",
    parameters: &[
        Parameter {
            name: "alpha",
            about: "growth of the delay window: alpha w^k datagrams a round",
            kind: Kind::Number(0.001, 10.0),
            default: "0.125",
        },
        Parameter {
            name: "k",
            about: "exponent of that growth",
            kind: Kind::Number(0.1, 1.0),
            default: "0.75",
        },
        Parameter {
            name: "zeta",
            about: "datagrams by which the delay window shrinks per datagram in the queue",
            kind: Kind::Number(0.0, 100.0),
            default: "1",
        },
        Parameter {
            name: "gamma",
            about: "datagrams in the queue at which the delay window shrinks",
            kind: Kind::Number(1.0, 1e6),
            default: "30",
        },
        Parameter {
            name: "tuning",
            about: "let gamma follow the queue that Reno would build, from 5 to gamma",
            kind: Kind::Flag,
            default: "on",
        },
        Parameter {
            name: "low_window",
            about: "window, in datagrams, below which it is Reno",
            kind: Kind::Number(0.0, 1e6),
            default: "41",
        },
        START,
        COUNTING,
    ],
    paced: false,
    receiver: None,
    make: |values: &Values| -> Box<dyn CongestionController> {
        with_start(
            values,
            Compound {
                alpha: values.number("alpha"),
                k: values.number("k"),
                zeta: values.number("zeta"),
                gamma: values.number("gamma"),
                gamma_high: values.number("gamma"),
                tuning: values.flag("tuning"),
                low_window: values.number("low_window"),
                delay_window: 0.0,
                reno_backlog: 0.0,
                rounds: Rounds::default(),
            },
        )
    },
};

/// The least gamma that tuning sets.
const GAMMA_LOW: f64 = 5.0;
/// Weight of one loss in gamma, and the part of Reno's queue that gamma aims at.
const LAMBDA: f64 = 0.8;
const AIM: f64 = 0.75;

/// Compound TCP's congestion avoidance.
#[derive(Clone, Copy, Debug)]
pub struct Compound {
    alpha: f64,
    k: f64,
    zeta: f64,
    gamma: f64,
    gamma_high: f64,
    tuning: bool,
    low_window: f64,
    /// The part of the window that delay governs, datagrams.
    delay_window: f64,
    /// Backlog of the loss window alone in the last round, datagrams.
    reno_backlog: f64,
    rounds: Rounds,
}

impl Compound {
    /// The delay window after a round in which `backlog` datagrams of a window of `w` stood in a queue.
    fn next_delay_window(&self, w: f64, backlog: f64) -> f64 {
        if backlog < self.gamma {
            self.delay_window + self.alpha.mul_add(w.powf(self.k), -1.0).max(0.0)
        } else {
            (self.delay_window - self.zeta * backlog).max(0.0)
        }
    }
}

impl Growth for Compound {
    const BY_ROUND: bool = true;

    fn name(&self) -> &'static str {
        LAW.name
    }

    fn watch(&mut self, _window: &Window, ack: &AckEvent) {
        self.rounds.on_ack(ack);
    }

    fn grow(&mut self, window: &Window, ack: &AckEvent) -> f64 {
        let reno = window.additive(ack.acked, 1.0);
        let Some(round) = self.rounds.take_ended() else {
            return reno;
        };
        let w = window.packets();
        if w < self.low_window {
            self.delay_window = 0.0;
            return reno;
        }
        let before = self.delay_window.min(w - 1.0);
        let excess = (round.mean - round.base) / round.base;
        self.reno_backlog = (w - before) * excess;
        self.delay_window = before;
        self.delay_window = self.next_delay_window(w, round.backlog(w));
        reno + (self.delay_window - before) * window.datagram()
    }

    fn keep(&mut self, window: &Window, cut: &Cut) -> f64 {
        if cut.cause == Cause::Timeout {
            self.delay_window = 0.0;
            self.gamma = self.gamma_high;
            self.rounds = Rounds::default();
            return 0.5;
        }
        if self.tuning {
            let tuned = (1.0 - LAMBDA) * self.gamma + LAMBDA * AIM * self.reno_backlog;
            self.gamma = tuned.max(GAMMA_LOW).min(self.gamma_high);
        }
        // Both windows halve: the sum does, and what is not the loss window is the other.
        let w = window.packets();
        self.delay_window = self.delay_window.min(w) / 2.0;
        self.rounds.restart();
        0.5
    }
}
