//! LEDBAT++, by which background traffic gives way. It grows as Reno or slower until its packets
//! wait `target` in a queue, and gives up a part of the window above that. At intervals it steps
//! aside to see the path without itself (draft-irtf-iccrg-ledbat-plus-plus; RFC 6817).
//!
//! Constants: the draft's. Delay is the smallest of the last four rtt samples over the smallest of the
//! last ten minutes.

use std::time::Duration;

use farhaul_core::{
    congestion::{AckEvent, CongestionController},
    time::Instant,
};

use crate::{
    law::{COUNTING, Law, counting},
    parameters::{Kind, Parameter, Values},
    slow_start::{SlowStart, Start},
    window::{Cut, Growth, Window, Windowed, float},
};

pub(crate) const LAW: Law = Law {
    name: "ledbat",
    summary: "LEDBAT++: background traffic that yields to all other traffic",
    citation: "draft-irtf-iccrg-ledbat-plus-plus, RFC 6817",
    parameters: &[
        Parameter {
            name: "target_ms",
            about: "queueing delay to keep at most, ms",
            kind: Kind::Number(1.0, 1_000.0),
            default: "60",
        },
        Parameter {
            name: "slowdown",
            about: "time between slowdowns, in durations of the last one",
            kind: Kind::Number(1.0, 1_000.0),
            default: "9",
        },
        COUNTING,
    ],
    paced: false,
    receiver: None,
    make: |values: &Values| -> Box<dyn CongestionController> {
        let target = values.number("target_ms") / 1e3;
        let law = Ledbat::new(target, values.number("slowdown"));
        let start = LedbatStart::new(target);
        Box::new(Windowed::new(start, law).counting(counting(values)))
    },
};

/// Slow start ends at this part of the target.
const START_ENDS: f64 = 0.75;
/// Growth is Reno's divided by this at most.
const MOST_DIVISOR: f64 = 16.0;
/// Datagrams in flight during a slowdown, and its length in rtts.
const ASIDE: f64 = 2.0;
const ASIDE_RTTS: u32 = 2;
/// The memory of the base delay.
const MINUTES: usize = 10;
const MINUTE: Duration = Duration::from_mins(1);
const RECENT: usize = 4;

/// Queueing delay from round trips, s.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delay {
    recent: [f64; RECENT],
    at: usize,
    minutes: [f64; MINUTES],
    minute: usize,
    turned: Option<Instant>,
    base: f64,
}

impl Delay {
    pub(crate) const fn new() -> Self {
        Self {
            recent: [f64::INFINITY; RECENT],
            at: 0,
            minutes: [f64::INFINITY; MINUTES],
            minute: 0,
            turned: None,
            base: f64::INFINITY,
        }
    }

    pub(crate) fn update(&mut self, ack: &AckEvent) {
        let Some(rtt) = ack.rtt.map(|rtt| rtt.as_secs_f64().max(1e-6)) else {
            return;
        };
        self.recent[self.at] = rtt;
        self.at = (self.at + 1) % RECENT;
        let turned = *self.turned.get_or_insert(ack.now);
        if ack.now.since(turned) >= MINUTE {
            self.turned = Some(ack.now);
            self.minute = (self.minute + 1) % MINUTES;
            self.minutes[self.minute] = rtt;
            self.base = self.minutes.iter().copied().fold(rtt, f64::min);
        }
        self.minutes[self.minute] = self.minutes[self.minute].min(rtt);
        self.base = self.base.min(rtt);
    }

    /// Zero before the first sample.
    pub(crate) fn queue(&self) -> f64 {
        let now = self.recent.iter().copied().fold(f64::INFINITY, f64::min);
        if now.is_finite() {
            now - self.base
        } else {
            0.0
        }
    }

    /// The share of Reno's growth: less on short paths, where Reno's would be much.
    fn gain(&self, target: f64) -> f64 {
        1.0 / (2.0 * target / self.base).ceil().clamp(1.0, MOST_DIVISOR)
    }
}

/// LEDBAT++'s slow start.
#[derive(Clone, Copy, Debug)]
pub struct LedbatStart {
    target: f64,
    delay: Delay,
    /// True if the slow start is over: delay ends only the first.
    over: bool,
}

impl LedbatStart {
    /// Ends at three quarters of `target` seconds.
    pub const fn new(target: f64) -> Self {
        Self {
            target,
            delay: Delay::new(),
            over: false,
        }
    }
}

impl SlowStart for LedbatStart {
    fn on_ack(&mut self, _window: &Window, ack: &AckEvent) -> Start {
        self.delay.update(ack);
        if !self.over && self.delay.queue() > START_ENDS * self.target {
            self.over = true;
            return Start::Leave;
        }
        Start::Grow(self.delay.gain(self.target))
    }

    fn on_congestion(&mut self) {
        self.over = true;
    }
}

/// LEDBAT++'s congestion avoidance.
#[derive(Clone, Copy, Debug)]
pub struct Ledbat {
    target: f64,
    slowdown: f64,
    delay: Delay,
    phase: Phase,
    /// Time to step aside next.
    next: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Steady,
    /// Stepped aside at `since` from a window of `to` datagrams.
    Aside {
        since: Instant,
        to: f64,
        until: Instant,
    },
    /// The window is on the way back.
    Return {
        since: Instant,
        to: f64,
    },
}

impl Ledbat {
    /// Keeps queueing delay at `target` seconds, and steps aside every `slowdown` times as long as
    /// doing so took.
    pub const fn new(target: f64, slowdown: f64) -> Self {
        Self {
            target,
            slowdown,
            delay: Delay::new(),
            phase: Phase::Steady,
            next: None,
        }
    }

    /// Datagrams to add in a round at a window of `w`; negative above the target.
    fn step(&self, w: f64) -> f64 {
        let gain = self.delay.gain(self.target);
        let over = self.delay.queue() / self.target - 1.0;
        if over <= 0.0 {
            gain
        } else {
            (gain - w * over).max(-w / 2.0)
        }
    }

    /// The slowdown that began at `since` is over.
    fn back(&mut self, now: Instant, since: Instant) {
        let took = now.since(since).as_secs_f64().min(1e6);
        self.next = Some(now + Duration::from_secs_f64(took * self.slowdown));
        self.phase = Phase::Steady;
    }
}

impl Growth for Ledbat {
    fn name(&self) -> &'static str {
        LAW.name
    }

    fn watch(&mut self, _window: &Window, ack: &AckEvent) {
        self.delay.update(ack);
    }

    fn grow(&mut self, window: &Window, ack: &AckEvent) -> f64 {
        let w = window.packets();
        let pause = ack.path.srtt * ASIDE_RTTS;
        match self.phase {
            Phase::Steady => {
                let next = *self.next.get_or_insert(ack.now + pause);
                if ack.now < next {
                    let share = window.count(ack.acked) / w;
                    return (share.min(1.0) * self.step(w)) * window.datagram();
                }
                self.phase = Phase::Aside {
                    since: ack.now,
                    to: w,
                    until: ack.now + pause,
                };
                (ASIDE - w).min(0.0) * window.datagram()
            }
            Phase::Aside { since, to, until } => {
                if ack.now >= until {
                    self.phase = Phase::Return { since, to };
                }
                0.0
            }
            Phase::Return { since, to } => {
                let room = ((to - w) * window.datagram()).max(0.0);
                let more = self.delay.gain(self.target) * float(ack.acked.bytes());
                if more >= room {
                    self.back(ack.now, since);
                }
                more.min(room)
            }
        }
    }

    fn keep(&mut self, _window: &Window, cut: &Cut) -> f64 {
        if let Phase::Aside { since, .. } | Phase::Return { since, .. } = self.phase {
            self.back(cut.now, since);
        }
        0.5
    }
}
