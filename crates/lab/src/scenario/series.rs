//! Evaluates the series of flows: rates and counters within a time, and the time at which a level
//! is reached.

use farhaul_sim::{FlowReport, Point};

use super::{
    costs::Processors,
    measure::{Metric, Term, exact},
    source::{Fields, Problem},
};

/// Begin and end of a time, s.
type Span = (f64, f64);

/// Rates over time are means of so long, s.
const WINDOW: f64 = 1.0;
/// Points are not exactly where they were asked for.
const SLACK: f64 = 1e-9;

/// Jain's index of fairness, 1/n to 1; none if no flow got anything. R. Jain, D. Chiu and W. Hawe,
/// "A Quantitative Measure of Fairness", DEC-TR-301, 1984.
pub(super) fn jain(shares: &[f64]) -> Option<f64> {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|s| s * s).sum();
    (squares > 0.0).then(|| sum * sum / (exact(shares.len() as u64) * squares))
}

/// A counter at `time`; before the flow it is zero, after it what it was last.
fn value(flow: &FlowReport, time: f64, of: fn(&Point) -> u64) -> u64 {
    let seen = flow.series.partition_point(|p| p.at <= time + SLACK);
    seen.checked_sub(1).map_or(0, |last| of(&flow.series[last]))
}

/// Growth of a counter of the series.
pub(super) fn grown(flow: &FlowReport, (from, to): Span, of: fn(&Point) -> u64) -> u64 {
    value(flow, to, of) - value(flow, from, of)
}

/// bit/s.
pub(super) fn goodput(flow: &FlowReport, span: Span) -> f64 {
    exact(grown(flow, span, |p| p.delivered)) * 8.0 / (span.1 - span.0)
}

/// Share of a core that one end had in the first or in the last part of the flow's series,
/// whichever is less, over its mean between them. None if there is nothing between.
pub(super) fn edges(flow: &FlowReport, processors: &Processors, end: usize) -> Option<f64> {
    let ats = || flow.series.iter().map(|p| p.at);
    let spans: Vec<Span> = std::iter::once(flow.start)
        .chain(ats())
        .zip(ats())
        .collect();
    let [first, between @ .., last] = &spans[..] else {
        return None;
    };
    let share = |span| processors.share(end, span);
    let middle = share((between.first()?.0, between.last()?.1))?;
    let least = share(*first)?.min(share(*last)?);
    (middle > 0.0).then(|| least / middle)
}

/// Samples within the time, of those taken every `interval`.
pub(super) fn samples(all: &[u32], interval: f64, (from, to): Span) -> &[u32] {
    // The first is taken one interval after the start.
    let until = |time: f64| {
        let taken = (0..all.len()).take_while(|i| exact(*i as u64 + 1) * interval <= time + SLACK);
        taken.count()
    };
    &all[until(from)..until(to)]
}

/// Time from the begin of the span to the first second in it in which the flows together get
/// `level` or more.
pub(super) fn reaches(flows: &[&FlowReport], span: Span, level: f64) -> Option<f64> {
    let found = seconds(flows, span).find(|second| total(flows, *second) >= level)?;
    Some(found.0 - span.0)
}

/// Time from the begin of the span to the first second in it from which on they get `level` or more
/// in every one.
pub(super) fn settles(flows: &[&FlowReport], span: Span, level: f64) -> Option<f64> {
    let all: Vec<Span> = seconds(flows, span).collect();
    since(&all, |second| total(flows, second) < level).map(|from| from - span.0)
}

/// Time from the begin of the span to the first of its whole seconds from which on Jain's index of
/// the flows is `level` or more in each.
pub(super) fn converges(flows: &[&FlowReport], (from, to): Span, level: f64) -> Option<f64> {
    let starts = (0_u32..).map(|n| from + f64::from(n) * WINDOW);
    let all: Vec<Span> = starts
        .map(|start| (start, start + WINDOW))
        .take_while(|second| second.1 <= to + SLACK)
        .collect();
    let unfair = |second: Span| {
        let each: Vec<f64> = flows.iter().map(|flow| goodput(flow, second)).collect();
        jain(&each).is_none_or(|index| index < level)
    };
    since(&all, unfair).map(|start| start - from)
}

/// Goodput of all flows in a second, bit/s; the ends of `second` are not exactly a second apart.
fn total(flows: &[&FlowReport], second: Span) -> f64 {
    let bytes: u64 = flows
        .iter()
        .map(|flow| grown(flow, second, |p| p.delivered))
        .sum();
    exact(bytes) * 8.0 / WINDOW
}

/// Every second within the time, one from its begin and one from each point of the first flow's series.
fn seconds<'a>(flows: &[&'a FlowReport], (from, to): Span) -> impl Iterator<Item = Span> + 'a {
    let points = flows.first().map_or(&[][..], |flow| &flow.series);
    let inside = points
        .iter()
        .map(|p| p.at)
        .filter(move |at| *at > from + SLACK);
    std::iter::once(from)
        .chain(inside)
        .map(|start| (start, start + WINDOW))
        .take_while(move |second| second.1 <= to + SLACK)
}

/// Time at which the first of `spans` begins from which on none is bad; none if the last one is.
fn since(spans: &[Span], bad: impl Fn(Span) -> bool) -> Option<f64> {
    let first = spans
        .iter()
        .rposition(|span| bad(*span))
        .map_or(0, |last| last + 1);
    spans.get(first).map(|span| span.0)
}

/// `100s..200s`.
pub(crate) fn window(text: &str) -> Result<(f64, f64), String> {
    let (from, to) = text
        .split_once("..")
        .ok_or_else(|| format!("'{text}' is not a time such as 100s..200s"))?;
    let seconds = |text: &str| {
        let time = farhaul_link::duration(text).map_err(|e| e.to_string())?;
        Ok::<f64, String>(time.as_secs_f64())
    };
    let (from, to) = (seconds(from)?, seconds(to)?);
    if from < to {
        Ok((from, to))
    } else {
        Err(format!("'{text}' ends before it begins"))
    }
}

/// Level that the metric is to reach, if the metric has one.
pub(crate) fn level(
    fields: &Fields<'_>,
    metric: &Metric,
    base: Option<&Term>,
) -> Result<Option<f64>, Problem> {
    let Some(unit) = metric.level() else {
        if fields.has("level") {
            let text = format!("{} reaches no level", metric.name());
            return Err(fields.problem("level", text));
        }
        return Ok(None);
    };
    let own = fields.parse("level", |text| unit.parse(text))?;
    let level = own.or_else(|| base.and_then(|b| b.level));
    if level.is_none() {
        let text = format!("{} needs a level, as in level = \"90Mbit\"", metric.name());
        return Err(fields.problem("metric", text));
    }
    Ok(level)
}

#[cfg(test)]
mod tests;
