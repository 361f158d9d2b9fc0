//! Finds the path's size at first, by doubling the window each round: until a loss ([`Classic`]),
//! or by a limited step ([`Limited`], RFC 3742). Doubling also ends when the rtt rises
//! ([`HyStart`], RFC 9406), or when there is a backlog in the queue ([`Backlog`]).
//!
//! Invariant: a slow start only answers for how fast to grow and when to stop; it never sets the
//! window.

use std::time::Duration;

use farhaul_core::congestion::AckEvent;

use crate::{rounds::Rounds, window::Window};

/// Action on an acknowledgement during slow start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Start {
    /// Add this share of the acknowledged bytes: above 0, and 1 doubles the window in a round trip. More than 1 is taken
    /// as it is (TCP Hybla needs it).
    Grow(f64),
    /// The path is full: the law takes over.
    Leave,
}

/// A slow start.
pub trait SlowStart: Clone + Send {
    /// An acknowledgement arrived while the window is below its threshold.
    fn on_ack(&mut self, window: &Window, ack: &AckEvent) -> Start;

    /// The window was cut.
    fn on_congestion(&mut self) {}

    /// Name of the phase, for plots.
    fn phase(&self) -> &'static str {
        "slow start"
    }
}

/// RFC 5681 with byte counting and no limit per acknowledgement: the sender is paced.
#[derive(Clone, Copy, Debug, Default)]
pub struct Classic;

impl SlowStart for Classic {
    fn on_ack(&mut self, _window: &Window, _ack: &AckEvent) -> Start {
        Start::Grow(1.0)
    }
}

/// None: the law grows from the first acknowledgement on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Skip;

impl SlowStart for Skip {
    fn on_ack(&mut self, _window: &Window, _ack: &AckEvent) -> Start {
        Start::Leave
    }
}

/// RFC 3742: above 100 datagrams a round adds 50 at most, for windows so large that doubling once too
/// often would lose thousands of packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limited;

impl SlowStart for Limited {
    fn on_ack(&mut self, window: &Window, _ack: &AckEvent) -> Start {
        let w = window.packets();
        // The RFC rounds w / 50 down, which lets a round add a little more than 50.
        Start::Grow(if w <= 100.0 { 1.0 } else { 50.0 / w })
    }
}

/// Doubles until more than `limit` datagrams of the window are in a queue, evaluated once a round
/// by its smallest rtt. Vegas and FAST start so.
#[derive(Clone, Copy, Debug)]
pub struct Backlog {
    limit: f64,
    rounds: Rounds,
}

impl Backlog {
    /// Slow start until `limit` datagrams wait.
    pub fn new(limit: f64) -> Self {
        Self {
            limit,
            rounds: Rounds::default(),
        }
    }
}

impl SlowStart for Backlog {
    fn on_ack(&mut self, window: &Window, ack: &AckEvent) -> Start {
        self.rounds.on_ack(ack);
        match self.rounds.take_ended() {
            Some(round) if round.backlog(window.packets()) > self.limit => Start::Leave,
            _ => Start::Grow(1.0),
        }
    }

    fn on_congestion(&mut self) {
        self.rounds.restart();
    }
}

/// Bounds of the rise in rtt that ends a round's exponential growth.
const MIN_RTT_THRESH: Duration = Duration::from_millis(4);
const MAX_RTT_THRESH: Duration = Duration::from_millis(16);
/// The rise is this part of the rtt.
const RTT_DIVISOR: u32 = 8;
/// Samples in a round before its minimum is used.
const RTT_SAMPLES: u32 = 8;
/// Conservative slow start grows by this part of what slow start would.
const CSS_GROWTH: f64 = 0.25;
/// Rounds of conservative slow start before avoidance.
const CSS_ROUNDS: u32 = 5;

/// `HyStart++`: leaves slow start when the round's smallest rtt rises, after a trial at a quarter
/// of the pace. The trial is taken back if the rtt falls again.
///
/// One feedback packet is one rtt sample. Feedback here may be sparser than eight per round; then a
/// round is judged when it ends, provided it covered eight packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct HyStart {
    round: Option<u64>,
    last_min: Option<Duration>,
    this_min: Option<Duration>,
    samples: u32,
    packets: u32,
    css: Option<Css>,
    /// True if the first slow start is over: only that one is guarded.
    over: bool,
}

#[derive(Clone, Copy, Debug)]
struct Css {
    baseline: Duration,
    rounds: u32,
}

impl HyStart {
    /// The rise over the last round's smallest rtt that counts as a queue.
    pub fn threshold(last_min: Duration) -> Duration {
        (last_min / RTT_DIVISOR).clamp(MIN_RTT_THRESH, MAX_RTT_THRESH)
    }

    /// Compares this round with the last.
    fn judge(&mut self) {
        let Some(this) = self.this_min else { return };
        match self.css {
            Some(css) if this < css.baseline => self.css = None,
            Some(_) => {}
            None => {
                if self
                    .last_min
                    .is_some_and(|last| this >= last + Self::threshold(last))
                {
                    self.css = Some(Css {
                        baseline: this,
                        rounds: 0,
                    });
                }
            }
        }
    }

    /// A round ended; true if it was the last of the trial.
    fn next_round(&mut self, round: u64) -> bool {
        self.round = Some(round);
        let in_trial = self.css.is_some();
        if self.samples < RTT_SAMPLES && self.packets >= RTT_SAMPLES {
            self.judge();
        }
        self.last_min = self.this_min.take().or(self.last_min);
        self.samples = 0;
        self.packets = 0;
        match &mut self.css {
            Some(css) if in_trial => {
                css.rounds += 1;
                css.rounds >= CSS_ROUNDS
            }
            _ => false,
        }
    }
}

impl SlowStart for HyStart {
    fn on_ack(&mut self, _window: &Window, ack: &AckEvent) -> Start {
        if self.over {
            return Start::Grow(1.0);
        }
        let known = self.round.is_some();
        if self.round != Some(ack.round) && self.next_round(ack.round) && known {
            self.over = true;
            return Start::Leave;
        }
        self.packets = self.packets.saturating_add(ack.packets);
        if let Some(rtt) = ack.rtt {
            self.samples += 1;
            self.this_min = Some(self.this_min.map_or(rtt, |min| min.min(rtt)));
            if self.samples >= RTT_SAMPLES {
                self.judge();
            }
        }
        Start::Grow(if self.css.is_some() { CSS_GROWTH } else { 1.0 })
    }

    fn on_congestion(&mut self) {
        self.over = true;
    }

    fn phase(&self) -> &'static str {
        if self.css.is_some() && !self.over {
            "conservative slow start"
        } else {
            "slow start"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_of_rfc_9406() {
        for (last, expected) in [(100_000, 12_500), (10_000, 4_000), (400_000, 16_000)] {
            assert_eq!(
                HyStart::threshold(Duration::from_micros(last)),
                Duration::from_micros(expected)
            );
        }
    }
}
