//! Which figure of a run is selected? A [`Term`] names a metric, whose it is and over which time.

use std::fmt;

use farhaul_core::units::{Rate, Size};
use farhaul_sim::{FlowReport, LinkReport, Point, SideReport, SimReport};

use super::{plan::Plan, source::Case};

/// What can be expected of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Metric {
    Goodput,
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
    Log2Error,
}

/// In what a metric is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// bit/s.
    Rate,
    /// Bytes.
    Bytes,
    /// A share, 0 to 1.
    Share,
    /// A plain number.
    Number,
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
    pub(super) const ALL: [(&str, Self); 16] = [
        ("goodput", Self::Goodput),
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
    ];

    pub(super) fn name(self) -> &'static str {
        let of = Self::ALL.into_iter().find(|(_, metric)| *metric == self);
        of.map_or("", |(name, _)| name)
    }

    pub(super) const fn unit(self) -> Unit {
        match self {
            Self::Goodput => Unit::Rate,
            Self::WindowMean
            | Self::WindowMax
            | Self::WindowEnd
            | Self::QueueMean
            | Self::QueueP95 => Unit::Bytes,
            Self::Loss | Self::Utilisation => Unit::Share,
            _ => Unit::Number,
        }
    }

    pub(super) const fn whose(self) -> Whose {
        match self {
            Self::Utilisation | Self::QueueMean | Self::QueueP95 | Self::Drops => Whose::Link,
            Self::Loss => Whose::Cross,
            Self::Log2Error => Whose::Nobody,
            _ => Whose::Flow,
        }
    }

    /// Whether it can be taken over a part of the run.
    pub(super) const fn has_times(self) -> bool {
        !matches!(self.whose(), Whose::Link | Whose::Nobody) && !matches!(self, Self::Feedback)
    }
}

impl Unit {
    pub(super) fn parse(self, text: &str) -> Result<f64, String> {
        match self {
            Self::Rate => text
                .parse::<Rate>()
                .map(Rate::as_f64)
                .map_err(|e| e.to_string()),
            Self::Bytes => text
                .parse::<Size>()
                .map(|size| exact(size.bytes()))
                .map_err(|e| e.to_string()),
            Self::Share => farhaul_link::share(text).map_err(|e| e.to_string()),
            Self::Number => match text.parse::<f64>() {
                Ok(number) if number.is_finite() => Ok(number),
                _ => Err(format!("'{text}' is not a number")),
            },
        }
    }

    /// As people read it.
    pub fn show(self, value: f64) -> String {
        match self {
            Self::Rate => format!("{:.1} Mbit/s", value / 1e6),
            Self::Bytes => format!("{:.1} KiB", value / 1_024.0),
            Self::Share => format!("{:.2} %", value * 100.0),
            Self::Number if value.abs() >= 1_000.0 => format!("{value:.0}"),
            Self::Number => format!("{value:.3}"),
        }
    }
}

/// A figure of a run.
#[derive(Clone, Debug)]
pub(super) struct Term {
    pub(super) metric: Metric,
    /// A flow, several alike, a link or cross traffic; all flows, or the first of the others, if not
    /// said.
    pub(super) name: Option<String>,
    /// Seconds of virtual time.
    pub(super) during: Option<(f64, f64)>,
    /// The selected cases.
    pub(super) when: Case,
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
    /// Its value in a run, if the run has it.
    pub(super) fn measure(&self, plan: &Plan, report: &SimReport) -> Option<f64> {
        match self.metric.whose() {
            Whose::Flow => self.of_flows(plan, report),
            Whose::Link => self.of_link(plan, report),
            Whose::Cross => self.of_cross(plan, report),
            Whose::Nobody => None,
        }
    }

    fn of_flows(&self, plan: &Plan, report: &SimReport) -> Option<f64> {
        let named = plan.drivers.iter().zip(&report.flows);
        let flows: Vec<&FlowReport> = named
            .filter(|(driver, _)| {
                let name = self.name.as_ref();
                name.is_none_or(|name| *name == driver.name || *name == driver.group)
            })
            .map(|(_, flow)| flow)
            .collect();
        let goodputs = || -> Vec<f64> { flows.iter().map(|f| self.goodput(f)).collect() };
        let windows = |of: fn(&[f64]) -> Option<f64>| {
            let each: Option<Vec<f64>> = flows.iter().map(|f| self.window(f, of)).collect();
            mean(&each?)
        };
        match self.metric {
            Metric::Goodput => Some(goodputs().iter().sum()),
            Metric::Feedback => feedback(&flows),
            Metric::Jain => Some(super::summary::jain(&goodputs())),
            Metric::WindowMean => windows(mean),
            Metric::WindowMax => windows(greatest),
            Metric::WindowEnd => windows(|w| w.last().copied()),
            Metric::Retransmits => Some(self.count(&flows, |p| p.retransmits, |s| s.retransmits)),
            Metric::Timeouts => Some(self.count(&flows, |p| p.timeouts, |s| s.timeouts)),
            Metric::Episodes => Some(self.count(&flows, |p| p.episodes, |s| s.episodes)),
            Metric::DuplicateAcks => {
                Some(self.count(&flows, |p| p.duplicate_acks, |s| s.duplicate_acks))
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

/// What receivers sent, as an interface counts it, per GiB of goodput, in KiB.
fn feedback(flows: &[&FlowReport]) -> Option<f64> {
    /// Ethernet, IPv4 and UDP.
    const HEADERS: u64 = 14 + 20 + 8;
    let sent = flows
        .iter()
        .map(|f| f.receiver.wire_sent + HEADERS * f.receiver.datagrams_sent);
    let received: u64 = flows.iter().map(|f| f.received_bytes).sum();
    let kib = exact(sent.sum()) / 1_024.0;
    (received > 0).then(|| kib / (exact(received) / exact(1 << 30)))
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

#[expect(clippy::cast_precision_loss, reason = "figures are not exact to 2^-53")]
pub(super) const fn exact(n: u64) -> f64 {
    n as f64
}

pub(super) fn mean(values: &[f64]) -> Option<f64> {
    let count = exact(values.len() as u64);
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / count)
}

fn greatest(values: &[f64]) -> Option<f64> {
    values.iter().copied().reduce(f64::max)
}
