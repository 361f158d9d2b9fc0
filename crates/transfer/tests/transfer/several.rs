//! Several sources of one server are fetched as several local ones are sent. Missing ones are
//! named, the first of two for one name arrives, and a run that was killed continues.

use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex},
};

use farhaul_transfer::{
    Action, Exit, Outcome,
    client::{Download, Options, Remote},
};

use crate::pair::{self, Way, mixed, noise, options, put, tree};

/// Two shares, `a` and `b`, in one folder.
struct Two(tempfile::TempDir);

impl Two {
    fn new() -> Self {
        let two = Self(tempfile::tempdir().unwrap());
        for folder in ["a/d", "b"] {
            fs::create_dir_all(two.at(folder)).unwrap();
        }
        for (name, len) in [("a/x", 10), ("a/d/y", 2_000_000), ("b/x", 20), ("b/z", 30)] {
            fs::write(two.at(name), noise(len as u64, len)).unwrap();
        }
        two
    }

    fn at(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    /// Fetches to `to`, which is kept between calls.
    fn get(&self, places: &[(&str, &str)], to: &str) -> Outcome {
        self.get_with(places, to, options(), &mut Way::new(5))
            .expect("the client knows how it ended")
    }

    fn get_with(
        &self,
        places: &[(&str, &str)],
        to: &str,
        options: Options,
        way: &mut Way,
    ) -> Option<Outcome> {
        let shares = [("a", self.at("a")), ("b", self.at("b"))];
        let shares = shares
            .each_ref()
            .map(|(name, root)| (*name, root.as_path()));
        pair::fetch(&shares, places, &self.at(to), options, way)
    }

    fn same(&self, one: &str, other: &str) {
        let read = |name| fs::read(self.at(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(read(one) == read(other), "{other} differs from {one}");
    }
}

fn names(dir: &Path) -> Vec<String> {
    tree(dir).into_iter().map(|entry| entry.0).collect()
}

#[test]
fn sources_of_two_shares_arrive_in_one_session() {
    let two = Two::new();
    let out = two.get(&[("a", "x"), ("b", "z"), ("a", "d")], "to");
    assert_eq!((out.error, out.summary.files.sent), (None, 3));
    for (from, to) in [("a/x", "to/x"), ("b/z", "to/z"), ("a/d/y", "to/d/y")] {
        two.same(from, to);
    }
    assert_eq!(names(&two.at("to")).len(), 4);
    // Contents of two folders in one.
    let out = two.get(&[("a", "d/"), ("b", "")], "flat");
    assert_eq!((out.error, out.summary.files.sent), (None, 3));
    assert_eq!(names(&two.at("flat")), ["x", "y", "z"]);
    // The same again has nothing to send.
    let out = two.get(&[("a", "d/"), ("b", "")], "flat");
    assert_eq!((out.error, out.summary.bytes_payload), (None, 0));
}

#[test]
fn missing_ones_are_named_and_the_others_arrive() {
    let two = Two::new();
    std::os::unix::fs::symlink("x", two.at("a/link")).unwrap();
    let places = [("a", "none"), ("b", "z"), ("b", "../a/x"), ("a", "link/x")];
    let out = two.get(&places, "to");
    let e = out.error.unwrap();
    assert_eq!(e.code, Exit::Partial, "{e}");
    let reported: Vec<_> = out.summary.failures.iter().map(|f| &f.text[..]).collect();
    assert_eq!(reported.len(), 3, "{reported:?}");
    for (text, name) in reported
        .iter()
        .zip(["a/none: ", "b/../a/x: ", "a/link/x: "])
    {
        assert!(text.starts_with(name), "{reported:?}");
    }
    two.same("b/z", "to/z");
    assert_eq!(names(&two.at("to")), ["z"]);
    // As when several local ones are sent.
    let sources = [two.at("a/none"), two.at("b/z")];
    let sent = put(&sources, &two.at("b"), "to", &mut Way::new(1));
    assert_eq!(sent.error.unwrap().code, Exit::Partial);
    let one = two.get(&[("a", "none"), ("b", "z")], "one");
    assert_eq!(one.error.unwrap().code, Exit::Partial);

    let out = two.get(&[("a", "none"), ("b", "x*")], "nothing");
    let e = out.error.unwrap();
    assert_eq!(e.code, Exit::SourceMissing, "{e}");
    assert!(
        e.text.contains("a/none: ") && e.text.contains("b/x*: "),
        "{e}"
    );
    assert!(e.fix.contains("--include"), "{}", e.fix);
    assert!(!two.at("nothing").exists());
}

#[test]
fn of_two_for_one_name_the_first_arrives() {
    let two = Two::new();
    let out = two.get(&[("b", "x"), ("a", ""), ("b", "x")], "to");
    let e = out.error.unwrap();
    assert_eq!(e.code, Exit::Partial, "{e}");
    assert!(
        e.text
            .starts_with("a/x: an earlier source is already sent as x"),
        "{e}"
    );
    two.same("b/x", "to/x");
    two.same("a/d/y", "to/d/y");
    let again = two.get(&[("a", "x"), ("a", "x"), ("a", "x")], "same");
    assert_eq!((again.error, again.summary.files.sent), (None, 1));
}

#[test]
fn one_share_that_is_not_allowed_refuses_all() {
    let two = Two::new();
    let out = two.get(&[("a", "x"), ("c", "z"), ("b", "z")], "to");
    let e = out.error.unwrap();
    assert_eq!(e.code, Exit::Auth);
    assert_eq!(e.text, "share 'c' is unknown or not allowed");
    let alone = two.get(&[("c", "z")], "to").error.unwrap();
    assert_eq!(e, alone, "the same words as of one");
    assert!(!two.at("to").exists());
}

#[test]
fn several_need_a_folder() {
    let two = Two::new();
    fs::write(two.at("file"), "mine").unwrap();
    let e = two.get(&[("a", "x"), ("b", "z")], "file").error.unwrap();
    assert_eq!(e.code, Exit::DestError, "{e}");
    assert_eq!(fs::read(two.at("file")).unwrap(), b"mine");
    // Also when only one of them is there: what it becomes does not hang on the other.
    let out = two.get(&[("a", "x"), ("b", "none")], "new");
    assert_eq!(out.error.unwrap().code, Exit::Partial);
    two.same("a/x", "new/x");
    assert_eq!(two.get(&[("a", "x")], "renamed").error, None);
    two.same("a/x", "renamed");
}

#[test]
fn a_plan_of_several_changes_nothing() {
    let two = Two::new();
    let reported = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&reported);
    let plan: farhaul_transfer::client::Plan =
        Arc::new(move |planned| sink.lock().unwrap().push(planned));
    let options = Options {
        plan: Some(plan),
        ..options()
    };
    let places = [("a", "x"), ("b", "none"), ("b", "z")];
    let out = two.get_with(&places, "to", options.clone(), &mut Way::new(1));
    let out = out.unwrap();
    assert_eq!(out.error.unwrap().code, Exit::Partial);
    assert_eq!(out.summary.failures.len(), 1);
    let lost = two.get_with(&places[1..2], "to", options, &mut Way::new(1));
    let lost = lost.unwrap().error.unwrap();
    assert_eq!(lost.code, Exit::SourceMissing);
    let reported = reported.lock().unwrap();
    let seen: Vec<_> = reported.iter().map(|p| (p.action, &p.path[..])).collect();
    // A missing source has no entry; a plan of nothing but missing ones is an error.
    let expected = [
        (Action::Fail, &b""[..]),
        (Action::Send, b"x"),
        (Action::Send, b"z"),
    ];
    assert_eq!(seen, expected);
    assert!(!two.at("to").exists());
}

#[test]
fn killed_it_continues_with_all_of_them() {
    let two = Two::new();
    let size = 24 << 20;
    fs::write(two.at("a/big"), noise(1, size)).unwrap();
    fs::write(two.at("b/large"), noise(2, size)).unwrap();
    mixed(&two.at("b/mixed"));
    let places = [("a", "big"), ("b", "large"), ("b", "mixed"), ("a", "d")];
    let (mut kills, mut total) = (0, 0);
    let out = loop {
        let mut way = Way::new(40 + kills);
        way.kill_after = if kills < 3 { 14 << 20 } else { u64::MAX };
        let out = two.get_with(&places, "to", options(), &mut way);
        total += way.delivered;
        match out {
            None => kills += 1,
            Some(out) => break out,
        }
    };
    assert_eq!((kills, out.error), (3, None));
    assert!(out.summary.resumed_bytes > 20 << 20, "{:?}", out.summary);
    // Duplicates and re-reads are part of the fake network: a tenth each at most.
    assert!(total < (2 * size as u64 + (12 << 20)) * 14 / 10, "{total}");
    for (from, to) in [
        ("a/big", "to/big"),
        ("b/large", "to/large"),
        ("a/d/y", "to/d/y"),
    ] {
        two.same(from, to);
    }
    assert_eq!(tree(&two.at("b/mixed")), tree(&two.at("to/mixed")));
    let left = names(&two.at("to"));
    assert!(left.iter().all(|n| !n.contains("farhaul")), "{left:?}");
}

#[test]
fn the_order_of_the_sources_is_part_of_the_command() {
    let two = Two::new();
    for name in ["a/big", "b/large"] {
        fs::write(two.at(name), noise(1, 8 << 20)).unwrap();
    }
    let one = [("a", "big"), ("b", "large")];
    let other = [("b", "large"), ("a", "big")];
    for (places, journals) in [(&one, 1), (&one, 1), (&other, 2), (&one, 2)] {
        let mut way = Way::new(3);
        way.kill_after = 2 << 20;
        assert!(two.get_with(places, "to", options(), &mut way).is_none());
        let names = names(&two.at("to"));
        let count = names.iter().filter(|n| n.contains("journal")).count();
        assert_eq!(count, journals, "{names:?}");
    }
}

#[test]
fn too_many_are_refused_before_anything_is_requested() {
    let two = Two::new();
    let source = Remote {
        share: "a".into(),
        path: b"x".to_vec(),
    };
    let new = |from: &[Remote]| Download::new(from, &two.at("to"), options()).err();
    for bad in [&vec![source.clone(); 1_025][..], &[]] {
        assert_eq!(new(bad).unwrap().code, Exit::Usage, "{}", bad.len());
    }
    assert!(new(&vec![source; 1_024]).is_none());
}
