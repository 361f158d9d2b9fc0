//! What is left of a run once its series are gone? All that summaries and verdicts are made of: small
//! enough to be kept on a [`RunStore`](crate::grid::RunStore), so that hours of runs can be taken up again,
//! and judged again when what is expected of them changes.

use std::collections::BTreeMap;

use farhaul_sim::{LinkReport, SimReport};
use serde::{Deserialize, Serialize};

use super::{expect::Expectation, measure::link, plan::Plan, source::Case};
use crate::grid::Kept;

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The scenario.
    pub scenario: String,
    /// The values of what varies.
    pub case: Case,
    /// Its seed.
    pub seed: u64,
    /// Of everything that was simulated: links, flows, times.
    pub fingerprint: String,
    /// Program version.
    pub version: String,
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
}

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
    /// What is left of `report`, a run of `plan`, as far as `expectations` and tables ask for it.
    pub(super) fn new(
        scenario: &str,
        plan: &Plan,
        expectations: &[Expectation],
        report: &SimReport,
    ) -> Self {
        let terms = expectations.iter().flat_map(Expectation::terms);
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
            trace_hash: report.trace_hash.clone(),
            packets: report.packets,
            flows: flows.collect(),
            links: links.collect(),
            cross_loss: report.cross.iter().map(|c| c.loss).collect(),
            figures: terms
                .map(|term| (term.to_string(), term.measure(plan, report)))
                .collect(),
        }
    }

    /// Whether this is the run of `plan` with `seed`, with all that `expectations` ask for.
    pub(super) fn answers(
        &self,
        scenario: &str,
        plan: &Plan,
        expectations: &[Expectation],
        seed: u64,
    ) -> bool {
        let mut terms = expectations.iter().flat_map(Expectation::terms);
        self.scenario == scenario
            && self.case == plan.case
            && self.seed == seed
            && self.version == env!("CARGO_PKG_VERSION")
            && self.fingerprint == plan.fingerprint()
            && terms.all(|term| self.figures.contains_key(&term.to_string()))
    }
}

impl Kept for Outcome {
    fn asks(&self, other: &Self) -> bool {
        self.scenario == other.scenario && self.case == other.case && self.seed == other.seed
    }
}
