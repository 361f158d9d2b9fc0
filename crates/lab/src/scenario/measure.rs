//! Selects a figure of a run. A [`Term`] names a metric, whose it is and over which time.

use std::{collections::BTreeSet, fmt};

use farhaul_sim::{FlowReport, LinkReport, Point, SimReport, mean_and_p95};

use super::{
    carried::Carried,
    costs::{Costs, RunReport},
    outcome::Outcome,
    plan::{Driver, Plan},
    series::{self, grown},
    source::Case,
};
use crate::{emulated::FIRST_BLAST, run_store::Backend, unit::Unit};
use farhaul_measure::registry;

/// Figure of a run that can be expected, and drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "docs/scenarios.md is their reference")]
pub enum Metric {
    Goodput,
    GoodputMean,
    GoodputMax,
    /// Rate of the sender's first blast, as the original of RBUDP prints it.
    Blast,
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
    /// Median of |log2(constant / paper)|, for the one constant with the least.
    ConstantLog2Error,
    FirstRetransmit,
    FirstDuplicateAck,
    FirstTimeout,
    SndNxt,
    SenderCpu,
    ReceiverCpu,
    BothCpu,
    CpuRatio,
    /// Seconds of a core per GiB: of the sender, the receiver, both.
    SenderCpuSeconds,
    ReceiverCpuSeconds,
    CpuSeconds,
    SenderCore,
    ReceiverCore,
    /// Processor time at start and end of a transfer over that between.
    SenderEdges,
    ReceiverEdges,
    Overhead,
    Seconds,
    RttP50,
    Jitter,
    LossOfFlow,
    Variation,
    /// Datagrams that senders sent, and those of them that the network dropped.
    Sent,
    Dropped,
    ConvergenceTime,
    ReachTime,
    SettleTime,
    /// Mean of the times of several flows.
    SecondsMean,
    /// Time to nine tenths of the flow's share of the link, over a round trip.
    FillTime,
    /// Goodput over what the links carry as payload.
    PayloadShare,
    /// The overhead less what the links lose.
    NetOverhead,
    /// A figure of an external program, by the name that its template gives.
    Named(String),
}

/// Owner of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    Flow,
    Link,
    Cross,
    Nobody,
}

impl Metric {
    pub(super) const ALL: [(&'static str, Self); 50] = [
        ("goodput", Self::Goodput),
        ("goodput_mean", Self::GoodputMean),
        ("goodput_max", Self::GoodputMax),
        ("blast", Self::Blast),
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
        ("sender_cpu_seconds", Self::SenderCpuSeconds),
        ("receiver_cpu_seconds", Self::ReceiverCpuSeconds),
        ("cpu_seconds", Self::CpuSeconds),
        ("sender_core", Self::SenderCore),
        ("receiver_core", Self::ReceiverCore),
        ("sender_edges", Self::SenderEdges),
        ("receiver_edges", Self::ReceiverEdges),
        ("overhead", Self::Overhead),
        ("seconds", Self::Seconds),
        ("rtt_p50", Self::RttP50),
        ("jitter", Self::Jitter),
        ("loss_of_flow", Self::LossOfFlow),
        ("variation", Self::Variation),
        ("sent", Self::Sent),
        ("dropped", Self::Dropped),
        ("convergence_time", Self::ConvergenceTime),
        ("reach_time", Self::ReachTime),
        ("settle_time", Self::SettleTime),
        ("seconds_mean", Self::SecondsMean),
        ("fill_time", Self::FillTime),
        ("payload_share", Self::PayloadShare),
        ("net_overhead", Self::NetOverhead),
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

    /// Name of the metric in scenarios.
    pub fn name(&self) -> &str {
        if let Self::Named(name) = self {
            return name;
        }
        let of = Self::ALL.iter().find(|(_, metric)| metric == self);
        of.map_or("", |(name, _)| name)
    }

    /// Unit of the metric; of a program's figure, as its name ends.
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
            Self::Goodput | Self::GoodputMean | Self::GoodputMax | Self::Blast => Unit::Rate,
            Self::WindowMean
            | Self::WindowMax
            | Self::WindowEnd
            | Self::SndNxt
            | Self::QueueMean
            | Self::QueueP95 => Unit::Bytes,
            Self::Loss
            | Self::Utilisation
            | Self::LossOfFlow
            | Self::PayloadShare
            | Self::SenderCore
            | Self::ReceiverCore => Unit::Share,
            Self::Feedback => Unit::KibPerGib,
            Self::SenderCpu | Self::ReceiverCpu | Self::BothCpu => Unit::PercentPerGbps,
            Self::SenderCpuSeconds | Self::ReceiverCpuSeconds | Self::CpuSeconds => {
                Unit::SecondsPerGib
            }
            Self::Seconds
            | Self::SecondsMean
            | Self::FillTime
            | Self::FirstRetransmit
            | Self::FirstDuplicateAck
            | Self::FirstTimeout
            | Self::ConvergenceTime
            | Self::ReachTime
            | Self::SettleTime => Unit::Seconds,
            Self::RttP50 | Self::Jitter => Unit::Millis,
            _ => Unit::Number,
        }
    }

    pub(super) const fn whose(&self) -> Whose {
        match self {
            Self::Utilisation | Self::QueueMean | Self::QueueP95 | Self::Drops => Whose::Link,
            Self::Loss | Self::Jitter => Whose::Cross,
            Self::Log2Error | Self::ConstantLog2Error => Whose::Nobody,
            _ => Whose::Flow,
        }
    }

    /// True if the metric is the time until something happens, which may be never. The first
    /// retransmission and the like are none of these: without one they have the end of the run.
    const fn is_time(&self) -> bool {
        matches!(
            self,
            Self::Seconds
                | Self::SecondsMean
                | Self::FillTime
                | Self::ConvergenceTime
                | Self::ReachTime
                | Self::SettleTime
        )
    }

    /// True if the metric is a processor's, which the simulator has only from the scenario's model
    /// of the hosts.
    pub(crate) const fn of_processor(&self) -> bool {
        matches!(
            self,
            Self::SenderCpu
                | Self::ReceiverCpu
                | Self::BothCpu
                | Self::CpuRatio
                | Self::SenderCpuSeconds
                | Self::ReceiverCpuSeconds
                | Self::CpuSeconds
                | Self::SenderCore
                | Self::ReceiverCore
        )
    }

    /// True if the metric is measured of a flow on real sockets.
    const fn on_sockets(&self) -> bool {
        matches!(
            self,
            Self::Goodput
                | Self::GoodputMean
                | Self::GoodputMax
                | Self::Blast
                | Self::Feedback
                | Self::Retransmits
                | Self::Jain
                | Self::SenderCpu
                | Self::ReceiverCpu
                | Self::BothCpu
                | Self::CpuRatio
                | Self::SenderCpuSeconds
                | Self::ReceiverCpuSeconds
                | Self::CpuSeconds
                | Self::SenderCore
                | Self::ReceiverCore
                | Self::SenderEdges
                | Self::ReceiverEdges
                | Self::Overhead
                | Self::NetOverhead
                | Self::PayloadShare
                | Self::Seconds
                | Self::SecondsMean
                | Self::RttP50
                | Self::Variation
                | Self::Named(_)
        )
    }

    /// True if the metric can be taken over a part of the run.
    pub(super) const fn has_times(&self) -> bool {
        matches!(
            self,
            Self::Goodput
                | Self::GoodputMean
                | Self::GoodputMax
                | Self::PayloadShare
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
                | Self::LossOfFlow
                | Self::Sent
                | Self::Dropped
                | Self::ConvergenceTime
                | Self::ReachTime
                | Self::SettleTime
                | Self::QueueMean
                | Self::QueueP95
                | Self::SenderCore
                | Self::ReceiverCore
        )
    }

    /// Unit of the level that the metric needs, if it needs one.
    pub(crate) const fn level(&self) -> Option<Unit> {
        match self {
            Self::ReachTime | Self::SettleTime => Some(Unit::Rate),
            Self::ConvergenceTime => Some(Unit::Number),
            _ => None,
        }
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
    /// Level to be reached, of metrics that have one.
    pub(crate) level: Option<f64>,
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
        if let (Some(level), Some(unit)) = (self.level, self.metric.level()) {
            write!(f, " at {}", unit.show(level))?;
        }
        if let Some((from, to)) = self.during {
            write!(f, " {from}..{to} s")?;
        }
        Ok(())
    }
}

impl Term {
    /// The term restricted to these cases.
    pub(super) fn among(&self, cases: &Case) -> Self {
        let mut term = self.clone();
        let inherited = cases.iter().map(|(k, v)| (k.clone(), v.clone()));
        term.when = inherited.chain(std::mem::take(&mut term.when)).collect();
        term
    }

    /// Refuses a metric that none of the selected flows has in any of these cases.
    pub(crate) fn checked<'a>(&self, plans: impl Iterator<Item = &'a Plan>) -> Result<(), String> {
        let drivers = plans.flat_map(|plan| &plan.drivers);
        let own = drivers.filter(|driver| self.is_of(driver));
        let own: BTreeSet<&str> = own.map(|driver| driver.protocol.as_str()).collect();
        let blasts = |own: &&str| registry::protocol(own).is_ok_and(|entry| entry.blasts);
        if self.metric != Metric::Blast || own.is_empty() || own.iter().any(blasts) {
            return Ok(());
        }
        let known = registry::protocols().iter().filter(|entry| entry.blasts);
        let known: Vec<_> = known.map(|entry| entry.descriptor.name).collect();
        let (own, known) = (Vec::from_iter(own).join(", "), known.join(", "));
        Err(format!(
            "no metric 'blast' of {own}; only these have it: {known}"
        ))
    }

    /// Value of the term in a run, if the run has one.
    pub(super) fn measure(&self, plan: &Plan, run: &RunReport) -> Option<f64> {
        match self.metric.whose() {
            Whose::Flow => self.of_flows(plan, run),
            Whose::Link => self.of_link(plan, &run.report),
            Whose::Cross => self.of_cross(plan, run),
            Whose::Nobody => None,
        }
    }

    fn is_of(&self, driver: &Driver) -> bool {
        let name = self.name.as_ref();
        name.is_none_or(|name| *name == driver.name || *name == driver.group)
    }

    /// True if what the term is the time of did not happen in this run, which has no such figure.
    pub(super) fn is_never(&self, plan: &Plan, run: &Outcome) -> bool {
        let measured = plan.backend == Backend::Sim || self.metric.on_sockets();
        self.metric.is_time()
            && measured
            && run.invalid.is_none()
            && plan.drivers.iter().any(|driver| self.is_of(driver))
    }

    fn of_flows(&self, plan: &Plan, run: &RunReport) -> Option<f64> {
        let emulated = plan.backend == Backend::Emu;
        if emulated && !self.metric.on_sockets() {
            return None;
        }
        let selected = |(i, _): &(usize, &FlowReport)| self.is_of(&plan.drivers[*i]);
        let numbered = run.report.flows.iter().enumerate().filter(selected);
        let (numbers, flows): (Vec<usize>, Vec<&FlowReport>) = numbered.unzip();
        // In this case there is no such flow.
        if flows.is_empty() {
            return None;
        }
        let goodputs = || -> Vec<f64> { flows.iter().map(|f| self.goodput(f)).collect() };
        let carried = || Carried::of(plan, *numbers.first()?);
        let cost = || self.cost(&numbers, &flows, run);
        let windows = |of: fn(&[f64]) -> Option<f64>| {
            let each: Option<Vec<f64>> = flows.iter().map(|f| self.window(f, of)).collect();
            mean(&each?)
        };
        match self.metric {
            Metric::Goodput => Some(goodputs().iter().sum()),
            Metric::GoodputMean => {
                let all = run.report.flows.iter().map(|flow| self.goodput(flow));
                mean(&all.collect::<Vec<_>>())
            }
            Metric::GoodputMax => {
                let each = flows.iter().flat_map(|f| self.samples(f));
                each.reduce(f64::max)
            }
            _ if self.metric.is_time() => self.time(plan, &flows),
            Metric::PayloadShare => Some(goodputs().iter().sum::<f64>() / carried()?.payload),
            Metric::NetOverhead => Some(cost()? * carried()?.survive),
            Metric::LossOfFlow => {
                let (lost, sent) = (self.dropped(&flows), self.sent(&flows));
                (sent > 0.0).then(|| lost / sent)
            }
            Metric::Sent => Some(self.sent(&flows)),
            Metric::Dropped => Some(self.dropped(&flows)),
            Metric::Variation => {
                let each: Option<Vec<f64>> = flows.iter().map(|f| self.variation(f)).collect();
                mean(&each?)
            }
            Metric::Jain => series::jain(&goodputs()),
            Metric::WindowMean => windows(mean),
            Metric::WindowMax => windows(greatest),
            Metric::WindowEnd => windows(|w| w.last().copied()),
            Metric::Retransmits if emulated => self.resent(&numbers, run),
            Metric::Retransmits => {
                Some(self.count(&flows, |p| p.retransmits, |f| f.sender.retransmits))
            }
            Metric::Timeouts => Some(self.count(&flows, |p| p.timeouts, |f| f.sender.timeouts)),
            Metric::Episodes => Some(self.count(&flows, |p| p.episodes, |f| f.sender.episodes)),
            Metric::SndNxt => Some(self.count(&flows, |p| p.snd_nxt, |f| f.sender.data_sent)),
            Metric::FirstRetransmit => first(&flows, |p| p.retransmits),
            Metric::FirstDuplicateAck => first(&flows, |p| p.duplicate_acks),
            Metric::FirstTimeout => first(&flows, |p| p.timeouts),
            Metric::DuplicateAcks => {
                Some(self.count(&flows, |p| p.duplicate_acks, |f| f.sender.duplicate_acks))
            }
            _ => cost(),
        }
    }

    /// Packets that systems on real sockets report as sent again, of the whole run only.
    fn resent(&self, numbers: &[usize], run: &RunReport) -> Option<f64> {
        let each = numbers.iter().map(|i| run.costs.get(*i)?.retransmits);
        let all: Option<u64> = each.sum();
        all.filter(|_| self.during.is_none()).map(exact)
    }

    /// Time that something took, s.
    fn time(&self, plan: &Plan, flows: &[&FlowReport]) -> Option<f64> {
        let all = |of: fn(&FlowReport) -> Option<f64>| -> Option<Vec<f64>> {
            flows.iter().map(|flow| of(flow)).collect()
        };
        match self.metric {
            Metric::Seconds => greatest(&all(|f| f.completed)?),
            Metric::SecondsMean => mean(&all(|f| f.completed)?),
            Metric::FillTime => greatest(&all(|f| f.time_to_90_percent)?),
            Metric::ConvergenceTime => series::converges(flows, self.span(plan), self.level?),
            Metric::ReachTime => series::reaches(flows, self.span(plan), self.level?),
            Metric::SettleTime => series::settles(flows, self.span(plan), self.level?),
            _ => None,
        }
    }

    /// Cost of each of these flows by its number.
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
        // Of a core, from per cent per Gbit/s.
        let core = |of: fn(&Costs) -> Option<f64>| {
            let each = numbers.iter().zip(flows).map(|(i, flow)| {
                Some(of(run.costs.get(*i)?)? * flow.goodput_bits_per_second / 1e11)
            });
            each.sum::<Option<f64>>()
        };
        match self.metric {
            Metric::SenderCore | Metric::ReceiverCore if self.during.is_some() => {
                let end = usize::from(self.metric == Metric::ReceiverCore);
                let each = numbers
                    .iter()
                    .map(|i| run.processors.get(*i)?.share(end, self.during?));
                each.sum()
            }
            Metric::SenderCore => core(|c| c.sender_cpu),
            Metric::ReceiverCore => core(|c| c.receiver_cpu),
            Metric::SenderEdges | Metric::ReceiverEdges => {
                let end = usize::from(self.metric == Metric::ReceiverEdges);
                let each = numbers.iter().zip(flows);
                let each = each.map(|(i, flow)| series::edges(flow, run.processors.get(*i)?, end));
                mean(&each.collect::<Option<Vec<_>>>()?)
            }
            Metric::SenderCpuSeconds => cost(&|c| c.sender_cpu).map(per_gib),
            Metric::ReceiverCpuSeconds => cost(&|c| c.receiver_cpu).map(per_gib),
            Metric::CpuSeconds => cost(&|c| Some(c.sender_cpu? + c.receiver_cpu?)).map(per_gib),
            Metric::Feedback => cost(&|c| c.feedback_kib_per_gib),
            Metric::Overhead | Metric::NetOverhead => cost(&|c| c.overhead),
            Metric::SenderCpu => cost(&|c| c.sender_cpu),
            Metric::ReceiverCpu => cost(&|c| c.receiver_cpu),
            Metric::BothCpu => cost(&|c| Some(c.sender_cpu? + c.receiver_cpu?)),
            Metric::CpuRatio => cost(&|c| Some(c.sender_cpu? / c.receiver_cpu?)),
            Metric::RttP50 => cost(&|c| c.rtt_ms),
            Metric::Blast => run.named(numbers, FIRST_BLAST),
            Metric::Named(ref name) => run.named(numbers, name),
            _ => None,
        }
    }

    fn goodput(&self, flow: &FlowReport) -> f64 {
        match self.during {
            None => flow.goodput_bits_per_second,
            Some(span) => series::goodput(flow, span),
        }
    }

    /// Samples of the flow's goodput, within the term's time.
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
        all: fn(&FlowReport) -> u64,
    ) -> f64 {
        let each = flows.iter().map(|flow| match self.during {
            Some(span) => grown(flow, span, point),
            None => all(flow),
        });
        exact(each.sum())
    }

    fn sent(&self, flows: &[&FlowReport]) -> f64 {
        self.count(flows, |p| p.sent, |f| f.sender.datagrams_sent)
    }

    fn dropped(&self, flows: &[&FlowReport]) -> f64 {
        self.count(flows, |p| p.dropped, |f| f.dropped[0])
    }

    /// Time of the term, or the whole of a run.
    fn span(&self, plan: &Plan) -> (f64, f64) {
        self.during.unwrap_or((0.0, plan.seconds()))
    }

    fn of_link(&self, plan: &Plan, report: &SimReport) -> Option<f64> {
        let at = match &self.name {
            Some(name) => plan.links.iter().position(|link| link == name)?,
            None => 0,
        };
        let link = link(report, at)?;
        match self.metric {
            Metric::Utilisation => Some(link.utilisation),
            Metric::QueueMean | Metric::QueueP95 => {
                let (mean, p95) = match self.during {
                    None => (link.mean_queue_bytes, link.p95_queue_bytes),
                    Some(span) => {
                        mean_and_p95(series::samples(&link.queue, plan.queue_interval(), span))
                    }
                };
                if self.metric == Metric::QueueMean {
                    mean
                } else {
                    p95.map(exact)
                }
            }
            Metric::Drops => Some(exact(link.drops.values().sum())),
            _ => None,
        }
    }

    fn of_cross(&self, plan: &Plan, run: &RunReport) -> Option<f64> {
        let at = match &self.name {
            Some(name) => plan.cross.iter().position(|cross| cross == name)?,
            None => 0,
        };
        if self.metric == Metric::Jitter {
            return *run.jitter_ms.get(at)?;
        }
        let cross = run.report.cross.get(at)?;
        let Some((from, to)) = self.during else {
            return cross.loss;
        };
        let within = || cross.series.iter().filter(|p| p.at > from && p.at <= to);
        let sent: u64 = within().map(|p| p.sent).sum();
        let dropped: u64 = within().map(|p| p.dropped).sum();
        (sent > 0).then(|| exact(dropped) / exact(sent))
    }
}

/// Seconds of a core per GiB, from per cent of one per Gbit/s.
fn per_gib(percent_per_gbps: f64) -> f64 {
    percent_per_gbps / 100.0 * exact(8 << 30) / 1e9
}

/// Time at which a counter of the first of these flows left zero, s; the end of its series if it never did.
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

/// The integer as a floating-point number.
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
