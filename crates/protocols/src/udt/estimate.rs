//! How fast do packets arrive, and how fast could they? Two windows of intervals, each filtered around
//! its median: between packets, and between the two of a probe pair that left back to back.
//!
//! Packets that one receive call returned together arrived at one instant as far as is known: the time
//! since those before is shared among them, and a pair among them counts as 1 µs apart, the least
//! libudt's integers can say. Source: UDT 4.11 `window.cpp`.

use farhaul_core::time::{Instant, nanos};

use super::Manner;

/// Intervals between packets.
const ARRIVALS: usize = 16;
/// Gaps of probe pairs.
const PROBES: usize = 64;
const SECOND: u64 = 1_000_000_000;
const LEAST: u64 = 1_000;

/// A ring of intervals, ns.
#[derive(Clone, Debug)]
struct Window<const N: usize> {
    ring: [u64; N],
    at: usize,
    filled: usize,
}

impl<const N: usize> Window<N> {
    /// Full of `initial`, or empty.
    const fn new(initial: Option<u64>) -> Self {
        let (value, filled) = match initial {
            Some(value) => (value, N),
            None => (0, 0),
        };
        Self {
            ring: [value; N],
            at: 0,
            filled,
        }
    }

    const fn push(&mut self, value: u64) {
        self.ring[self.at] = value;
        self.at = (self.at + 1) % N;
        if self.filled < N {
            self.filled += 1;
        }
    }

    /// Mean of those within a factor of 8 of the median, and how many they are.
    fn filtered(&self) -> Option<(u64, usize)> {
        let mut sorted = self.ring;
        let known = &mut sorted[..self.filled];
        if known.is_empty() {
            return None;
        }
        let middle = known.len() / 2;
        let (_, &mut median, _) = known.select_nth_unstable(middle);
        let near = |v: &&u64| **v > median / 8 && **v < median.saturating_mul(8);
        let (sum, count) = known
            .iter()
            .filter(near)
            .fold((0_u64, 0_usize), |(s, n), v| (s.saturating_add(*v), n + 1));
        (count > 0).then(|| (sum / count as u64, count))
    }
}

fn per_second(interval: u64) -> u32 {
    u32::try_from(SECOND.div_ceil(interval.max(LEAST))).unwrap_or(u32::MAX)
}

/// What a receiver measures.
#[derive(Clone, Debug)]
pub(super) struct Estimate {
    arrivals: Window<ARRIVALS>,
    probes: Window<PROBES>,
    last: Option<Instant>,
    probe: Option<(u64, Instant)>,
}

impl Estimate {
    /// libudt starts from a second between packets and 1,000 packets/s; the cured one from nothing.
    pub(super) const fn new(manner: Manner) -> Self {
        let (arrival, probe) = match manner {
            Manner::Libudt => (Some(SECOND), Some(1_000_000)),
            Manner::Tuned => (None, None),
        };
        Self {
            arrivals: Window::new(arrival),
            probes: Window::new(probe),
            last: None,
            probe: None,
        }
    }

    /// `count` data packets arrived together.
    pub(super) fn on_batch(&mut self, now: Instant, count: u64) {
        if count == 0 {
            return;
        }
        if let Some(last) = self.last {
            let each = nanos(now.since(last)) / count;
            for _ in 0..count.min(ARRIVALS as u64) {
                self.arrivals.push(each.max(LEAST));
            }
        }
        self.last = Some(now);
    }

    /// Packet `number` arrived for the first time.
    pub(super) fn on_packet(&mut self, now: Instant, number: u64) {
        match number % 16 {
            0 => self.probe = Some((number, now)),
            1 => {
                if let Some((first, at)) = self.probe.take()
                    && first + 1 == number
                {
                    self.probes.push(nanos(now.since(at)).max(LEAST));
                }
            }
            _ => {}
        }
    }

    /// Packets per second; 0 if the window is too mixed to tell.
    pub(super) fn arrival(&self) -> u32 {
        match self.arrivals.filtered() {
            Some((mean, count)) if count > ARRIVALS / 2 => per_second(mean),
            _ => 0,
        }
    }

    /// Packets per second the link could carry; 0 if unknown.
    pub(super) fn capacity(&self) -> u32 {
        self.probes
            .filtered()
            .map_or(0, |(mean, _)| per_second(mean))
    }
}

/// Time between the departures that arrival speeds tell; for tests and reports.
#[cfg(test)]
const fn interval(packets_per_second: u64) -> std::time::Duration {
    std::time::Duration::from_nanos(SECOND / packets_per_second)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(manner: Manner, packets: u64, pps: u64, batch: u64) -> Estimate {
        let mut estimate = Estimate::new(manner);
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
            let estimate = run(Manner::Libudt, 3_200, 50_000, batch);
            assert!(
                estimate.arrival().abs_diff(50_000) < 100,
                "{}",
                estimate.arrival()
            );
        }
        let pairs = run(Manner::Libudt, 3_200, 50_000, 1).capacity();
        assert!(
            pairs.abs_diff(100_000) < 200,
            "pairs at half the interval: {pairs}"
        );
        assert_eq!(run(Manner::Libudt, 3_200, 50_000, 32).capacity(), 1_000_000);
    }

    #[test]
    fn libudt_starts_from_inventions_and_the_cured_one_from_nothing() {
        let fresh = Estimate::new(Manner::Libudt);
        assert_eq!((fresh.arrival(), fresh.capacity()), (1, 1_000));
        assert_eq!(
            run(Manner::Libudt, 320, 50_000, 1).capacity(),
            1_000,
            "20 pairs are outvoted"
        );
        let fresh = Estimate::new(Manner::Tuned);
        assert_eq!((fresh.arrival(), fresh.capacity()), (0, 0));
        assert!(run(Manner::Tuned, 32, 50_000, 1).capacity() > 90_000);
    }

    #[test]
    fn one_pause_does_not_change_the_speed() {
        let mut estimate = run(Manner::Libudt, 320, 50_000, 1);
        let before = estimate.arrival();
        estimate.on_batch(Instant::from_nanos(20 * SECOND), 1);
        assert!(estimate.arrival().abs_diff(before) <= 1);
    }
}
