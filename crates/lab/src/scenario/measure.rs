//! Which figure of a run is selected? A [`Term`] names a metric, whose it is and over which time.

use std::{collections::BTreeMap, fmt};

use farhaul_sim::{FlowReport, LinkReport, Point, SideReport, SimReport};
use serde::{Deserialize, Serialize};

use super::{plan::Plan, source::Case, summary::Spread};
use crate::{grid::Backend, unit::Unit};

/// What can be expected of a run, and drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "docs/scenarios.md is their reference")]
pub enum Metric {
    Goodput,
    GoodputMax,
    Feedback,
    Retransmits,
    Timeouts,
    DuplicateAcks,
    Episodes,
    WindowMean,
    WindowMax,
    WindowEnd,
    Loss,
    Utilisation,
    QueueMean,
    QueueP95,
    Drops,
    Jain,
    /// Median of |log2(ours / paper)|.
    Log2Error,
    /// The same of the one constant for which it is least.
    ConstantLog2Error,
    FirstRetransmit,
    FirstDuplicateAck,
    FirstTimeout,
    SndNxt,
    SenderCpu,
    ReceiverCpu,
    BothCpu,
    CpuRatio,
    Overhead,
    Seconds,
    RttP50,
    LossOfFlow,
    Variation,
    /// Of an external program, by the name that its template gives.
    Named(String),
}

/// Whose figure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    Flow,
    Link,
    Cross,
    Nobody,
}

impl Metric {
    pub(super) const ALL: [(&'static str, Self); 31] = [
        ("goodput", Self::Goodput),
        ("goodput_max", Self::GoodputMax),
        ("feedback", Self::Feedback),
        ("retransmits", Self::Retransmits),
        ("timeouts", Self::Timeouts),
        ("duplicate_acks", Self::DuplicateAcks),
        ("episodes", Self::Episodes),
        ("window_mean", Self::WindowMean),
        ("window_max", Self::WindowMax),
        ("window_end", Self::WindowEnd),
        ("loss", Self::Loss),
        ("utilisation", Self::Utilisation),
        ("queue_mean", Self::QueueMean),
        ("queue_p95", Self::QueueP95),
        ("drops", Self::Drops),
        ("jain", Self::Jain),
        ("log2_error", Self::Log2Error),
        ("constant_log2_error", Self::ConstantLog2Error),
        ("first_retransmit", Self::FirstRetransmit),
        ("first_duplicate_ack", Self::FirstDuplicateAck),
        ("first_timeout", Self::FirstTimeout),
        ("snd_nxt", Self::SndNxt),
        ("sender_cpu", Self::SenderCpu),
        ("receiver_cpu", Self::ReceiverCpu),
        ("both_cpu", Self::BothCpu),
        ("cpu_ratio", Self::CpuRatio),
        ("overhead", Self::Overhead),
        ("seconds", Self::Seconds),
        ("rtt_p50", Self::RttP50),
        ("loss_of_flow", Self::LossOfFlow),
        ("variation", Self::Variation),
    ];

    /// The metric called so; the text of the error names those there are.
    pub fn named(name: &str) -> Result<Self, String> {
        if let Some(own) = name.strip_prefix("program:") {
            return Ok(Self::Named(own.into()));
        }
        let known = Self::ALL.into_iter().find(|(known, _)| *known == name);
        known.map(|(_, metric)| metric).ok_or_else(|| {
            let names = Self::ALL.iter().map(|(name, _)| *name);
            super::source::unknown("metric", name, names)
        })
    }

    /// Its name in scenarios.
    pub fn name(&self) -> &str {
        if let Self::Named(name) = self {
            return name;
        }
        let of = Self::ALL.iter().find(|(_, metric)| metric == self);
        of.map_or("", |(name, _)| name)
    }

    /// In what it is counted; of a program's figure, as its name ends.
    pub fn unit(&self) -> Unit {
        match self {
            Self::Named(name) if name.ends_with("_us") => Unit::Micros,
            Self::Named(name) if name.ends_with("_ms") => Unit::Millis,
            Self::Named(name) if name.ends_with("_s") => Unit::Seconds,
            Self::Named(name) if name.ends_with("_share") => Unit::Share,
            Self::Named(name) if name.ends_with("_percent") => Unit::Percent,
            Self::Named(name) if name.starts_with("limited_by_") => Unit::Share,
            Self::Named(name) if name.ends_with("_bytes") => Unit::Bytes,
            Self::Named(name) if name.ends_with("_percent_per_gbps") => Unit::PercentPerGbps,
            Self::Goodput | Self::GoodputMax => Unit::Rate,
            Self::WindowMean
            | Self::WindowMax
            | Self::WindowEnd
            | Self::SndNxt
            | Self::QueueMean
            | Self::QueueP95 => Unit::Bytes,
            Self::Loss | Self::Utilisation | Self::LossOfFlow => Unit::Share,
            Self::Feedback => Unit::KibPerGib,
            Self::SenderCpu | Self::ReceiverCpu | Self::BothCpu => Unit::PercentPerGbps,
            Self::Seconds
            | Self::FirstRetransmit
            | Self::FirstDuplicateAck
            | Self::FirstTimeout => Unit::Seconds,
            Self::RttP50 => Unit::Millis,
            _ => Unit::Number,
        }
    }

    pub(super) const fn whose(&self) -> Whose {
        match self {
            Self::Utilisation | Self::QueueMean | Self::QueueP95 | Self::Drops => Whose::Link,
            Self::Loss => Whose::Cross,
            Self::Log2Error | Self::ConstantLog2Error => Whose::Nobody,
            _ => Whose::Flow,
        }
    }

    /// Whether it is measured of a flow on real sockets.
    const fn on_sockets(&self) -> bool {
        matches!(
            self,
            Self::Goodput
                | Self::GoodputMax
                | Self::Feedback
                | Self::Retransmits
                | Self::Jain
                | Self::SenderCpu
                | Self::ReceiverCpu
                | Self::BothCpu
                | Self::CpuRatio
                | Self::Overhead
                | Self::Seconds
                | Self::RttP50
                | Self::Variation
                | Self::Named(_)
        )
    }

    /// Whether it can be taken over a part of the run.
    pub(super) const fn has_times(&self) -> bool {
        matches!(
            self,
            Self::Goodput
                | Self::GoodputMax
                | Self::Retransmits
                | Self::Timeouts
                | Self::DuplicateAcks
                | Self::Episodes
                | Self::WindowMean
                | Self::WindowMax
                | Self::WindowEnd
                | Self::Jain
                | Self::SndNxt
                | Self::Variation
                | Self::Loss
        )
    }
}

/// A figure of a run.
#[derive(Clone, Debug)]
pub(crate) struct Term {
    pub(crate) metric: Metric,
    /// A flow, several alike, a link or cross traffic; all flows, or the first of the others, if not
    /// said.
    pub(crate) name: Option<String>,
    /// Seconds of virtual time.
    pub(crate) during: Option<(f64, f64)>,
    /// The selected cases.
    pub(crate) when: Case,
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Metric::Named(_) = self.metric {
            f.write_str("program:")?;
        }
        f.write_str(self.metric.name())?;
        if let Some(name) = &self.name {
            write!(f, " of {name}")?;
        }
        if let Some((from, to)) = self.during {
            write!(f, " {from}..{to} s")?;
        }
        Ok(())
    }
}

impl Term {
    /// The same in those of these cases.
    pub(super) fn among(&self, cases: &Case) -> Self {
        let mut term = self.clone();
        let inherited = cases.iter().map(|(k, v)| (k.clone(), v.clone()));
        term.when = inherited.chain(std::mem::take(&mut term.when)).collect();
        term
    }

    /// Its value in a run, if the run has it.
    pub(super) fn measure(&self, plan: &Plan, run: &RunReport) -> Option<f64> {
        match self.metric.whose() {
            Whose::Flow => self.of_flows(plan, run),
            Whose::Link => self.of_link(plan, &run.report),
            Whose::Cross => self.of_cross(plan, &run.report),
            Whose::Nobody => None,
        }
    }

    fn of_flows(&self, plan: &Plan, run: &RunReport) -> Option<f64> {
        let emulated = plan.backend == Backend::Emu;
        if emulated && !self.metric.on_sockets() {
            return None;
        }
        let selected = |(i, _): &(usize, &FlowReport)| {
            let (name, driver) = (self.name.as_ref(), &plan.drivers[*i]);
            name.is_none_or(|name| *name == driver.name || *name == driver.group)
        };
        let numbered = run.report.flows.iter().enumerate().filter(selected);
        let (numbers, flows): (Vec<usize>, Vec<&FlowReport>) = numbered.unzip();
        let goodputs = || -> Vec<f64> { flows.iter().map(|f| self.goodput(f)).collect() };
        let windows = |of: fn(&[f64]) -> Option<f64>| {
            let each: Option<Vec<f64>> = flows.iter().map(|f| self.window(f, of)).collect();
            mean(&each?)
        };
        match self.metric {
            Metric::Goodput => Some(goodputs().iter().sum()),
            Metric::GoodputMax => {
                let each = flows.iter().flat_map(|f| self.samples(f));
                each.reduce(f64::max)
            }
            Metric::Seconds => flows
                .iter()
                .map(|f| f.completed)
                .try_fold(0.0, |most: f64, time| time.map(|time| most.max(time))),
            Metric::LossOfFlow => {
                let lost: u64 = flows.iter().map(|f| f.dropped[0]).sum();
                let sent: u64 = flows.iter().map(|f| f.sender.datagrams_sent).sum();
                (sent > 0).then(|| exact(lost) / exact(sent))
            }
            Metric::Variation => {
                let each: Option<Vec<f64>> = flows.iter().map(|f| self.variation(f)).collect();
                mean(&each?)
            }
            Metric::Jain => Some(super::summary::jain(&goodputs())),
            Metric::WindowMean => windows(mean),
            Metric::WindowMax => windows(greatest),
            Metric::WindowEnd => windows(|w| w.last().copied()),
            Metric::Retransmits if emulated => {
                let each = numbers.iter().map(|i| run.costs.get(*i)?.retransmits);
                each.sum::<Option<u64>>()
                    .filter(|_| self.during.is_none())
                    .map(exact)
            }
            Metric::Retransmits => Some(self.count(&flows, |p| p.retransmits, |s| s.retransmits)),
            Metric::Timeouts => Some(self.count(&flows, |p| p.timeouts, |s| s.timeouts)),
            Metric::Episodes => Some(self.count(&flows, |p| p.episodes, |s| s.episodes)),
            Metric::SndNxt => Some(self.count(&flows, |p| p.snd_nxt, |s| s.data_sent)),
            Metric::FirstRetransmit => first(&flows, |p| p.retransmits),
            Metric::FirstDuplicateAck => first(&flows, |p| p.duplicate_acks),
            Metric::FirstTimeout => first(&flows, |p| p.timeouts),
            Metric::DuplicateAcks => {
                Some(self.count(&flows, |p| p.duplicate_acks, |s| s.duplicate_acks))
            }
            _ => self.cost(&numbers, &flows, run),
        }
    }

    /// What it cost, of each of these flows by its number.
    fn cost(&self, numbers: &[usize], flows: &[&FlowReport], run: &RunReport) -> Option<f64> {
        // Per byte that arrived, over all of these flows.
        let cost = |of: &dyn Fn(&Costs) -> Option<f64>| {
            let each = numbers.iter().zip(flows).map(|(i, flow)| {
                let bytes = exact(flow.received_bytes);
                Some((of(run.costs.get(*i)?)? * bytes, bytes))
            });
            let sums = each.collect::<Option<Vec<_>>>()?;
            let (cost, bytes) = sums
                .into_iter()
                .fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
            (bytes > 0.0).then_some(cost / bytes)
        };
        match self.metric {
            Metric::Feedback => cost(&|c| c.feedback_kib_per_gib),
            Metric::Overhead => cost(&|c| c.overhead),
            Metric::SenderCpu => cost(&|c| c.sender_cpu),
            Metric::ReceiverCpu => cost(&|c| c.receiver_cpu),
            Metric::BothCpu => cost(&|c| Some(c.sender_cpu? + c.receiver_cpu?)),
            Metric::CpuRatio => cost(&|c| Some(c.sender_cpu? / c.receiver_cpu?)),
            Metric::RttP50 => cost(&|c| c.rtt_ms),
            Metric::Named(ref name) => {
                let each: Option<Vec<f64>> = numbers
                    .iter()
                    .map(|i| run.costs.get(*i)?.named.get(name).copied())
                    .collect();
                mean(&each?)
            }
            _ => None,
        }
    }

    fn goodput(&self, flow: &FlowReport) -> f64 {
        match self.during {
            None => flow.goodput_bits_per_second,
            Some((from, to)) => exact(grown(flow, from, to, |p| p.delivered)) * 8.0 / (to - from),
        }
    }

    /// Of its goodput, within the term's time.
    fn samples(&self, flow: &FlowReport) -> Vec<f64> {
        let (from, to) = self.during.unwrap_or((0.0, f64::MAX));
        let within = flow.series.iter().filter(|p| p.at > from && p.at <= to);
        within.map(|p| p.goodput_bits_per_second).collect()
    }

    /// Standard deviation of the samples of its goodput over their mean.
    fn variation(&self, flow: &FlowReport) -> Option<f64> {
        let rates = self.samples(flow);
        let mean = mean(&rates).filter(|mean| *mean > 0.0)?;
        let squares: f64 = rates.iter().map(|r| (r - mean) * (r - mean)).sum();
        Some((squares / exact(rates.len() as u64)).sqrt() / mean)
    }

    fn window(&self, flow: &FlowReport, of: fn(&[f64]) -> Option<f64>) -> Option<f64> {
        let (from, to) = self.during.unwrap_or((0.0, f64::MAX));
        let windows: Vec<f64> = flow
            .series
            .iter()
            .filter(|p| p.at >= from && p.at <= to)
            .map(|p| exact(p.window))
            .collect();
        of(&windows)
    }

    /// A counter over the term's time, or in all.
    fn count(
        &self,
        flows: &[&FlowReport],
        point: fn(&Point) -> u64,
        all: fn(&SideReport) -> u64,
    ) -> f64 {
        let each = flows.iter().map(|flow| match self.during {
            Some((from, to)) => grown(flow, from, to, point),
            None => all(&flow.sender),
        });
        exact(each.sum())
    }

    fn of_link(&self, plan: &Plan, report: &SimReport) -> Option<f64> {
        let at = match &self.name {
            Some(name) => plan.links.iter().position(|link| link == name)?,
            None => 0,
        };
        let link = link(report, at)?;
        match self.metric {
            Metric::Utilisation => Some(link.utilisation),
            Metric::QueueMean => link.mean_queue_bytes,
            Metric::QueueP95 => link.p95_queue_bytes.map(exact),
            Metric::Drops => Some(exact(link.drops.values().sum())),
            _ => None,
        }
    }

    fn of_cross(&self, plan: &Plan, report: &SimReport) -> Option<f64> {
        let at = match &self.name {
            Some(name) => plan.cross.iter().position(|cross| cross == name)?,
            None => 0,
        };
        let cross = report.cross.get(at)?;
        let Some((from, to)) = self.during else {
            return cross.loss;
        };
        let within = || cross.series.iter().filter(|p| p.at > from && p.at <= to);
        let sent: u64 = within().map(|p| p.sent).sum();
        let dropped: u64 = within().map(|p| p.dropped).sum();
        (sent > 0).then(|| exact(dropped) / exact(sent))
    }
}

/// What a run left, in either world.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// Flows, links and cross traffic.
    pub report: SimReport,
    /// What each flow cost, in the scenario's order.
    pub costs: Vec<Costs>,
}

/// What a flow cost per byte that arrived.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// Of the sender, per cent of one core per Gbit/s.
    pub sender_cpu: Option<f64>,
    /// Of the receiver.
    pub receiver_cpu: Option<f64>,
    /// What the receiver sent per GiB, KiB: whole Ethernet frames without preamble and check sequence.
    pub feedback_kib_per_gib: Option<f64>,
    /// Bytes of IP packets sent per byte.
    pub overhead: Option<f64>,
    /// Median of the rtt, ms.
    pub rtt_ms: Option<f64>,
    /// Packets sent again, of a run on real sockets: not every program counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmits: Option<u64>,
    /// Of an external program, by the names of its template.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub named: BTreeMap<String, f64>,
}

/// Of Ethernet, and of IPv4 and UDP.
const FRAME: u64 = 14;
const HEADERS: u64 = 20 + 8;

impl From<SimReport> for RunReport {
    /// Hosts of the simulator have no processor time.
    fn from(report: SimReport) -> Self {
        let costs = report.flows.iter().map(|flow| {
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
                feedback_kib_per_gib: per_byte(frames).map(|x| x * exact(1 << 20)),
                overhead: per_byte(sent.wire_sent + HEADERS * sent.datagrams_sent),
                rtt_ms: (!samples.is_empty()).then(|| Spread::of(samples).median),
                named: limits(flow),
                ..Costs::default()
            }
        });
        Self {
            costs: costs.collect(),
            report,
        }
    }
}

/// Shares of the flow's time in which it waited, by reason; what is left was spent sending.
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

/// When a counter of the first of these flows left zero, s; the end of its series if it never did.
fn first(flows: &[&FlowReport], of: fn(&Point) -> u64) -> Option<f64> {
    let series = &flows.first()?.series;
    let point = series.iter().find(|p| of(p) > 0).or(series.last());
    point.map(|p| p.at)
}

/// The link with this number.
pub(super) fn link(report: &SimReport, number: usize) -> Option<&LinkReport> {
    match number {
        0 => Some(&report.forward),
        1 => Some(&report.back),
        _ => report.links.get(number - 2),
    }
}

/// How much a counter of the series grew from `from` to `to` (s); before the flow it is zero, after
/// it what it was last.
fn grown(flow: &FlowReport, from: f64, to: f64, of: fn(&Point) -> u64) -> u64 {
    let at = |time: f64| {
        let seen = flow.series.iter().take_while(|p| p.at <= time + 1e-9);
        seen.last().map_or(0, of)
    };
    at(to) - at(from)
}

/// As a floating-point number.
#[expect(clippy::cast_precision_loss, reason = "figures are not exact to 2^-53")]
pub const fn exact(n: u64) -> f64 {
    n as f64
}

pub(super) fn mean(values: &[f64]) -> Option<f64> {
    let count = exact(values.len() as u64);
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / count)
}

fn greatest(values: &[f64]) -> Option<f64> {
    values.iter().copied().reduce(f64::max)
}
