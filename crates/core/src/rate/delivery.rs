//! Measures the delivery rate of the path. Each feedback packet carries the receiver's byte count
//! and clock. A sample is the difference to a feedback packet about one rtt older. The time is the
//! longer of that in which the bytes arrived and that in which they left. So neither a burst at the
//! receiver nor one at the sender looks like bandwidth.

use std::{collections::VecDeque, time::Duration};

use crate::{congestion::RateSample, time::Instant, units::Rate};

/// The state of delivery when a feedback packet was made.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Receiver's clock, µs.
    pub arrived_us: u64,
    /// Wire bytes received so far.
    pub bytes: u64,
    /// Time at which the newest packet it covers was sent.
    pub sent: Instant,
    /// Bytes sent up to that packet.
    pub sent_bytes: u64,
    /// Number of the packet that `sent` and `sent_bytes` belong to.
    pub packet: u64,
    /// Packets lost so far.
    pub lost: u64,
}

/// Delivery-rate sampler.
#[derive(Clone, Debug, Default)]
pub struct Delivery {
    history: VecDeque<Progress>,
    /// Lost packets that are already in a sample.
    told: u64,
    app_limited_below: u64,
}

impl Delivery {
    const KEEP: usize = 64;

    /// The sender had nothing to send; samples with packets below `next` say nothing of the path's
    /// upper limit.
    pub fn app_limited(&mut self, next: u64) {
        self.app_limited_below = next;
    }

    /// Takes the progress reported by a feedback packet; returns a sample over about `window`.
    pub fn update(&mut self, progress: Progress, window: Duration) -> Option<RateSample> {
        if let Some(last) = self.history.back() {
            if progress.packet <= last.packet || progress.arrived_us == last.arrived_us {
                return None;
            }
            // A peer's clock goes back; ours never does. Differences to what it said before mean nothing.
            if progress.arrived_us < last.arrived_us {
                self.history.clear();
            }
        }
        let window_us = u64::try_from(window.as_micros()).unwrap_or(u64::MAX);
        while self.history.len() >= Self::KEEP
            || self
                .history
                .get(1)
                .is_some_and(|p| progress.arrived_us - p.arrived_us >= window_us)
        {
            self.history.pop_front();
        }
        let sample = self
            .history
            .front()
            .and_then(|from| self.sample(from, &progress));
        if sample.is_some() {
            self.told = progress.lost;
        }
        self.history.push_back(progress);
        sample
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "a share of at most millions of packets"
    )]
    fn sample(&self, from: &Progress, to: &Progress) -> Option<RateSample> {
        let arrived = Duration::from_micros(to.arrived_us - from.arrived_us);
        let sent = to.sent.since(from.sent);
        let interval = arrived.max(sent);
        if interval < Duration::from_micros(500) {
            return None;
        }
        let packets = to.packet - from.packet;
        let left = to.sent_bytes.saturating_sub(from.sent_bytes);
        // Whatever a receiver says, no more arrived than was sent.
        let bytes = to.bytes.saturating_sub(from.bytes).min(left);
        // Each loss is in a sample, also one of a time without any.
        let lost = to.lost.saturating_sub(from.lost.min(self.told));
        Some(RateSample {
            rate: Rate::of(bytes, interval),
            sent: Rate::of(left, sent),
            interval,
            app_limited: from.packet < self.app_limited_below,
            packets,
            loss: (lost as f64 / packets as f64).min(1.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64, arrived_ms: u64, mb: u64) -> Progress {
        Progress {
            arrived_us: arrived_ms * 1_000,
            bytes: mb * 1_000_000,
            sent: Instant::from_nanos(ms * 1_000_000),
            sent_bytes: mb * 1_000_000,
            packet: mb * 100,
            lost: mb,
        }
    }

    #[test]
    fn neither_end_can_compress_time() {
        let window = Duration::from_millis(10);
        let mut d = Delivery::default();
        assert!(d.update(at(0, 50, 0), window).is_none());
        let s = d.update(at(10, 60, 10), window).unwrap();
        assert_eq!((s.rate, s.sent), (Rate::gbit(8), Rate::gbit(8)));
        assert!((s.loss - 0.01).abs() < 1e-9);
        let burst_at_receiver = d.update(at(20, 61, 20), window).unwrap();
        assert_eq!(burst_at_receiver.rate, Rate::gbit(8));
        let stale = d.update(at(20, 61, 20), window);
        assert!(stale.is_none());
    }

    #[test]
    fn no_more_arrives_than_was_sent_whatever_the_receiver_says() {
        let window = Duration::from_millis(10);
        let mut d = Delivery::default();
        d.update(at(0, 50, 0), window);
        let lie = Progress {
            bytes: 10_000_000_000,
            ..at(10, 60, 10)
        };
        let s = d.update(lie, window).unwrap();
        assert_eq!((s.rate, s.packets), (Rate::gbit(8), 1_000));
    }

    #[test]
    fn a_clock_that_goes_back_begins_anew() {
        let window = Duration::from_millis(10);
        let mut d = Delivery::default();
        d.update(at(0, 50, 0), window);
        d.update(at(10, 2_000_000, 10), window);
        assert!(d.update(at(20, 70, 20), window).is_none());
        let s = d.update(at(30, 80, 30), window).unwrap();
        assert_eq!(s.rate, Rate::gbit(8));
    }

    /// A receiver sets its clock back, or reports twice at once, whenever it reports losses.
    #[test]
    fn no_loss_is_without_a_sample() {
        let window = Duration::from_millis(10);
        for (sent_ms, arrived_ms) in [(20, 50), (10, 60)] {
            let mut d = Delivery::default();
            let progress = |ms, arrived_ms, mb, lost| Progress {
                lost,
                ..at(ms, arrived_ms, mb)
            };
            d.update(progress(10, 60, 10, 0), window);
            let mut tells = progress(sent_ms, arrived_ms, 20, 500);
            tells.arrived_us += 100;
            assert!(d.update(tells, window).is_none());
            let s = d.update(progress(40, 80, 30, 500), window).unwrap();
            assert!(s.loss >= 0.25, "{}", s.loss);
            let s = d.update(progress(60, 100, 40, 500), window).unwrap();
            assert!(s.loss < 1e-9, "{}", s.loss);
        }
    }

    #[test]
    fn samples_across_idle_time_are_marked() {
        let mut d = Delivery::default();
        d.update(at(0, 50, 1), Duration::from_millis(10));
        d.app_limited(150);
        assert!(
            d.update(at(10, 60, 2), Duration::from_millis(10))
                .unwrap()
                .app_limited
        );
        assert!(
            !d.update(at(20, 70, 3), Duration::from_millis(10))
                .unwrap()
                .app_limited
        );
    }
}
