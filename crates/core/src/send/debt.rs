//! Paces slots, each a gap after the one before, and makes up for errors of sleep. The debt is a
//! sum: a slot adds the gap and takes off what has passed since the slot before; the sender waits
//! for the rest. A late sender so sends at once until it is on time again.
//!
//! Source: Tsunami v1.1 as read, 2006. Other than there: the slots of a short while may be had at
//! once. A sender that is late and becomes later makes up for all of it, up to a given lag. The
//! original forgets time that passes while the debt is zero, which costs a sender in batches the
//! time of each batch.

use std::time::Duration;

use super::QUANTUM;
use crate::time::{Instant, nanos};

/// Inter-packet gap timer that makes up for oversleeping.
#[derive(Clone, Copy, Debug)]
pub struct Debt {
    /// Owed, ns; below zero: so late.
    owed: i64,
    /// Largest debt so far, ns.
    most: i64,
    /// Time of the last slot.
    last: Option<Instant>,
    next: Instant,
    /// True if the slot was put off on purpose.
    waited: bool,
    /// No more is caught up with, ns.
    lag: i64,
}

impl Debt {
    /// The first slot is at once; a sender later than `lag` never makes up for more.
    pub fn new(lag: Duration) -> Self {
        Self {
            owed: 0,
            most: 0,
            last: None,
            next: Instant::EPOCH,
            waited: false,
            lag: signed(lag),
        }
    }

    /// True if the next slot is due.
    pub fn is_due(&self, now: Instant) -> bool {
        self.next <= now
    }

    /// Uses a slot; the next is `gap` later.
    pub fn slot(&mut self, now: Instant, gap: Duration) {
        let passed = self.last.map_or(0, |last| signed(now.since(last)));
        let change = signed(gap) - passed;
        // A wait on purpose is no lateness, but for the debt before, as in the original.
        let forgotten = std::mem::take(&mut self.waited) && change <= 0 && self.owed <= 0;
        if !forgotten {
            self.owed = (self.owed + change).max(-self.lag);
        }
        self.most = self.most.max(self.owed);
        self.last = Some(now);
        self.next = now + unsigned(self.owed);
    }

    /// Longest wait that was ever due.
    pub fn most(&self) -> Duration {
        unsigned(self.most)
    }

    /// Delays the next slot by `more`.
    pub fn wait(&mut self, more: Duration) {
        self.next += more;
        self.waited = true;
    }

    /// Time to wake up: the next slot, put off by as many whole gaps as fit into 250 us, less the
    /// lateness. The slots of those gaps are then had at once.
    pub fn wake(&self, gap: Duration) -> Instant {
        let rest = nanos(QUANTUM).checked_rem(nanos(gap)).unwrap_or(0);
        let whole = QUANTUM.saturating_sub(Duration::from_nanos(rest));
        self.next
            + whole
                .min(unsigned(self.lag))
                .saturating_sub(unsigned(-self.owed))
    }
}

fn signed(d: Duration) -> i64 {
    i64::try_from(d.as_nanos()).unwrap_or(i64::MAX / 4)
}

fn unsigned(ns: i64) -> Duration {
    Duration::from_nanos(u64::try_from(ns).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LAG: Duration = Duration::from_millis(10);

    fn at(us: u64) -> Instant {
        Instant::from_nanos(us * 1_000)
    }

    fn us(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    #[test]
    fn a_sender_on_time_keeps_the_gap_and_one_that_sleeps_too_long_the_rate() {
        let mut debt = Debt::new(LAG);
        let (mut now, mut sent) = (1_000, 0_u64);
        while now < 1_001_000 {
            let before = sent;
            while debt.is_due(at(now)) {
                debt.slot(at(now), us(50));
                sent += 1;
            }
            assert!(sent > before);
            let wake = debt.wake(us(50));
            // It sleeps up to 37 us longer than asked.
            now = wake.as_nanos() / 1_000 + now % 38;
        }
        assert!(sent.abs_diff(20_000) <= 5, "{sent}");
    }

    #[test]
    fn what_is_caught_up_with_is_bounded_and_a_wait_delays_one_slot() {
        let mut debt = Debt::new(LAG);
        debt.slot(at(0), us(100));
        let mut burst = 0;
        while debt.is_due(at(5_000_000)) {
            debt.slot(at(5_000_000), us(100));
            burst += 1;
        }
        assert_eq!(burst, 102);
        assert_eq!(debt.most(), us(100));
        debt.wait(us(1_000));
        assert!(!debt.is_due(at(5_001_099)) && debt.is_due(at(5_001_100)));
    }

    /// Batches of at most seven slots, each of which takes half of its slots' gaps to make.
    #[test]
    fn what_batches_take_is_made_up_for() {
        let mut debt = Debt::new(LAG);
        let (mut now, mut sent) = (0, 0_u64);
        while now < 1_000_000 {
            let before = sent;
            while debt.is_due(at(now)) && sent < before + 7 {
                debt.slot(at(now), us(20));
                sent += 1;
            }
            now += 10 * (sent - before);
            // It sleeps 60 us longer than asked.
            let wake = debt.wake(us(20)).as_nanos() / 1_000;
            now = if wake <= now { now } else { wake + 60 };
        }
        assert!(sent.abs_diff(50_000) <= 20, "{sent}");
    }

    #[test]
    fn what_was_waited_for_is_not_made_up_for() {
        let (mut debt, gap) = (Debt::new(LAG), us(18));
        let mut now = at(1_000);
        for _ in 0..200 {
            debt.slot(now, gap);
            debt.wait(gap * 10);
            now = debt.wake(gap);
        }
        let mut burst = 0;
        while debt.is_due(now) {
            debt.slot(now, gap);
            burst += 1;
        }
        // What the last wake put off and, as in the original, the nine gaps of one wait.
        assert!((1..=25).contains(&burst), "{burst}");
    }

    proptest! {
        /// Beside the original's arithmetic, word by word, in microseconds, as long as that forgets nothing.
        #[test]
        fn equals_the_original_within_the_lag(steps in proptest::collection::vec((251_u64..900, 0_u64..400), 1..200)) {
            let mut debt = Debt::new(LAG);
            let (mut now, mut last, mut owed) = (77_u64, None, 0_i64);
            for (gap, late) in steps {
                let passed = last.map_or(0, |last| now - last);
                let change = i64::try_from(gap).unwrap() - i64::try_from(passed).unwrap();
                if change <= 0 && owed <= 0 {
                    return Ok(());
                }
                prop_assert!(debt.is_due(at(now)));
                debt.slot(at(now), us(gap));
                owed += change;
                last = Some(now);
                let sleep = u64::try_from(owed).unwrap_or(0);
                prop_assert_eq!(debt.wake(us(gap)), at(now + sleep));
                now += sleep + late;
            }
        }
    }
}
