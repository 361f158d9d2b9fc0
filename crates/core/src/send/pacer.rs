//! Times the next batch. Deadlines are absolute: a batch of `b` bytes moves the next departure by
//! `b / rate`. A sender that was kept from running may catch up a bounded lag. One that runs on
//! time is woken once per quantum rather than once per batch.

use std::time::Duration;

use crate::{time::Instant, units::Rate};

/// The last charge.
#[derive(Clone, Copy, Debug)]
struct Charge {
    at: Instant,
    rate: Rate,
    max_lag: Duration,
    /// Time of the next departure.
    next: Instant,
}

impl Charge {
    /// True if the rate was raised so far since, as by the next burst of a start, that it holds at
    /// once.
    fn is_past(&self, rate: Rate) -> bool {
        rate > self.rate.scale(Pacer::RAISED)
    }

    /// Time from which on the next batch is due, no longer ago than may be caught up; a raised rate
    /// has nothing to catch up.
    fn due(&self, now: Instant, rate: Rate) -> Instant {
        if self.is_past(rate) {
            now
        } else {
            self.next.max(now.earlier_by(self.max_lag))
        }
    }
}

/// Paces departures.
#[derive(Clone, Debug)]
pub struct Pacer {
    last: Option<Charge>,
}

impl Pacer {
    /// Most that a late sender may catch up.
    pub const MAX_LAG: Duration = Duration::from_millis(4);
    /// Factor of a raised rate that does not wait for packets that left at the last one.
    const RAISED: f64 = 4.0;

    /// May send at once.
    pub const fn new() -> Self {
        Self { last: None }
    }

    /// Bytes that may be sent at `now`, or `None` if it is too early.
    pub fn grant(&self, now: Instant, rate: Rate, quantum: u64) -> Option<u64> {
        let Some(last) = self.last.filter(|_| rate != Rate::UNLIMITED) else {
            return Some(u64::MAX);
        };
        let due = last.due(now, rate);
        (due <= now).then(|| quantum.saturating_add(rate.bytes_in(now.since(due))))
    }

    /// Time to wake up: the next departure, put off so that a whole quantum can leave at once.
    pub fn wake(&self, rate: Rate, quantum: u64) -> Option<Instant> {
        self.last.map(|last| {
            // No longer than may be caught up, or a slow sender would lose what it put off.
            let put_off = rate.time_for(quantum).min(last.max_lag);
            let next = if last.is_past(rate) {
                last.at
            } else {
                last.next
            };
            next + put_off
        })
    }

    /// Charges `bytes` sent. Bytes late by no more than `max_lag` may be caught up from now on.
    pub fn charge(&mut self, now: Instant, bytes: u64, rate: Rate, max_lag: Duration) {
        let due = self.last.map_or(now, |last| last.due(now, rate));
        self.last = Some(Charge {
            at: now,
            rate,
            max_lag: max_lag.min(Self::MAX_LAG),
            next: due + rate.time_for(bytes),
        });
    }

    /// Delays the next departure by `time`.
    pub fn delay(&mut self, now: Instant, time: Duration) {
        let last = self.last.unwrap_or(Charge {
            at: now,
            rate: Rate::UNLIMITED,
            max_lag: Self::MAX_LAG,
            next: now,
        });
        self.last = Some(Charge {
            at: now,
            next: last.due(now, last.rate) + time,
            ..last
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
                    pacer.charge(now, quantum, rate, Pacer::MAX_LAG);
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
                pacer.charge(now, 1_500, rate, Pacer::MAX_LAG);
                sent += 1_500_u64;
            }
            now = pacer.wake(rate, quantum).unwrap();
        }
        assert!(sent.abs_diff(12_500_000) < 20_000, "{sent}");
    }

    #[test]
    fn a_rate_raised_by_far_holds_at_once_and_catches_nothing_up() {
        let (slow, fast, quantum) = (Rate::mbit(10), Rate::gbit(1), 20_000);
        let ms = |n| Instant::EPOCH + Duration::from_millis(n);
        let mut pacer = Pacer::new();
        pacer.charge(ms(0), quantum, slow, Pacer::MAX_LAG);
        assert_eq!(pacer.grant(ms(1), slow, quantum), None);
        assert_eq!(pacer.grant(ms(1), slow.scale(2.0), quantum), None);
        assert_eq!(pacer.grant(ms(1), fast, quantum), Some(quantum));
        assert!(pacer.wake(fast, quantum).is_some_and(|at| at <= ms(1)));
        pacer.charge(ms(1), quantum, fast, Pacer::MAX_LAG);
        assert_eq!(pacer.grant(ms(1), fast, quantum), None);

        let mut late = Pacer::new();
        late.charge(ms(0), quantum, slow, Pacer::MAX_LAG);
        assert!(late.grant(ms(19), slow, quantum) > Some(quantum));
        assert_eq!(late.grant(ms(19), fast, quantum), Some(quantum));
    }

    #[test]
    fn long_run_rate_is_exact_and_catching_up_is_bounded() {
        let rate = Rate::gbit(10);
        let at = |us: u64| Instant::from_nanos(us * 1_000);
        let mut pacer = Pacer::new();
        let (mut sent, mut now) = (0_u64, 0);
        while now < 1_000_000 {
            while pacer.grant(at(now), rate, 62_500).is_some() {
                pacer.charge(at(now), 62_500, rate, Pacer::MAX_LAG);
                sent += 62_500;
            }
            now += 170;
        }
        assert!(sent.abs_diff(1_250_000_000) <= 300_000, "{sent}");

        // A law may want less.
        let short = Duration::from_micros(500);
        let mut hasty = pacer.clone();
        hasty.charge(at(now), 62_500, rate, short);
        assert_eq!(
            hasty.grant(at(now + 1_000_000), rate, 62_500),
            Some(rate.bytes_in(short) + 62_500)
        );

        let late = at(now + 1_000_000);
        let mut burst = 0;
        while pacer.grant(late, rate, 62_500).is_some() {
            pacer.charge(late, 62_500, rate, Pacer::MAX_LAG);
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
