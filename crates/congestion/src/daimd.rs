//! UDT's control of its rate: AIMD with a decreasing increase. Each 10 ms the packet rate rises by
//! a step that depends on the decimal order of the spare capacity. A loss stretches the packet
//! period by an eighth, at most five times per epoch. A window of what arrives in an rtt and 10 ms
//! guards the rate.
//!
//! Invariants: the period is at least [`MIN_PERIOD`] and finite; no increase in a period with a loss.
//!
//! Source: the native control of libudt 4.11 as measured and read (Gu and Grossman, UDT, Computer
//! Networks 51(7), 2007; draft-gg-udt-03 where it does not differ). Other than there: the
//! receiver's medians are those of the session if it has them. Over a protocol without packet pairs
//! the arrival speed is the delivery rate. The window gets a quarter more than that rate (a mean
//! sees the pauses which UDT's median does not). The capacity then is the largest delivery rate so
//! far, which the bursts of slow start show; after a second without loss as much again is assumed.
//! Feedback rarer than 10 ms is compensated for; where the receiver reports its rates, as UDT's
//! does, a late acknowledgement counts once, as in libudt.
//!
//! Without UDT's seeds (`first=none`) measurements of pairs are checked. Packets that one receive
//! call returned have no spacing, so the capacity is held between the fastest arrival and twice
//! that. Nor is an arrival speed above twice the delivery rate believed: libudt's receiver takes
//! the packets of a burst in a microsecond or two each, and reports that. Slow start is not ended
//! by a loss here and there, but when a tenth of its packets is lost. Losses of the burst that
//! ended it are not counted again.

use std::time::Duration;

use farhaul_core::{
    congestion::{
        AckEvent, Allowance, CcState, CongestionController, LossEvent, PathView, RateSample,
        ReceiverRates,
    },
    rng::Rng,
    time::Instant,
    units::Rate,
};

use crate::{
    law::Law,
    parameters::{Kind, Parameter, Values},
    window::{float, size},
};

pub(crate) const LAW: Law = Law {
    name: "daimd",
    summary: "UDT's native control: decreasing increase, a ninth less on loss",
    citation: "Gu and Grossman, Computer Networks 51(7), 2007; libudt 4.11",
    parameters: &[
        WINDOW,
        Parameter {
            name: "decrease",
            about: "factor by which the packet period grows on a loss",
            kind: Kind::Number(1.01, 2.0),
            default: "1.125",
        },
        Parameter {
            name: "first",
            about: "estimates before the first report: UDT's seeds, or none",
            kind: Kind::Choice(&["seeds", "none"]),
            default: "seeds",
        },
        Parameter {
            name: "cuts",
            about: "decreases per epoch of loss at most",
            kind: Kind::Number(1.0, 5.0),
            default: "5",
        },
    ],
    paced: true,
    receiver: None,
    make: |values: &Values| -> Box<dyn CongestionController> {
        let law = Daimd::new(
            values.number(WINDOW.name),
            values.number("decrease"),
            values.choice("first") == "seeds",
        );
        Box::new(law.with_cuts(values.number("cuts")))
    },
};

/// The flow window that UDT and SABUL open with.
pub(crate) const WINDOW: Parameter = Parameter {
    name: "window",
    about: "most packets in flight; libudt's default, to be raised on long fat paths",
    kind: Kind::Number(16.0, 100_000_000.0),
    default: "25600",
};

/// The rate-control period, s.
pub(crate) const SYN: f64 = 0.01;
/// The packet period of slow start, s, and the least.
const MIN_PERIOD: f64 = 1e-6;
/// The longest packet period, s.
const MAX_PERIOD: f64 = 10.0;
/// The window at first, packets.
const FIRST_WINDOW: f64 = 16.0;
/// UDT's estimates before the first report, packets per second: arrival speed, capacity. Smoothed with
/// the first reports, they make it forget for seconds how fast it was.
const SEEDS: (u64, u64) = (16, 1);
/// Estimates before anything is known: the first report is taken as it is.
const UNKNOWN: (u64, u64) = (0, 0);
/// The arrival speed that libudt's receiver reports before its first measurement.
const INVENTED: u64 = 1;
/// The window over what arrives, where that is a mean.
const SLACK: f64 = 1.25;
/// Slack without seeds: a lost repair delays acknowledgements of later packets by a round trip.
const CURED_SLACK: f64 = 2.0;
/// A guess at the capacity holds for so long without loss before it is raised.
const QUIET: Duration = Duration::from_secs(1);
/// UDP and IP headers, which UDT's packet size includes.
const HEADERS: f64 = 28.0;
/// Losses that slow start bears without seeds, and a tenth of its packets.
const FIRST_LOSSES: f64 = 2.0;
/// Periods that feedback may be late and still be made up for.
const MAX_PERIODS: f64 = 25.0;
/// Cuts per epoch.
const MAX_CUTS: u32 = 5;
/// The most bytes sent back to back.
pub(crate) const MAX_QUANTUM: f64 = 65_536.0;

/// UDT's native congestion control.
#[derive(Clone, Debug)]
pub struct Daimd {
    max_window: f64,
    decrease: f64,
    /// Estimates before the first report.
    first: (u64, u64),
    slow_start: bool,
    /// Packets acknowledged and lost in slow start.
    started: [f64; 2],
    /// Seconds from packet to packet.
    period: f64,
    /// Packets.
    window: f64,
    /// Arrival speed and capacity, packets/s.
    arrival: u64,
    capacity: u64,
    /// The fastest arrival: the largest delivery rate, where that is all there is.
    seen: u64,
    last_at: Option<Instant>,
    /// Packets acknowledged since.
    acked: u64,
    loss: bool,
    /// The period before the last first cut of an epoch.
    last_decrease_period: f64,
    /// Time before which lost packets were sent that belong to the epoch.
    last_decrease_at: Option<Instant>,
    /// Time of the last loss or the start, if the receiver does not report its capacity.
    guessed_since: Option<Instant>,
    average_naks: f64,
    naks: u32,
    cuts: u32,
    max_cuts: u32,
    random: u32,
    rng: Rng,
    /// Bytes of a full datagram, and seconds.
    datagram: f64,
    rtt: f64,
}

impl Daimd {
    /// A law with at most `max_window` packets in flight; a loss multiplies the period by
    /// `decrease`; it has UDT's `seeds`, or takes the first reports as they are.
    pub fn new(max_window: f64, decrease: f64, seeds: bool) -> Self {
        let first = if seeds { SEEDS } else { UNKNOWN };
        Self {
            max_window,
            decrease,
            first,
            slow_start: true,
            started: [0.0; 2],
            period: MIN_PERIOD,
            window: FIRST_WINDOW,
            arrival: first.0,
            capacity: first.1,
            seen: SEEDS.1,
            last_at: None,
            acked: 0,
            loss: false,
            last_decrease_period: MIN_PERIOD,
            last_decrease_at: None,
            guessed_since: None,
            average_naks: 0.0,
            naks: 0,
            cuts: 0,
            max_cuts: MAX_CUTS,
            random: 1,
            rng: Rng::new(0),
            datagram: 1_200.0,
            rtt: 0.1,
        }
    }

    /// Sets the most decreases per epoch of loss; whole, from 1 to UDT's 5.
    #[must_use]
    pub fn with_cuts(mut self, cuts: f64) -> Self {
        let cuts = u32::try_from(size(cuts).bytes()).unwrap_or(MAX_CUTS);
        self.max_cuts = cuts.clamp(1, MAX_CUTS);
        self
    }

    fn learn(&mut self, path: &PathView) {
        self.datagram = f64::from(path.datagram.max(1));
        self.rtt = path.srtt.as_secs_f64();
    }

    fn set_period(&mut self, seconds: f64) {
        self.period = seconds.clamp(MIN_PERIOD, MAX_PERIOD);
    }

    /// Whole packets per second, rounded up as the receiver does.
    fn packets(&self, rate: Rate) -> u64 {
        size((rate.as_f64() / (8.0 * self.datagram)).ceil().min(1e9)).bytes()
    }

    /// The arrival speed reported, or its plausible part; 0 if unknown.
    fn arrival_of(&self, told: ReceiverRates, delivered: Option<RateSample>) -> u64 {
        let arrival = self.packets(told.arrival);
        if self.first == SEEDS {
            return arrival;
        }
        let delivered = delivered.map(|sample| self.packets(sample.rate));
        match delivered.filter(|delivered| *delivered > 0) {
            // libudt reports one packet per second before its first measurement.
            Some(delivered) if arrival <= INVENTED => delivered,
            Some(delivered) if arrival > 2 * delivered => delivered,
            None if arrival <= INVENTED => 0,
            Some(_) | None => arrival,
        }
    }

    fn estimate(&mut self, ack: &AckEvent) {
        let smooth = |old: u64, new: u64| match (old, new) {
            (_, 0) => old,
            (0, _) => new,
            _ => (old * 7 + new) >> 3,
        };
        if let Some(told) = ack.receiver {
            let arrival = self.arrival_of(told, ack.rate);
            self.arrival = smooth(self.arrival, arrival);
            if let Some(capacity) = told.capacity {
                self.capacity = smooth(self.capacity, self.packets(capacity));
            }
            if self.first == UNKNOWN && self.arrival > 0 {
                if self.slow_start {
                    // It doubles each round trip: what is smoothed is far behind.
                    self.arrival = self.arrival.max(arrival);
                }
                // The speed of a burst is no rate to send at, but a link that has shown it has it.
                self.seen = self.seen.max(self.arrival).max(self.packets(told.arrival));
                self.capacity = self.capacity.clamp(self.seen, 2 * self.seen);
            }
        } else if let Some(sample) = ack.rate {
            let packets = self.packets(sample.rate);
            self.arrival = smooth(self.arrival, packets).max(1);
            self.seen = self.seen.max(packets);
            self.capacity = self.capacity.max(packets);
            let since = *self.guessed_since.get_or_insert(ack.now);
            if !self.slow_start && ack.now.since(since) > QUIET {
                self.capacity = self.capacity.max(2 * self.arrival);
                self.guessed_since = Some(ack.now);
            }
        }
    }

    fn leave_slow_start(&mut self) {
        self.slow_start = false;
        self.set_period(if self.arrival > 0 {
            1.0 / float(self.arrival)
        } else {
            (self.rtt + SYN) / self.window
        });
    }

    /// Packets per second, each period, for the spare capacity.
    fn step(&self) -> f64 {
        let capacity = float(self.capacity);
        let mut spare = capacity - 1.0 / self.period;
        if self.period > self.last_decrease_period {
            spare = spare.min(capacity / 9.0);
        }
        let mss = self.datagram + HEADERS;
        if spare <= 0.0 {
            return 0.01;
        }
        (power_of_ten(spare * mss * 8.0) * 1.5e-6 / mss).max(0.01)
    }

    /// A rate-control period, or several, passed without a loss.
    fn increase(&mut self, periods: f64) {
        let step = self.step() * periods;
        self.set_period(self.period * SYN / (self.period * step + SYN));
    }

    fn on_nak(&mut self, loss: &LossEvent) {
        let micros = |seconds: f64| (seconds * 1e6).ceil() * 1e-6;
        let fresh = self
            .last_decrease_at
            .is_none_or(|at| loss.oldest.sent_at > at);
        if fresh {
            self.last_decrease_period = self.period;
            self.set_period(micros(self.period * self.decrease));
            self.average_naks = (self.average_naks * 0.875 + f64::from(self.naks) * 0.125).ceil();
            self.naks = 1;
            self.cuts = 1;
            self.last_decrease_at = Some(loss.now);
            let drawn = (self.average_naks * self.rng.unit()).ceil();
            self.random = u32::try_from(size(drawn).bytes()).unwrap_or(1).max(1);
        } else if self.cuts < self.max_cuts {
            self.cuts += 1;
            self.naks += 1;
            if self.naks.is_multiple_of(self.random) {
                self.set_period(micros(self.period * self.decrease));
                self.last_decrease_at = Some(loss.now);
            }
        } else {
            self.cuts = self.cuts.saturating_add(1);
        }
    }
}

/// The least power of ten that is not below `x`, of those that matter to [`Daimd::step`].
fn power_of_ten(x: f64) -> f64 {
    const POWERS: [f64; 14] = [
        1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    ];
    let least = POWERS.iter().find(|power| **power >= x);
    least.copied().unwrap_or(1e17)
}

/// Separate runs of losses counted at most: each would have been a NAK.
pub(crate) fn ranges(loss: &LossEvent) -> u64 {
    let packets = u64::from(loss.packets);
    let span = loss.span.1.saturating_sub(loss.span.0).saturating_add(1);
    span.saturating_sub(packets).saturating_add(1).min(packets)
}

impl CongestionController for Daimd {
    fn name(&self) -> &'static str {
        LAW.name
    }

    fn on_start(&mut self, now: Instant, path: &PathView) {
        let max_cuts = self.max_cuts;
        *self = Self::new(self.max_window, self.decrease, self.first == SEEDS);
        self.max_cuts = max_cuts;
        self.rng = Rng::new(now.as_nanos());
        self.last_at = Some(now);
        self.learn(path);
    }

    fn on_ack(&mut self, ack: &AckEvent) {
        self.learn(&ack.path);
        self.estimate(ack);
        self.acked += u64::from(ack.packets);
        let last = *self.last_at.get_or_insert(ack.now);
        let periods = ack.now.since(last).as_secs_f64() / SYN;
        if periods < 1.0 {
            return;
        }
        self.last_at = Some(ack.now);
        let acked = float(std::mem::take(&mut self.acked));
        if self.slow_start {
            self.started[0] += acked;
            self.window += acked + 1.0;
            if self.window > self.max_window {
                self.leave_slow_start();
            }
        } else {
            let slack = match (self.first, ack.receiver) {
                (SEEDS, Some(_)) => 1.0,
                (SEEDS, None) => SLACK,
                _ => CURED_SLACK,
            };
            self.window = slack * float(self.arrival) * (self.rtt + SYN) + FIRST_WINDOW;
        }
        if !self.slow_start && !std::mem::take(&mut self.loss) {
            let once = self.first == SEEDS && ack.receiver.is_some();
            self.increase(if once { 1.0 } else { periods.min(MAX_PERIODS) });
        }
    }

    fn on_loss(&mut self, loss: &LossEvent) {
        self.learn(&loss.path);
        if self.slow_start {
            if self.first == SEEDS {
                return self.leave_slow_start();
            }
            self.started[1] += f64::from(loss.packets);
            let [acked, lost] = self.started;
            if lost > FIRST_LOSSES + (acked + lost) / 10.0 {
                self.leave_slow_start();
                // Other losses of that burst are no measurement of the rate that follows it.
                self.last_decrease_at = Some(loss.now);
                self.cuts = self.max_cuts;
            }
            return;
        }
        self.loss = true;
        if self.guessed_since.is_some() {
            // What was guessed and not found is not there.
            self.guessed_since = Some(loss.now);
            self.capacity = self.capacity.min(self.seen);
        }
        // More NAKs than may cut change nothing.
        for _ in 0..ranges(loss).min(u64::from(MAX_CUTS) + 1) {
            self.on_nak(loss);
        }
    }

    fn on_timeout(&mut self, _now: Instant, _backoff: u32) {
        if self.slow_start {
            self.leave_slow_start();
        }
    }

    fn sample_window(&self) -> Option<Duration> {
        // Within a burst of slow start; then no shorter than what leaves feedback rare.
        Some(Duration::from_millis(if self.slow_start { 5 } else { 25 }))
    }

    fn allowance(&self) -> Allowance {
        let rate = self.datagram / self.period;
        let window = self.window.min(self.max_window).max(2.0) * self.datagram;
        Allowance {
            window: size(window),
            rate: Rate::from_f64(rate * 8.0),
            quantum: size((rate * 1e-3).min(MAX_QUANTUM).max(2.0 * self.datagram)),
        }
    }

    fn observe(&self) -> CcState {
        let rate = float(self.capacity) * self.datagram * 8.0;
        CcState {
            phase: if self.slow_start {
                "slow start"
            } else {
                "avoidance"
            },
            ssthresh: None,
            bandwidth: Some(Rate::from_f64(rate)),
        }
    }
}

#[cfg(test)]
mod tests;
