//! Several sources of one server, in one command: any of its shares, as typed.

use std::{fs, io::Read as _, path::PathBuf, process::Output};

use serde_json::Value;

use crate::place::{Place, Served, code, end_when, json, noise, printed};

/// A server with the shares `s` and `t`.
struct Two {
    place: Place,
    server: Served,
}

impl Two {
    fn new() -> Self {
        let place = Place::new();
        fs::create_dir_all(place.path("other/deep")).expect("ours");
        let share = format!("t={}:ro", place.path("other").display());
        let server = place.serve(&["--allow", "any", "--share", &share]);
        let two = Self { place, server };
        for (name, len) in [
            ("share/x", 10),
            ("share/y", 2_000_000),
            ("other/x", 20),
            ("other/deep/z", 30),
        ] {
            fs::write(two.path(name), noise(len as u64, len)).expect("ours");
        }
        two
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path(name)
    }

    /// `SHARE/PATH` as it is typed.
    fn at(&self, name: &str) -> String {
        format!("{}::{name}", self.server.at)
    }

    fn cp(&self, flags: &[&str], from: &[&str], to: &str) -> Output {
        let from: Vec<_> = from.iter().map(|name| self.at(name)).collect();
        let from: Vec<_> = from.iter().map(String::as_str).collect();
        self.place
            .run(&[&["cp", "--trust-any"], flags, &from, &[to]].concat())
    }

    fn same(&self, one: &str, other: &str) {
        let read = |name| fs::read(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(read(one) == read(other), "{other} differs from {one}");
    }
}

#[test]
fn sources_of_two_shares_arrive() {
    let two = Two::new();
    let out = two.cp(&[], &["s/x", "t/deep", "s/y"], "dir/");
    assert_eq!(code(&out), 0, "{}", printed(&out));
    assert!(printed(&out).contains("3 files, "), "{}", printed(&out));
    for (from, to) in [
        ("share/x", "dir/x"),
        ("share/y", "dir/y"),
        ("other/deep/z", "dir/deep/z"),
    ] {
        two.same(from, to);
    }
    let out = two.cp(&["--json"], &["s/x", "t/deep", "s/y"], "dir/");
    let word = json(&out);
    assert_eq!((code(&out), &word["ok"]), (0, &Value::Bool(true)));
    assert_eq!(
        (&word["files"]["skipped"], &word["bytes_payload"]),
        (&Value::from(3), &Value::from(0))
    );
}

#[test]
fn what_does_not_arrive_is_named() {
    let two = Two::new();
    for (from, to, expected, hints) in [
        (
            &["t/none", "t/x", "s/x"][..],
            "a",
            5,
            &["t/none: ", "s/x: an earlier source"][..],
        ),
        (
            &["t/none", "s/*"],
            "b",
            3,
            &["t/none: ", "s/*: ", "--include"],
        ),
        (
            &["s/x", "nothing/x"],
            "c",
            15,
            &["share 'nothing' is unknown or not allowed"],
        ),
        (&["s/x", "t/x"], "file", 4, &["is a file, not a directory"]),
    ] {
        fs::write(two.path("file"), "mine").unwrap();
        let out = two.cp(&[], from, to);
        assert_eq!(code(&out), expected, "{from:?}: {}", printed(&out));
        for hint in hints {
            assert!(printed(&out).contains(hint), "{from:?}: {}", printed(&out));
        }
        let out = two.cp(&["--json"], from, to);
        assert_eq!(json(&out)["exit"]["code"], expected, "{from:?}");
    }
    two.same("other/x", "a/x");
    assert!(!two.path("b").exists() && !two.path("c").exists());
    assert_eq!(fs::read(two.path("file")).unwrap(), b"mine");
}

#[test]
fn what_cannot_be_one_command_is_refused_with_what_to_do() {
    let two = Two::new();
    let (x, far) = (two.at("s/x"), "elsewhere::s/x");
    fs::write(two.path("list"), "x\n").unwrap();
    for (args, hint) in [
        (
            &[&x[..], far, "dir"][..],
            "give each server a command of its own",
        ),
        (&[&x, "list", "dir"], "use cp(1) for those here"),
        (
            &["--files-from", "list", &x, &x, "dir"],
            "name each path, or a folder with --include",
        ),
    ] {
        let out = two.place.run(&[&["cp", "--trust-any"], args].concat());
        assert_eq!(code(&out), 2, "{args:?}: {}", printed(&out));
        assert!(printed(&out).contains(hint), "{args:?}: {}", printed(&out));
    }
    assert!(!two.path("dir").exists());
}

#[test]
fn a_dry_run_reports_everything_and_changes_nothing() {
    let two = Two::new();
    let from = ["s/x", "t/none", "t/deep/", "s/y"];
    let out = two.cp(&["-n"], &from, "dir");
    assert_eq!(code(&out), 5, "{}", printed(&out));
    let lines = String::from_utf8_lossy(&out.stdout);
    let words: Vec<Vec<&str>> = lines
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let (failed, reported): (Vec<_>, Vec<_>) = words
        .iter()
        .map(|w| (w[0], w[w.len() - 1]))
        .partition(|(action, _)| *action == "fail");
    assert_eq!(failed.len(), 1, "what is not there: {lines}");
    assert_eq!(reported, [("send", "x"), ("send", "z"), ("send", "y")]);
    assert!(
        printed(&out).contains("3 files to dir"),
        "{}",
        printed(&out)
    );
    assert!(printed(&out).contains("t/none: "), "{}", printed(&out));
    let word = json(&two.cp(&["-n", "--json", "--exclude", "y"], &from, "dir"));
    assert_eq!(word["would_send"]["files"], 2, "{word}");
    assert_eq!(word["exit"]["code"], 5, "{word}");
    assert!(!two.path("dir").exists());
}

#[test]
fn interrupted_it_continues_with_all_of_them() {
    let two = Two::new();
    for (name, seed) in [("share/big", 1), ("other/large", 2)] {
        fs::write(two.path(name), noise(seed, 60 << 20)).unwrap();
    }
    fs::create_dir(two.path("into")).unwrap();
    let from = [two.at("s/big"), two.at("t/large"), two.at("t/x")];
    let args = ["cp", "--trust-any", &from[0], &from[1], &from[2], "into"];
    for (signal, expected, bytes) in [("-INT", Some(130), 30), ("-KILL", None, 50)] {
        let mut client = two.place.command(&args).spawn().unwrap();
        end_when(&two.place, bytes << 20, "into", &mut client, signal);
        let mut text = String::new();
        let mut stderr = client.stderr.take().unwrap();
        stderr.read_to_string(&mut text).unwrap();
        assert_eq!(client.wait().unwrap().code(), expected, "{text}");
    }
    let out = two.place.run(&args);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    assert!(printed(&out).contains("already there"), "{}", printed(&out));
    for (from, to) in [
        ("share/big", "into/big"),
        ("other/large", "into/large"),
        ("other/x", "into/x"),
    ] {
        two.same(from, to);
    }
    let left = fs::read_dir(two.path("into")).unwrap().count();
    assert_eq!(left, 3, "nothing of ours is left");
}
