//! Lines of code of each crate, tests apart, against a budget. A budget only falls; a commit that raises one says why.

use std::{collections::BTreeMap, path::Path};

use crate::tidy::Source;

/// Most lines of each crate, in steps of [`STEP`].
const BUDGET: [(&str, usize); 18] = [
    ("crates/campaign", 7300),
    ("crates/cli", 22200),
    ("crates/congestion", 6900),
    ("crates/core", 10800),
    ("crates/emu", 2600),
    ("crates/haul", 5000),
    ("crates/io", 4200),
    ("crates/lab", 16600),
    ("crates/link", 1800),
    ("crates/measure", 4700),
    ("crates/protocols", 13300),
    ("crates/sim", 3100),
    ("crates/testkit", 1600),
    ("crates/transfer", 30800),
    ("crates/udp", 1700),
    ("fuzz", 900),
    ("python", 1500),
    ("xtask", 4800),
];
/// Lines by which a crate may be below its budget.
const STEP: usize = 100;

/// Complaints about crates above their budget, and about budgets that are too high.
pub(crate) fn check(root: &Path, sources: &[Source]) -> Vec<String> {
    let mut lines = BTreeMap::new();
    for source in sources.iter().filter(|source| !source.is_test()) {
        *lines.entry(crate_of(&source.name(root))).or_default() += source.code().count();
    }
    complaints(&lines, &BUDGET)
}

/// Folder of the crate in which `file` lies.
fn crate_of(file: &str) -> String {
    let parts = if file.starts_with("crates/") { 2 } else { 1 };
    let parts: Vec<_> = file.split('/').take(parts).collect();
    parts.join("/")
}

fn complaints(lines: &BTreeMap<String, usize>, budgets: &[(&str, usize)]) -> Vec<String> {
    let mut complaints = Vec::new();
    for (name, lines) in lines {
        let budget = budgets.iter().find(|(of, _)| of == name);
        let budget = budget.map_or(0, |(_, most)| *most);
        let least = lines.next_multiple_of(STEP);
        if least != budget {
            complaints.push(format!(
                "{name}: {lines} lines of code, and a budget of {budget}: remove some, or make it {least} in xtask/src/weight.rs"
            ));
        }
    }
    let gone = budgets.iter().filter(|(of, _)| !lines.contains_key(*of));
    complaints.extend(
        gone.map(|(of, _)| {
            format!("{of}: a budget without its crate: correct xtask/src/weight.rs")
        }),
    );
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_keeps_its_budget_and_a_budget_its_crate() {
        let lines = BTreeMap::from([("crates/a".to_owned(), 101), ("fuzz".to_owned(), 99)]);
        assert_eq!(
            complaints(&lines, &[("crates/a", 200), ("fuzz", 100)]),
            [""; 0]
        );
        let grown = complaints(&lines, &[("crates/a", 100), ("fuzz", 100)]);
        assert!(grown[0].starts_with("crates/a: 101 lines"), "{grown:?}");
        let high = complaints(&lines, &[("crates/a", 300), ("fuzz", 100)]);
        assert!(high[0].contains("make it 200"), "{high:?}");
        let gone = complaints(&lines, &[("crates/a", 200), ("fuzz", 100), ("b", 100)]);
        assert!(gone[0].starts_with("b: a budget without"), "{gone:?}");
        assert_eq!(crate_of("crates/a/src/lib.rs"), "crates/a");
        assert_eq!(crate_of("fuzz/targets/main.rs"), "fuzz");
    }
}
