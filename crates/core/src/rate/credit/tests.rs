//! A sender, a path and a store in steps of a millisecond.

use std::collections::VecDeque;

use super::*;

const REPORT_MS: u64 = 5;
/// 8 Gbit/s.
const LINK_PER_MS: u64 = 1_000_000;
const MEMORY: u64 = 3_500_000;

/// A sender at full speed, a path, and a store that drops what it has no room for.
struct World {
    ms: u64,
    one_way: u64,
    sent: u64,
    known: u64,
    /// Bytes before `known` not known to have arrived or to have been dropped.
    dropped_known: u64,
    arrived: u64,
    dropped: u64,
    waiting: u64,
    on_way: VecDeque<(u64, u64)>,
    reports: VecDeque<(u64, Drained, u64, u64)>,
    credit: Credit,
}

impl World {
    fn new(one_way: u64) -> Self {
        let mut world = Self {
            ms: 0,
            one_way,
            sent: 0,
            known: 0,
            dropped_known: 0,
            arrived: 0,
            dropped: 0,
            waiting: 0,
            on_way: VecDeque::new(),
            reports: VecDeque::new(),
            credit: Credit::default(),
        };
        // The first packets of a session are reported at once.
        world.ms = REPORT_MS;
        world.report();
        world
    }

    /// Bytes that the law would have in flight: a quarter more than the path holds.
    fn window(&self) -> u64 {
        (2 * self.one_way + REPORT_MS) * LINK_PER_MS * 5 / 4
    }

    /// One millisecond, in which the store drains at most `most` bytes.
    fn step(&mut self, most: u64) {
        self.ms += 1;
        let window = self.window().min(self.credit.granted());
        let in_flight = self.sent - self.known - self.dropped_known;
        let paced = self.credit.pace().bytes_in(Duration::from_millis(1));
        let most_sent = LINK_PER_MS.min(paced);
        let bytes = window.saturating_sub(in_flight).min(most_sent);
        self.sent += bytes;
        self.on_way.push_back((self.ms + self.one_way, bytes));
        while let Some((_, bytes)) = self.on_way.pop_front_if(|(at, _)| *at <= self.ms) {
            let fits = bytes.min(MEMORY - self.waiting);
            self.waiting += fits;
            self.arrived += fits;
            self.dropped += bytes - fits;
        }
        self.waiting -= self.waiting.min(most);
        self.report();
    }

    fn report(&mut self) {
        if self.ms.is_multiple_of(REPORT_MS) {
            let taken = Drained {
                at_us: self.ms * 1_000,
                bytes: self.arrived,
                delay: Duration::ZERO,
            };
            let room = MEMORY - self.waiting;
            self.reports
                .push_back((self.ms + self.one_way, taken, room, self.dropped));
        }
        while let Some((_, taken, room, dropped)) =
            self.reports.pop_front_if(|(at, ..)| *at <= self.ms)
        {
            let way = RatePath {
                rtt: Duration::from_millis(2 * self.one_way),
                interval: Duration::from_millis(REPORT_MS),
                datagram: 9_000,
                in_flight: self.sent - self.known - self.dropped_known,
                window: self.window(),
            };
            (self.known, self.dropped_known) = (taken.bytes, dropped);
            self.credit.update(taken, Some(room), &way);
        }
    }

    /// Bytes that arrive and that are dropped in `ms` milliseconds by a store that drains up to `most(ms)`
    /// in each.
    fn run(&mut self, ms: u64, most: impl Fn(u64) -> u64) -> (u64, u64) {
        let before = (self.arrived, self.dropped);
        for _ in 0..ms {
            self.step(most(self.ms));
        }
        (self.arrived - before.0, self.dropped - before.1)
    }
}

#[test]
fn a_slow_store_is_kept_busy_and_not_flooded() {
    for one_way in [0, 1, 10, 50, 200] {
        for share in [2, 4, 10, 16] {
            let drains = LINK_PER_MS / share;
            let mut w = World::new(one_way);
            w.run(3_000, |_| drains);
            let (arrived, dropped) = w.run(3_000, |_| drains);
            let name = format!("{one_way} ms, 1/{share}: {arrived}, {dropped} dropped");
            assert_eq!((arrived, dropped), (drains * 3_000, 0), "{name}");
        }
    }
}

#[test]
fn one_that_drains_in_spells_gets_what_it_drains_on_average() {
    // Half a megabyte at a time.
    let spells = |ms: u64| if ms.is_multiple_of(5) { 500_000 } else { 0 };
    for one_way in [0, 10, 50, 200] {
        let mut w = World::new(one_way);
        w.run(3_000, spells);
        let (arrived, dropped) = w.run(5_000, spells);
        let name = format!("{one_way} ms: {arrived}, {dropped} dropped");
        assert_eq!((arrived, dropped), (500_000_000, 0), "{name}");
    }
}

#[test]
fn one_that_keeps_up_is_not_held_back() {
    for one_way in [0, 10, 200] {
        let mut w = World::new(one_way);
        w.run(1_000, |_| 2 * LINK_PER_MS);
        // A pause that its memory outlasts.
        w.run(1, |_| 0);
        for _ in 0..3_000 {
            w.step(2 * LINK_PER_MS);
            assert_eq!(w.credit.granted(), u64::MAX);
        }
    }
}

#[test]
fn a_pause_that_is_short_for_the_path_costs_little() {
    for (one_way, pause) in [(50, 20), (200, 20), (200, 100)] {
        let mut w = World::new(one_way);
        w.run(2_000, |_| 2 * LINK_PER_MS);
        w.run(pause, |_| 0);
        let (arrived, dropped) = w.run(3_000, |_| 2 * LINK_PER_MS);
        let lost = 3_000 * LINK_PER_MS - arrived;
        assert_eq!(w.credit.granted(), u64::MAX);
        let name = format!("{one_way} ms, {pause} ms: {lost} lost, {dropped} dropped");
        assert!(lost <= pause * LINK_PER_MS, "{name}");
    }
}

#[test]
fn one_that_stopped_gets_nothing_and_then_everything_again() {
    for one_way in [0, 1, 10, 50, 200] {
        let mut w = World::new(one_way);
        w.run(2_000, |_| 2 * LINK_PER_MS);
        w.run(5_000, |_| 0);
        assert!(w.credit.granted() < 9_000);
        let sent = w.sent;
        w.run(1_000, |_| 0);
        assert_eq!(w.sent, sent, "nothing is sent in vain");
        w.run(8_000, |_| 2 * LINK_PER_MS);
        assert_eq!(w.credit.granted(), u64::MAX, "{one_way} ms");
    }
}

#[test]
fn nonsense_is_survived() {
    for rtt in [Duration::ZERO, Duration::from_secs(1), Duration::MAX / 2] {
        let mut credit = Credit::default();
        let rooms = [0, u64::MAX, 1, 0, u64::MAX - 1, 7];
        for (i, at_us) in [0, u64::MAX, 5, u64::MAX, 7, 0].into_iter().enumerate() {
            let taken = Drained {
                at_us,
                bytes: u64::MAX - at_us,
                delay: Duration::MAX,
            };
            let way = RatePath {
                rtt,
                interval: Duration::ZERO,
                datagram: u32::MAX,
                in_flight: u64::MAX,
                window: 0,
            };
            credit.update(taken, Some(rooms[i]), &way);
            credit.granted();
        }
    }
}

/// A grant stands, although its report is overtaken by an older one.
#[test]
fn what_goes_back_is_ignored() {
    let way = RatePath {
        rtt: Duration::from_millis(20),
        interval: Duration::from_millis(5),
        datagram: 1_500,
        in_flight: 0,
        window: u64::MAX,
    };
    let mut credit = Credit::default();
    let mut report = |at_ms: u64, bytes: u64, room: u64| {
        let taken = Drained {
            at_us: at_ms * 1_000,
            bytes,
            delay: Duration::ZERO,
        };
        credit.update(taken, Some(room), &way);
        credit.granted()
    };
    assert_eq!(report(0, 0, 1_000_000), u64::MAX);
    assert_eq!(report(10, 900_000, 100_000), 0);
    let granted = report(60, 1_500_000, 600_000);
    assert!(granted > 100_000);
    assert_eq!(report(40, 900_000, 100_000), granted);
    // Nothing was drained since, whatever is said to have been taken back.
    assert_eq!(report(200, 0, 500_000), 0);
}

/// An overtaken report is ignored even while less than a round trip has passed since the
/// measurement began.
#[test]
fn a_report_that_was_overtaken_by_a_moment_is_ignored() {
    let way = RatePath {
        rtt: Duration::from_millis(20),
        interval: Duration::from_millis(5),
        datagram: 1_500,
        in_flight: 0,
        window: u64::MAX,
    };
    let mut credit = Credit::default();
    let mut report = |at_ms: u64, bytes: u64, room: Option<u64>| {
        let taken = Drained {
            at_us: at_ms * 1_000,
            bytes,
            delay: Duration::ZERO,
        };
        credit.update(taken, room, &way);
        (credit.granted(), credit.pace())
    };
    report(0, 0, Some(1_000_000));
    report(30, 900_000, Some(100_000));
    report(60, 1_500_000, Some(600_000));
    let newest = report(70, 1_500_000, Some(700_000));
    assert!(newest.0 > 0);
    assert_eq!(report(65, 1_500_000, Some(0)), newest);
    assert_eq!(report(65, 1_500_000, None), newest);
    assert_ne!(report(80, 1_500_000, Some(0)), newest);
}

#[test]
fn one_that_was_slow_for_a_while_soon_has_its_rate_again() {
    for one_way in [10, 50, 200] {
        for share in [2, 4, 8] {
            let mut w = World::new(one_way);
            w.run(3_000, |_| 2 * LINK_PER_MS);
            w.run(2_000, |_| LINK_PER_MS / share);
            let round = 2 * one_way + REPORT_MS;
            let (arrived, dropped) = w.run(12 * round, |_| 2 * LINK_PER_MS);
            let lost = 12 * round * LINK_PER_MS - arrived;
            let name = format!("{one_way} ms, 1/{share}: {lost} lost, {dropped} dropped");
            assert!(lost < 7 * round * LINK_PER_MS && dropped == 0, "{name}");
            let (arrived, _) = w.run(2 * round, |_| 2 * LINK_PER_MS);
            assert_eq!(arrived, 2 * round * LINK_PER_MS, "{name}");
        }
    }
}
