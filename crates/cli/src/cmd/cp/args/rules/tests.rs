use std::fs;

use super::*;

fn patterns(words: &[&str]) -> Patterns {
    let command = <Patterns as clap::Args>::augment_args(clap::Command::new("cp"));
    let words = ["cp"].iter().chain(words);
    Patterns::from_arg_matches(&command.get_matches_from(words)).unwrap()
}

#[test]
fn the_first_pattern_decides_as_in_rsync() {
    let idiom = [
        "--include=*/",
        "--include",
        "*.c",
        "--exclude=*",
        "--exclude=x",
    ];
    let rules = patterns(&idiom).rules().unwrap();
    let (lines, only) = rules.lines();
    assert_eq!(lines, ["x", "*", "!*.c", "!*/"]);
    assert!(only.is_empty() && rules.hints.is_empty());
    let there = rules.typed_there();
    let there: Vec<_> = there.iter().map(|w| w.to_str().unwrap()).collect();
    assert_eq!(patterns(&there).rules().unwrap(), rules);
    let only = patterns(&["--include=*.bam"]).rules().unwrap();
    assert_eq!(only.lines(), (vec![], vec!["*.bam".into()]));
    assert!(only.hints[0].contains("only what is included"));
    let e = patterns(&["--exclude=*.log", "--include=keep.log"]).rules();
    let e = e.unwrap_err();
    assert!(
        e.fix
            .contains("write --include 'keep.log' before the --exclude"),
        "{e}"
    );
}

#[test]
fn lines_of_rsync_and_of_git_keep_their_meaning() {
    let tmp = tempfile::tempdir().unwrap();
    let file = tmp.path().join("rules");
    let flag = format!("--exclude-from={}", file.display());
    for (text, lines, hints) in [
        (
            "- a/b\n; note\n+ keep/***\n*.o\n- /top/***\n",
            &["/top/", "*.o", "!**/keep/", "!**/keep/**", "**/a/b"][..],
            0,
        ),
        (
            "*.log\n!keep.log\n/a/b\n",
            &["*.log", "!keep.log", "/a/b"],
            0,
        ),
        (
            "# git\na/b\nc/d\ndir/***\n",
            &["/a/b", "/c/d", "**/dir/"],
            1,
        ),
    ] {
        fs::write(&file, text).unwrap();
        let rules = patterns(&[&flag]).rules().unwrap();
        assert_eq!(rules.lines().0, lines, "{text}");
        assert_eq!(rules.hints.len(), hints, "{text}");
    }
    for (bad, at) in [
        ("+ a\n!\n", ":2"),
        ("- a**b\n", ":1"),
        ("- [\n", ":1"),
        ("+ a\nexclude b\n", ":2"),
        (": .gitignore\n- b\n", ":1"),
    ] {
        fs::write(&file, bad).unwrap();
        let e = patterns(&[&flag]).rules().unwrap_err();
        assert!(e.text.contains(at), "{e}");
    }
    fs::write(&file, "exclude b\n").unwrap();
    assert!(patterns(&[&flag]).rules().is_ok());
    let rules = patterns(&["--exclude=- a/b", "--exclude=a/b"])
        .rules()
        .unwrap();
    assert_eq!(rules.lines().0, ["/a/b", "**/a/b"]);
    assert!(rules.hints[0].contains("write '**/a/b'"), "{rules:?}");
}

#[test]
fn lines_that_look_like_rules_or_comments_are_names_there_too() {
    let tmp = tempfile::tempdir().unwrap();
    let file = tmp.path().join("rules");
    let flag = format!("--exclude-from={}", file.display());
    for (text, lines) in [
        ("- #*#\n- foo\n", &["foo", "\\#*#"][..]),
        ("- + foo\n- x\n", &["x", "\\+ foo"]),
        ("- - foo\n- x\n", &["x", "\\- foo"]),
        ("*\n!!x\n", &["*", "!\\!x"]),
        ("foo  \nbar\\ \n", &["foo", "bar\\ "]),
    ] {
        fs::write(&file, text).unwrap();
        let rules = patterns(&[&flag]).rules().unwrap();
        assert_eq!(rules.lines().0, lines, "{text}");
        let there = rules.typed_there();
        let there: Vec<_> = there.iter().map(|w| w.to_str().unwrap()).collect();
        assert_eq!(patterns(&there).rules().unwrap(), rules, "{text}");
    }
}

#[test]
fn exceptions_to_nothing_exclude_nothing() {
    let tmp = tempfile::tempdir().unwrap();
    let file = tmp.path().join("rules");
    let flag = format!("--exclude-from={}", file.display());
    for text in ["!keep.log\n", "+ keep.log\n"] {
        fs::write(&file, text).unwrap();
        assert_eq!(patterns(&[&flag]).rules().unwrap(), Rules::default());
    }
    let typed = patterns(&["--exclude=+ keep.log"]).rules().unwrap();
    assert_eq!(typed, Rules::default());
}

#[test]
fn a_pattern_that_begins_with_the_source_is_told() {
    let hints = |source: &str| {
        let mut rules = patterns(&["--exclude=/run7/tmp/", "--exclude=x"])
            .rules()
            .unwrap();
        rules.hint_of_source(source.as_bytes());
        rules.hints
    };
    for source in ["run7", "/data/run7", "far:run7", "h::s/run7"] {
        let hints = hints(source);
        assert!(hints[0].ends_with("itself write /tmp/"), "{hints:?}");
    }
    for source in ["run7/", "run", "far:", "x/run7x"] {
        assert!(hints(source).is_empty(), "{source}");
    }
}

#[test]
fn patterns_that_match_nothing_are_refused() {
    for bad in [
        "",
        " ",
        "/",
        "# x",
        "[",
        "a[!]",
        "[[:nope:]]",
        "a\\",
        "- ",
        "!a",
    ] {
        assert!(patterns(&["--exclude", bad]).rules().is_err(), "{bad}");
    }
    for fine in [
        "[ch]", "\\[", "\\#x", "a/", "/a", "\\!a", "*", "x#", "[[]", "-z",
    ] {
        assert!(patterns(&["--exclude", fine]).rules().is_ok(), "{fine}");
    }
}

#[test]
fn blanks_that_were_typed_count() {
    for (typed, line) in [
        ("a", "a"),
        ("a  ", "a\\ \\ "),
        ("a\\ ", "a\\ "),
        ("a\\  ", "a\\ \\ "),
        ("a\\\\ ", "a\\\\\\ "),
        ("a b", "a b"),
    ] {
        assert_eq!(as_typed(typed), line, "{typed:?}");
    }
}
