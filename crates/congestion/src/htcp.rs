//! H-TCP, which grows as Reno for the first second after a loss, then with the square of the time.
//! The share that it keeps on a loss follows from how much of the rtt was queue (Leith, Shorten,
//! `PFLDnet` 2004; draft-leith-tcp-htcp). Throughput test and smoothing: Linux's `tcp_htcp`.

use farhaul_core::{
    congestion::{AckEvent, CongestionController},
    time::Instant,
};

use crate::{
    law::{COUNTING, Law, START, with_start},
    parameters::{Kind, Parameter, Values},
    rounds::Base,
    window::{Cut, Growth, Window, larger},
};

pub(crate) const LAW: Law = Law {
    name: "htcp",
    summary: "growth by the square of the time since the last loss",
    citation: "Leith, Shorten, PFLDnet 2004; Linux tcp_htcp",
    parameters: &[
        Parameter {
            name: "delta_l",
            about: "seconds after a loss in which it is Reno",
            kind: Kind::Number(0.0, 100.0),
            default: "1",
        },
        Parameter {
            name: "rtt_scaling",
            about: "grow in proportion to the rtt over 100 ms, from a tenth to twice",
            kind: Kind::Flag,
            default: "on",
        },
        Parameter {
            name: "adaptive_backoff",
            about: "keep the least rtt over the largest on a loss, 0.5 to 0.8; else always half",
            kind: Kind::Flag,
            default: "on",
        },
        START,
        COUNTING,
    ],
    paced: false,
    receiver: None,
    make: |values: &Values| -> Box<dyn CongestionController> {
        with_start(
            values,
            HTcp::new(
                values.number("delta_l"),
                values.flag("rtt_scaling"),
                values.flag("adaptive_backoff"),
            ),
        )
    },
};

/// Bounds of the share kept.
const BETA_MIN: f64 = 0.5;
const BETA_MAX: f64 = 0.8;
/// The largest rtt rises by this per sample at most: an outlier is no queue.
const MAX_RTT_STEP: f64 = 0.02;
/// Share of the largest rtt's excess that each loss leaves.
const MAX_RTT_MEMORY: f64 = 0.95;
/// No adaptive backoff on paths shorter than this, s.
const SHORT: f64 = 0.01;

/// H-TCP's congestion avoidance.
#[derive(Clone, Copy, Debug)]
pub struct HTcp {
    delta_l: f64,
    rtt_scaling: bool,
    adaptive_backoff: bool,
    beta: f64,
    /// Time of the last cut, or of the first acknowledgement, and the seconds since.
    last_cut: Option<Instant>,
    since_cut: f64,
    base: Base,
    rtt_max: f64,
    throughput: Throughput,
    /// True if throughput was steady at the cut before: the rtt may be used.
    steady: bool,
}

/// Packets per second, and its largest value in this and the last epoch.
#[derive(Clone, Copy, Debug, Default)]
struct Throughput {
    since: Option<Instant>,
    packets: f64,
    smooth: f64,
    max: f64,
    old_max: f64,
}

impl Throughput {
    /// `settling`: just after a cut, when the window is still that of before.
    fn on_ack(&mut self, now: Instant, packets: f64, rtt_min: f64, settling: bool) {
        let since = *self.since.get_or_insert(now);
        self.packets += packets;
        let elapsed = now.since(since).as_secs_f64();
        if elapsed < rtt_min || elapsed <= 0.0 {
            return;
        }
        let sample = self.packets / elapsed;
        if settling {
            self.smooth = sample;
            self.max = sample;
        } else {
            self.smooth = 0.75 * self.smooth + 0.25 * sample;
            self.max = larger(self.smooth, self.max);
        }
        self.since = Some(now);
        self.packets = 0.0;
    }

    /// True if the last two epochs agreed within a fifth. Starts the next.
    fn agreed(&mut self) -> bool {
        let old = std::mem::replace(&mut self.old_max, self.max);
        (4.0 * old..=6.0 * old).contains(&(5.0 * self.max))
    }
}

impl HTcp {
    /// Reno for `delta_l` seconds; the flags are H-TCP's options.
    pub fn new(delta_l: f64, rtt_scaling: bool, adaptive_backoff: bool) -> Self {
        Self {
            delta_l,
            rtt_scaling,
            adaptive_backoff,
            beta: BETA_MIN,
            last_cut: None,
            since_cut: 0.0,
            base: Base::default(),
            rtt_max: 0.0,
            throughput: Throughput::default(),
            steady: false,
        }
    }

    /// Datagrams to add per round `since` seconds after a cut, on a path of `rtt_min` seconds.
    pub fn alpha(&self, since: f64, rtt_min: f64) -> f64 {
        let d = (since - self.delta_l).max(0.0);
        let growth = 1.0 + 10.0 * d + (d / 2.0).powi(2);
        let scale = if self.rtt_scaling {
            (rtt_min / 0.1).clamp(0.1, 2.0)
        } else {
            1.0
        };
        2.0 * (1.0 - self.beta) * growth * scale
    }

    fn backoff(&mut self, rtt_min: f64) -> f64 {
        if !self.adaptive_backoff || !self.throughput.agreed() {
            self.steady = false;
            return BETA_MIN;
        }
        if !self.steady || rtt_min <= SHORT {
            self.steady = true;
            return BETA_MIN;
        }
        (rtt_min / self.rtt_max.max(rtt_min)).clamp(BETA_MIN, BETA_MAX)
    }
}

impl Growth for HTcp {
    fn name(&self) -> &'static str {
        LAW.name
    }

    fn watch(&mut self, window: &Window, ack: &AckEvent) {
        let last_cut = *self.last_cut.get_or_insert(ack.now);
        self.since_cut = ack.now.since(last_cut).as_secs_f64();
        self.base.on_ack(ack);
        let Some(rtt_min) = self.base.seconds() else {
            return;
        };
        let srtt = ack.path.srtt.as_secs_f64();
        self.rtt_max = larger(self.rtt_max, rtt_min);
        if srtt <= self.rtt_max + MAX_RTT_STEP {
            self.rtt_max = larger(self.rtt_max, srtt);
        }
        let settling = self.since_cut <= 3.0 * rtt_min;
        let packets = window.count(ack.acked);
        self.throughput.on_ack(ack.now, packets, rtt_min, settling);
    }

    fn grow(&mut self, window: &Window, ack: &AckEvent) -> f64 {
        let rtt_min = self.base.seconds().unwrap_or(0.1);
        window.additive(ack.acked, self.alpha(self.since_cut, rtt_min))
    }

    fn keep(&mut self, _window: &Window, cut: &Cut) -> f64 {
        let rtt_min = self.base.seconds().unwrap_or(0.0);
        self.beta = self.backoff(rtt_min);
        self.rtt_max = rtt_min + MAX_RTT_MEMORY * (self.rtt_max - rtt_min).max(0.0);
        self.last_cut = Some(cut.now);
        self.since_cut = 0.0;
        self.beta
    }
}
