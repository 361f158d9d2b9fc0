//! Comparison with git: patterns and trees are drawn, and both leave out the same files.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Command, Stdio},
};

use proptest::{
    strategy::{Strategy, ValueTree as _},
    test_runner::TestRunner,
};

use super::Filter;

/// Parts of names: few, so that patterns match often.
const NAMES: [&str; 14] = [
    "a", "b", "ab", "a b", "b ", "{a,b}", "a.b", "!a", "#a", "[a]", "a-", "é", "a\\b", "B",
];
/// Parts of patterns.
const TOKENS: [&str; 34] = [
    "a",
    "b",
    "ab",
    "*",
    "*",
    "**",
    "***",
    "?",
    "/",
    "/",
    "[ab]",
    "[!a]",
    "[^b]",
    "[a-c]",
    "[]a]",
    "[[:alpha:]]",
    "[[:upper:]-]",
    "[[:punct:]b]",
    "[a-]",
    "[\\]a]",
    "{a,b}",
    "{",
    ",",
    "}",
    "\\*",
    "\\a",
    "\\",
    "!",
    "#",
    " ",
    "é",
    ".",
    "-",
    "[",
];

fn words(tokens: &'static [&'static str], most: usize) -> impl Strategy<Value = String> {
    let word = proptest::sample::select(tokens);
    proptest::collection::vec(word, 1..=most).prop_map(|words| words.concat())
}

/// The files of a folder, relative to it, as git lists those that it does not exclude.
fn listed(root: &Path, patterns: &Path) -> BTreeSet<Vec<u8>> {
    let mut git = Command::new("git");
    let out = git
        .args(["ls-files", "-z", "--others"])
        .arg(format!("--exclude-from={}", patterns.display()))
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .expect("git runs");
    assert!(out.status.success());
    let names = out.stdout.split(|byte| *byte == 0);
    names
        .filter(|name| !name.is_empty())
        .map(<[u8]>::to_vec)
        .collect()
}

/// A tree of every name in folders of every name, two deep.
fn plant(root: &Path) -> Vec<Vec<u8>> {
    let mut files = Vec::new();
    for (at, folder) in NAMES.iter().enumerate() {
        fs::write(root.join(format!("{folder}.")), "").expect("ours");
        files.push(format!("{folder}.").into_bytes());
        for (below, name) in NAMES.iter().enumerate() {
            // A file in every second, so that folders are as often matched as files.
            let path = if (at + below) % 2 == 0 {
                format!("{folder}/{name}")
            } else {
                format!("{folder}/{name}/{}", NAMES[(at * 3 + below) % NAMES.len()])
            };
            let whole = root.join(&path);
            fs::create_dir_all(whole.parent().expect("a folder")).expect("ours");
            fs::write(whole, "").expect("ours");
            files.push(path.into_bytes());
        }
    }
    files
}

/// True of stars right after plain characters, as in `a**/b`: git matched folders by them until 2.51, by mistake.
fn is_disputed(line: &str) -> bool {
    let pattern = line.trim_start_matches('!').trim_start_matches('/');
    let special = pattern.find(['*', '?', '[', '\\']).unwrap_or(pattern.len());
    let (plain, rest) = pattern.split_at(special);
    rest.starts_with("**") && !plain.is_empty() && !plain.ends_with('/')
}

/// Files that a filter takes, as a walk from the top finds them.
fn taken(filter: &Filter, files: &[Vec<u8>]) -> BTreeSet<Vec<u8>> {
    let chosen = files.iter().filter(|file| filter.takes(file, None));
    chosen.cloned().collect()
}

#[test]
fn git_and_this_leave_out_the_same() {
    let place = tempfile::tempdir().expect("a folder");
    let root = place.path().join("tree");
    fs::create_dir(&root).expect("ours");
    let run = Command::new("git")
        .args(["init", "-q"])
        .current_dir(&root)
        .status();
    if !run.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no git here");
        return;
    }
    let files = plant(&root);
    let list = place.path().join("patterns");
    let mut runner = TestRunner::deterministic();
    let line = (proptest::bool::weighted(0.2), words(&TOKENS, 5));
    let drawn = proptest::collection::vec(line, 1..4);
    let (mut compared, mut chose) = (0, 0);
    for _ in 0..farhaul_testkit::scale(600, 20_000) {
        let lines = drawn.new_tree(&mut runner).expect("drawn").current();
        let lines: Vec<String> = lines
            .into_iter()
            .map(|(except, line)| if except { format!("!{line}") } else { line })
            // What matches nothing in git is refused here.
            .filter(|line| Filter::fault(line).is_none() && !is_disputed(line))
            .collect();
        fs::write(&list, lines.join("\n")).expect("ours");
        let filter = Filter::new(&lines, &[], (None, None)).expect("no fault");
        let (git, ours) = (listed(&root, &list), taken(&filter, &files));
        assert_eq!(git, ours, "{lines:?}");
        compared += 1;
        chose += usize::from(!git.is_empty() && git.len() < files.len());
    }
    assert!(
        compared > 100 && chose * 5 > compared,
        "{chose} of {compared} chose some"
    );
}
