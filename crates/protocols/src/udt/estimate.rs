//! Estimates how fast packets arrive, and how fast they could. There are two windows of intervals,
//! each filtered around its median: between packets, and between the two of a back-to-back probe
//! pair.
//!
//! Packets that one receive call returned together arrived at one instant as far as is known. The
//! time since those before is shared among all of them, and a pair among them counts as 1 µs apart,
//! the least that libudt's integers can say. A pause is one interval, however many packets end it.
//! The fixed receiver shares no less than [`GROUP`]: what a busy socket returns at once, and how
//! soon again, is the reader's rhythm and not the path's. Source: UDT 4.11 `window.cpp`.

use std::time::Duration;

use farhaul_core::{
    rate::MedianWindow,
    time::{Instant, nanos},
};

use super::Behaviour;

/// Intervals between packets.
const ARRIVALS: usize = 16;
/// Gaps of probe pairs.
const PROBES: usize = 64;
/// The least time over which the fixed receiver counts what arrives.
const GROUP: Duration = Duration::from_millis(2);
/// Times the usual interval per packet that make a pause.
const PAUSE: u64 = 8;
/// Packets from pair to pair.
const PAIR: u64 = 16;
const SECOND: u64 = 1_000_000_000;
const LEAST: u64 = 1_000;

fn per_second(interval: u64) -> u32 {
    u32::try_from(SECOND.div_ceil(interval.max(LEAST))).unwrap_or(u32::MAX)
}

/// Packets that are counted together.
#[derive(Clone, Copy, Debug)]
struct Group {
    /// Time at which what came before it was complete, and when its last packet arrived.
    since: Instant,
    at: Instant,
    count: u64,
}

/// Measurements of a receiver.
#[derive(Clone, Debug)]
pub(super) struct Estimate {
    arrivals: MedianWindow<ARRIVALS>,
    probes: MedianWindow<PROBES>,
    group: Option<Group>,
    /// A group is at least so long.
    least: Duration,
    probe: Option<(u64, Instant)>,
    /// Time in which a host that sleeps between packets takes the second one of a pair, ns.
    wake: u64,
    /// True if packets come more rarely than that, from pair to pair on average: a sender that hands
    /// over several at a time lets no host sleep less.
    sleeps: bool,
    pair_at: Option<Instant>,
}

impl Estimate {
    /// libudt starts from a second between packets and 1,000 packets/s; the fixed one from nothing.
    pub(super) fn new(behaviour: Behaviour, wake: Duration) -> Self {
        let (arrival, probe, least) = match behaviour {
            Behaviour::Libudt => (Some(SECOND), Some(1_000_000), Duration::ZERO),
            Behaviour::Fixed => (None, None, GROUP),
        };
        Self {
            arrivals: MedianWindow::new(arrival),
            probes: MedianWindow::new(probe),
            group: None,
            least,
            probe: None,
            wake: nanos(wake).max(LEAST),
            sleeps: false,
            pair_at: None,
        }
    }

    /// `count` data packets arrived together, perhaps with those of the call before.
    pub(super) fn on_batch(&mut self, now: Instant, count: u64) {
        if count == 0 {
            return;
        }
        let fresh = Group {
            since: now,
            at: now,
            count: 0,
        };
        let Some(mut group) = self.group.replace(fresh) else {
            return;
        };
        let gap = now.since(group.at);
        if self.is_pause(gap, count) {
            self.close(group);
            self.arrivals.push(nanos(gap));
            return;
        }
        if now > group.at && group.at.since(group.since) >= self.least {
            self.close(group);
            (group.since, group.count) = (group.at, 0);
        }
        group.at = now;
        group.count += count;
        self.group = Some(group);
    }

    /// True if `gap` before `count` packets is the sender's, not the path's.
    fn is_pause(&self, gap: Duration, count: u64) -> bool {
        let usual = self.arrivals.median();
        gap > self.least
            && usual.is_some_and(|usual| nanos(gap) / count > usual.saturating_mul(PAUSE))
    }

    /// The packets of `group` shared the time it took.
    fn close(&mut self, group: Group) {
        let each = nanos(group.at.since(group.since)) / group.count.max(1);
        if each > 0 {
            for _ in 0..group.count.min(ARRIVALS as u64) {
                self.arrivals.push(each.max(LEAST));
            }
        }
    }

    /// Packet `number` arrived for the first time.
    pub(super) fn on_packet(&mut self, now: Instant, number: u64) {
        match number % PAIR {
            0 => {
                let before = self.pair_at.replace(now);
                self.sleeps = before.is_some_and(|at| nanos(now.since(at)) / PAIR >= self.wake);
                self.probe = Some((number, now));
            }
            1 => {
                if let Some((first, at)) = self.probe.take()
                    && first + 1 == number
                {
                    let least = if self.sleeps { self.wake } else { LEAST };
                    self.probes.push(nanos(now.since(at)).max(least));
                }
            }
            _ => {}
        }
    }

    /// Packets per second; 0 if the window is too mixed for a figure.
    pub(super) fn arrival(&self) -> u32 {
        match self.arrivals.mean() {
            Some((mean, count)) if count > ARRIVALS / 2 => per_second(mean),
            _ => 0,
        }
    }

    /// Packets per second the link could carry; 0 if unknown.
    pub(super) fn capacity(&self) -> u32 {
        self.probes.mean().map_or(0, |(mean, _)| per_second(mean))
    }
}

/// Time between departures by an arrival speed; for tests and reports.
#[cfg(test)]
const fn interval(packets_per_second: u64) -> Duration {
    Duration::from_nanos(SECOND / packets_per_second)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(behaviour: Behaviour, packets: u64, pps: u64, batch: u64) -> Estimate {
        let mut estimate = Estimate::new(behaviour, Duration::ZERO);
        let mut now = Instant::from_nanos(SECOND);
        for number in (0..packets).step_by(usize::try_from(batch).unwrap()) {
            now += interval(pps) * u32::try_from(batch).unwrap();
            for n in number..number + batch {
                let probe = if n % 16 == 1 && batch == 1 {
                    now.earlier_by(interval(pps) / 2)
                } else {
                    now
                };
                estimate.on_packet(probe, n);
            }
            estimate.on_batch(now, batch);
        }
        estimate
    }

    #[test]
    fn speeds_are_found_packet_by_packet_and_in_trains() {
        for batch in [1, 8, 32] {
            let estimate = run(Behaviour::Libudt, 3_200, 50_000, batch);
            assert!(
                estimate.arrival().abs_diff(50_000) < 100,
                "{}",
                estimate.arrival()
            );
        }
        let pairs = run(Behaviour::Libudt, 3_200, 50_000, 1).capacity();
        assert!(
            pairs.abs_diff(100_000) < 200,
            "pairs at half the interval: {pairs}"
        );
        assert_eq!(
            run(Behaviour::Libudt, 3_200, 50_000, 32).capacity(),
            1_000_000
        );
    }

    /// Estimate of a busy reader: every 320 µs eight trains at once, and 20 µs later four more.
    fn busy(behaviour: Behaviour) -> u32 {
        let mut estimate = Estimate::new(behaviour, Duration::ZERO);
        let mut now = Instant::from_nanos(SECOND);
        for _ in 0..100 {
            for (pause, trains) in [(300, 8), (20, 4)] {
                now += Duration::from_micros(pause);
                for _ in 0..trains {
                    estimate.on_batch(now, 7);
                }
            }
        }
        estimate.arrival()
    }

    #[test]
    fn trains_of_one_call_share_its_time_and_a_reader_has_no_rhythm() {
        let mut estimate = Estimate::new(Behaviour::Libudt, Duration::ZERO);
        for ms in 0..100 {
            for _ in 0..4 {
                estimate.on_batch(Instant::from_nanos(ms * 1_000_000), 10);
            }
        }
        assert_eq!(estimate.arrival(), 40_000);
        let truth = 12 * 7 * 1_000_000 / 320;
        assert!(busy(Behaviour::Fixed).abs_diff(truth) < truth / 20);
    }

    #[test]
    fn a_burst_after_a_pause_has_its_own_speed() {
        for behaviour in [Behaviour::Libudt, Behaviour::Fixed] {
            let mut estimate = Estimate::new(behaviour, Duration::ZERO);
            let mut now = Instant::from_nanos(SECOND);
            for _ in 0..20 {
                now += Duration::from_millis(50);
                for _ in 0..8 {
                    now += Duration::from_micros(460);
                    estimate.on_batch(now, 64);
                }
            }
            let speed = estimate.arrival();
            assert!(speed.abs_diff(139_130) < 1_400, "{behaviour:?}: {speed}");
        }
    }

    #[test]
    fn libudt_starts_from_inventions_and_the_fixed_from_nothing() {
        let fresh = Estimate::new(Behaviour::Libudt, Duration::ZERO);
        assert_eq!((fresh.arrival(), fresh.capacity()), (1, 1_000));
        assert_eq!(
            run(Behaviour::Libudt, 320, 50_000, 1).capacity(),
            1_000,
            "20 pairs are outvoted"
        );
        let fresh = Estimate::new(Behaviour::Fixed, Duration::ZERO);
        assert_eq!((fresh.arrival(), fresh.capacity()), (0, 0));
        assert!(run(Behaviour::Fixed, 32, 50_000, 1).capacity() > 90_000);
    }

    #[test]
    fn a_host_that_sleeps_shows_the_time_it_takes_to_wake() {
        // Pairs 1 us apart, a packet each 100 us or each 20 us.
        for (gap, expected) in [(100_000, per_second(69_000)), (20_000, 1_000_000)] {
            let mut estimate = Estimate::new(Behaviour::Libudt, Duration::from_micros(69));
            for number in 0..3_200 {
                let second = u64::from(number % 16 == 1);
                let at = gap * (number - second) + 1_000 * second;
                estimate.on_packet(Instant::from_nanos(at), number);
            }
            assert_eq!(estimate.capacity(), expected);
        }
    }

    #[test]
    fn one_pause_does_not_change_the_speed() {
        let mut estimate = run(Behaviour::Libudt, 320, 50_000, 1);
        let before = estimate.arrival();
        estimate.on_batch(Instant::from_nanos(20 * SECOND), 1);
        assert!(estimate.arrival().abs_diff(before) <= 1);
    }
}
