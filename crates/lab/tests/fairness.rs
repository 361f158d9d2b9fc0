//! Are the questions of fairness answered as theory has it? A classic law and the flagship, quickly, at
//! a rate that takes no time.

use std::io;

use farhaul_core::units::Rate;
use farhaul_lab::fairness::{Case, Figure, Run, Setting, harms, questions, run, tables};

fn asked(laws: &[&str], jobs: usize) -> Vec<Run> {
    let laws: Vec<String> = laws.iter().map(|l| (*l).into()).collect();
    let setting = Setting::new(Rate::mbit(20), true, 1).expect("high enough");
    let mut runs = Vec::new();
    run(&questions(&laws, setting), jobs, &mut |run| {
        runs.push(run);
        io::Result::Ok(())
    })
    .expect("nothing is written");
    runs
}

fn find<'a>(runs: &'a [Run], law: &str, case: &Case) -> &'a Run {
    let found = runs
        .iter()
        .find(|r| r.question.law == law && r.question.case == *case);
    found.expect("it was asked")
}

fn figure(runs: &[Run], law: &str, case: &Case, figure: Figure) -> f64 {
    let run = find(runs, law, case);
    run.figure(figure)
        .unwrap_or_else(|| panic!("{law}, {case}: no {figure}: {run:?}"))
}

#[test]
fn reno_and_the_flagship_answer_every_question() {
    let runs = asked(&["reno", "haul"], 2);
    let invalid: Vec<_> = runs.iter().filter(|r| r.invalid.is_some()).collect();
    assert!(invalid.is_empty(), "{invalid:?}");
    // Ten of each law, and CUBIC and BBR alone.
    assert_eq!(runs.len(), 22);
    let one_bdp = Case::Alone { queue_percent: 100 };
    for law in ["reno", "haul"] {
        let get = |case: &Case, what| figure(&runs, law, case, what);
        assert!(get(&one_bdp, Figure::Utilisation) > 0.9, "{law}");
        assert!(get(&one_bdp, Figure::QueueP95) <= 1.0, "{law}");
        for flows in [2, 4] {
            let jain = get(&Case::Among { flows }, Figure::Jain);
            assert!(
                (1.0 / f64::from(flows)..=1.0).contains(&jain),
                "{law}: {jain}"
            );
        }
        // Without reports, no more than probes; at a hundredth, no more than a multiple of it.
        let before = get(&Case::ReportsLost, Figure::SentBefore);
        let settled = get(&Case::ReportsLost, Figure::SentSettled);
        assert!(before > 1_000.0, "{law}: {before}");
        assert!(settled < before / 100.0, "{law}: {settled} of {before}");
        let settled = get(&Case::CapacityLost, Figure::SentSettled);
        assert!(settled < before / 10.0, "{law}: {settled} of {before}");
    }
    // Reno stands in a queue of 1 BDP for most of the time, and fills it at every loss.
    let mean = figure(&runs, "reno", &one_bdp, Figure::QueueMean);
    assert!((0.2..0.9).contains(&mean), "{mean}");
    let harms = harms(&runs);
    assert_eq!(harms.len(), 6, "both against each of the three");
    assert!(harms.iter().all(|h| h.throughput.is_some_and(|t| t <= 1.0)));
    let text = tables(&runs);
    for heading in ["Fairness within", "against bbr", "Bufferbloat", "collapse"] {
        assert!(text.contains(heading), "{heading}: {text}");
    }
}

#[test]
fn answers_do_not_depend_on_the_number_of_workers() {
    let of = |jobs| {
        let mut runs = asked(&["reno"], jobs);
        runs.sort_by(|a, b| {
            let key = |r: &Run| (r.question.law.clone(), r.question.case.clone());
            key(a).cmp(&key(b))
        });
        runs
    };
    assert_eq!(of(1), of(3));
}
