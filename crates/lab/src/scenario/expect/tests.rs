use super::*;
use crate::{
    hash,
    scenario::{File, Wanted, outcome::FlowOutcome},
};

const FILE: &str = r#"
name = "judged"
duration = "1s"
seeds = "1..2"
[vary]
law = ["reno", "cubic"]
[[link]]
name = "line"
rate = "10Mbit"
rtt = "10ms"
[[flow]]
name = "a"
law = "{law}"
[[expect]]
metric = "goodput"
of = "max"
when = { law = "cubic" }
over = { when = { law = "reno" } }
max = 1.5
[[expect]]
metric = "retransmits"
of = "best run"
when = { law = "reno" }
max = 10
[[expect]]
metric = "goodput"
across = ["law"]
passed = "15Mbit"
min = "1Mbit"
"#;

/// A run with this goodput, Mbit/s, and this many retransmits.
fn ran(file: &File, law: &str, seed: u64, (goodput, retransmits): (f64, f64)) -> Outcome {
    let case = Case::from([("law".into(), law.into())]);
    let plan = file.plans.iter().find(|p| p.case == case).unwrap();
    let figures = [("goodput", goodput * 1e6), ("retransmits", retransmits)];
    Outcome {
        scenario: file.name.clone(),
        case,
        seed,
        fingerprint: plan.fingerprint(),
        build: hash::build().into(),
        flows: vec![FlowOutcome {
            goodput_bits_per_second: goodput * 1e6,
            retransmits: 0,
            duplicate_acks: 0,
            timeouts: 0,
            episodes: 0,
        }],
        figures: figures.map(|(name, x)| (name.into(), Some(x))).into(),
        ..Outcome::default()
    }
}

fn judged(file: &File, stored: &[Outcome]) -> Vec<Verdict> {
    let wanted = Wanted {
        seeds: file.seeds,
        every_seed: true,
        any_build: true,
    };
    file.summary(&file.sort_out(wanted, stored).0).verdicts
}

fn all(file: &File) -> Vec<Outcome> {
    vec![
        ran(file, "reno", 1, (10.0, 7.0)),
        ran(file, "reno", 2, (20.0, 9.0)),
        ran(file, "cubic", 1, (30.0, 0.0)),
        ran(file, "cubic", 2, (20.0, 0.0)),
    ]
}

#[test]
fn a_ratio_of_two_cases_is_one_of_their_statistics() {
    let file = File::read("judged.toml", FILE).unwrap();
    let verdicts = judged(&file, &all(&file));
    // 30 / 20, and no pair's 30 / 10.
    assert_eq!(verdicts[0].ours, Some(1.5));
    assert_eq!(verdicts[0].range, Some((1.0, 3.0)));
    assert_eq!(verdicts[0].holds, Some(true));
    // Those of the run with 20 Mbit/s.
    assert_eq!(verdicts[1].ours, Some(9.0));
    // The mean of reno does not exceed 15 Mbit/s.
    assert_eq!(verdicts[2].ours, Some(25e6));
    assert!(verdicts.iter().all(|v| v.runs == Used::default()));
}

#[test]
fn verdicts_know_of_every_run_that_is_missing_or_was_made_at_a_lower_rate() {
    let file = File::read("judged.toml", FILE).unwrap();
    let mut stored = all(&file);
    stored[0].lowered = Some(5_000_000);
    stored[3].invalid = Some("late".into());
    let verdicts = judged(&file, &stored);
    let runs: Vec<Used> = verdicts.iter().map(|v| v.runs).collect();
    let lowered = Some(5_000_000);
    let used = |missing, lowered| Used {
        partial: false,
        missing,
        lowered,
    };
    assert_eq!(runs[0], used(1, lowered), "the denominator counts");
    assert_eq!(runs[1], used(0, lowered));
    // Also of a case that a mean leaves out.
    assert_eq!(runs[2], used(1, lowered));
    stored.truncate(1);
    assert_eq!(judged(&file, &stored)[0].runs.missing, 3);
    let some = Case::from([("law".into(), "reno".into())]);
    let some = file.only(&some).unwrap();
    let verdicts = judged(&some, &stored);
    assert!(verdicts.last().unwrap().runs.partial);
}
