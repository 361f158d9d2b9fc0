//! Keeps of a run, once its series are gone, all that summaries and verdicts are made of. An
//! outcome is small enough to be kept on a [`RunStore`](crate::run_store::RunStore). So hours of
//! runs can be taken up again, and judged again when expectations change.

use std::collections::BTreeMap;

use farhaul_core::protocol::CloseReason;
use farhaul_sim::{FlowReport, LinkReport, Point};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    costs::{Costs, Processors, RunReport},
    measure::{Term, exact, link},
    plan::Plan,
    source::Case,
};
use crate::{
    hash,
    run_store::{Backend, Kept},
};

/// One run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The world.
    #[serde(default)]
    pub backend: Backend,
    /// The scenario.
    pub scenario: String,
    /// The values of what varies.
    pub case: Case,
    /// Seed of the run.
    pub seed: u64,
    /// Fingerprint of everything that was simulated: links, flows, times.
    pub fingerprint: String,
    /// Program version.
    pub version: String,
    /// Build of the program, by a hash; empty where it is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub build: String,
    /// Equal hashes are equal runs.
    pub trace_hash: String,
    /// Datagrams simulated.
    pub packets: u64,
    /// Every flow, in the scenario's order.
    pub flows: Vec<FlowOutcome>,
    /// Every link by number; nothing of those that carried nothing.
    pub links: Vec<Option<LinkOutcome>>,
    /// Share of the packets lost, of every cross traffic that sent.
    pub cross_loss: Vec<Option<f64>>,
    /// Expected figures, by the text of their terms; none where the run has no such figure.
    pub figures: BTreeMap<String, Option<f64>>,
    /// Cost of each flow.
    #[serde(default)]
    pub costs: Vec<Costs>,
    /// Each flow over time, as far as the scenario asks for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<Columns>,
    /// Reason why the figures must not be used, if so: the emulator was late, a program failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invalid: Option<String>,
    /// Sessions that ended by themselves before the run did, which is a result: flow and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<String>,
    /// The rate of the links in place of the scenario's, which the machine did not keep, bit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lowered: Option<u64>,
    /// Time that the run took here, s.
    #[serde(default)]
    pub wall_seconds: f64,
    /// Time at which the run began, s since 1970.
    #[serde(default)]
    pub began: u64,
    /// Commands of the run: the one that repeats it, or the programs' own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
    /// The machine, with the program and what the kernel was set to.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub machine: Value,
    /// Health of the emulator.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub health: Value,
}

/// A flow over time: columns of equal length by name, `at` (s) among them.
pub type Columns = BTreeMap<String, Vec<Option<f64>>>;

/// One flow of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "named as in the simulator's reports")]
pub struct FlowOutcome {
    pub goodput_bits_per_second: f64,
    pub retransmits: u64,
    pub duplicate_acks: u64,
    pub timeouts: u64,
    pub episodes: u64,
}

/// One direction of a link in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "named as in the simulator's reports")]
pub struct LinkOutcome {
    pub utilisation: f64,
    pub mean_queue_bytes: Option<f64>,
    pub p95_queue_bytes: Option<u64>,
    pub drops: BTreeMap<String, u64>,
}

impl LinkOutcome {
    fn new(report: &LinkReport) -> Self {
        Self {
            utilisation: report.utilisation,
            mean_queue_bytes: report.mean_queue_bytes,
            p95_queue_bytes: report.p95_queue_bytes,
            drops: report
                .drops
                .iter()
                .map(|(cause, n)| ((*cause).to_string(), *n))
                .collect(),
        }
    }
}

impl Outcome {
    /// Outcome of `run`, a run of `plan`, as far as `terms` and tables ask for it.
    pub(super) fn new(scenario: &str, plan: &Plan, terms: &[Term], run: &RunReport) -> Self {
        let report = &run.report;
        let series = plan.series.map(|every| {
            let each = report.flows.iter().enumerate().map(|(number, flow)| {
                let processors = run.processors.get(number);
                columns(flow, processors, every.as_secs_f64(), plan.backend)
            });
            each.collect()
        });
        let links = (0..plan.links.len()).map(|number| {
            let report = link(report, number)?;
            (report.offered > 0).then(|| LinkOutcome::new(report))
        });
        let flows = report.flows.iter().map(|flow| FlowOutcome {
            goodput_bits_per_second: flow.goodput_bits_per_second,
            retransmits: flow.sender.retransmits,
            duplicate_acks: flow.sender.duplicate_acks,
            timeouts: flow.sender.timeouts,
            episodes: flow.sender.episodes,
        });
        Self {
            scenario: scenario.into(),
            case: plan.case.clone(),
            seed: report.seed,
            fingerprint: plan.fingerprint(),
            version: env!("CARGO_PKG_VERSION").into(),
            build: hash::build().into(),
            trace_hash: report.trace_hash.clone(),
            packets: report.packets,
            flows: flows.collect(),
            links: links.collect(),
            cross_loss: report.cross.iter().map(|c| c.loss).collect(),
            figures: terms
                .iter()
                .map(|term| (term.to_string(), term.measure(plan, run)))
                .collect(),
            backend: plan.backend,
            costs: run.costs.clone(),
            invalid: early(plan, run, is_fault).next(),
            ended: early(plan, run, |reason| !is_fault(reason) && !is_success(reason)).collect(),
            series: series.unwrap_or_default(),
            ..Self::default()
        }
    }

    /// All flows together, bit/s.
    pub(super) fn goodput(&self) -> f64 {
        let flows = self.flows.iter();
        flows.map(|f| f.goodput_bits_per_second).sum()
    }

    /// True if the outcome has all of `terms`, or says why it has none.
    pub(super) fn answers(&self, terms: &[Term]) -> bool {
        let has = |term: &Term| self.figures.contains_key(&term.to_string());
        self.invalid.is_some() || terms.iter().all(has)
    }

    /// True if this very program made it.
    pub(super) fn is_of_this_build(&self) -> bool {
        !self.build.is_empty() && self.build == hash::build()
    }

    /// The outcome, or if something of it cannot be stored, an invalid one without that part.
    pub(super) fn storable(self) -> Self {
        let read = |outcome: &Self| serde_json::from_slice::<Self>(&serde_json::to_vec(outcome)?);
        match read(&self) {
            Ok(_) => self,
            Err(error) => Self {
                invalid: Some(format!("a figure of it is no number ({error})")),
                flows: Vec::new(),
                links: Vec::new(),
                costs: Vec::new(),
                figures: BTreeMap::new(),
                ..self
            },
        }
    }
}

/// Reasons, each with its flow, of the sessions that ended for `such` reasons.
fn early<'a>(
    plan: &'a Plan,
    run: &'a RunReport,
    such: impl Fn(&CloseReason) -> bool + Copy + 'a,
) -> impl Iterator<Item = String> + 'a {
    let flows = plan.drivers.iter().zip(&run.report.flows);
    flows.filter_map(move |(driver, flow)| {
        let mut reasons = flow.reasons.iter().flatten();
        let why = reasons.find(|reason| such(reason))?;
        Some(format!("the session of {} ended: {why}", driver.name))
    })
}

const fn is_success(reason: &CloseReason) -> bool {
    matches!(
        reason,
        CloseReason::Local { code: 0, .. } | CloseReason::Peer { code: 0, .. }
    )
}

/// True for a fault of an implementation; a path on which a protocol gives up is none.
const fn is_fault(reason: &CloseReason) -> bool {
    matches!(
        reason,
        CloseReason::Protocol(_)
            | CloseReason::Internal(_)
            | CloseReason::Store(_)
            | CloseReason::Version(_)
            | CloseReason::Auth(_)
            | CloseReason::Denied(_)
    )
}

/// Column kept of a point.
type Column = (&'static str, fn(&Point) -> Option<f64>);
const COLUMNS: [Column; 11] = [
    ("at", |p| Some(p.at)),
    ("goodput", |p| Some(p.goodput_bits_per_second)),
    ("window", |p| (p.window > 0).then(|| exact(p.window))),
    ("in_flight", |p| Some(exact(p.in_flight))),
    ("rtt", |p| p.rtt_ms),
    ("queue", |p| Some(exact(p.queue))),
    ("snd_nxt", |p| Some(exact(p.snd_nxt))),
    ("retransmits", |p| Some(exact(p.retransmits))),
    ("duplicate_acks", |p| Some(exact(p.duplicate_acks))),
    ("timeouts", |p| Some(exact(p.timeouts))),
    ("delivered", |p| Some(exact(p.delivered))),
];

/// The last point of every `every` seconds; goodput is the mean since the point before.
fn columns(
    flow: &FlowReport,
    processors: Option<&Processors>,
    every: f64,
    backend: Backend,
) -> Columns {
    let mut points: Vec<Point> = Vec::new();
    let mut next = every;
    for point in &flow.series {
        if point.at + 1e-9 >= next {
            next = ((point.at + 1e-9) / every).floor() * every + every;
            let before = points
                .last()
                .map_or((flow.start, 0), |p| (p.at, p.delivered));
            let seconds = (point.at - before.0).max(1e-9);
            points.push(Point {
                goodput_bits_per_second: exact(point.delivered - before.1.min(point.delivered))
                    * 8.0
                    / seconds,
                ..*point
            });
        }
    }
    let rounded = |x: f64| (x * 1e3).round() / 1e3;
    let column = |(name, of): &Column| {
        let values = points.iter().map(|p| of(p).map(rounded));
        ((*name).to_string(), values.collect())
    };
    // On real sockets only the receiver's rate is known over time.
    let known = |(name, _): &&Column| {
        backend == Backend::Sim || ["at", "goodput", "delivered"].contains(name)
    };
    let mut columns: Columns = COLUMNS.iter().filter(known).map(column).collect();
    // Since the point before, as goodput.
    let ats = || points.iter().map(|p| p.at);
    for (end, name) in ["sender_core", "receiver_core"].into_iter().enumerate() {
        let Some(processors) = processors else {
            break;
        };
        let spans = std::iter::once(flow.start).chain(ats()).zip(ats());
        let fine = |x: f64| (x * 1e5).round() / 1e5;
        let shares = spans.map(|span| processors.share(end, span).map(fine));
        columns.insert(name.into(), shares.collect());
    }
    columns
}

impl Kept for Outcome {
    fn question(&self) -> String {
        let of = (&self.scenario, &self.case, self.seed, &self.fingerprint);
        format!("{:?}", (self.backend, of))
    }
}
