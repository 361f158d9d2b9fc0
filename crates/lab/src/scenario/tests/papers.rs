//! Counts of published numbers that the studies of papers judge, and did not fit.

use std::collections::BTreeSet;

use super::super::cases::fits;
use super::*;
use crate::{
    reference::{Fact, Kind},
    study::{Library, Study},
};

const PAPERS: [&str; 4] = ["kachan-2014", "iwanaga-2010", "masirap-2014", "gu-2005"];

fn scenarios(study: &Study) -> BTreeSet<&str> {
    let all = study.experiments.iter();
    all.map(|experiment| experiment.scenario.as_str()).collect()
}

/// The file in the first world that it is for.
fn file(study: &Study, library: &Library, name: &str, quick: bool) -> File {
    let text = std::fs::read_to_string(format!("../../lab/scenarios/{name}")).unwrap();
    let backend = File::backends(name, &text).unwrap()[0];
    let variant = Variant { backend, quick };
    library.scenario(study, name, variant).unwrap()
}

/// The number that an expectation judges, unless the model was fitted to it.
fn judged(expectation: &Expectation) -> Option<&Fact> {
    let bounded = expectation.min.is_some() || expectation.max.is_some();
    let fact = expectation.fact.as_ref();
    fact.filter(|_| bounded && expectation.fitted.is_none())
}

/// True if the runs of the file can tell: shares need more seeds, means all cases of the paper.
fn told(file: &File, expectation: &Expectation) -> bool {
    let made = |case: &Case| file.plans.iter().any(|plan| plan.case == *case);
    let both = |case: &Case| {
        let mut second = case.clone();
        if let Some(other) = &expectation.other {
            second.extend(other.term.when.clone());
        }
        made(&second)
    };
    let own = file.plans.iter().map(|plan| &plan.case);
    let whole = expectation.share.is_none() && expectation.across.is_empty();
    let here = |backend| file.variant.backend == backend;
    whole
        && expectation.backend.is_none_or(here)
        && own
            .filter(|case| fits(case, &expectation.term.when))
            .any(both)
}

#[test]
fn quick_runs_of_each_paper_judge_at_least_eight_of_its_numbers() {
    for paper in PAPERS {
        let (study, library) = Library::find(paper).unwrap();
        let mut numbers = BTreeSet::new();
        for name in scenarios(&study) {
            let file = file(&study, &library, name, true);
            if file.not_comparable.is_none() {
                let known = file.expectations.iter().filter(|e| told(&file, e));
                numbers.extend(known.filter_map(judged).map(|fact| fact.id.clone()));
            }
        }
        assert!(numbers.len() >= 8, "{paper}: {numbers:?}");
    }
}

#[test]
fn printed_numbers_are_judged_without_a_fit() {
    let mut numbers = BTreeSet::new();
    for paper in PAPERS {
        let (study, library) = Library::find(paper).unwrap();
        for name in scenarios(&study) {
            let file = file(&study, &library, name, false);
            let facts = file.expectations.iter().filter_map(judged);
            let printed = facts.filter(|fact| fact.kind == Kind::Printed);
            numbers.extend(printed.map(|fact| format!("{paper} {}", fact.id)));
        }
    }
    // As many as docs/lab.md says.
    assert_eq!(numbers.len(), 92, "{numbers:?}");
}
