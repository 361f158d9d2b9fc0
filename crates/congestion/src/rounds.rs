//! Measures what one round trip shows about the queue. Laws that watch the rtt (Vegas, Compound,
//! FAST, Illinois and their kin) get the smallest and the mean rtt of each completed round. They
//! also get the smallest and largest ever.
//!
//! Times are seconds, as floats: they go straight into formulas. One feedback packet is one sample.

use farhaul_core::congestion::AckEvent;

/// The least rtt reckoned with, so that a quotient stays finite: 1 µs.
const LEAST: f64 = 1e-6;

/// The smallest rtt of the connection. (`PathView::min_rtt` forgets after seconds, and so would take a
/// law's own standing queue for the path.)
#[derive(Clone, Copy, Debug)]
pub struct Base(f64);

impl Default for Base {
    fn default() -> Self {
        Self(f64::INFINITY)
    }
}

impl Base {
    /// Takes the sample of `ack`.
    pub fn on_ack(&mut self, ack: &AckEvent) {
        if let Some(rtt) = ack.rtt {
            self.0 = self.0.min(rtt.as_secs_f64().max(LEAST));
        }
    }

    /// Seconds; `None` before the first sample.
    pub fn seconds(self) -> Option<f64> {
        Some(self.0).filter(|base| base.is_finite())
    }
}

/// One completed round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round {
    /// Smallest rtt in the round, s.
    pub min: f64,
    /// Mean of its rtt samples, s.
    pub mean: f64,
    /// Smallest rtt of the connection, s.
    pub base: f64,
    /// Packets acknowledged in the round.
    pub packets: u32,
}

impl Round {
    /// Packets of a window of `packets` that stood in a queue, by the round's smallest rtt: in
    /// proportion to the excess of that rtt over its least.
    pub fn backlog(&self, packets: f64) -> f64 {
        packets * (self.min - self.base) / self.base
    }
}

/// Collects samples into rounds.
#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    number: Option<u64>,
    base: f64,
    longest: f64,
    min: f64,
    sum: f64,
    samples: u32,
    packets: u32,
    /// True if the current round began before a reduction: it is no measurement of the window after
    /// it.
    stale: bool,
    ended: Option<Round>,
}

impl Default for Rounds {
    fn default() -> Self {
        Self {
            number: None,
            base: f64::INFINITY,
            longest: 0.0,
            min: f64::INFINITY,
            sum: 0.0,
            samples: 0,
            packets: 0,
            stale: false,
            ended: None,
        }
    }
}

impl Rounds {
    /// Takes the sample of `ack`, which may end a round.
    pub fn on_ack(&mut self, ack: &AckEvent) {
        if self.number != Some(ack.round) {
            self.end();
            self.number = Some(ack.round);
        }
        self.packets = self.packets.saturating_add(ack.packets);
        if let Some(rtt) = ack.rtt {
            let rtt = rtt.as_secs_f64().max(LEAST);
            self.base = self.base.min(rtt);
            self.longest = self.longest.max(rtt);
            self.min = self.min.min(rtt);
            self.sum += rtt;
            self.samples += 1;
        }
    }

    fn end(&mut self) {
        if self.samples > 0 && !self.stale {
            self.ended = Some(Round {
                min: self.min,
                mean: self.sum / f64::from(self.samples),
                base: self.base,
                packets: self.packets,
            });
        }
        self.stale = false;
        self.clear();
    }

    const fn clear(&mut self) {
        self.min = f64::INFINITY;
        self.sum = 0.0;
        self.samples = 0;
        self.packets = 0;
    }

    /// The last completed round, once.
    pub const fn take_ended(&mut self) -> Option<Round> {
        self.ended.take()
    }

    /// The window was cut: the round under way does not count. The extremes stay.
    pub const fn restart(&mut self) {
        self.clear();
        self.ended = None;
        self.stale = true;
    }

    /// Largest rtt of the connection, s; zero before the first sample.
    pub const fn longest(&self) -> f64 {
        self.longest
    }
}
