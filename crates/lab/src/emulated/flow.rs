//! Flows and their results. A [`Flow`] is one sender and one receiver among several on the same
//! network; a [`FlowResult`] has the figures measured of it.

use std::{collections::BTreeMap, time::Duration};

use farhaul_core::units::Rate;
use farhaul_emu::WanReport;
use serde::{Deserialize, Serialize};

use super::{System, profile::Profile};
use farhaul_measure::{
    bench::{Cost, Interval},
    histogram::RttMs,
};

/// Name in [`FlowResult::metrics`] of the rate of the sender's first blast, bit/s.
pub const FIRST_BLAST: &str = "first_blast";

/// Limit at which a flow ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// A time: the flow sends for this long from its start, connecting included.
    Time(Duration),
    /// A number of bytes: the flow sends this much, and has failed if that takes longer.
    Bytes {
        /// Payload.
        bytes: u64,
        /// Longest time that the flow may take.
        within: Duration,
    },
}

impl Amount {
    /// The longest that the flow may send.
    pub const fn time(self) -> Duration {
        match self {
            Self::Time(time) | Self::Bytes { within: time, .. } => time,
        }
    }
}

/// One flow to be run.
#[derive(Clone, Debug)]
pub struct Flow {
    /// Name of the flow in results.
    pub name: String,
    /// System that sends and receives.
    pub system: System,
    /// Start since the beginning of the run.
    pub start: Duration,
    /// Amount after which the flow ends.
    pub amount: Amount,
    /// True for a flow from the far host to the near one.
    pub reverse: bool,
    /// True if both ends are on the receiving host: the flow's packets take that host's loopback
    /// and no emulator.
    pub local: bool,
    /// Highest rate at which the flow sends.
    pub max_rate: Option<Rate>,
    /// Between the points of its series; zero for no series. Programs have their own bounds (iperf3: 100 ms
    /// to 60 s).
    pub interval: Duration,
    /// The processor time of both ends is sampled and put into these groups.
    pub profile: Option<Profile>,
}

impl Flow {
    /// `system` from near to far, from the beginning for `time`, without a series.
    pub fn new(name: &str, system: System, time: Duration) -> Self {
        Self {
            name: name.into(),
            system,
            start: Duration::ZERO,
            amount: Amount::Time(time),
            reverse: false,
            local: false,
            max_rate: None,
            interval: Duration::ZERO,
            profile: None,
        }
    }
}

/// Measured figures of a flow. Unknown ones are none, or empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FlowResult {
    /// Name as in [`Flow`].
    pub name: String,
    /// System, as [`System`] is written.
    pub system: String,
    /// Time at which the flow was started, s from the beginning of the run.
    pub start: f64,
    /// Time from the start to the arrival of the last new byte, s; of external programs, the
    /// client's run time.
    pub seconds: f64,
    /// Payload bytes at the receiver, each counted once.
    pub bytes: u64,
    /// Goodput at the receiver, the start included.
    pub goodput_bits_per_second: f64,
    /// The sending process, with what it started.
    pub sender: Cost,
    /// The receiving process, with what it started.
    pub receiver: Cost,
    /// Processor time of both over time: seconds since the run began, and seconds used until then.
    pub processors: [Vec<(f64, f64)>; 2],
    /// KiB of frames (IP packets and 14 bytes of Ethernet) that the receiver sent per GiB of payload.
    pub feedback_kib_per_gib: Option<f64>,
    /// Bytes of IP packets that the sender sent per byte of payload.
    pub ip_over_goodput: Option<f64>,
    /// Packets sent again; where a program counts bytes, these over the size of its packets.
    pub retransmits: Option<u64>,
    /// Round-trip times as the sender measured them.
    pub rtt_ms: RttMs,
    /// Rate at the receiver over time, from the beginning of the run.
    pub intervals: Vec<Interval>,
    /// Further figures by name: what the program reports beyond the above.
    pub metrics: BTreeMap<String, f64>,
    /// The command lines: the receiver's, the sender's.
    pub commands: Vec<String>,
    /// Reason why there is no result, if so.
    pub failed: Option<String>,
}

/// A run of several flows.
#[derive(Clone, Debug)]
pub struct FlowsRun {
    /// Results in the order of the flows.
    pub flows: Vec<FlowResult>,
    /// Packets that crossed each direction, and the emulator's health.
    pub wan: WanReport,
    /// Processor time of the whole machine meanwhile, s: the ends, the emulator, and what the kernel charges to
    /// no process. Of an otherwise idle machine.
    pub machine_cpu_seconds: Option<f64>,
}

impl FlowsRun {
    /// Reason why the figures must not be quoted, if so: a flow failed, or the emulator was late.
    pub fn invalid(&self) -> Option<String> {
        let failed = self.flows.iter().filter_map(|flow| {
            let why = flow.failed.as_ref()?;
            Some(format!("{}: {why}", flow.name))
        });
        let health = &self.wan.health;
        let late = (!health.valid).then(|| health.complaints.join("; "));
        let all: Vec<String> = failed.chain(late).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}
