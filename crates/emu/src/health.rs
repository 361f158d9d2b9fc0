//! Judges whether a run is valid: how late the emulator released packets against its own plan, and
//! how many it dropped because it could not keep up.
//!
//! A run is invalid if one packet in a hundred was released more than 1 ms late. It is invalid,
//! too, if more than one packet in 10,000 was dropped by the emulator itself. A single late release
//! does not count against it: on a shared machine the scheduler takes the core away now and then.

use std::time::Duration;

use farhaul_core::time::nanos;
use serde::Serialize;

/// Latest release, at the 99th percentile, of a valid run.
const MAX_P99: Duration = Duration::from_millis(1);
/// Packets per own drop, at least, in a valid run.
const MIN_PACKETS_PER_OWN_DROP: u64 = 10_000;

/// A histogram of times with 16 buckets per doubling: quantiles are right to 7 %.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    buckets: Box<[u64; Self::BUCKETS]>,
    count: u64,
    max: u64,
}

impl Histogram {
    const BUCKETS: usize = 61 * 16;

    pub(crate) fn new() -> Self {
        Self {
            buckets: Box::new([0; Self::BUCKETS]),
            count: 0,
            max: 0,
        }
    }

    /// Counts `weight` packets that were `late`.
    pub(crate) fn record(&mut self, late: Duration, weight: u64) {
        let ns = nanos(late);
        self.buckets[bucket(ns)] += weight;
        self.count += weight;
        self.max = self.max.max(ns);
    }

    /// The time that the share `per_mille` of the packets did not exceed.
    fn quantile(&self, per_mille: u64) -> Duration {
        let rank = (u128::from(self.count) * u128::from(per_mille)).div_ceil(1_000);
        let mut seen = 0_u128;
        for (index, n) in self.buckets.iter().enumerate() {
            seen += u128::from(*n);
            if seen >= rank && seen > 0 {
                return Duration::from_nanos(upper_bound(index).min(self.max));
            }
        }
        Duration::ZERO
    }

    pub(crate) fn lateness(&self) -> Lateness {
        Lateness {
            p50_us: micros(self.quantile(500)),
            p99_us: micros(self.quantile(990)),
            max_us: micros(Duration::from_nanos(self.max)),
        }
    }
}

fn bucket(ns: u64) -> usize {
    if ns < 16 {
        return usize::try_from(ns).unwrap_or_default();
    }
    let doubling = ns.ilog2() - 3;
    let within = (ns >> (doubling - 1)) & 15;
    usize::try_from(u64::from(doubling) * 16 + within).unwrap_or_default()
}

fn upper_bound(index: usize) -> u64 {
    let index = index as u64;
    if index < 16 {
        return index;
    }
    let shift = index / 16 - 1;
    // The very last bucket ends at the last u64.
    u64::try_from(((u128::from(index % 16) + 17) << shift) - 1).unwrap_or(u64::MAX)
}

fn micros(d: Duration) -> f64 {
    d.as_secs_f64() * 1e6
}

/// Lateness of packets on release, in us after the time the model had set.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Lateness {
    /// Half of the packets were not later.
    pub p50_us: f64,
    /// 99 % of the packets were not later.
    pub p99_us: f64,
    /// The latest.
    pub max_us: f64,
}

/// Verdict on whether the emulator kept up.
#[derive(Clone, Debug, Serialize)]
pub struct Health {
    /// True if the run is valid.
    pub valid: bool,
    /// Reasons why the run is not valid.
    pub complaints: Vec<String>,
    /// Lateness of packets on release.
    pub lateness: Lateness,
    /// Packets dropped because the emulator was too slow or short of memory.
    pub own_drops: u64,
    /// Most memory that held packets, in bytes.
    pub max_held_bytes: u64,
    /// CPU time of the router, in seconds.
    pub cpu_seconds: f64,
    /// True if the kernel granted a latency of 0 us (PM quality of service), so that idle
    /// processors poll where their driver can; needs root.
    pub pm_qos: bool,
    /// Trains of packets that the kernel handed over in one piece.
    pub offload: &'static str,
}

/// Complaints about a run of `packets`, if any.
pub(crate) fn complaints(lateness: &Lateness, own_drops: u64, packets: u64) -> Vec<String> {
    let mut complaints = Vec::new();
    if lateness.p99_us > micros(MAX_P99) {
        complaints.push(format!(
            "1 % of the packets were sent more than {:.0} us late (bound {:.0} us): the machine is too busy",
            lateness.p99_us,
            micros(MAX_P99)
        ));
    }
    if own_drops.saturating_mul(MIN_PACKETS_PER_OWN_DROP) > packets {
        complaints.push(format!(
            "the emulator itself dropped {own_drops} of {packets} packets (bound 0.01 %): choose a lower rate"
        ));
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_falls_into_a_bucket_that_reaches_it() {
        for ns in (0..60).flat_map(|p| [1_u64 << p, (1 << p) + 1, (1 << p) * 3 / 2]) {
            let upper = upper_bound(bucket(ns));
            assert!(upper >= ns && upper - ns <= ns / 15 + 1, "{ns} {upper}");
        }
        assert!(bucket(u64::MAX) < Histogram::BUCKETS);
    }

    #[test]
    fn quantiles_count_packets() {
        let mut histogram = Histogram::new();
        assert!(histogram.lateness().p99_us < 1e-9);
        histogram.record(Duration::from_micros(10), 985);
        histogram.record(Duration::from_millis(5), 15);
        let lateness = histogram.lateness();
        assert!((10.0..10.7).contains(&lateness.p50_us));
        assert!((4_999.0..=5_000.0).contains(&lateness.p99_us));
    }

    #[test]
    fn one_late_packet_is_forgiven_and_one_in_a_hundred_is_not() {
        let with = |late| {
            let mut histogram = Histogram::new();
            histogram.record(Duration::from_micros(10), 10_000 - late);
            histogram.record(Duration::from_millis(500), late);
            complaints(&histogram.lateness(), 0, 10_000).len()
        };
        assert_eq!((with(1), with(101)), (0, 1));
        let lateness = Lateness::default();
        assert!(complaints(&lateness, 1, 10_000).is_empty());
        assert_eq!(complaints(&lateness, 2, 10_000).len(), 1);
    }
}
