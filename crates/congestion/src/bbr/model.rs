//! Model of the path: bandwidth (the most delivered in the last two probe cycles), the bounds that
//! losses set, rounds, and whether the pipe is full.
//!
//! Source: draft-ietf-ccwg-bbr §5.3.1.2, §5.5.

use std::time::Duration;

use farhaul_core::{congestion::TxSnapshot, time::Instant, units::Size};

use super::Settings;
use crate::window::{float, larger, smaller};

/// Growth in a round below which the pipe may be full, and rounds of it that prove it.
const FULL: (f64, u32) = (1.25, 3);
/// Separate ranges lost in a round that end startup.
const STARTUP_LOSSES: u64 = 6;
/// Rounds in each half of the filter of aggregation; during startup.
const AGGREGATION_ROUNDS: (u32, u32) = (5, 1);
/// Seconds whose arrivals are the most that aggregation is.
const MAX_AGGREGATION: f64 = 0.1;

/// One feedback packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) now: Instant,
    /// Bytes.
    pub(super) acked: f64,
    /// Bytes per second.
    pub(super) bandwidth: Option<f64>,
    pub(super) app_limited: bool,
    pub(super) rtt: Option<Duration>,
    pub(super) delivered: Size,
    pub(super) lost: Size,
    pub(super) newest: Option<TxSnapshot>,
    /// True at the start of the engine's own round, for want of facts.
    pub(super) round_start: bool,
    /// Bytes, after this feedback.
    pub(super) in_flight: f64,
    pub(super) window_limited: bool,
    /// Least rtt and wait for feedback, s: bytes sent in it are in flight at any rate.
    pub(super) hold: f64,
}

/// Detector of a full pipe: whether there is more to be had.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Full {
    bandwidth: f64,
    rounds: u32,
    /// True if growth has stopped since the last reset.
    pub(super) now: bool,
    /// True if growth has stopped once.
    pub(super) reached: bool,
}

impl Full {
    pub(super) fn reset(&mut self, bandwidth: f64) {
        *self = Self {
            bandwidth,
            reached: self.reached,
            ..Self::default()
        };
    }

    fn update(&mut self, sample: &Sample, round_start: bool) {
        let Some(bandwidth) = sample.bandwidth.filter(|_| !sample.app_limited) else {
            return;
        };
        if self.now {
            return;
        }
        if bandwidth >= self.bandwidth * FULL.0 {
            self.reset(bandwidth);
        } else if round_start {
            self.rounds += 1;
            self.now = self.rounds >= FULL.1;
            self.reached |= self.now;
        }
    }
}

/// More was acknowledged at once than the bandwidth explains.
#[derive(Clone, Copy, Debug, Default)]
struct Aggregation {
    since: Option<Instant>,
    acked: f64,
    /// Largest excess of the last and of this half of the filter.
    excess: [f64; 2],
    rounds: u32,
}

impl Aggregation {
    fn update(&mut self, sample: &Sample, bandwidth: f64, most: f64, rounds: u32, round: bool) {
        if round {
            self.rounds += 1;
            if self.rounds > rounds {
                self.rounds = 0;
                self.excess = [self.excess[1], 0.0];
            }
        }
        let since = *self.since.get_or_insert(sample.now);
        let mut expected = bandwidth * sample.now.since(since).as_secs_f64();
        if self.acked <= expected {
            self.acked = 0.0;
            self.since = Some(sample.now);
            expected = 0.0;
        }
        self.acked += sample.acked;
        let excess = smaller(self.acked - expected, most);
        let excess = smaller(excess, bandwidth * MAX_AGGREGATION);
        self.excess[1] = larger(excess, self.excess[1]);
    }
}

/// The estimates.
#[derive(Clone, Copy, Debug)]
pub(super) struct Model {
    /// Most delivered in the last and in this probe cycle, bytes/s.
    max_bw: [f64; 2],
    /// Short-term bound of the bandwidth, bytes/s.
    pub(super) bw_lo: f64,
    /// Short-term bound of the bytes in flight.
    pub(super) inflight_lo: f64,
    /// Bytes that the path was last seen to hold.
    pub(super) inflight_hi: f64,
    bw_latest: f64,
    inflight_latest: f64,
    pub(super) full: Full,
    aggregation: Aggregation,
    delivered: Size,
    round_end: Size,
    pub(super) round_start: bool,
    loss: LossRound,
}

/// A round of its own, begun by the first loss.
#[derive(Clone, Copy, Debug, Default)]
struct LossRound {
    end: Size,
    /// True if a loss round ended with this feedback.
    over: bool,
    /// True if there were losses in the round.
    any: bool,
    /// True if the first loss of the round is in this feedback.
    begins: bool,
    /// Separate ranges lost in the round.
    ranges: u64,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            max_bw: [0.0; 2],
            bw_lo: f64::INFINITY,
            inflight_lo: f64::INFINITY,
            inflight_hi: f64::INFINITY,
            bw_latest: 0.0,
            inflight_latest: 0.0,
            full: Full::default(),
            aggregation: Aggregation::default(),
            delivered: Size::ZERO,
            round_end: Size::ZERO,
            round_start: false,
            loss: LossRound::default(),
        }
    }
}

impl Model {
    pub(super) fn max_bw(&self) -> f64 {
        larger(self.max_bw[0], self.max_bw[1])
    }

    /// Rate to send at, bytes/s; 0 before the first sample.
    pub(super) fn bandwidth(&self) -> f64 {
        smaller(self.bw_lo, self.max_bw())
    }

    pub(super) fn extra_acked(&self) -> f64 {
        larger(self.aggregation.excess[0], self.aggregation.excess[1])
    }

    /// A probe cycle's samples are all in.
    pub(super) fn advance_max_bw(&mut self) {
        if self.max_bw[1] > 0.0 {
            self.max_bw = [self.max_bw[1], 0.0];
        }
    }

    /// Starts the next round with packets sent from now on.
    pub(super) fn start_round(&mut self) {
        self.round_end = self.delivered;
    }

    pub(super) fn reset_signals(&mut self) {
        self.loss.any = false;
        self.bw_latest = 0.0;
        self.inflight_latest = 0.0;
    }

    pub(super) fn reset_short_term(&mut self) {
        self.bw_lo = f64::INFINITY;
        self.inflight_lo = f64::INFINITY;
    }

    /// Restarts the model, as nothing was sent for a while.
    pub(super) fn restart(&mut self, now: Instant) {
        self.aggregation.since = Some(now);
        self.aggregation.acked = 0.0;
    }

    pub(super) fn undo(&mut self, bw_lo: f64, inflight_lo: f64, inflight_hi: f64) {
        self.loss.any = false;
        self.full.reset(0.0);
        self.bw_lo = self.bw_lo.max(bw_lo);
        self.inflight_lo = self.inflight_lo.max(inflight_lo);
        self.inflight_hi = self.inflight_hi.max(inflight_hi);
    }

    pub(super) fn note_loss(&mut self, ranges: u64) {
        self.loss.begins |= !self.loss.any;
        self.loss.any = true;
        self.loss.ranges = self.loss.ranges.saturating_add(ranges);
    }

    /// Takes `sample`; `pushes` while losses are sought, `window` in bytes.
    pub(super) fn update(&mut self, sample: &Sample, set: &Settings, pushes: bool, window: f64) {
        self.rounds(sample);
        if let Some(bandwidth) = sample.bandwidth {
            self.bw_latest = larger(bandwidth, self.bw_latest);
            if bandwidth >= self.max_bw() || !sample.app_limited {
                self.max_bw[1] = larger(bandwidth, self.max_bw[1]);
            }
        }
        if let Some(newest) = sample.newest {
            let delivered = float((sample.delivered - newest.delivered).bytes());
            self.inflight_latest = larger(delivered, self.inflight_latest);
        }
        if self.loss.over {
            if self.loss.any && !pushes {
                self.lower(set.keep, window, sample.hold);
            }
            self.loss.any = false;
        }
        let (late, early) = AGGREGATION_ROUNDS;
        let rounds = if self.full.reached { late } else { early };
        let bandwidth = self.bandwidth();
        self.aggregation
            .update(sample, bandwidth, window, rounds, self.round_start);
        self.full.update(sample, self.round_start);
    }

    fn rounds(&mut self, sample: &Sample) {
        self.delivered = sample.delivered;
        if std::mem::take(&mut self.loss.begins) {
            self.loss.end = sample.delivered;
        }
        let past = |end: Size| {
            sample
                .newest
                .map_or(sample.round_start, |newest| newest.delivered >= end)
        };
        self.round_start = past(self.round_end);
        if self.round_start {
            self.round_end = sample.delivered;
        }
        self.loss.over = past(self.loss.end);
        if self.loss.over {
            self.loss.end = sample.delivered;
        }
    }

    /// A round with losses: no more than was delivered, but by no more than `keep` at once.
    fn lower(&mut self, keep: f64, window: f64, hold: f64) {
        if self.bw_lo.is_infinite() {
            self.bw_lo = self.max_bw();
        }
        if self.inflight_lo.is_infinite() {
            self.inflight_lo = window;
        }
        self.bw_lo = self.bw_latest.max(keep * self.bw_lo);
        let least = self.inflight_latest.max(self.bw_lo * hold);
        self.inflight_lo = least.max(keep * self.inflight_lo);
    }

    /// Startup ends for loss too: `lossy` is whether the share lost is above the threshold.
    pub(super) fn check_startup_loss(&mut self, lossy: bool, bdp: f64) {
        if !self.loss.over {
            return;
        }
        if lossy && self.loss.ranges >= STARTUP_LOSSES && !self.full.reached {
            self.full.reached = true;
            self.inflight_hi = bdp.max(self.inflight_latest);
        }
        self.loss.ranges = 0;
    }

    /// Starts the latest values anew at the end of a loss round.
    pub(super) fn advance_latest(&mut self, sample: &Sample) {
        if self.loss.over {
            self.bw_latest = sample.bandwidth.unwrap_or(0.0);
            self.inflight_latest = sample.newest.map_or(0.0, |newest| {
                float((sample.delivered - newest.delivered).bytes())
            });
        }
    }
}
