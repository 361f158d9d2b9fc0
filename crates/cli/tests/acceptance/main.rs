//! Behaviour on bad input, and in bad times. A table has a row for each case that is promised. The
//! row names code that runs the program, in text and with `--json`, or a test elsewhere.

#![expect(
    clippy::print_stdout,
    reason = "tests; a skipped one says why, a random one its seed"
)]

mod bad_input;
mod ends;
mod files;
mod kit;
mod machine;
#[path = "../cp/place.rs"]
#[expect(dead_code, reason = "tests of cp use more of it")]
mod place;
mod table;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    thread,
};

use kit::Fixture;
use table::{By, Row};

fn workspace() -> &'static Path {
    Path::new("../..")
}

/// True if the file has a test of this name.
fn has_test(text: &str, name: &str) -> bool {
    let head = format!("fn {name}(");
    let mut is_test = false;
    for line in text.lines().map(str::trim) {
        if line == "#[test]" {
            is_test = true;
        } else if line.starts_with(&head) {
            return is_test;
        } else if !line.starts_with("#[") && !line.starts_with("//") {
            is_test = false;
        }
    }
    false
}

fn rows() -> impl Iterator<Item = &'static Row> {
    table::ALL.iter().flat_map(|(_, rows)| *rows)
}

#[test]
fn every_row_is_checked_or_decided_otherwise_and_every_test_it_names_exists() {
    let mut texts = BTreeMap::new();
    let mut missing = Vec::new();
    for Row(case, by) in rows() {
        assert!(!by.is_empty(), "nothing checks '{case}'");
        for by in *by {
            match by {
                By::Test(file, name) => {
                    let read = || fs::read_to_string(workspace().join(file)).unwrap_or_default();
                    let text = texts.entry(*file).or_insert_with(read);
                    if !has_test(text, name) {
                        missing.push(format!("'{case}': no test {name} in {file}"));
                    }
                }
                By::Otherwise(why) => assert!(!why.is_empty(), "'{case}' is decided, and not why"),
                By::Refuses(..) => {}
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn a_case_has_one_row() {
    let mut seen = BTreeSet::new();
    for Row(case, _) in rows() {
        assert!(seen.insert(case), "'{case}' has two rows");
    }
}

#[test]
fn what_is_refused_is_refused_in_text_and_as_an_object() {
    let fixture = Fixture::new();
    let cases: Vec<_> = rows().flat_map(|Row(_, by)| by.iter()).collect();
    thread::scope(|scope| {
        for part in cases.chunks(cases.len().div_ceil(4)) {
            let fixture = &fixture;
            scope.spawn(move || {
                for by in part {
                    if let By::Refuses(args, code, words) = by {
                        fixture.refuses(args, *code, &[words]);
                    }
                }
            });
        }
    });
}

#[test]
fn a_test_is_found_by_its_name_and_what_is_none_is_not() {
    let text = "#[test]\n#[ignore]\nfn one() {}\n\nfn two() {}\n#[test]\nlet x;\nfn three() {}\n";
    assert!(has_test(text, "one"));
    for none in ["two", "three", "on", "four"] {
        assert!(!has_test(text, none), "{none}");
    }
}
