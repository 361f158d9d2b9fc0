//! Reports of runs, and costs of their flows.

use std::collections::BTreeMap;

use farhaul_sim::{FlowReport, SimReport};
use serde::{Deserialize, Serialize};

use super::{
    measure::{exact, mean},
    plan::Plan,
    summary::Spread,
};
use crate::emulated::FIRST_BLAST;

/// Report of a run, in either world.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// Flows, links and cross traffic.
    pub report: SimReport,
    /// Cost of each flow, in the scenario's order.
    pub costs: Vec<Costs>,
    /// Processors of each flow over time, of a run on the emulator.
    pub processors: Vec<Processors>,
    /// 99th percentile less median of the one-way delay of each cross traffic on the emulator, ms.
    pub jitter_ms: Vec<Option<f64>>,
}

/// Seconds since the run began, and of processor time until then: of the sender, of the receiver.
#[derive(Clone, Debug, Default)]
pub struct Processors(pub [Vec<(f64, f64)>; 2]);

impl Processors {
    /// Mean share of a core of end 0 or 1 within a time. None if the end had ended before that time
    /// was over, or nothing was read.
    pub(super) fn share(&self, end: usize, (from, to): (f64, f64)) -> Option<f64> {
        let points = &self.0[end];
        let used = |at: f64| {
            let after = points.partition_point(|(time, _)| *time < at);
            let (time, used) = *points.get(after)?;
            let Some((before, less)) = after.checked_sub(1).map(|i| points[i]) else {
                return Some(used);
            };
            Some(less + (used - less) * (at - before) / (time - before))
        };
        (from < to).then_some((used(to)? - used(from)?) / (to - from))
    }
}

/// Cost of a flow per byte that arrived.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// Processor time of the sender, per cent of one core per Gbit/s.
    pub sender_cpu: Option<f64>,
    /// Processor time of the receiver.
    pub receiver_cpu: Option<f64>,
    /// Bytes that the receiver sent per GiB, KiB: whole Ethernet frames without preamble and check
    /// sequence.
    pub feedback_kib_per_gib: Option<f64>,
    /// Bytes of IP packets sent per byte.
    pub overhead: Option<f64>,
    /// Median of the rtt, ms.
    pub rtt_ms: Option<f64>,
    /// Packets sent again, of a run on real sockets: not every program counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmits: Option<u64>,
    /// Figures that only some systems have, by name: of an external program, those of its template.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub named: BTreeMap<String, f64>,
}

/// Header bytes of Ethernet, and of IPv4 and UDP.
const FRAME: u64 = 14;
const HEADERS: u64 = 20 + 8;

impl RunReport {
    /// A run of `plan` in the simulator. Its hosts have the processor time that the scenario's model gives them.
    pub(super) fn simulated(plan: &Plan, report: SimReport) -> Self {
        let costs = report.flows.iter().enumerate().map(|(number, flow)| {
            let hosts = plan.drivers.get(number).and_then(|driver| driver.processor);
            let (bytes, seconds) = (flow.received_bytes, flow.seconds);
            let per_byte = |bytes: u64| {
                (flow.received_bytes > 0).then(|| exact(bytes) / exact(flow.received_bytes))
            };
            let (sent, back) = (&flow.sender, &flow.receiver);
            let frames = back.wire_sent + (FRAME + HEADERS) * back.datagrams_sent;
            let samples = flow
                .series
                .iter()
                .filter_map(|p| p.rtt_ms)
                .collect::<Vec<_>>();
            Costs {
                sender_cpu: hosts.and_then(|h| h.sender.cost(sent, bytes, seconds)),
                receiver_cpu: hosts.and_then(|h| h.receiver.cost(back, bytes, seconds)),
                feedback_kib_per_gib: per_byte(frames).map(|x| x * exact(1 << 20)),
                overhead: per_byte(sent.wire_sent + HEADERS * sent.datagrams_sent),
                rtt_ms: (!samples.is_empty()).then(|| Spread::of(samples).median),
                named: named(flow),
                ..Costs::default()
            }
        });
        Self {
            costs: costs.collect(),
            report,
            processors: Vec::new(),
            jitter_ms: Vec::new(),
        }
    }

    /// Mean of a figure that only some flows have, if each flow of `numbers` has it.
    pub(super) fn named(&self, numbers: &[usize], name: &str) -> Option<f64> {
        let own = |i: &usize| self.costs.get(*i)?.named.get(name).copied();
        mean(&numbers.iter().map(own).collect::<Option<Vec<f64>>>()?)
    }
}

/// Figures that only some flows have, by name.
fn named(flow: &FlowReport) -> BTreeMap<String, f64> {
    let mut named = limits(flow);
    if let Some(rate) = flow.sender.first_blast_bits_per_second {
        named.insert(FIRST_BLAST.into(), rate);
    }
    named
}

/// Shares of the flow's time in which it waited, by reason; the rest was spent sending.
fn limits(flow: &FlowReport) -> BTreeMap<String, f64> {
    let total = flow.seconds.max(1e-9);
    let mut rest = 1.0;
    let mut shares = BTreeMap::new();
    for (why, seconds) in &flow.sender.held {
        let share = (seconds / total).clamp(0.0, rest);
        rest -= share;
        shares.insert(format!("limited_by_{why}"), share);
    }
    shares.insert("limited_by_sending".into(), rest);
    shares
}
