//! TCP-Illinois, which grows as Reno does, with a step and a cut that follow from the queueing
//! delay. They are ten datagrams a round and an eighth less while there is no delay. They are a
//! third of a datagram and half less when the delay is near the largest seen (Liu, Başar, Srikant,
//! VALUETOOLS 2006). Constants: the paper's and Linux's `tcp_illinois`, which agree.

use farhaul_core::congestion::{AckEvent, CongestionController};

use crate::{
    law::{COUNTING, Law, START, with_start},
    parameters::{Kind, Parameter, Values},
    rounds::{Round, Rounds},
    window::{Cause, Cut, Growth, Window},
};

pub(crate) const LAW: Law = Law {
    name: "illinois",
    summary: "Reno with steps and cuts set by the queueing delay",
    citation: "Liu, Basar, Srikant, TCP-Illinois, VALUETOOLS 2006; Linux tcp_illinois",
    parameters: &[
        Parameter {
            name: "alpha_max",
            about: "datagrams added per round while no queue is seen",
            kind: Kind::Number(1.0, 1_000.0),
            default: "10",
        },
        Parameter {
            name: "alpha_min",
            about: "datagrams added per round at the largest delay",
            kind: Kind::Number(0.01, 1.0),
            default: "0.3",
        },
        Parameter {
            name: "low_window",
            about: "window, in datagrams, below which it is Reno",
            kind: Kind::Number(0.0, 1e6),
            default: "15",
        },
        START,
        COUNTING,
    ],
    paced: false,
    receiver: None,
    make: |values: &Values| -> Box<dyn CongestionController> {
        with_start(
            values,
            Illinois::new(
                values.number("alpha_max"),
                values.number("alpha_min"),
                values.number("low_window"),
            ),
        )
    },
};

/// Share given up on a loss without delay, and at the largest delay.
const LEAST_CUT: f64 = 0.125;
const MOST_CUT: f64 = 0.5;
/// Rounds of low delay before the full step is taken again.
const THETA: u32 = 5;

/// TCP-Illinois's congestion avoidance.
#[derive(Clone, Copy, Debug)]
pub struct Illinois {
    alpha_max: f64,
    alpha_min: f64,
    low_window: f64,
    rounds: Rounds,
    /// Datagrams added per round.
    alpha: f64,
    /// Fraction given up on a loss.
    cut: f64,
    /// Delay was above the first threshold, and for this many rounds it no longer is.
    was_above: bool,
    low_rounds: u32,
}

impl Illinois {
    /// Steps between `alpha_min` and `alpha_max`; Reno below `low_window` datagrams.
    pub fn new(alpha_max: f64, alpha_min: f64, low_window: f64) -> Self {
        Self {
            alpha_max,
            alpha_min,
            low_window,
            rounds: Rounds::default(),
            alpha: alpha_max,
            cut: MOST_CUT,
            was_above: false,
            low_rounds: 0,
        }
    }

    /// The step for a mean queueing delay of `mean` when the largest seen is `largest`.
    pub fn step(&self, mean: f64, largest: f64) -> f64 {
        let first = largest / 100.0;
        if mean <= first {
            return self.alpha_max;
        }
        let (span, above) = (largest - first, mean - first);
        let steep = (self.alpha_max - self.alpha_min) / self.alpha_min;
        span * self.alpha_max / (span + above * steep)
    }

    /// The fraction to give up on a loss at such a delay.
    pub fn give_up(mean: f64, largest: f64) -> f64 {
        let (low, high) = (largest / 10.0, largest * 0.8);
        if mean <= low {
            LEAST_CUT
        } else if mean >= high {
            MOST_CUT
        } else {
            LEAST_CUT + (MOST_CUT - LEAST_CUT) * (mean - low) / (high - low)
        }
    }

    fn learn(&mut self, round: &Round) {
        let (mean, largest) = (round.mean - round.base, self.rounds.longest() - round.base);
        self.cut = Self::give_up(mean, largest);
        if mean > largest / 100.0 {
            self.was_above = true;
            self.low_rounds = 0;
            self.alpha = self.step(mean, largest);
        } else if !self.was_above {
            self.alpha = self.alpha_max;
        } else {
            self.low_rounds += 1;
            if self.low_rounds >= THETA {
                self.was_above = false;
                self.low_rounds = 0;
                self.alpha = self.alpha_max;
            }
        }
    }
}

impl Growth for Illinois {
    fn name(&self) -> &'static str {
        LAW.name
    }

    fn watch(&mut self, _window: &Window, ack: &AckEvent) {
        self.rounds.on_ack(ack);
        if let Some(round) = self.rounds.take_ended() {
            self.learn(&round);
        }
    }

    fn grow(&mut self, window: &Window, ack: &AckEvent) -> f64 {
        let low = window.packets() < self.low_window;
        window.additive(ack.acked, if low { 1.0 } else { self.alpha })
    }

    fn keep(&mut self, window: &Window, cut: &Cut) -> f64 {
        let given_up = if window.packets() < self.low_window {
            MOST_CUT
        } else {
            self.cut
        };
        if cut.cause == Cause::Timeout {
            self.alpha = 1.0;
            self.cut = MOST_CUT;
            self.was_above = false;
            self.low_rounds = 0;
        }
        1.0 - given_up
    }
}
