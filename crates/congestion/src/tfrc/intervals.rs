//! Measures the loss event rate: the weighted mean of the last eight intervals, in packets, from
//! one loss event to the next. Losses of packets sent within an rtt are one event.
//!
//! Source: RFC 5348 §5.2 to §5.5.

use std::time::Duration;

use farhaul_core::time::Instant;

/// Weights of the intervals, newest first.
const WEIGHTS: [f64; 8] = [1.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2];
/// Intervals are discounted by no more than this.
const LEAST_DISCOUNT: f64 = 0.5;

/// Lengths of the intervals between loss events.
#[derive(Clone, Debug, Default)]
pub(super) struct Intervals {
    /// Length in packets and discount, newest first; the first `len` count.
    closed: [(f64, f64); 8],
    len: usize,
    /// Packets reported since the last event.
    open: f64,
    /// Weighted sum and weights of the closed intervals, as the newest and as those after an open one.
    sums: [(f64, f64); 2],
    /// Number and time of leaving of the packet whose loss began the last event.
    last: Option<(u64, Instant)>,
}

impl Intervals {
    /// True if there was a loss.
    pub(super) const fn begun(&self) -> bool {
        self.len > 0
    }

    /// The first interval, made up from the rate.
    pub(super) fn begin(&mut self, packets: f64) {
        self.push(packets);
    }

    /// Counts packets that have been acknowledged or lost.
    pub(super) fn passed(&mut self, packets: f64) {
        if self.begun() {
            self.open += packets;
        }
    }

    /// Packet `number`, sent at `sent_at`, was lost.
    pub(super) fn lost(&mut self, number: u64, sent_at: Instant, rtt: Duration) {
        match self.last {
            Some((_, at)) if sent_at <= at + rtt => return,
            Some((first, _)) => {
                let discount = self.discount();
                for interval in &mut self.closed[..self.len] {
                    interval.1 = (interval.1 * discount).max(LEAST_DISCOUNT);
                }
                self.push(length(number.saturating_sub(first)));
            }
            None => {}
        }
        self.last = Some((number, sent_at));
        self.open = 0.0;
    }

    fn push(&mut self, packets: f64) {
        self.closed.rotate_right(1);
        self.closed[0] = (packets.max(1.0), 1.0);
        self.len = (self.len + 1).min(WEIGHTS.len());
        self.sums = [self.sum(0, self.len, 1.0), self.sum(1, self.older(), 1.0)];
    }

    /// Count of closed intervals that count beside the open one.
    fn older(&self) -> usize {
        self.len.min(WEIGHTS.len() - 1)
    }

    /// Weighted sum and weights of `count` closed intervals, weighed as if they began at `from`.
    fn sum(&self, from: usize, count: usize, discount: f64) -> (f64, f64) {
        let weighed = self.closed[..count].iter().zip(&WEIGHTS[from..]);
        weighed.fold((0.0, 0.0), |(sum, weights), ((packets, own), weight)| {
            let weight = weight * own * discount;
            (sum + packets * weight, weights + weight)
        })
    }

    /// When the open interval is long the older ones count less: RFC 5348 §5.5.
    fn discount(&self) -> f64 {
        let (sum, weights) = self.sums[0];
        let mean = sum / weights;
        if self.open > 2.0 * mean {
            (2.0 * mean / self.open).max(LEAST_DISCOUNT)
        } else {
            1.0
        }
    }

    /// Loss events per packet; none before the first loss.
    pub(super) fn rate(&self) -> Option<f64> {
        if !self.begun() {
            return None;
        }
        let (sum, weights) = self.sums[0];
        // The open interval counts only if it raises the mean.
        let discount = self.discount();
        let (past, past_weights) = if discount < 1.0 {
            self.sum(1, self.older(), discount)
        } else {
            self.sums[1]
        };
        let with_open = (past + self.open * WEIGHTS[0]) / (past_weights + WEIGHTS[0]);
        Some(1.0 / (sum / weights).max(with_open).max(1.0))
    }
}

#[expect(clippy::cast_precision_loss, reason = "packets between losses")]
const fn length(packets: u64) -> f64 {
    packets as f64
}
