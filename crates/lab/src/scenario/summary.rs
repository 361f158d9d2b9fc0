//! Summarises the results of all seeds, per case: each flow's goodput, fairness, links and cross
//! traffic.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    measure::{exact, mean},
    outcome::{LinkOutcome, Outcome},
    plan::Plan,
    series::jain,
    source::Case,
    verdict::Verdict,
};

/// The distribution of a figure over the seeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Spread {
    pub mean: f64,
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// Spread of `values`; of no values everything is zero.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (Some(min), Some(max)) = (values.first(), values.last()) else {
            return Self::default();
        };
        let middle = values.len() / 2;
        let median = if values.len().is_multiple_of(2) {
            f64::midpoint(values[middle - 1], values[middle])
        } else {
            values[middle]
        };
        Self {
            mean: mean(&values).unwrap_or_default(),
            median,
            min: *min,
            max: *max,
        }
    }
}

/// Results of a file's runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The scenario.
    pub name: String,
    /// Runs that were taken from those kept.
    pub kept: usize,
    /// One per case, in the file's order.
    pub cases: Vec<CaseSummary>,
    /// One per expectation and case.
    pub verdicts: Vec<Verdict>,
}

/// Results of the seeds of one case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CaseSummary {
    /// The values of what varies.
    pub case: Case,
    /// Every flow.
    pub flows: Vec<FlowSummary>,
    /// Jain's index of the flows' goodput.
    pub jain: Spread,
    /// Every link that carried anything.
    pub links: Vec<LinkSummary>,
    /// Share of the packets lost, of every cross traffic.
    pub cross_loss: BTreeMap<String, Spread>,
    /// The hash of each run's events, by seed.
    pub trace_hash: BTreeMap<u64, String>,
    /// Datagrams simulated in all.
    pub packets: u64,
}

/// One flow over the seeds.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(
    missing_docs,
    reason = "named and documented as in the simulator's reports"
)]
pub struct FlowSummary {
    pub name: String,
    pub protocol: String,
    pub law: Option<String>,
    pub goodput_bits_per_second: Spread,
    pub retransmits: Spread,
    pub duplicate_acks: Spread,
    pub timeouts: Spread,
    pub episodes: Spread,
}

/// One direction of a link over the seeds: means.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(
    missing_docs,
    reason = "named and documented as in the simulator's reports"
)]
pub struct LinkSummary {
    pub name: String,
    pub utilisation: f64,
    pub mean_queue_bytes: f64,
    pub p95_queue_bytes: f64,
    pub drops: BTreeMap<String, f64>,
}

impl CaseSummary {
    pub(super) fn new(plan: &Plan, reports: &[&Outcome]) -> Self {
        let jains = reports.iter().filter_map(|report| {
            let rates = report.flows.iter().map(|f| f.goodput_bits_per_second);
            jain(&rates.collect::<Vec<_>>())
        });
        let links = (0..plan.links.len()).filter_map(|at| link_summary(plan, reports, at));
        let cross = plan.cross.iter().enumerate().map(|(i, name)| {
            let loss = reports.iter().filter_map(|r| *r.cross_loss.get(i)?);
            (name.clone(), Spread::of(loss))
        });
        Self {
            case: plan.case.clone(),
            flows: flow_summaries(plan, reports),
            jain: Spread::of(jains),
            links: links.collect(),
            cross_loss: cross.collect(),
            trace_hash: reports
                .iter()
                .map(|r| (r.seed, r.trace_hash.clone()))
                .collect(),
            packets: reports.iter().map(|r| r.packets).sum(),
        }
    }
}

fn flow_summaries(plan: &Plan, reports: &[&Outcome]) -> Vec<FlowSummary> {
    let one = |(i, driver): (usize, &super::plan::Driver)| {
        let flows = || reports.iter().filter_map(|r| r.flows.get(i));
        FlowSummary {
            name: driver.name.clone(),
            protocol: driver.protocol.clone(),
            law: driver.law().map(Into::into),
            goodput_bits_per_second: Spread::of(flows().map(|f| f.goodput_bits_per_second)),
            retransmits: Spread::of(flows().map(|f| exact(f.retransmits))),
            duplicate_acks: Spread::of(flows().map(|f| exact(f.duplicate_acks))),
            timeouts: Spread::of(flows().map(|f| exact(f.timeouts))),
            episodes: Spread::of(flows().map(|f| exact(f.episodes))),
        }
    };
    plan.drivers.iter().enumerate().map(one).collect()
}

fn link_summary(plan: &Plan, reports: &[&Outcome], at: usize) -> Option<LinkSummary> {
    let links = reports.iter().filter_map(|r| r.links.get(at)?.as_ref());
    let links: Vec<&LinkOutcome> = links.collect();
    if links.is_empty() {
        return None;
    }
    let average = |of: &dyn Fn(&&LinkOutcome) -> f64| {
        let values: Vec<f64> = links.iter().map(of).collect();
        mean(&values).unwrap_or_default()
    };
    let mut drops = BTreeMap::new();
    for link in &links {
        for cause in link.drops.keys() {
            drops.entry(cause.clone()).or_insert_with(|| {
                average(&|l| exact(l.drops.get(cause).copied().unwrap_or_default()))
            });
        }
    }
    Some(LinkSummary {
        name: plan.links[at].clone(),
        utilisation: average(&|l| l.utilisation),
        mean_queue_bytes: average(&|l| l.mean_queue_bytes.unwrap_or_default()),
        p95_queue_bytes: average(&|l| l.p95_queue_bytes.map_or(0.0, exact)),
        drops,
    })
}
