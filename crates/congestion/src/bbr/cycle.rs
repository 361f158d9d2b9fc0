//! Probes for more bandwidth. The cycle is down, cruise, refill, up, and down again, a round above
//! the estimate. It comes every two to three seconds, or as often as Reno would have grown by as
//! much.
//!
//! Source: draft-ietf-ccwg-bbr §5.3.3.

use std::time::Duration;

use farhaul_core::{congestion::AckEvent, rng::Rng, time::Instant};

use super::{Bbr, Phase, model::Sample};
use crate::window::{float, larger, smaller};

/// The most rounds between probes: those of a Reno flow on a path of 25 Mbit/s and 30 ms.
const MAX_ROUNDS: f64 = 63.0;
/// Most doublings of the bound's slope, one each round.
const MAX_DOUBLINGS: u32 = 30;

/// Part of a probe that packets acknowledged now belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Acks {
    Init,
    Refilling,
    Starting,
    Feedback,
    Stopping,
}

/// The state of probing.
#[derive(Clone, Debug)]
pub(super) struct Cycle {
    rng: Rng,
    acks: Acks,
    /// Time at which the next probe is due, however few rounds it has been.
    probe_at: Option<Instant>,
    rounds: f64,
    /// True if losses now belong to a probe.
    samples: bool,
    /// True if the last probe went too far.
    prev_too_high: bool,
    /// True if this cycle stopped where the last went too far.
    stopped_risky: bool,
    up_rounds: u32,
    /// Acknowledged bytes for each byte added to the bound.
    up_per_byte: f64,
}

impl Cycle {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            rng: Rng::new(seed),
            acks: Acks::Init,
            probe_at: None,
            rounds: 0.0,
            samples: false,
            prev_too_high: false,
            stopped_risky: false,
            up_rounds: 0,
            up_per_byte: f64::INFINITY,
        }
    }

    pub(super) const fn samples(&self) -> bool {
        self.samples
    }

    /// Lets losses belong to a probe from now on.
    pub(super) const fn begin_samples(&mut self) {
        self.samples = true;
    }

    pub(super) const fn too_high(&mut self) {
        self.prev_too_high = true;
        self.samples = false;
    }

    pub(super) const fn stop(&mut self) {
        self.acks = Acks::Stopping;
    }
}

impl Bbr {
    pub(super) fn start_down(&mut self, now: Instant) {
        self.model.reset_signals();
        let cycle = &mut self.cycle;
        cycle.up_per_byte = f64::INFINITY;
        cycle.rounds = if cycle.rng.chance(0.5) { 1.0 } else { 0.0 };
        let wait = self.set.wait + cycle.rng.unit();
        cycle.probe_at = Some(now + Duration::from_secs_f64(wait));
        cycle.acks = Acks::Stopping;
        self.model.start_round();
        self.phase = Phase::Down;
    }

    pub(super) const fn start_cruise(&mut self) {
        self.phase = Phase::Cruise;
    }

    fn start_refill(&mut self) {
        self.model.reset_short_term();
        self.cycle.up_rounds = 0;
        self.cycle.stopped_risky = false;
        self.cycle.acks = Acks::Refilling;
        self.model.start_round();
        self.phase = Phase::Refill;
    }

    pub(super) fn start_up(&mut self) {
        self.cycle.acks = Acks::Starting;
        self.model.start_round();
        self.phase = Phase::Up;
        self.raise_slope();
    }

    /// One step of the cycle.
    pub(super) fn run_cycle(&mut self, sample: &Sample) {
        if !self.model.full.reached {
            return;
        }
        if self.model.round_start {
            self.cycle.rounds += 1.0;
        }
        if self.adapt_upper(sample) || !self.phase.probes_bandwidth() {
            return;
        }
        match self.phase {
            Phase::Down | Phase::Cruise if self.time_to_probe(sample) => self.start_refill(),
            Phase::Down if self.drained(sample) => self.start_cruise(),
            Phase::Refill if self.model.round_start => {
                self.cycle.begin_samples();
                self.model.full.reset(sample.bandwidth.unwrap_or(0.0));
                self.start_up();
            }
            Phase::Up => self.check_up(sample),
            _ => {}
        }
    }

    fn drained(&self, sample: &Sample) -> bool {
        sample.in_flight <= self.with_headroom()
            && sample.in_flight <= self.bdp(self.model.max_bw())
    }

    fn time_to_probe(&self, sample: &Sample) -> bool {
        let elapsed = self.cycle.probe_at.is_some_and(|at| sample.now > at);
        let most = MAX_ROUNDS * self.datagram();
        elapsed || self.cycle.rounds * self.datagram() >= smaller(self.target(), most)
    }

    fn check_up(&mut self, sample: &Sample) {
        let bound = self.model.inflight_hi;
        if self.cycle.prev_too_high && sample.in_flight >= bound {
            // Last time there was loss here; a clean round on, the probe goes on.
            self.cycle.stopped_risky = true;
            self.cycle.prev_too_high = false;
            self.start_down(sample.now);
        } else if sample.window_limited && self.window >= bound {
            // It is the bound that holds the rate, not the path.
            self.model.full.reset(sample.bandwidth.unwrap_or(0.0));
        } else if self.model.full.now {
            self.cycle.prev_too_high = false;
            self.start_down(sample.now);
        }
    }

    /// Updates the upper bound by `sample`; true if the phase changed.
    fn adapt_upper(&mut self, sample: &Sample) -> bool {
        if self.model.round_start && self.cycle.acks == Acks::Starting {
            self.cycle.acks = Acks::Feedback;
        }
        if self.model.round_start && self.cycle.acks == Acks::Stopping {
            self.cycle.samples = false;
            self.cycle.acks = Acks::Init;
            if self.phase.probes_bandwidth() {
                if !sample.app_limited {
                    self.model.advance_max_bw();
                }
                if self.cycle.stopped_risky && !self.cycle.prev_too_high {
                    self.start_refill();
                    return true;
                }
            }
        }
        let Some(newest) = sample.newest else {
            return false;
        };
        let in_flight = float(newest.in_flight.bytes());
        if self.too_high(&newest, sample.lost) {
            let was = self.phase;
            if self.cycle.samples {
                self.bound(sample.now, in_flight, newest.app_limited);
            }
            return self.phase != was;
        }
        if self.model.inflight_hi.is_finite() {
            self.model.inflight_hi = larger(self.model.inflight_hi, in_flight);
            if self.phase == Phase::Up {
                self.raise_bound(sample);
            }
        }
        false
    }

    /// A datagram per window acknowledged, then two, four ...
    fn raise_bound(&mut self, sample: &Sample) {
        if sample.window_limited && self.window >= self.model.inflight_hi {
            self.model.inflight_hi += sample.acked / self.cycle.up_per_byte;
        }
        if self.model.round_start {
            self.raise_slope();
        }
    }

    fn raise_slope(&mut self) {
        let growth = f64::from(1_u32 << self.cycle.up_rounds) * self.datagram();
        self.cycle.up_rounds = (self.cycle.up_rounds + 1).min(MAX_DOUBLINGS);
        self.cycle.up_per_byte = (self.window / growth).max(1.0);
    }

    /// Marks are taken as losses are.
    pub(super) fn on_marks(&mut self, ack: &AckEvent) {
        self.model.note_loss(ack.ce);
        let many = float(ack.ce) > self.set.loss * f64::from(ack.packets);
        if let Some(newest) = ack.newest.filter(|_| many && self.cycle.samples) {
            self.bound(ack.now, float(newest.in_flight.bytes()), newest.app_limited);
        }
    }
}
