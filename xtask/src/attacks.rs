//! Holds the page of known attacks on other programs, `docs/security/known-attacks.md`, to its
//! word: each row has a verdict and names a test that exists.

use std::{collections::BTreeSet, fs, path::Path};

/// The page.
const PAGE: &str = "docs/security/known-attacks.md";
/// The columns.
const HEAD: &str = "| attack | what it was | farhaul | test |";
/// Beginnings of the third column; rows of the first kind need not name a test.
const VERDICTS: [&str; 3] = ["not applicable because", "refused by", "bounded by"];

/// Complaints about the page.
pub(crate) fn check(root: &Path) -> Vec<String> {
    let Ok(page) = fs::read_to_string(root.join(PAGE)) else {
        return vec![format!("{PAGE}: missing")];
    };
    complaints(&page, |test| find(root, test))
}

fn complaints(page: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut attacks = BTreeSet::new();
    let (mut in_table, mut rows) = (false, 0);
    for (at, line) in page.lines().enumerate() {
        let Some(row) = line.strip_prefix("| ") else {
            in_table &= line.starts_with('|');
            continue;
        };
        if line == HEAD {
            in_table = true;
            continue;
        }
        if !in_table {
            continue;
        }
        rows += 1;
        let mut print_line = |text: String| complaints.push(format!("{PAGE}:{}: {text}", at + 1));
        let cells: Vec<_> = row
            .trim_end()
            .trim_end_matches('|')
            .split(" | ")
            .map(str::trim)
            .collect();
        let [attack, was, verdict, tests] = cells[..] else {
            print_line(format!("a row has four cells, not {}", cells.len()));
            continue;
        };
        if attack.is_empty() || !attacks.insert(attack.to_owned()) {
            print_line(format!("'{attack}' is not one attack of its own"));
        }
        if was.is_empty() {
            print_line(format!("{attack}: what was it?"));
        }
        let stands = VERDICTS.iter().position(|words| {
            let rest = verdict.strip_prefix(words);
            rest.is_some_and(|rest| rest.trim().len() > 1)
        });
        let Some(kind) = stands else {
            print_line(format!(
                "{attack}: no verdict; one of: {}",
                VERDICTS.join(", ")
            ));
            continue;
        };
        let tests: Vec<_> = tests.split('`').skip(1).step_by(2).collect();
        if tests.is_empty() && kind != 0 {
            print_line(format!("{attack}: no test"));
        }
        for test in tests {
            if !exists(test) {
                print_line(format!("{attack}: no test is called {test}"));
            }
        }
    }
    if rows == 0 {
        complaints.push(format!("{PAGE}: no table under {HEAD}"));
    }
    complaints
}

/// True if `crate::path::of::file::name` is a test. `crate` is a folder of `crates`, the path that
/// of the file below its `src`, or below the crate if it begins with `tests`.
fn find(root: &Path, test: &str) -> bool {
    let parts: Vec<_> = test.split("::").collect();
    let [folder, path @ .., name] = &parts[..] else {
        return false;
    };
    let folder = root.join("crates").join(folder);
    let path = path.join("/");
    let files = [
        format!("src/{path}.rs"),
        format!("src/{path}/mod.rs"),
        format!("{path}.rs"),
    ];
    let mut texts = files
        .iter()
        .filter_map(|file| fs::read_to_string(folder.join(file)).ok());
    texts.any(|text| has_test(&text, name))
}

/// True if a function of that name has `#[test]`, and is run.
fn has_test(text: &str, name: &str) -> bool {
    let head = format!("fn {name}(");
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    let mut heads = (0..lines.len()).filter(|at| lines[*at].starts_with(&head));
    heads.any(|at| {
        let above = lines[..at].iter().rev();
        let attributes: Vec<_> = above
            .take_while(|line| line.starts_with("#[") || line.starts_with("//"))
            .collect();
        attributes.contains(&&"#[test]")
            && !attributes.iter().any(|line| line.starts_with("#[ignore"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(rows: &str) -> Vec<String> {
        let page = format!(
            "# Page\n\n| a | b |\n|---|---|\n| x | y |\n\n{HEAD}\n|---|---|---|---|\n{rows}\n\n| z |\n"
        );
        complaints(&page, |test| test == "haul::path::it_holds")
    }

    #[test]
    fn a_row_needs_a_verdict_and_a_test_that_exists() {
        let good = "| CVE-1 | it fell | refused by a check | `haul::path::it_holds` |\n\
                    | CVE-2 | it rose | not applicable because there is none | |";
        assert_eq!(said(good), Vec::<String>::new());
        for (row, complaint) in [
            (
                "| CVE-1 | it fell | fine | `haul::path::it_holds` |",
                "no verdict",
            ),
            (
                "| CVE-1 | it fell | refused by | `haul::path::it_holds` |",
                "no verdict",
            ),
            ("| CVE-1 | it fell | refused by a check | |", "no test"),
            (
                "| CVE-1 | it fell | bounded by a limit | `haul::path::gone` |",
                "no test is called haul::path::gone",
            ),
            (
                "| CVE-1 | it fell | not applicable because of y | `haul::z` |",
                "no test is called haul::z",
            ),
            (
                "| CVE-1 |  | bounded by a limit | `haul::path::it_holds` |",
                "what was it?",
            ),
            ("| CVE-1 | it fell | refused by a check |", "four cells"),
            ("", "no table"),
        ] {
            let said = said(row);
            assert!(
                said.len() == 1 && said[0].contains(complaint),
                "{row}: {said:?}"
            );
        }
        let twice =
            ["| CVE-1 | it fell | refused by a check | `haul::path::it_holds` |"; 2].join("\n");
        assert_eq!(said(&twice).len(), 1);
    }

    #[test]
    fn a_test_is_a_function_that_is_run() {
        let text = "    #[test]\n    /// Why.\n    fn runs() {}\nfn helps() {}\n#[test]\n#[ignore]\nfn waits() {}\n\
                    #[test]\nfn takes(x in any()) {}\n";
        for (name, expected) in [
            ("runs", true),
            ("helps", false),
            ("waits", false),
            ("takes", true),
            ("run", false),
        ] {
            assert_eq!(has_test(text, name), expected, "{name}");
        }
    }
}
