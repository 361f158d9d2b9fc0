//! Counts what happened to packets: monotone counts per direction, with every drop under its cause.

use std::time::Duration;

use farhaul_core::units::Size;

/// Reason why the network dropped a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum DropCause {
    /// Longer than the path's MTU.
    Mtu,
    /// The policer had no tokens.
    Policer,
    /// The bottleneck's queue was full.
    Queue,
    /// Queue management (`CoDel`, RED) chose it.
    QueueManagement,
    /// Independent random loss.
    Random,
    /// Bursty (Gilbert-Elliott) loss.
    Burst,
    /// Lost in the recorded trace.
    Trace,
    /// The link was dark.
    Blackout,
}

impl DropCause {
    /// Every cause, in the order a packet meets them.
    pub const ALL: [Self; 8] = [
        Self::Mtu,
        Self::Policer,
        Self::Queue,
        Self::QueueManagement,
        Self::Random,
        Self::Burst,
        Self::Trace,
        Self::Blackout,
    ];

    /// A stable name for reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mtu => "mtu",
            Self::Policer => "policer",
            Self::Queue => "queue",
            Self::QueueManagement => "queue_management",
            Self::Random => "random",
            Self::Burst => "burst",
            Self::Trace => "trace",
            Self::Blackout => "blackout",
        }
    }
}

/// Counts of one direction since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Packets offered.
    pub offered: u64,
    /// Bytes offered, with their IP headers.
    pub offered_bytes: u64,
    /// Packets delivered, copies not counted.
    pub passed: u64,
    /// Bytes delivered, copies not counted.
    pub passed_bytes: u64,
    /// Packets delivered twice.
    pub duplicated: u64,
    /// Packets delivered damaged.
    pub corrupted: u64,
    /// Packets held back so that later ones could overtake.
    pub reordered: u64,
    /// Packets marked "congestion experienced".
    pub marked: u64,
    /// Most bytes that stood in the bottleneck's queue, the packet in service included.
    pub max_queue: Size,
    /// Longest wait in the bottleneck's queue.
    pub max_wait: Duration,
    pub(crate) drops: [u64; DropCause::ALL.len()],
}

impl Counters {
    /// Packets dropped for `cause`.
    pub const fn dropped(&self, cause: DropCause) -> u64 {
        self.drops[cause as usize]
    }

    /// Packets dropped, whatever the cause.
    pub fn dropped_in_all(&self) -> u64 {
        self.drops.iter().sum()
    }

    /// Every cause with its count.
    pub fn drops(&self) -> impl Iterator<Item = (DropCause, u64)> + '_ {
        DropCause::ALL
            .into_iter()
            .map(|cause| (cause, self.dropped(cause)))
    }
}
