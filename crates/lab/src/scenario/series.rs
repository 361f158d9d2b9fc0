//! What do the series of flows say? Rates and counters within a time, and when a level is reached.

use farhaul_sim::{FlowReport, Point};

use super::measure::exact;

/// From and to, s.
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

/// How much a counter of the series grew.
pub(super) fn grown(flow: &FlowReport, (from, to): Span, of: fn(&Point) -> u64) -> u64 {
    value(flow, to, of) - value(flow, from, of)
}

/// bit/s.
pub(super) fn goodput(flow: &FlowReport, span: Span) -> f64 {
    exact(grown(flow, span, |p| p.delivered)) * 8.0 / (span.1 - span.0)
}

/// Those of the samples taken every `interval` that are within the time.
pub(super) fn samples(all: &[u32], interval: f64, (from, to): Span) -> &[u32] {
    // The first is taken one interval after the start.
    let until = |time: f64| {
        let taken = (0..all.len()).take_while(|i| exact(*i as u64 + 1) * interval <= time + SLACK);
        taken.count()
    };
    &all[until(from)..until(to)]
}

/// From the begin of the time to the first second in it in which the flows together get `level` or more.
pub(super) fn reaches(flows: &[&FlowReport], span: Span, level: f64) -> Option<f64> {
    let found = seconds(flows, span).find(|second| total(flows, *second) >= level)?;
    Some(found.0 - span.0)
}

/// From the begin of the time to the first second in it from which on they get `level` or more in every one.
pub(super) fn settles(flows: &[&FlowReport], span: Span, level: f64) -> Option<f64> {
    let all: Vec<Span> = seconds(flows, span).collect();
    since(&all, |second| total(flows, second) < level).map(|from| from - span.0)
}

/// From the begin of the time to the first of its whole seconds from which on Jain's index of the flows is
/// `level` or more in each.
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

/// Of all flows in that second, bit/s; its ends are not exactly a second apart.
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

/// When the first of `spans` begins from which on none is bad; none if the last one is.
fn since(spans: &[Span], bad: impl Fn(Span) -> bool) -> Option<f64> {
    let first = spans
        .iter()
        .rposition(|span| bad(*span))
        .map_or(0, |last| last + 1);
    spans.get(first).map(|span| span.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{File, Runs};

    /// A flow that gets so many bytes in each fiftieth of each of these seconds.
    fn flow(seconds: &[u64]) -> FlowReport {
        let (mut delivered, mut n) = (0, 0_u32);
        let each = seconds.iter().flat_map(|bytes| [*bytes; 50]);
        let series = each.map(|bytes| {
            delivered += bytes;
            n += 1;
            Point {
                at: f64::from(n) * 0.02,
                delivered,
                sent: u64::from(2 * n),
                dropped: u64::from(n),
                ..Point::default()
            }
        });
        FlowReport {
            series: series.collect(),
            ..FlowReport::default()
        }
    }

    fn near(a: Option<f64>, b: f64) -> bool {
        a.is_some_and(|a| (a - b).abs() < 1e-6)
    }

    const STAGGERED: &str = r#"
name = "staggered"
duration = "4s"
sample = "20ms"
queue_sample = "20ms"
[[link]]
name = "line"
rate = "10Mbit"
rtt = "20ms"
[[flow]]
name = "rival"
law = "reno"
count = "{rivals}"
[[flow]]
name = "own"
law = "cubic"
count = 2
stagger = "500ms"
start = "1s"
[vary]
rivals = [0, 1]
[[expect]]
metric = "reach_time"
level = "8Mbit"
min = 0
[[expect]]
metric = "convergence_time"
flow = "own"
level = 0.5
during = "2s..4s"
max = 1
[[expect]]
metric = "loss_of_flow"
during = "2s..4s"
over = { metric = "dropped" }
min = 0
[[expect]]
metric = "queue_mean"
during = "2s..4s"
over = { during = "3s..4s" }
min = 0
[[expect]]
metric = "sent"
flow = "rival"
during = "3s..4s"
min = 1
"#;

    #[test]
    fn flows_may_be_none_or_start_one_after_the_other() {
        let file = File::read("s.toml", STAGGERED).unwrap();
        let starts = |plan: usize| -> Vec<u128> {
            let flows = file.plans[plan].scenario(1).flows;
            flows.iter().map(|f| f.start.as_millis()).collect()
        };
        assert_eq!(starts(0), [1_000, 1_500]);
        assert_eq!(starts(1), [0, 1_000, 1_500]);
        let names: Vec<&str> = file.plans[1].drivers.iter().map(|d| &*d.name).collect();
        assert_eq!(names, ["rival", "own-1", "own-2"]);
        for (from, to, part) in [
            ("count = 2", "count = 0", "at least one [[flow]]"),
            ("level = \"8Mbit\"\n", "", "reach_time needs a level"),
            ("level = \"8Mbit\"", "level = 8", "level: "),
            (
                "\"sent\"\n",
                "\"sent\"\nlevel = 3\n",
                "sent reaches no level",
            ),
        ] {
            let text = STAGGERED.replacen(from, to, 1);
            let error = File::read("s.toml", &text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn parts_of_a_run_are_measured() {
        let file = File::read("s.toml", STAGGERED).unwrap();
        let runs = Runs {
            seeds: (1, 1),
            jobs: 1,
            output: None,
            store: None,
            program: std::path::Path::new(""),
        };
        let results = file.run(&runs, &mut |_| {}).unwrap();
        let both: Vec<_> = results.outcomes().collect();
        let figure = |of: usize, term: &str| both[of].figures[term];
        let reached = "reach_time at 8 Mbit/s";
        assert!(figure(0, reached).unwrap() > 0.9, "nothing runs before 1 s");
        assert!(figure(1, reached).unwrap() < figure(0, reached).unwrap());
        assert!(figure(1, "convergence_time of own at 0.5 2..4 s").is_some());
        // The first case has no such flow.
        assert_eq!(figure(0, "sent of rival 3..4 s"), None);
        assert!(figure(1, "sent of rival 3..4 s").unwrap() > 50.0);
        let (lost, dropped) = (
            figure(1, "loss_of_flow 2..4 s").unwrap(),
            figure(1, "dropped 2..4 s").unwrap(),
        );
        // At most 2 s of 10 Mbit/s in packets of 1,500 bytes were sent, and more than half of that.
        assert!(dropped >= 1.0, "{dropped}");
        assert!(
            (800.0..2_500.0).contains(&(dropped / lost)),
            "{lost}, {dropped}"
        );
        let (two, one) = (
            figure(1, "queue_mean 2..4 s").unwrap(),
            figure(1, "queue_mean 3..4 s").unwrap(),
        );
        assert!(
            two > 0.0 && one > 0.0 && (two - one).abs() > 1.0,
            "{two}, {one}"
        );
    }

    #[test]
    fn jain_is_one_for_equals_and_one_nth_for_a_winner_of_all() {
        assert!(near(jain(&[3.0, 3.0, 3.0]), 1.0));
        assert!(near(jain(&[0.0, 7.0, 0.0, 0.0]), 0.25));
        // (1 + 3)^2 / (2 * (1 + 9)).
        assert!(near(jain(&[1.0, 3.0]), 0.8));
        assert_eq!(jain(&[0.0, 0.0]), None);
        assert_eq!(jain(&[]), None);
    }

    proptest::proptest! {
        #[test]
        fn jain_knows_no_scale_and_no_order(
            mut shares in proptest::collection::vec(0.1_f64..1e9, 1..20), scale in 0.1_f64..1e3
        ) {
            let index = jain(&shares).unwrap();
            let least = 1.0 / exact(shares.len() as u64);
            proptest::prop_assert!(index >= least - 1e-9 && index <= 1.0 + 1e-9);
            shares.reverse();
            for share in &mut shares {
                *share *= scale;
            }
            proptest::prop_assert!((jain(&shares).unwrap() - index).abs() < 1e-9);
        }
    }

    #[test]
    fn goodput_and_packets_are_of_the_time() {
        let flow = flow(&[0, 20, 40]);
        assert_eq!(grown(&flow, (0.0, 1.0), |p| p.delivered), 0);
        assert_eq!(grown(&flow, (0.5, 1.5), |p| p.delivered), 500);
        // 50 times 40 B in a second.
        assert!(near(Some(goodput(&flow, (2.0, 3.0))), 16_000.0));
        assert_eq!(grown(&flow, (0.2, 0.4), |p| p.sent), 20);
        assert_eq!(grown(&flow, (0.2, 0.4), |p| p.dropped), 10);
        // It has ended.
        assert_eq!(grown(&flow, (3.0, 9.0), |p| p.sent), 0);
    }

    #[test]
    fn samples_of_a_queue_are_those_of_the_time() {
        let all: Vec<u32> = (1..=100).collect();
        assert_eq!(samples(&all, 0.02, (0.0, 2.0)), all);
        assert_eq!(samples(&all, 0.02, (1.0, 1.1)), [51, 52, 53, 54, 55]);
        assert!(samples(&all, 0.02, (2.0, 3.0)).is_empty());
    }

    #[test]
    fn convergence_is_when_it_stays() {
        let converged = |a: &[u64], b: &[u64], span| {
            let (a, b) = (flow(a), flow(b));
            converges(&[&a, &b], span, 0.9)
        };
        let (a, b) = ([9, 5, 9, 5, 5], [1, 5, 1, 5, 5]);
        assert!(near(converged(&a, &b, (0.0, 5.0)), 3.0));
        assert!(near(converged(&a, &b, (3.0, 5.0)), 0.0));
        assert_eq!(converged(&a, &b, (0.0, 0.2)), None, "no second in it");
        assert_eq!(converged(&[5, 5, 9], &[5, 5, 1], (0.0, 3.0)), None);
    }

    #[test]
    fn a_rate_is_reached_once_or_for_good() {
        // 125 B are 50 kbit/s.
        let flow = flow(&[10, 125, 10, 125, 125]);
        let span = (0.0, 5.0);
        assert!(near(reaches(&[&flow], span, 50_000.0), 1.0));
        assert!(near(settles(&[&flow], span, 50_000.0), 3.0));
        assert_eq!(reaches(&[&flow], span, 50_001.0), None);
        assert_eq!(settles(&[&flow], span, 50_001.0), None);
        // Half of the second before counts for a rate of a half.
        assert!(near(reaches(&[&flow], span, 27_000.0), 0.5));
        // Two flows get twice as much.
        assert!(near(reaches(&[&flow, &flow], span, 100_000.0), 1.0));
    }
}
