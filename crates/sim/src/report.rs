//! Results of a run: plain data, ready to be serialised, per flow, per link, and of the run itself.

use std::{collections::BTreeMap, time::Duration};

use farhaul_core::{protocol::CloseReason, stats::Stats, units::Rate};
use farhaul_link::Counters;
use serde::Serialize;

/// The outcome of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SimReport {
    /// Virtual time simulated, s.
    pub seconds: f64,
    /// The scenario's seed.
    pub seed: u64,
    /// Datagrams offered to links.
    pub packets: u64,
    /// Events handled.
    pub events: u64,
    /// Equal for equal runs, 16 hex digits.
    pub trace_hash: String,
    /// Link from clients to servers.
    pub forward: LinkReport,
    /// Link from servers to clients.
    pub back: LinkReport,
    /// Further links, from number 2 on.
    pub links: Vec<LinkReport>,
    /// Traffic that did not listen, in the scenario's order.
    pub cross: Vec<CrossReport>,
    /// Flows in the scenario's order.
    pub flows: Vec<FlowReport>,
}

/// Counts of one link. Bytes are IP packets with the scenario's framing.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LinkReport {
    /// Packets offered.
    pub offered: u64,
    /// Bytes offered.
    pub offered_bytes: u64,
    /// Packets delivered, copies not counted.
    pub passed: u64,
    /// Bytes delivered, copies not counted.
    pub passed_bytes: u64,
    /// Packets delivered twice.
    pub duplicated: u64,
    /// Packets damaged, and therefore dropped by the receiving host.
    pub corrupted: u64,
    /// Packets held back so that later ones could overtake.
    pub reordered: u64,
    /// Packets marked "congestion experienced".
    pub marked: u64,
    /// Most bytes that stood in the queue.
    pub max_queue_bytes: u64,
    /// Longest wait in the queue, ms.
    pub max_wait_ms: f64,
    /// Share of the time in which it was busy, from what passed and its rate at the start.
    pub utilisation: f64,
    /// Mean of the bytes in the queue, if it was sampled.
    pub mean_queue_bytes: Option<f64>,
    /// The bytes exceeded in a twentieth of the samples.
    pub p95_queue_bytes: Option<u64>,
    /// Packets dropped by cause; causes that never struck are left out.
    pub drops: BTreeMap<&'static str, u64>,
    /// Bytes in the queue, one sample per interval of the scenario, the first an interval after the start.
    #[serde(skip)]
    pub queue: Vec<u32>,
}

/// Mean of samples of a queue, and the bytes exceeded in a twentieth of them; nothing of no samples.
pub fn mean_and_p95(samples: &[u32]) -> (Option<f64>, Option<u64>) {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    let sum: u64 = sorted.iter().map(|l| u64::from(*l)).sum();
    let p95 = sorted.get((sorted.len() * 95).div_ceil(100).saturating_sub(1));
    let p95 = p95.map(|bytes| u64::from(*bytes));
    (ratio(sum, sorted.len() as u64), p95)
}

impl LinkReport {
    /// `queue` is what stood in the queue at regular times.
    pub(crate) fn new(counters: &Counters, capacity: Rate, seconds: f64, queue: Vec<u32>) -> Self {
        let (mean, p95) = mean_and_p95(&queue);
        Self {
            utilisation: rate(counters.passed_bytes, seconds) / capacity.as_f64(),
            mean_queue_bytes: mean,
            p95_queue_bytes: p95,
            queue,
            offered: counters.offered,
            offered_bytes: counters.offered_bytes,
            passed: counters.passed,
            passed_bytes: counters.passed_bytes,
            duplicated: counters.duplicated,
            corrupted: counters.corrupted,
            reordered: counters.reordered,
            marked: counters.marked,
            max_queue_bytes: counters.max_queue.bytes(),
            max_wait_ms: millis(counters.max_wait),
            drops: counters
                .drops()
                .filter(|(_, n)| *n > 0)
                .map(|(cause, n)| (cause.name(), n))
                .collect(),
        }
    }
}

/// The outcome of one flow.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FlowReport {
    /// Time at which the client connected, s.
    pub start: f64,
    /// Time from the start to the last byte of a finished flow, or to the end of the flow or run,
    /// s.
    pub seconds: f64,
    /// Distinct bytes placed by the receiver; of a flow that was stopped, before that.
    pub received_bytes: u64,
    /// Goodput over [`Self::seconds`].
    pub goodput_bits_per_second: f64,
    /// Time from the start until the client was connected, s.
    pub connected: Option<f64>,
    /// Time from the start until the receiver had everything, s.
    pub completed: Option<f64>,
    /// Time from the start until the sender knew of it, s.
    pub delivered: Option<f64>,
    /// Time from the start to the first rtt (at least 48 ms) in which the receiver got nine tenths
    /// of the flow's share of the link's rate, s.
    pub time_to_90_percent: Option<f64>,
    /// Packets dropped on the way to the server, and back.
    pub dropped: [u64; 2],
    /// Sender's wire bytes per distinct byte received.
    pub wire_over_goodput: Option<f64>,
    /// Receiver's feedback per GiB received, KiB.
    pub feedback_kib_per_gib: Option<f64>,
    /// Reason why each session ended, if it did.
    pub closed: [Option<String>; 2],
    /// Reasons for programs to decide by.
    #[serde(skip)]
    pub reasons: [Option<CloseReason>; 2],
    /// The client.
    pub sender: SideReport,
    /// The server.
    pub receiver: SideReport,
    /// Course of the flow over time.
    pub series: Vec<Point>,
}

/// A session's counters; see [`farhaul_core::stats::Stats`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[expect(missing_docs, reason = "named and documented as in `Stats`")]
pub struct SideReport {
    pub wire_sent: u64,
    pub datagrams_sent: u64,
    pub wire_received: u64,
    pub datagrams_received: u64,
    pub data_sent: u64,
    pub repaired: u64,
    pub data_acked: u64,
    pub data_received: u64,
    pub feedback_sent: u64,
    pub feedback_received: u64,
    pub packets_lost: u64,
    pub packets_spurious: u64,
    pub dropped_malformed: u64,
    pub dropped_duplicate: u64,
    /// Datagrams dropped because the store had no room.
    pub dropped_full: u64,
    pub retransmits: u64,
    pub duplicate_acks: u64,
    pub episodes: u64,
    pub timeouts: u64,
    pub law_faults: u64,
    pub law_fault: Option<&'static str>,
    pub datagram_size: u32,
    /// Rate of the first blast, where the protocol sends in blasts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_blast_bits_per_second: Option<f64>,
    pub rtt_min_ms: Option<f64>,
    pub rtt_smoothed_ms: Option<f64>,
    /// Seconds the sender did not send, by reason.
    pub held: BTreeMap<&'static str, f64>,
}

impl SideReport {
    pub(crate) fn new(stats: &Stats) -> Self {
        Self {
            wire_sent: stats.wire_sent,
            datagrams_sent: stats.datagrams_sent,
            wire_received: stats.wire_received,
            datagrams_received: stats.datagrams_received,
            data_sent: stats.data_sent,
            repaired: stats.repaired,
            data_acked: stats.data_acked,
            data_received: stats.data_received,
            feedback_sent: stats.feedback_sent,
            feedback_received: stats.feedback_received,
            packets_lost: stats.packets_lost,
            packets_spurious: stats.packets_spurious,
            dropped_malformed: stats.dropped_malformed,
            dropped_duplicate: stats.dropped_duplicate,
            dropped_full: stats.dropped_full,
            retransmits: stats.retransmits,
            duplicate_acks: stats.duplicate_acks,
            episodes: stats.episodes,
            timeouts: stats.timeouts,
            law_faults: stats.law_faults,
            law_fault: stats.law_fault,
            datagram_size: stats.datagram_size,
            first_blast_bits_per_second: stats.first_blast.map(Rate::as_f64),
            rtt_min_ms: stats.rtt_min.map(millis),
            rtt_smoothed_ms: stats.rtt_smoothed.map(millis),
            held: stats
                .held
                .totals()
                .filter(|(_, time)| !time.is_zero())
                .map(|(why, time)| (why.name(), time.as_secs_f64()))
                .collect(),
        }
    }
}

/// A flow at one moment. Counts are since the flow's start, at the sender unless stated otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Point {
    /// Time since the run's start, s.
    pub at: f64,
    /// Goodput at the receiver since the last point, bit/s.
    pub goodput_bits_per_second: f64,
    /// Distinct bytes at the receiver.
    pub delivered: u64,
    /// Bytes of data sent for the first time (web100 `SndNxt`).
    pub snd_nxt: u64,
    /// Datagrams sent, of any kind.
    pub sent: u64,
    /// Packets of those that the network dropped.
    pub dropped: u64,
    /// Bytes re-sent since the last point.
    pub repaired: u64,
    /// Packets re-sent.
    pub retransmits: u64,
    /// Acknowledgements that repeated the one before.
    pub duplicate_acks: u64,
    /// Episodes of loss.
    pub episodes: u64,
    /// Timeouts.
    pub timeouts: u64,
    /// The sender's pacing rate, bit/s.
    pub rate_bits_per_second: f64,
    /// The sender's window, bytes (web100 `CurCwnd`).
    pub window: u64,
    /// Slow-start threshold, bytes.
    pub ssthresh: Option<u64>,
    /// Bytes that the receiver grants.
    pub peer_window: Option<u64>,
    /// Bytes in flight.
    pub in_flight: u64,
    /// The sender's smoothed rtt, ms.
    pub rtt_ms: Option<f64>,
    /// Retransmission timeout, ms.
    pub rto_ms: Option<f64>,
    /// Phase the law is in.
    pub phase: &'static str,
    /// Bytes standing in the queue of the flow's slowest link on the way there, of all flows.
    pub queue: u64,
}

/// Traffic that did not listen.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CrossReport {
    /// Time at which the traffic began, s.
    pub start: f64,
    /// Packets sent.
    pub sent: u64,
    /// Packets that reached the end of their way.
    pub arrived: u64,
    /// Packets that the network dropped; the rest is on its way.
    pub dropped: u64,
    /// Dropped over sent, if any were sent.
    pub loss: Option<f64>,
    /// Bytes sent, with IP headers.
    pub bytes: u64,
    /// Course of the traffic over time.
    pub series: Vec<CrossPoint>,
}

/// Cross traffic at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CrossPoint {
    /// Time since the run's start, s.
    pub at: f64,
    /// Sent since the last point, bit/s.
    pub bits_per_second: f64,
    /// Packets sent since the last point.
    pub sent: u64,
    /// Packets dropped since the last point.
    pub dropped: u64,
}

pub(crate) fn millis(d: Duration) -> f64 {
    d.as_secs_f64() * 1_000.0
}

/// bit/s.
#[expect(clippy::cast_precision_loss, reason = "reports are not exact to 2^-53")]
pub(crate) fn rate(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        bytes as f64 * 8.0 / seconds
    } else {
        0.0
    }
}

/// `a / b`, if there is a `b`.
#[expect(clippy::cast_precision_loss, reason = "reports are not exact to 2^-53")]
pub(crate) fn ratio(a: u64, b: u64) -> Option<f64> {
    (b > 0).then(|| a as f64 / b as f64)
}
