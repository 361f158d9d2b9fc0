use super::*;
use crate::report::tests::example;

/// A page of one experiment with these verdicts: row, backend, outcome, distance.
fn page(verdicts: &[(&str, &'static str, Outcome, f64)]) -> Page {
    let mut page = example::page();
    page.sections.truncate(1);
    let model = page.sections[0].verdicts[0].clone();
    let of = |(row, backend, outcome, off): &(&str, &'static str, Outcome, f64)| Verdict {
        row: Some((*row).into()),
        backend,
        outcome: *outcome,
        off: *off,
        ..model.clone()
    };
    page.sections[0].verdicts = verdicts.iter().map(of).collect();
    page
}

#[test]
fn a_number_has_the_verdict_of_its_worst_case() {
    use Outcome::{
        Fitted, FittedOutside, Incomplete, Known, Met, Missed, NotComparable, NotRun, Shown,
    };
    for (outcomes, expected) in [
        (&[("sim", Met), ("sim", Missed)][..], Missed),
        (&[("sim", Known), ("sim", Missed), ("sim", Met)], Missed),
        (&[("sim", Known), ("sim", Met)], Known),
        (&[("sim", Met), ("sim", NotRun)], Incomplete),
        (&[("sim", NotRun), ("sim", NotRun)], NotRun),
        (&[("sim", Met), ("sim", FittedOutside)], Met),
        (&[("sim", Fitted), ("sim", FittedOutside)], FittedOutside),
        (&[("sim", Met), ("emu", NotRun)], Met),
        (&[("sim", Met), ("emu", NotComparable)], Met),
        (&[("sim", Met), ("emu", Missed)], Missed),
        (&[("sim", NotComparable), ("sim", Shown)], NotComparable),
        (&[("sim", NotComparable), ("sim", NotRun)], NotComparable),
    ] {
        let all: Vec<_> = outcomes.iter().map(|(b, o)| ("a", *b, *o, 0.0)).collect();
        let page = page(&all);
        let numbers = numbers(&page.sections);
        assert_eq!(numbers.len(), 1);
        assert_eq!(numbers[0].outcome, expected, "{outcomes:?}");
    }
}

#[test]
fn the_worst_case_is_the_farthest_of_those_that_decide() {
    let page = page(&[
        ("a", "sim", Outcome::Missed, 0.2),
        ("a", "sim", Outcome::Missed, 0.9),
        ("a", "sim", Outcome::Met, -0.1),
        ("b", "sim", Outcome::Met, -0.3),
    ]);
    let numbers = numbers(&page.sections);
    assert_eq!((numbers.len(), numbers[0].worst.off), (2, 0.9));
    assert_eq!(counted(&numbers[0].tally()), "1 met; 2 missed");
}

#[test]
fn the_sentence_and_the_bar_count_numbers_and_not_comparisons() {
    let mut page = page(&[
        ("a", "sim", Outcome::Missed, 0.2),
        ("a", "sim", Outcome::Missed, 0.9),
        ("b", "sim", Outcome::Met, -0.1),
        ("c", "sim", Outcome::Fitted, -0.1),
        ("d", "sim", Outcome::FittedOutside, 0.1),
    ]);
    let score = page.score();
    assert_eq!(
        score.sentence(),
        "Of 4 numbers: 1 reproduced, 1 missed, 2 fitted (1 inside, 1 outside)."
    );
    assert_eq!(score.bar(), "✓✗=≠");
    assert_eq!(
        score.legend(),
        "✓ 1 met   ✗ 1 missed   = 1 fitted, inside   ≠ 1 fitted, outside"
    );
    page.quick = true;
    for verdict in &mut page.sections[0].verdicts {
        verdict.outcome = Outcome::NotComparable;
    }
    let score = page.score();
    assert!(!score.judged());
    assert_eq!(
        score.sentence(),
        "Of 4 numbers, not one is judged in a quick run: 4 not comparable."
    );
}

#[test]
fn what_is_reproduced_is_told_by_how_it_is_known() {
    let mut page = page(&[
        ("a", "sim", Outcome::Met, 0.0),
        ("b", "sim", Outcome::Met, 0.0),
    ]);
    page.sections[0].verdicts[1].kind = Some(Kind::Derived);
    assert_eq!(
        page.score().sentence(),
        "Of 2 numbers: 2 reproduced. The paper prints 1 of the 2; others are derived or assumed."
    );
    for verdict in &mut page.sections[0].verdicts {
        verdict.kind = Some(Kind::Owed);
    }
    assert_eq!(page.score().sentence(), "Of 2 numbers: 2 met.");
}

#[test]
fn a_bar_of_many_numbers_has_a_sign_for_each_outcome() {
    let rows: Vec<_> = (0..200).map(|n| n.to_string()).collect();
    let all: Vec<_> = rows
        .iter()
        .enumerate()
        .map(|(n, row)| {
            let outcome = if n == 0 {
                Outcome::Met
            } else {
                Outcome::Missed
            };
            (row.as_str(), "sim", outcome, 0.0)
        })
        .collect();
    let bar = page(&all).score().bar();
    assert_eq!(bar, format!("✓{}", "✗".repeat(60)));
}
