use super::*;
use crate::{
    hash,
    reference::Reference,
    run_store::Backend,
    scenario::{File, Variant, Wanted, outcome::FlowOutcome},
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
    let mut run = ran_as(file, seed, goodput);
    run.figures.insert("retransmits".into(), Some(retransmits));
    Outcome {
        fingerprint: plan.fingerprint(),
        case,
        ..run
    }
}

fn ran_as(file: &File, seed: u64, mbit: f64) -> Outcome {
    Outcome {
        scenario: file.name.clone(),
        seed,
        build: hash::build().into(),
        flows: vec![FlowOutcome {
            goodput_bits_per_second: mbit * 1e6,
            retransmits: 0,
            duplicate_acks: 0,
            timeouts: 0,
            episodes: 0,
        }],
        figures: [("goodput".to_string(), Some(mbit * 1e6))].into(),
        ..Outcome::default()
    }
}

/// A scenario for both worlds.
const WORLDS: &str = r#"
name = "worlds"
backends = ["sim", "emu"]
duration = "1s"
seeds = "1..2"
[[link]]
name = "line"
rate = "10Mbit"
rtt = "10ms"
[[flow]]
name = "a"
[[expect]]
backend = "emu"
metric = "goodput"
of = "median"
over = { backend = "sim" }
min = 0.9
"#;

#[test]
fn what_is_measured_is_divided_by_what_is_simulated() {
    let of = |backend| {
        let variant = Variant {
            backend,
            ..Variant::default()
        };
        File::read_as("worlds.toml", WORLDS, variant, &Reference::default()).unwrap()
    };
    let [sim, emu] = [Backend::Sim, Backend::Emu].map(of);
    let run = |file: &File, seed, mbit| {
        let plan = &file.plans[0];
        Outcome {
            backend: plan.backend,
            fingerprint: plan.fingerprint(),
            case: Case::new(),
            ..ran_as(file, seed, mbit)
        }
    };
    let stored = [run(&sim, 1, 10.0), run(&emu, 1, 8.0), run(&emu, 2, 8.0)];
    let wanted = |file: &File| Wanted {
        seeds: file.seeds,
        every_seed: true,
        any_build: true,
    };
    let results = |file: &File| file.sort_out(wanted(file), &stored).0;
    let (simulated, measured) = (results(&sim), results(&emu));
    let verdicts = emu
        .summary_beside(&measured, Some((&sim, &simulated)))
        .verdicts;
    assert_eq!(verdicts[0].ours, Some(0.8));
    assert_eq!(verdicts[0].runs.missing, 1, "one of the simulator");
    assert_eq!(verdicts[0].what, "goodput / goodput (sim)");
    assert_eq!(emu.summary(&measured).verdicts[0].ours, None);
    assert!(sim.summary(&simulated).verdicts.is_empty());
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
    assert_eq!(verdicts[0].pair, Some((30e6, 20e6)));
    assert_eq!(verdicts[1].pair, None);
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

#[test]
fn several_values_of_a_variable_may_be_allowed() {
    let laws = |own: &str, other: &str| {
        let text = FILE.replace(r#"["reno", "cubic"]"#, r#"["reno", "cubic", "bbr"]"#);
        let text = text.split("[[expect]]").next().unwrap().to_string();
        let expect = format!(
            "[[expect]]\nmetric = \"goodput\"\nwhen = {{ law = {own} }}\nmin = \"1Mbit\"\n{other}"
        );
        File::read_as(
            "judged.toml",
            &(text + &expect),
            Variant::default(),
            &Reference::default(),
        )
    };
    let file = laws(r#"["reno", "bbr"]"#, "").unwrap();
    let stored: Vec<Outcome> = ["reno", "cubic", "bbr"]
        .iter()
        .map(|law| ran(&file, law, 1, (5.0, 0.0)))
        .collect();
    let cases: Vec<_> = judged(&file, &stored).into_iter().map(|v| v.case).collect();
    assert_eq!(cases, ["law=reno", "law=bbr"]);
    let refused = |own, other, says: &str| {
        let text = laws(own, other).unwrap_err().to_string();
        assert!(text.contains(says), "{text}");
    };
    refused(r#"["reno", "vegas"]"#, "", "vegas");
    refused(
        r#""reno""#,
        r#"over = { when = { law = ["cubic", "bbr"] } }"#,
        "one value",
    );
}

#[test]
fn what_never_happens_takes_too_long() {
    let text = r#"
name = "late"
duration = "1s"
seeds = "1..2"
[[link]]
name = "line"
rate = "10Mbit"
rtt = "10ms"
[[flow]]
name = "a"
bytes = "1kB"
[[expect]]
metric = "seconds"
max = 1
[[expect]]
metric = "seconds"
min = 0.1
"#;
    let file = File::read("late.toml", text).unwrap();
    let run = |seed, seconds| Outcome {
        fingerprint: file.plans[0].fingerprint(),
        case: Case::new(),
        figures: [("seconds".to_string(), seconds)].into(),
        ..ran_as(&file, seed, 1.0)
    };
    for (second, ours, holds) in [
        (Some(0.7), Some(0.6), Some(true)),
        (None, Some(f64::INFINITY), Some(false)),
    ] {
        let verdicts = judged(&file, &[run(1, Some(0.5)), run(2, second)]);
        assert_eq!((verdicts[0].ours, verdicts[0].holds), (ours, holds));
        assert_eq!(verdicts[1].holds, Some(true), "no bound above");
    }
    // Of a run that is not valid nothing is known.
    let invalid = Outcome {
        invalid: Some("late".into()),
        ..run(2, None)
    };
    let verdicts = judged(&file, &[run(1, Some(0.5)), invalid]);
    assert_eq!(verdicts[0].holds, Some(true));
}

/// Tables of values; two of them share a name.
const TABLES: &str = r#"
name = "tables"
duration = "1s"
[[link]]
name = "line"
rate = "{system.rate}"
[[flow]]
name = "a"
law = "{system.law}"
[vary]
system = [
  { name = "slow", law = "reno", rate = "10Mbit" },
  { name = "fast", law = "cubic", rate = "20Mbit" },
  { name = "two", law = "reno", rate = "30Mbit" },
  { name = "two", law = "cubic", rate = "30Mbit" },
]
[quick.vary]
system = [
  { name = "slow", law = "reno", rate = "10Mbit" },
  { name = "fast", law = "cubic", rate = "25Mbit" },
]
[[expect]]
metric = "goodput"
when = { "system.name" = "slow" }
over = { when = { "system.name" = NAMED } }
max = 1
"#;

#[test]
fn the_name_of_a_table_stands_for_its_values() {
    let read = |named: &str, quick| {
        let text = TABLES.replace("NAMED", named);
        let variant = Variant {
            quick,
            ..Variant::default()
        };
        File::read_as("t.toml", &text, variant, &Reference::default())
    };
    let other = |named: &str, quick| {
        let file = read(named, quick).unwrap();
        let other = file.expectations[0].other.as_ref().unwrap();
        let when = other.term.when.iter().map(|(k, v)| format!("{k}={v}"));
        when.collect::<Vec<_>>().join(" ")
    };
    let whole = "system.law=cubic system.name=fast system.rate=20Mbit";
    assert_eq!(other("\"fast\"", false), whole);
    let long = "\"fast\", \"system.law\" = \"cubic\", \"system.rate\" = \"20Mbit\"";
    assert_eq!(other(long, false), whole);
    // A variant has tables of its own; what it leaves out is the file's.
    assert_eq!(other("\"fast\"", true), whole.replace("20Mbit", "25Mbit"));
    let second = "\"two\", \"system.law\" = \"cubic\"";
    for quick in [false, true] {
        let both = "system.law=cubic system.name=two system.rate=30Mbit";
        assert_eq!(other(second, quick), both);
    }
    // Of two tables neither is meant more than the other.
    for quick in [false, true] {
        let problem = read("\"two\"", quick).unwrap_err().to_string();
        let wanted = "several values of system are called 'two': tell them apart by system.law";
        assert!(
            problem.starts_with("t.toml:25:") && problem.ends_with(wanted),
            "{problem}"
        );
    }
}
