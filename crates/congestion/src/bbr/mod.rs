//! BBR version 3, which sends by a model of the path. The largest delivery rate and the smallest
//! rtt of late give the bandwidth-delay product. Bounds learnt from loss keep the bytes in flight
//! below what the path has shown it can hold. Now and then the law tries more, and less.
//!
//! Here: phases, and what they allow. [`model`] keeps the estimates, [`cycle`] probes for bandwidth,
//! [`floor`] for the rtt.
//!
//! Invariants: a phase changes in [`Bbr::on_ack`] or on a loss only. Estimates are never NaN and
//! only bounds are ever infinite. The window is at least four datagrams but after a timeout, when
//! it is one more than the datagrams in flight.
//!
//! Source: Cardwell et al., draft-ietf-ccwg-bbr (2026), with its constants. From google/bbr's v3
//! for Linux is that a probe stops at the volume of an earlier excessive one, and continues after a
//! clean round. Differences: feedback is reported in batches, so that losses are evaluated by the
//! newest of a report's; and marks ("congestion experienced") count as losses do.

mod cycle;
mod floor;
mod model;
#[cfg(test)]
mod tests;

use std::time::Duration;

use farhaul_core::{
    congestion::{
        AckEvent, Allowance, CcState, CongestionController, LossEvent, PathView, TxSnapshot,
    },
    time::Instant,
    units::{Rate, Size},
};

use crate::{
    daimd::ranges,
    law::Law,
    parameters::{Kind, Parameter, Values},
    window::{MAX_WINDOW, Window, float, larger, size, smaller},
};
use cycle::Cycle;
use floor::Floor;
use model::{Model, Sample};

pub(crate) const LAW: Law = Law {
    name: "bbr",
    summary: "BBRv3: a model of bandwidth and rtt, bounded by loss above 2 %",
    citation: "draft-ietf-ccwg-bbr; Cardwell et al., BBR, ACM Queue 14(5), 2016",
    parameters: &[
        Parameter {
            name: "loss",
            about: "share lost in a probing round above which the path is full",
            kind: Kind::Number(0.001, 0.5),
            default: "0.02",
        },
        Parameter {
            name: "keep",
            about: "factor applied to a bound that proves too high",
            kind: Kind::Number(0.1, 0.99),
            default: "0.7",
        },
        Parameter {
            name: "headroom",
            about: "share of the upper bound left to others while cruising",
            kind: Kind::Number(0.0, 0.5),
            default: "0.15",
        },
        Parameter {
            name: "startup_gain",
            about: "pacing over bandwidth during startup",
            kind: Kind::Number(1.5, 4.0),
            default: "2.77",
        },
        Parameter {
            name: "drain_gain",
            about: "pacing over bandwidth after startup (Linux: 0.347)",
            kind: Kind::Number(0.1, 0.95),
            default: "0.5",
        },
        Parameter {
            name: "up_gain",
            about: "pacing over bandwidth while probing for more",
            kind: Kind::Number(1.05, 2.0),
            default: "1.25",
        },
        Parameter {
            name: "down_gain",
            about: "pacing over bandwidth after such a probe (Linux: 0.91)",
            kind: Kind::Number(0.5, 0.99),
            default: "0.9",
        },
        Parameter {
            name: "wait",
            about: "seconds from probe to probe at least; up to a second more at random",
            kind: Kind::Number(0.1, 60.0),
            default: "2",
        },
    ],
    paced: true,
    receiver: None,
    make: |values: &Values| -> Box<dyn CongestionController> {
        Box::new(Bbr::new(Settings {
            loss: values.number("loss"),
            keep: values.number("keep"),
            headroom: values.number("headroom"),
            startup_gain: values.number("startup_gain"),
            drain_gain: values.number("drain_gain"),
            up_gain: values.number("up_gain"),
            down_gain: values.number("down_gain"),
            wait: values.number("wait"),
        }))
    },
};

/// Window over bandwidth-delay product; while probing upwards.
const WINDOW_GAIN: (f64, f64) = (2.0, 2.25);
/// Share of the bandwidth estimate that is paced, so that queues made by error drain.
const MARGIN: f64 = 0.99;
/// Datagrams that keep a path alive.
const LEAST: f64 = 4.0;
/// The most bytes sent back to back.
const MAX_QUANTUM: f64 = 65_536.0;
/// Rounds after which draining ends, drained or not.
const DRAIN_ROUNDS: u32 = 3;

/// Parameters that can be set; see [`LAW`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    loss: f64,
    keep: f64,
    headroom: f64,
    startup_gain: f64,
    drain_gain: f64,
    up_gain: f64,
    down_gain: f64,
    wait: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Startup,
    Drain,
    /// The law sends below the estimate, until the queue of the last probe is gone.
    Down,
    Cruise,
    /// The law sends at the estimate and without short-term bounds, for a round.
    Refill,
    /// The law sends above the estimate.
    Up,
    ProbeRtt,
}

impl Phase {
    const fn name(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Drain => "drain",
            Self::Down => "probe down",
            Self::Cruise => "cruise",
            Self::Refill => "refill",
            Self::Up => "probe up",
            Self::ProbeRtt => "probe rtt",
        }
    }

    const fn probes_bandwidth(self) -> bool {
        matches!(self, Self::Down | Self::Cruise | Self::Refill | Self::Up)
    }

    /// True for phases that send at or above the estimate on purpose: loss then sets no short-term
    /// bound.
    const fn pushes(self) -> bool {
        matches!(self, Self::Startup | Self::Refill | Self::Up)
    }
}

/// State that a loss episode that proves spurious gives back.
#[derive(Clone, Copy, Debug)]
struct Saved {
    phase: Phase,
    bw_lo: f64,
    inflight_lo: f64,
    inflight_hi: f64,
}

/// BBR version 3.
#[derive(Clone, Debug)]
pub struct Bbr {
    set: Settings,
    phase: Phase,
    model: Model,
    cycle: Cycle,
    floor: Floor,
    saved: Option<Saved>,
    path: PathView,
    /// The path's feedback interval, s.
    interval: f64,
    /// Bytes.
    window: f64,
    /// The window before a timeout or a probe of the rtt.
    prior_window: f64,
    /// Time of a timeout; it is being recovered from until a packet sent later is acknowledged.
    timeout_at: Option<Instant>,
    /// Bytes per second.
    pacing: f64,
    drain_rounds: u32,
    /// The most in flight since the last feedback.
    peak: f64,
    idle_restart: bool,
    /// Computed when window, pacing or datagram size change, since it is read more often.
    allowance: Allowance,
}

impl Bbr {
    pub(crate) fn new(set: Settings) -> Self {
        let path = PathView::default();
        let mut new = Self {
            set,
            phase: Phase::Startup,
            model: Model::default(),
            cycle: Cycle::new(0),
            floor: Floor::default(),
            saved: None,
            path,
            interval: path.feedback_interval.as_secs_f64(),
            window: 0.0,
            prior_window: 0.0,
            timeout_at: None,
            pacing: 0.0,
            drain_rounds: 0,
            peak: 0.0,
            idle_restart: false,
            allowance: Allowance {
                window: Size::ZERO,
                rate: Rate::ZERO,
                quantum: Size::ZERO,
            },
        };
        new.begin();
        new
    }

    /// The initial window and rate.
    fn begin(&mut self) {
        self.window = self.initial();
        let rtt = self.path.srtt.as_secs_f64().max(1e-3);
        self.pacing = self.set.startup_gain * self.window / rtt;
        self.allow();
    }

    fn allow(&mut self) {
        // A path that delivers nothing for long is not given up: a datagram leaves every ten seconds.
        let least = self.datagram() / 10.0;
        self.allowance = Allowance {
            window: size(self.window),
            rate: Rate::from_f64(self.pacing.max(least) * 8.0),
            quantum: size(self.quantum()),
        };
    }

    fn initial(&self) -> f64 {
        Window::initial(self.path.datagram).bytes()
    }

    fn datagram(&self) -> f64 {
        f64::from(self.path.datagram.max(1))
    }

    /// Bandwidth times propagation delay, bytes; the initial window while either is unknown.
    fn bdp(&self, bandwidth: f64) -> f64 {
        match self.floor.min_rtt() {
            Some(rtt) if bandwidth > 0.0 => (bandwidth * rtt).min(MAX_WINDOW),
            _ => self.initial(),
        }
    }

    /// Bytes that the phase wants in flight.
    fn target(&self) -> f64 {
        smaller(self.bdp(self.model.bandwidth()), self.window)
    }

    fn learn(&mut self, path: &PathView) {
        if path.feedback_interval != self.path.feedback_interval {
            self.interval = path.feedback_interval.as_secs_f64();
        }
        let other = path.datagram != self.path.datagram;
        self.path = *path;
        if other {
            self.allow();
        }
    }

    /// Bytes that have arrived and wait to be reported: in flight, but not in the network.
    fn waiting(&self) -> f64 {
        self.model.bandwidth() * self.interval
    }

    /// The upper bound with room left for others.
    fn with_headroom(&self) -> f64 {
        let bound = self.model.inflight_hi;
        if bound.is_infinite() {
            return bound;
        }
        let room = self.set.headroom * (bound - self.waiting()).max(0.0);
        let bound = bound - larger(room, self.datagram());
        larger(bound, LEAST * self.datagram())
    }

    fn pacing_gain(&self) -> f64 {
        match self.phase {
            Phase::Startup => self.set.startup_gain,
            Phase::Drain => self.set.drain_gain,
            Phase::Down => self.set.down_gain,
            Phase::Up => self.set.up_gain,
            Phase::Cruise | Phase::Refill | Phase::ProbeRtt => 1.0,
        }
    }

    fn quantum(&self) -> f64 {
        larger((self.pacing * 1e-3).min(MAX_QUANTUM), 2.0 * self.datagram())
    }

    fn sample(&self, ack: &AckEvent) -> Sample {
        let peak = larger(self.peak, float(ack.in_flight_before.bytes()));
        Sample {
            now: ack.now,
            acked: float(ack.acked.bytes()),
            bandwidth: ack.rate.map(|r| (r.rate.as_f64() / 8.0).min(MAX_WINDOW)),
            app_limited: ack.rate.is_some_and(|r| r.app_limited)
                || self.floor.slowed(ack.newest.map(|n| n.delivered)),
            rtt: ack.rtt,
            delivered: ack.delivered,
            lost: ack.lost,
            newest: ack.newest,
            round_start: ack.round_start,
            in_flight: float(ack.path.in_flight.bytes()),
            hold: self.floor.min_rtt().unwrap_or(0.0) + self.interval,
            window_limited: peak + 2.0 * self.datagram() >= self.window,
        }
    }

    /// True if more than the threshold of the bytes in flight with a packet was lost since.
    fn too_high(&self, newest: &TxSnapshot, lost: Size) -> bool {
        let lost = float((lost - newest.lost).bytes());
        lost > self.set.loss * float(newest.in_flight.bytes())
    }

    fn check_startup(&mut self, sample: &Sample) {
        if self.phase == Phase::Startup {
            let bdp = self.bdp(self.model.max_bw());
            let lossy = sample
                .newest
                .is_some_and(|newest| self.too_high(&newest, sample.lost));
            self.model.check_startup_loss(lossy, bdp);
            if self.model.full.reached {
                self.phase = Phase::Drain;
                self.drain_rounds = 0;
            }
        }
        if self.phase == Phase::Drain {
            self.drain_rounds += u32::from(self.model.round_start);
            if sample.in_flight <= self.bdp(self.model.max_bw()) || self.drain_rounds > DRAIN_ROUNDS
            {
                self.start_down(sample.now);
            }
        }
    }

    fn set_pacing(&mut self) {
        let bandwidth = self.model.bandwidth();
        if bandwidth <= 0.0 {
            return;
        }
        let rate = self.pacing_gain() * bandwidth * MARGIN;
        if self.model.full.reached || rate > self.pacing {
            self.pacing = larger(rate, self.datagram());
        }
    }

    fn set_window(&mut self, sample: &Sample) {
        let (datagram, up) = (self.datagram(), self.phase == Phase::Up);
        let gain = if up { WINDOW_GAIN.1 } else { WINDOW_GAIN.0 };
        let wanted = gain * self.bdp(self.model.bandwidth()) + self.model.extra_acked();
        let more = if up { 2.0 * datagram } else { 0.0 };
        let least = larger(3.0 * self.quantum(), LEAST * datagram);
        let most = larger(wanted, least) + more;
        if self.model.full.reached {
            self.window = smaller(self.window + sample.acked, most);
        } else if self.window < most || float(sample.delivered.bytes()) < self.initial() {
            self.window += sample.acked;
        }
        let cap = match self.phase {
            Phase::ProbeRtt => smaller(self.with_headroom(), self.probe_rtt_window()),
            Phase::Cruise => self.with_headroom(),
            Phase::Down | Phase::Refill | Phase::Up => self.model.inflight_hi,
            Phase::Startup | Phase::Drain => f64::INFINITY,
        };
        let cap = smaller(cap, self.model.inflight_lo).min(MAX_WINDOW);
        self.window = larger(smaller(self.window, cap), LEAST * datagram);
    }

    /// A packet sent after the timeout was delivered: the window is restored.
    fn recover(&mut self, ack: &AckEvent) {
        if let Some(at) = self.timeout_at
            && ack.newest.is_none_or(|newest| newest.sent_at >= at)
        {
            self.timeout_at = None;
            self.window = self.window.max(self.prior_window);
            if self.phase != Phase::ProbeRtt {
                self.prior_window = 0.0;
            }
        }
    }

    /// Bounds the bytes in flight, once per probe, as there are more than the path holds.
    fn bound(&mut self, now: Instant, in_flight: f64, app_limited: bool) {
        self.cycle.too_high();
        if !app_limited {
            let least = self.set.keep * self.target();
            self.model.inflight_hi = in_flight.max(least).max(LEAST * self.datagram());
        }
        if self.phase == Phase::Up {
            self.start_down(now);
        }
    }
}

impl CongestionController for Bbr {
    fn name(&self) -> &'static str {
        LAW.name
    }

    fn on_start(&mut self, now: Instant, path: &PathView) {
        *self = Self {
            cycle: Cycle::new(now.as_nanos()),
            ..Self::new(self.set)
        };
        self.learn(path);
        self.begin();
    }

    fn on_sent(&mut self, _now: Instant, _bytes: Size, path: &PathView) {
        self.learn(path);
        self.peak = larger(self.peak, float(path.in_flight.bytes()));
    }

    fn on_ack(&mut self, ack: &AckEvent) {
        self.learn(&ack.path);
        let sample = self.sample(ack);
        self.recover(ack);
        if ack.ce > 0 {
            self.on_marks(ack);
        }
        self.model
            .update(&sample, &self.set, self.phase.pushes(), self.window);
        self.check_startup(&sample);
        self.run_cycle(&sample);
        self.run_floor(&sample);
        self.model.advance_latest(&sample);
        self.set_pacing();
        self.set_window(&sample);
        self.peak = sample.in_flight;
        self.idle_restart = false;
        self.allow();
    }

    fn on_loss(&mut self, loss: &LossEvent) {
        self.learn(&loss.path);
        if loss.new_episode {
            self.saved = Some(Saved {
                phase: self.phase,
                bw_lo: self.model.bw_lo,
                inflight_lo: self.model.inflight_lo,
                inflight_hi: self.model.inflight_hi,
            });
        }
        self.model.note_loss(ranges(loss));
        if self.cycle.samples() && self.too_high(&loss.newest, loss.lost_total) {
            // What was in flight when losses crossed the threshold, taking this report's as one.
            let (lost, total) = (float(loss.lost.bytes()), float(loss.lost_total.bytes()));
            let before = (float(loss.newest.in_flight.bytes()) - lost).max(0.0);
            let lost_before = (total - lost - float(loss.newest.lost.bytes())).max(0.0);
            let share = self.set.loss;
            let prefix = ((share * before - lost_before) / (1.0 - share)).max(0.0);
            self.bound(loss.now, before + prefix, loss.newest.app_limited);
        }
    }

    fn on_timeout(&mut self, now: Instant, backoff: u32) {
        if backoff <= 1 {
            self.prior_window = self.prior_window.max(self.window);
        }
        self.timeout_at = Some(now);
        self.window = float(self.path.in_flight.bytes()) + self.datagram();
        self.allow();
    }

    fn on_undo(&mut self, _now: Instant) {
        let Some(saved) = self.saved.take() else {
            return;
        };
        self.model
            .undo(saved.bw_lo, saved.inflight_lo, saved.inflight_hi);
        if self.phase != Phase::ProbeRtt && self.phase != saved.phase {
            match saved.phase {
                Phase::Startup => {
                    self.model.full.reached = false;
                    self.phase = Phase::Startup;
                }
                Phase::Up => self.start_up(),
                _ => {}
            }
        }
    }

    fn on_idle_restart(&mut self, now: Instant, _idle: Duration) {
        self.idle_restart = true;
        self.model.restart(now);
        if self.phase.probes_bandwidth() && self.model.bandwidth() > 0.0 {
            self.pacing = (self.model.bandwidth() * MARGIN).max(self.datagram());
        } else if self.phase == Phase::ProbeRtt {
            self.end_probe_rtt(now);
        }
        self.allow();
    }

    fn sample_window(&self) -> Option<Duration> {
        // A round; but no shorter than what leaves feedback rare.
        Some(
            self.path
                .srtt
                .clamp(Duration::from_millis(25), Duration::from_secs(1)),
        )
    }

    fn allowance(&self) -> Allowance {
        self.allowance
    }

    fn observe(&self) -> CcState {
        CcState {
            phase: self.phase.name(),
            ssthresh: None,
            bandwidth: Some(Rate::from_f64(self.model.bandwidth() * 8.0)),
        }
    }
}
