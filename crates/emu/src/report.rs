//! Reports what happened on the network during a run: the numbers of both directions and the
//! emulator's health, for people and as JSON.

use std::{collections::BTreeMap, fmt, ops::RangeInclusive};

use farhaul_core::units::Size;
use farhaul_link::{Counters, DropCause};
use serde::Serialize;

use crate::{
    health::{Health, complaints},
    router::{Outcome, Totals},
};

/// The report of one run.
#[derive(Clone, Debug, Serialize)]
pub struct WanReport {
    /// Kind of this object, with its version.
    pub schema: &'static str,
    /// A description of the requested network.
    pub network: String,
    /// The seed of all randomness.
    pub seed: u64,
    /// Time for which the network existed, s.
    pub seconds: f64,
    /// Counts from the near host to the far one.
    pub near_to_far: DirectionReport,
    /// Counts from the far host to the near one.
    pub far_to_near: DirectionReport,
    /// Verdict on whether the emulator kept up.
    pub health: Health,
    /// True if the requested rate was above the calibrated limit of the machine.
    pub emulator_limited: bool,
}

/// Packets offered in one direction from or to some ports.
#[derive(Clone, Debug, Serialize)]
pub struct PortCount {
    /// The ports.
    pub ports: RangeInclusive<u16>,
    /// TCP and UDP packets; of fragments only the first.
    pub packets: u64,
    /// Bytes of these packets, IP headers included.
    pub bytes: u64,
    /// Packets that the network dropped, whatever the cause.
    pub dropped: u64,
}

impl PortCount {
    /// Counts of these ports, all zero.
    pub(crate) const fn new(ports: RangeInclusive<u16>) -> Self {
        Self {
            ports,
            packets: 0,
            bytes: 0,
            dropped: 0,
        }
    }
}

/// Counts of one direction.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DirectionReport {
    /// Packets the sender put on the network.
    pub offered_packets: u64,
    /// Bytes of these packets, IP headers included.
    pub offered_bytes: u64,
    /// Packets the receiver got, copies included.
    pub delivered_packets: u64,
    /// Bytes of these packets, IP headers included.
    pub delivered_bytes: u64,
    /// Dropped packets by cause.
    pub drops: BTreeMap<&'static str, u64>,
    /// Packets delivered twice.
    pub duplicated: u64,
    /// Packets damaged; TCP and other packets whose kernel would notice are not delivered.
    pub corrupted: u64,
    /// Packets held back for others to overtake.
    pub reordered: u64,
    /// Packets marked "congestion experienced".
    pub marked: u64,
    /// Most bytes in the bottleneck's queue.
    pub max_queue_bytes: u64,
    /// Longest wait in the queue, ms.
    pub max_wait_ms: f64,
    /// Packets to be counted apart, in the order of
    /// [`WanConfig::ports`](crate::wan::WanConfig::ports).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortCount>,
    /// Segments per train read, a measure of the emulator's efficiency.
    pub packets_per_read: f64,
    /// Segments per run written.
    pub packets_per_write: f64,
}

impl WanReport {
    /// The report of a router's outcome, and of packets that never reached it.
    pub(crate) fn new(
        outcome: &Outcome,
        network: String,
        seed: u64,
        offload: &'static str,
        missed: u64,
    ) -> Self {
        let lateness = outcome.late.lateness();
        let own_drops = missed + outcome.totals.iter().map(|t| t.own_drops).sum::<u64>();
        let offered: u64 = outcome.paths.iter().map(|p| p.counters().offered).sum();
        let complaints = complaints(&lateness, own_drops, offered + missed);
        let way = |i: usize| DirectionReport {
            ports: outcome.ports[i].clone(),
            ..DirectionReport::new(outcome.paths[i].counters(), &outcome.totals[i])
        };
        Self {
            schema: "farhaul.wan/1",
            network,
            seed,
            seconds: outcome.seconds,
            near_to_far: way(0),
            far_to_near: way(1),
            health: Health {
                valid: complaints.is_empty(),
                complaints,
                lateness,
                own_drops,
                max_held_bytes: outcome.max_held,
                cpu_seconds: outcome.cpu_seconds,
                pm_qos: outcome.pm_qos,
                offload,
            },
            emulator_limited: false,
        }
    }
}

impl DirectionReport {
    #[expect(clippy::cast_precision_loss, reason = "ratios for people")]
    pub(crate) fn new(counters: &Counters, totals: &Totals) -> Self {
        Self {
            offered_packets: counters.offered,
            offered_bytes: counters.offered_bytes,
            delivered_packets: totals.delivered,
            delivered_bytes: totals.delivered_bytes,
            drops: counters
                .drops()
                .filter(|(_, n)| *n > 0)
                .map(|(cause, n)| (cause.name(), n))
                .collect(),
            duplicated: counters.duplicated,
            corrupted: counters.corrupted,
            reordered: counters.reordered,
            marked: counters.marked,
            max_queue_bytes: counters.max_queue.bytes(),
            max_wait_ms: counters.max_wait.as_secs_f64() * 1e3,
            ports: Vec::new(),
            packets_per_read: counters.offered as f64 / totals.reads.max(1) as f64,
            packets_per_write: totals.delivered as f64 / totals.writes.max(1) as f64,
        }
    }

    /// Packets dropped for `cause`.
    pub fn dropped(&self, cause: DropCause) -> u64 {
        self.drops.get(cause.name()).copied().unwrap_or(0)
    }
}

impl fmt::Display for WanReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let network = &self.network;
        writeln!(
            f,
            "wan: {network}, seed {}, {:.1} s",
            self.seed, self.seconds
        )?;
        line(f, "near to far", &self.near_to_far)?;
        line(f, "far to near", &self.far_to_near)?;
        let late = self.health.lateness;
        write!(
            f,
            "  emulator: released {:.0}/{:.0}/{:.0} us late (p50/p99/max), {} own drops, {} held, {:.0} % of a core",
            late.p50_us,
            late.p99_us,
            late.max_us,
            self.health.own_drops,
            Size::from_bytes(self.health.max_held_bytes),
            100.0 * self.health.cpu_seconds / self.seconds.max(1e-9),
        )?;
        if !self.health.pm_qos {
            write!(f, ", idle states allowed")?;
        }
        for complaint in &self.health.complaints {
            write!(f, "\n  NOT VALID: {complaint}")?;
        }
        if self.emulator_limited {
            write!(
                f,
                "\n  EMULATOR-LIMITED: the rate is above what this machine was calibrated for"
            )?;
        }
        Ok(())
    }
}

fn line(f: &mut fmt::Formatter<'_>, name: &str, way: &DirectionReport) -> fmt::Result {
    write!(
        f,
        "  {name}: {} packets, {}; delivered {}, {}; queue up to {}",
        way.offered_packets,
        Size::from_bytes(way.offered_bytes),
        way.delivered_packets,
        Size::from_bytes(way.delivered_bytes),
        Size::from_bytes(way.max_queue_bytes),
    )?;
    let also = [
        ("duplicated", way.duplicated),
        ("corrupted", way.corrupted),
        ("reordered", way.reordered),
        ("marked", way.marked),
    ];
    for (cause, n) in &way.drops {
        write!(f, "; {n} dropped ({})", cause.replace('_', " "))?;
    }
    for (name, n) in also.iter().filter(|(_, n)| *n > 0) {
        write!(f, "; {n} {name}")?;
    }
    writeln!(f)
}
