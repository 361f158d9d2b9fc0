use std::collections::BTreeSet;

use super::*;
use crate::{
    reference::Kind,
    scenario::{File, Variant},
};

fn every() -> Vec<(Study, Library)> {
    let names = Library::names();
    assert!(names.len() >= 3, "{names:?}");
    let read = |name| Library::find(name).unwrap_or_else(|e| panic!("{e}"));
    names.into_iter().map(read).collect()
}

#[test]
fn every_study_can_be_read_as_every_variant() {
    for (study, library) in every() {
        for name in study.scenarios(None) {
            let text = library.text("scenarios", name).unwrap();
            for backend in File::backends(name, &text).unwrap() {
                for quick in [false, true] {
                    let variant = Variant { backend, quick };
                    let file = library.scenario(&study, name, variant);
                    let file = file.unwrap_or_else(|e| panic!("{variant:?}: {e}"));
                    assert!(!file.plans.is_empty(), "{name}");
                }
            }
        }
    }
}

#[test]
fn every_printed_number_is_referred_to_or_described_as_set_up() {
    for (study, library) in every() {
        let mut used = BTreeSet::new();
        for name in study.scenarios(None) {
            let text = library.text("scenarios", name).unwrap();
            used.extend(
                study
                    .reference
                    .facts()
                    .filter(|f| text.contains(&format!("\"{}\"", f.id)))
                    .map(|f| f.id.clone()),
            );
        }
        let unused: Vec<_> = study
            .reference
            .facts()
            .filter(|f| f.kind == Kind::Printed && !used.contains(&f.id) && f.note.is_empty())
            .map(|f| f.id.as_str())
            .collect();
        assert!(
            unused.is_empty(),
            "{}: neither judged nor with a note: {unused:?}",
            study.name
        );
    }
}

#[test]
fn every_law_is_in_the_study_of_fairness() {
    let (study, library) = Library::find("rfc-9743").unwrap();
    let all = farhaul_congestion::laws().iter().map(|law| law.name);
    // The one does not react to anything, the other needs routers.
    let expected: BTreeSet<&str> = all.filter(|law| !["fixed", "xcp"].contains(law)).collect();
    for name in study.scenarios(None) {
        let file = library.scenario(&study, name, Variant::default()).unwrap();
        let laws: BTreeSet<&str> = file.plans.iter().map(|p| p.case["law"].as_str()).collect();
        assert_eq!(laws, expected, "{name}");
    }
}
