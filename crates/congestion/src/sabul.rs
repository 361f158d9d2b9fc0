//! SABUL's control of its rate, before UDT. Each 10 ms the law compares the share of packets lost
//! with a limit of one in a thousand, and stretches or shrinks the gap between packets. Both ways
//! are multiplicative in SABUL's papers (`mimd`); the way up is additive and the way down
//! multiplicative in its last releases (`aimd`).
//!
//! Invariants: the gap stays between its bounds; a window of a fixed number of packets.
//!
//! Source: Gu, Hong, Mazzucco and Grossman, SABUL: A High Performance Data Transfer Protocol, IEEE
//! Communications Letters, 2003; SABUL 2.0 and 2.3 as read. The receiver's 10 ms signal is a
//! message ([`SIGNAL`]) in the protocol of that name; the sender used its time only. Other than
//! there: over protocols without that signal, it is a timer at the sender. A report of losses is
//! one of its ERR packets; the longest gap holds always, and not after an increase only.

use std::time::Duration;

use farhaul_core::{
    congestion::{AckEvent, Allowance, CcState, CongestionController, LossEvent, PathView},
    time::Instant,
    units::{Rate, Size},
};

use crate::{
    daimd::{MAX_QUANTUM, SYN, WINDOW},
    law::Law,
    parameters::{Kind, Parameter, Values},
    window::{float, size},
};

pub(crate) const LAW: Law = Law {
    name: "sabul",
    summary: "UDT's ancestor: the gap between packets follows the share lost, each 10 ms",
    citation: "Gu, Hong, Mazzucco, Grossman, SABUL, IEEE Communications Letters, 2003",
    parameters: &[
        Parameter {
            name: "variant",
            about: "mimd as in the papers (2.0), or aimd as in the releases 2.1 to 2.3",
            kind: Kind::Choice(&["mimd", "aimd"]),
            default: "mimd",
        },
        Parameter {
            name: "limit",
            about: "share lost up to which the rate may grow",
            kind: Kind::Number(0.0, 0.5),
            default: "0.001",
        },
        Parameter {
            name: "min_gap",
            about: "least time from packet to packet, us: 10 is 1.2 Gbit/s with 1500 bytes",
            kind: Kind::Number(0.1, 1_000.0),
            default: "10",
        },
        WINDOW,
    ],
    paced: true,
    receiver: None,
    make: |values: &Values| -> Box<dyn CongestionController> {
        Box::new(Sabul::new(
            values.choice("variant") == "mimd",
            values.number("limit"),
            values.number("min_gap"),
            values.number(WINDOW.name),
        ))
    },
};

/// The rate-control period.
const PERIOD: Duration = Duration::from_millis(10);
/// `SYN` in us.
const SYN_US: f64 = SYN * 1e6;
/// The gap at first and at most, us.
const GAPS: (f64, f64) = (10.0, 1_000.0);
/// Weight of the newest period in the loss history.
const NEWEST: f64 = 0.9;
/// Papers: stretch and shrink per unit of loss beyond the limit; us added to a stretch. Then come
/// the most by which a period shrinks the gap, and the us added exactly at the limit.
const MIMD: (f64, f64, f64, f64, f64) = (0.1, 10.0, 0.5, 0.01, 0.1);
/// 2.3: factor of the gap on loss, and reports of losses (as a power of two) until the next.
const AIMD: (f64, u32) = (1.125, 4);

/// Message by which a receiver signals to the law; see [`CongestionController::on_message`].
pub const SIGNAL: &[u8] = b"SYN";

/// SABUL's rate control.
#[derive(Clone, Debug)]
pub struct Sabul {
    mimd: bool,
    limit: f64,
    min_gap: f64,
    max_window: f64,
    /// Gap from packet to packet, us.
    gap: f64,
    /// Smoothed share lost.
    history: f64,
    /// Bytes sent and packets lost in this period.
    sent: u64,
    lost: u64,
    tick: Option<Instant>,
    /// True if the receiver signals its periods.
    signalled: bool,
    frozen: bool,
    /// Time before which lost packets were sent that have been answered.
    decreased_at: Option<Instant>,
    reports: u32,
    exponent: u32,
    datagram: f64,
}

impl Sabul {
    /// `mimd` or not; `limit` as a share, `min_gap` in us, `max_window` in packets.
    pub fn new(mimd: bool, limit: f64, min_gap: f64, max_window: f64) -> Self {
        Self {
            mimd,
            limit,
            min_gap,
            max_window,
            gap: GAPS.0.max(min_gap),
            history: 0.0,
            sent: 0,
            lost: 0,
            tick: None,
            signalled: false,
            frozen: false,
            decreased_at: None,
            reports: 0,
            exponent: AIMD.1,
            datagram: 1_200.0,
        }
    }

    fn set_gap(&mut self, us: f64) {
        self.gap = us.clamp(self.min_gap, GAPS.1.max(self.min_gap));
    }

    /// The papers' step: proportional to the distance from the limit.
    fn scale(&mut self) {
        let (stretch, shrink, extra, most, level) = MIMD;
        let beyond = self.history - self.limit;
        let gap = if beyond > 0.0 {
            self.gap * (1.0 + stretch * beyond) + extra
        } else if beyond < 0.0 {
            self.gap * (1.0 + (shrink * beyond).max(-most))
        } else {
            self.gap + level
        };
        self.set_gap(gap);
    }

    /// 2.3: a thousandth of the decimal order of the packets per period more.
    fn add(&mut self) {
        if self.history > self.limit {
            return;
        }
        let order = 10_f64.powf((SYN_US / self.gap).log10().ceil());
        let more = (order / 1_000.0).max(1.0 / 1_500.0);
        self.set_gap(self.gap * SYN_US / (self.gap * more + SYN_US));
    }

    /// 2.3: a report of losses.
    fn cut(&mut self, loss: &LossEvent) {
        let fresh = self.decreased_at.is_none_or(|at| loss.oldest.sent_at > at);
        if fresh {
            self.set_gap(self.gap * AIMD.0);
            self.decreased_at = Some(loss.now);
            self.frozen = true;
            self.tick = Some(self.tick.unwrap_or(loss.now + PERIOD));
            self.reports = 1;
            self.exponent = AIMD.1;
            return;
        }
        self.reports = self.reports.saturating_add(1);
        if self.exponent < 31 && self.reports >= 1 << self.exponent {
            self.exponent += 1;
            self.set_gap(self.gap * AIMD.0);
        }
    }

    /// A rate-control period is over.
    fn period(&mut self) {
        let sent = float(std::mem::take(&mut self.sent)) / self.datagram;
        let lost = float(std::mem::take(&mut self.lost));
        if sent <= 0.0 && lost <= 0.0 {
            // A period in which nothing happened proves nothing.
            return;
        }
        let share = lost / sent.max(lost);
        self.history = self.history * (1.0 - NEWEST) + share * NEWEST;
        if self.mimd {
            self.scale();
        } else {
            self.add();
        }
    }
}

impl CongestionController for Sabul {
    fn name(&self) -> &'static str {
        LAW.name
    }

    fn on_start(&mut self, now: Instant, path: &PathView) {
        *self = Self::new(self.mimd, self.limit, self.min_gap, self.max_window);
        self.datagram = f64::from(path.datagram.max(1));
        self.tick = Some(now + PERIOD);
    }

    fn on_sent(&mut self, _now: Instant, bytes: Size, _path: &PathView) {
        self.sent = self.sent.saturating_add(bytes.bytes());
    }

    fn on_ack(&mut self, ack: &AckEvent) {
        self.datagram = f64::from(ack.path.datagram.max(1));
    }

    fn on_loss(&mut self, loss: &LossEvent) {
        self.lost = self.lost.saturating_add(u64::from(loss.packets));
        if !self.mimd {
            self.cut(loss);
        }
    }

    fn on_tick(&mut self, now: Instant) {
        if self.tick.is_none_or(|at| at > now) {
            return;
        }
        self.frozen = false;
        self.tick = (!self.signalled).then(|| now + PERIOD);
        if !self.signalled {
            self.period();
        }
    }

    fn on_message(&mut self, now: Instant, bytes: &[u8]) {
        if bytes == SIGNAL {
            self.signalled = true;
            // What is frozen thaws by the clock: signals may be late.
            self.tick = self.frozen.then(|| self.tick.unwrap_or(now + PERIOD));
            self.period();
        }
    }

    fn next_tick(&self) -> Option<Instant> {
        self.tick
    }

    fn allowance(&self) -> Allowance {
        let rate = self.datagram / (self.gap * 1e-6);
        let window = if self.frozen { 1.0 } else { self.max_window };
        Allowance {
            window: size(window * self.datagram),
            rate: Rate::from_f64(rate * 8.0),
            quantum: size((rate * 1e-3).min(MAX_QUANTUM).max(2.0 * self.datagram)),
        }
    }

    fn observe(&self) -> CcState {
        CcState {
            phase: if self.frozen {
                "frozen"
            } else if self.history > self.limit {
                "backing off"
            } else {
                "growing"
            },
            ssthresh: None,
            bandwidth: None,
        }
    }
}

#[cfg(test)]
mod tests;
