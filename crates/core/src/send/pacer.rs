//! When may the next batch be sent? Deadlines are absolute: a batch of `b` bytes moves the next
//! departure by `b / rate`. A sender that was kept from running may catch up a bounded lag; one that
//! runs on time is woken once per quantum rather than once per batch.

use std::time::Duration;

use crate::{time::Instant, units::Rate};

/// The last that was charged: so many bytes, to be paid from `from` on at `rate`.
#[derive(Clone, Copy, Debug)]
struct Charge {
    from: Instant,
    bytes: u64,
    rate: Rate,
}

impl Charge {
    /// The next departure. A rate that was raised since holds for what is still to be paid.
    fn departure(&self, rate: Rate) -> Instant {
        self.from + self.rate.max(rate).time_for(self.bytes)
    }

    /// With `bytes` more, charged before it was paid.
    fn and(self, bytes: u64, rate: Rate) -> Self {
        if rate < self.rate {
            let from = self.departure(rate);
            return Self { from, bytes, rate };
        }
        Self {
            bytes: self.bytes + bytes,
            rate,
            ..self
        }
    }

    /// By how much the sender is late, bounded: in time that `rate` needs for what it did not send. At a
    /// rate that was raised since it has no more to catch up.
    fn late(&self, now: Instant, rate: Rate) -> Duration {
        let lag = now.since(self.departure(self.rate)).min(Pacer::MAX_LAG);
        if rate > self.rate {
            rate.time_for(self.rate.bytes_in(lag))
        } else {
            lag
        }
    }
}

/// Paces departures.
#[derive(Clone, Debug)]
pub struct Pacer {
    last: Option<Charge>,
}

impl Pacer {
    /// How far a late sender may catch up.
    pub const MAX_LAG: Duration = Duration::from_millis(4);

    /// May send at once.
    pub const fn new() -> Self {
        Self { last: None }
    }

    /// Bytes that may be sent at `now`, or `None` if it is too early.
    pub fn grant(&self, now: Instant, rate: Rate, quantum: u64) -> Option<u64> {
        let Some(last) = self.last.filter(|_| rate != Rate::UNLIMITED) else {
            return Some(u64::MAX);
        };
        if last.departure(rate) > now {
            return None;
        }
        Some(quantum.saturating_add(rate.bytes_in(last.late(now, rate))))
    }

    /// When to wake up: the next departure, put off so that a whole quantum can leave at once.
    pub fn wake(&self, rate: Rate, quantum: u64) -> Option<Instant> {
        // No longer than may be caught up, or a slow sender would lose what it put off.
        self.last
            .map(|last| last.departure(rate) + rate.time_for(quantum).min(Self::MAX_LAG))
    }

    /// Charges `bytes` sent.
    pub fn charge(&mut self, now: Instant, bytes: u64, rate: Rate) {
        self.last = Some(match self.last {
            Some(last) if last.departure(rate) > now => last.and(bytes, rate),
            last => Charge {
                from: now.earlier_by(last.map_or(Duration::ZERO, |last| last.late(now, rate))),
                bytes,
                rate,
            },
        });
    }

    /// Delays the next departure by `time`.
    pub fn delay(&mut self, now: Instant, time: Duration) {
        let from = self.last.map_or(now, |last| last.departure(last.rate));
        self.last = Some(Charge {
            from: from.max(now.earlier_by(Self::MAX_LAG)) + time,
            bytes: 0,
            rate: self.last.map_or(Rate::UNLIMITED, |last| last.rate),
        });
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
    fn a_raised_rate_holds_at_once_and_nothing_is_caught_up_at_it() {
        let (slow, fast, quantum) = (Rate::mbit(10), Rate::gbit(1), 20_000);
        let ms = |n| Instant::EPOCH + Duration::from_millis(n);
        let mut pacer = Pacer::new();
        pacer.charge(ms(0), quantum, slow);
        assert_eq!(pacer.grant(ms(1), slow, quantum), None);
        assert_eq!(pacer.grant(ms(1), fast, quantum), Some(quantum));
        assert!(pacer.wake(fast, quantum).is_some_and(|at| at <= ms(1)));
        pacer.charge(ms(1), quantum, fast);
        assert_eq!(pacer.grant(ms(1), fast, quantum), None);

        // 3 ms late at the slow rate: that much of it, not of the fast one.
        let mut late = Pacer::new();
        late.charge(ms(0), quantum, slow);
        let granted = late.grant(ms(19), fast, quantum).unwrap() - quantum;
        assert!(granted.abs_diff(slow.bytes_in(Duration::from_millis(3))) <= 1);
        late.charge(ms(19), quantum, fast);
        assert_eq!(late.grant(ms(19), fast, quantum), None);
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
