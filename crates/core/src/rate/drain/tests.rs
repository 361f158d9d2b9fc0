//! A sender, a path and a host in steps of a millisecond.

use std::collections::VecDeque;

use super::*;

/// One way.
const PATH_MS: u64 = 50;
const REPORT_MS: u64 = 10;
/// 8 Gbit/s.
const LINK_PER_MS: u64 = 1_000_000;
/// Bytes that the law would have in flight: 25 ms more than the link holds.
const WINDOW: u64 = 125 * LINK_PER_MS;

/// A sender at full speed, a path, and a host that takes what it can.
#[derive(Default)]
struct World {
    ms: u64,
    sent: u64,
    known: u64,
    taken: u64,
    newest_ms: u64,
    on_way: VecDeque<(u64, u64)>,
    /// Times and bytes of arrivals.
    waits: VecDeque<(u64, u64)>,
    reports: VecDeque<(u64, Drained)>,
    drain: DrainEstimate,
}

impl World {
    fn waiting(&self) -> u64 {
        self.waits.iter().map(|(_, bytes)| bytes).sum()
    }

    /// One millisecond, in which the host takes at most `most` bytes.
    fn step(&mut self, mut most: u64) {
        self.ms += 1;
        let window = WINDOW.min(self.drain.granted());
        let room = window.saturating_sub(self.sent - self.known);
        let bytes = room.min(LINK_PER_MS);
        self.sent += bytes;
        self.on_way.push_back((self.ms + PATH_MS, bytes));
        while let Some(arrived) = self.on_way.pop_front_if(|(at, _)| *at <= self.ms) {
            self.waits.push_back(arrived);
        }
        while let Some((arrived, bytes)) = self.waits.front_mut()
            && most > 0
        {
            let now = most.min(*bytes);
            (most, *bytes) = (most - now, *bytes - now);
            (self.taken, self.newest_ms) = (self.taken + now, *arrived);
            if *bytes == 0 {
                self.waits.pop_front();
            }
        }
        self.report();
    }

    fn report(&mut self) {
        if self.ms.is_multiple_of(REPORT_MS) && self.newest_ms > 0 {
            let taken = Drained {
                at_us: self.ms * 1_000,
                bytes: self.taken,
                delay: Duration::from_millis(self.ms - self.newest_ms),
            };
            self.reports.push_back((self.ms + PATH_MS, taken));
        }
        while let Some((_, taken)) = self.reports.pop_front_if(|(at, _)| *at <= self.ms) {
            let way = RatePath {
                rtt: Duration::from_millis(2 * PATH_MS),
                interval: Duration::from_millis(REPORT_MS),
                datagram: 9_000,
                in_flight: self.sent - self.known,
                window: WINDOW,
            };
            self.known = taken.bytes;
            self.drain.update(taken, &way);
        }
    }

    /// Bytes taken in `ms` milliseconds by a host that takes up to `most(ms)` in each.
    fn run(&mut self, ms: u64, most: impl Fn(u64) -> u64) -> u64 {
        let before = self.taken;
        for _ in 0..ms {
            self.step(most(self.ms));
        }
        self.taken - before
    }
}

#[test]
fn a_slow_host_is_kept_busy_and_not_flooded() {
    for share in [2, 4, 16] {
        let takes = LINK_PER_MS / share;
        let mut w = World::default();
        w.run(3_000, |_| takes);
        for _ in 0..20 {
            let taken = w.run(100, |_| takes);
            assert!(taken * 100 >= takes * 100 * 97, "1/{share}: {taken}");
            let (waiting, most) = (w.waiting(), takes * 80);
            assert!(waiting <= most, "1/{share}: {waiting} of {most}");
        }
    }
}

#[test]
fn one_that_works_in_spells_gets_what_it_takes_on_average() {
    let spells = |ms: u64| if ms % 70 < 20 { LINK_PER_MS } else { 0 };
    let mut w = World::default();
    w.run(3_000, spells);
    let taken = w.run(7_000, spells);
    assert!(taken >= 1_900 * LINK_PER_MS, "{taken} of 2 s at full speed");
    assert!(w.waiting() <= 90 * LINK_PER_MS, "{}", w.waiting());
}

#[test]
fn one_that_keeps_up_is_not_held_back_nor_for_a_pause() {
    let mut w = World::default();
    w.run(1_000, |_| 2 * LINK_PER_MS);
    w.run(80, |_| 0);
    for _ in 0..3_000 {
        w.step(2 * LINK_PER_MS);
        assert_eq!(w.drain.granted(), u64::MAX);
    }
}

#[test]
fn one_that_recovers_gets_everything_again() {
    let mut w = World::default();
    w.run(3_000, |_| LINK_PER_MS / 4);
    assert!(w.drain.granted() < WINDOW);
    w.run(3_000, |_| 2 * LINK_PER_MS);
    assert_eq!(w.drain.granted(), u64::MAX);
}

#[test]
fn nonsense_is_survived_and_grants_the_least() {
    let granted = [Duration::ZERO, Duration::MAX].map(nonsense);
    assert_eq!(granted, [LEAST * u64::from(u32::MAX), u64::MAX]);
}

/// Grant after reports and a path that cannot be.
fn nonsense(rtt: Duration) -> u64 {
    let mut drain = DrainEstimate::default();
    for at_us in [0, u64::MAX, 5, u64::MAX, 7] {
        let taken = Drained {
            at_us,
            bytes: u64::MAX - at_us,
            delay: Duration::MAX,
        };
        let way = RatePath {
            rtt,
            interval: Duration::ZERO,
            datagram: u32::MAX,
            in_flight: 0,
            window: 0,
        };
        drain.update(taken, &way);
    }
    drain.granted()
}
