use super::*;
use crate::scenario::{File, Runs, tests::runs};

/// A flow that gets this many bytes in each fiftieth of each of these seconds.
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

#[test]
fn a_processor_is_known_between_its_readings_and_not_after_its_end() {
    let used = [(0.0, 0.0), (0.1, 0.08), (0.3, 0.10), (0.4, 0.18)];
    let processors = Processors([used.to_vec(), Vec::new()]);
    assert!(near(processors.share(0, (0.05, 0.2)), 0.05 / 0.15));
    assert_eq!(processors.share(0, (0.3, 0.5)), None, "it ended at 0.4 s");
    assert_eq!(processors.share(1, (0.0, 0.1)), None, "nothing was read");
    let points = [0.1, 0.2, 0.3, 0.4].map(|at| Point {
        at,
        ..Point::default()
    });
    let flow = FlowReport {
        series: points.to_vec(),
        ..FlowReport::default()
    };
    // 80 % of a core at both ends, 10 % between.
    assert!(near(edges(&flow, &processors, 0), 8.0));
    assert_eq!(edges(&flow, &processors, 1), None);
    assert_eq!(edges(&FlowReport::default(), &processors, 0), None);
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
        ..runs(1)
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
