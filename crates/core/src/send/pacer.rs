//! When may the next batch be sent? Deadlines are absolute: a batch of `b` bytes moves the next
//! departure by `b / rate`. A sender that was kept from running may catch up a bounded lag; one that
//! runs on time is woken once per quantum rather than once per batch.

use std::time::Duration;

use crate::{time::Instant, units::Rate};

/// Paces departures.
#[derive(Clone, Debug)]
pub struct Pacer {
    next: Option<Instant>,
}

impl Pacer {
    /// How far a late sender may catch up.
    pub const MAX_LAG: Duration = Duration::from_millis(4);

    /// May send at once.
    pub const fn new() -> Self {
        Self { next: None }
    }

    /// Bytes that may be sent at `now`, or `None` if it is too early.
    pub fn grant(&self, now: Instant, rate: Rate, quantum: u64) -> Option<u64> {
        let Some(next) = self.next.filter(|_| rate != Rate::UNLIMITED) else {
            return Some(u64::MAX);
        };
        if next > now {
            return None;
        }
        Some(quantum.saturating_add(rate.bytes_in(now.since(next).min(Self::MAX_LAG))))
    }

    /// When to wake up: the next departure, put off so that a whole quantum can leave at once.
    pub fn wake(&self, rate: Rate, quantum: u64) -> Option<Instant> {
        // No longer than may be caught up, or a slow sender would lose what it put off.
        self.next
            .map(|next| next + rate.time_for(quantum).min(Self::MAX_LAG))
    }

    /// Charges `bytes` sent.
    pub fn charge(&mut self, now: Instant, bytes: u64, rate: Rate) {
        let from = self.next.unwrap_or(now).max(now.earlier_by(Self::MAX_LAG));
        self.next = Some(from + rate.time_for(bytes));
    }

    /// Delays the next departure by `time`.
    pub fn delay(&mut self, now: Instant, time: Duration) {
        let from = self.next.unwrap_or(now).max(now.earlier_by(Self::MAX_LAG));
        self.next = Some(from + time);
    }
}

impl Default for Pacer {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_takes_its_time_from_what_is_sent() {
        let (rate, quantum) = (Rate::gbit(1), 10_000);
        let (ms, us) = (Duration::from_millis, Duration::from_micros);
        let (mut pacer, mut sent, mut now) = (Pacer::new(), 0_u64, Instant::EPOCH);
        for tick in 0..100 {
            // 40 times 100 us of each 10 ms.
            (0..40).for_each(|_| pacer.delay(now, us(100)));
            while now < Instant::EPOCH + ms(10) * (tick + 1) {
                while pacer.grant(now, rate, quantum).is_some() {
                    pacer.charge(now, quantum, rate);
                    sent += quantum;
                }
                now = pacer.wake(rate, quantum).unwrap();
            }
        }
        assert!(sent.abs_diff(75_000_000) < 100_000, "{sent}");
    }

    #[test]
    fn a_quantum_longer_than_the_lag_loses_no_rate() {
        let (rate, quantum) = (Rate::mbit(10), 65_536);
        let (mut pacer, mut sent, mut now) = (Pacer::new(), 0, Instant::EPOCH);
        while now < Instant::from_nanos(10_000_000_000) {
            while pacer.grant(now, rate, quantum).is_some() {
                pacer.charge(now, 1_500, rate);
                sent += 1_500_u64;
            }
            now = pacer.wake(rate, quantum).unwrap();
        }
        assert!(sent.abs_diff(12_500_000) < 20_000, "{sent}");
    }

    #[test]
    fn long_run_rate_is_exact_and_catching_up_is_bounded() {
        let rate = Rate::gbit(10);
        let at = |us: u64| Instant::from_nanos(us * 1_000);
        let mut pacer = Pacer::new();
        let (mut sent, mut now) = (0_u64, 0);
        while now < 1_000_000 {
            while pacer.grant(at(now), rate, 62_500).is_some() {
                pacer.charge(at(now), 62_500, rate);
                sent += 62_500;
            }
            now += 170;
        }
        assert!(sent.abs_diff(1_250_000_000) <= 300_000, "{sent}");

        let late = at(now + 1_000_000);
        let mut burst = 0;
        while pacer.grant(late, rate, 62_500).is_some() {
            pacer.charge(late, 62_500, rate);
            burst += 62_500;
        }
        assert!(burst <= rate.bytes_in(Pacer::MAX_LAG) + 62_500, "{burst}");
        assert!(
            pacer
                .wake(rate, 250_000)
                .is_some_and(|t| t > late + Duration::from_micros(190))
        );
    }
}
