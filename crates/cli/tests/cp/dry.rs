//! Dry runs beside the copies that they foretell.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::{
        fs::{MetadataExt as _, symlink},
        net::UnixListener,
    },
    path::Path,
    time::{Duration, SystemTime},
};

use farhaul_core::rng::Rng;
use serde_json::Value;

use crate::place::{Place, Served, code, json, printed};

/// Names of the random trees; one is that of a backup of another.
const NAMES: [&str; 5] = ["a", "a~", "b", "c", "d"];
/// End of what a failure says if a folder keeps the name of a file.
const STUCK: &str = "the folder of this name is not deleted";

/// Kind and inode of each entry, by its path.
type Tree = BTreeMap<String, (u32, u64)>;

fn tree(root: &Path) -> Tree {
    let mut all = Tree::new();
    let mut stack = vec![root.to_path_buf()];
    while let Some(at) = stack.pop() {
        for entry in fs::read_dir(&at).into_iter().flatten().flatten() {
            let stat = entry.metadata().expect("ours");
            let path = entry.path();
            let name = path.strip_prefix(root).expect("below");
            let name = name.to_str().expect("text").to_owned();
            all.insert(name, (stat.mode() & 0o170_000, stat.ino()));
            if stat.is_dir() {
                stack.push(path);
            }
        }
    }
    all
}

fn write(path: &Path, content: &[u8], seconds: u64) {
    fs::create_dir_all(path.parent().expect("below")).expect("ours");
    fs::write(path, content).expect("ours");
    let file = fs::File::options().append(true).open(path).expect("ours");
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    file.set_modified(time).expect("ours");
}

/// Plants random entries beneath `at`; sockets only where they are `odd`.
fn plant(root: &Path, at: &Path, (depth, odd): (u32, bool), rng: &mut Rng) {
    fs::create_dir_all(at).expect("ours");
    for name in NAMES {
        let path = at.join(name);
        let mut one_of = |n: u64| usize::try_from(rng.below(n)).expect("few");
        match one_of(12) {
            0..4 => {
                let content = &[&b""[..], b"xxx", b"yyy", b"xxxxx"][one_of(4)];
                write(&path, content, [1000, 2000][one_of(2)]);
            }
            4..7 if depth > 0 => plant(root, &path, (depth - 1, odd), rng),
            7 | 8 => symlink(["a", "../c", "/none"][one_of(3)], &path).expect("ours"),
            9 if root.join("a").is_file() => fs::hard_link(root.join("a"), &path).expect("ours"),
            10 if odd => drop(UnixListener::bind(&path).expect("ours")),
            _ => {}
        }
    }
}

/// Flags of a random copy.
fn flags(rng: &mut Rng) -> Vec<&'static str> {
    let mut flags = Vec::new();
    let mut one_of = |of: &[&[&'static str]]| {
        let n = usize::try_from(rng.below(of.len() as u64)).expect("few");
        flags.extend_from_slice(of[n]);
    };
    one_of(&[&[], &[], &["--ignore-existing"], &["--update"]]);
    one_of(&[
        &[],
        &["--delete"],
        &["--delete"],
        &["--delete", "--max-delete=2"],
    ]);
    one_of(&[&[], &["--backup=~"]]);
    // Whether a link is made depends on the content of the first.
    one_of(&[&[], &["-H"], &["-H"], &["--checksum"]]);
    one_of(&[&[], &[], &["--links=skip"]]);
    one_of(&[&[], &[], &["--exclude=c"]]);
    flags
}

/// Failures and warnings of a run, in the words that both runs have.
fn told(word: &Value) -> Vec<String> {
    let (failures, warnings) = (&word["failures"], &word["warnings"]);
    let all = [failures, warnings].map(|list| list.as_array().expect("a list"));
    let texts = all.into_iter().flatten().map(|said| {
        let text = said["text"].as_str().or(said.as_str()).expect("text");
        match text.split_once(STUCK) {
            Some((name, _)) => format!("{name}{STUCK}"),
            None => text.to_owned(),
        }
    });
    // Nothing is set in a dry run that others may own.
    let texts = texts.filter(|text| !text.contains("belongs to another user"));
    let mut texts: Vec<String> = texts.collect();
    texts.sort_unstable();
    texts
}

/// Copies `src/` beneath `at` to `to/`, on the server or from there, after a dry run that must say the
/// same; returns the actions of that, by path.
fn copy(
    place: &Place,
    server: &Served,
    (at, put): (&str, bool),
    flags: &[&str],
) -> BTreeMap<String, String> {
    let (ours, share) = (place.path(at), place.path("share").join(at));
    let to = if put { share } else { ours }.join("to");
    let (there, here) = if put { ("to", "src") } else { ("src", "to") };
    let far = server.to(&format!("{at}/{there}/"));
    let near = format!("{at}/{here}/");
    let paths = if put {
        [&near[..], &far]
    } else {
        [&far[..], &near]
    };
    let words = [&["cp", "--trust-any", "--json"], flags, &paths].concat();
    let before = tree(&to);
    let dry = place.run(&[&words[..], &["-n"]].concat());
    assert_eq!(tree(&to), before, "a dry run changes nothing");
    let real = place.run(&words);
    let after = tree(&to);
    let case = format!("{words:?}\n{}\n{}", printed(&dry), printed(&real));
    let (exits, dry, real) = ([code(&dry), code(&real)], json(&dry), json(&real));
    let case = format!("{case}\n{before:?}\n{}\n{}", dry["plan"], real["failures"]);
    assert_eq!(told(&dry), told(&real), "{case}");
    assert_eq!(exits[0], exits[1], "{case}");
    let said = told(&dry);
    let plan: Vec<(String, String)> = dry["plan"]
        .as_array()
        .expect("a plan")
        .iter()
        .map(|planned| {
            let text = |of: &str| planned[of].as_str().unwrap_or_default().to_owned();
            (text("path"), text("action"))
        })
        .collect();
    let limited = said.iter().any(|text| text.contains("(--max-delete)"));
    let compared = plan.iter().any(|(_, action)| action == "compare");
    for (count, counts) in [
        ("failed", true),
        ("deleted", !limited),
        ("skipped", !compared),
    ] {
        let files = |word: &Value| word["files"][count].clone();
        assert!(!counts || files(&dry) == files(&real), "{count}: {case}");
    }
    check(&plan, (&before, &after), (&said, limited), flags, &case);
    plan.into_iter()
        .filter(|(_, action)| action != "delete")
        .collect()
}

/// Compares a plan with what has changed.
fn check(
    plan: &[(String, String)],
    (before, after): (&Tree, &Tree),
    (said, limited): (&[String], bool),
    flags: &[&str],
    case: &str,
) {
    const FOLDER: u32 = 0o040_000;
    let (mut changed, mut gone, mut either) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for (path, action) in plan {
        let there = before.get(path).map(|(kind, _)| *kind);
        let name = path.rsplit('/').next().unwrap_or_default();
        let stuck = format!("{name}: {STUCK}");
        match &action[..] {
            "send" | "replace" | "make" | "link" => {
                changed.insert(path.clone());
                if there == Some(FOLDER) && said.contains(&stuck) {
                    either.insert(path.clone());
                }
            }
            "delete" if !limited => drop(gone.insert(path.clone())),
            "compare" => drop(either.insert(path.clone())),
            "delete" | "keep" | "exclude" | "fail" => continue,
            other => panic!("{other}: {case}"),
        }
        if flags.contains(&"--backup=~") && there.is_some_and(|kind| kind != FOLDER) {
            either.insert(format!("{path}~"));
        }
    }
    let without = |paths: BTreeSet<String>| -> BTreeSet<String> { &paths - &either };
    let differs = |(path, is): &(&String, _)| before.get(*path) != Some(*is);
    let is_changed: BTreeSet<_> = after
        .iter()
        .filter(differs)
        .map(|(path, _)| path.clone())
        .collect();
    let is_gone = before
        .keys()
        .filter(|path| !after.contains_key(*path))
        .cloned();
    let is_gone: BTreeSet<_> = is_gone.collect();
    let gone = &gone - &changed;
    assert_eq!(without(changed), without(is_changed), "changed: {case}");
    assert_eq!(without(gone), without(is_gone), "gone: {case}");
}

#[test]
fn a_dry_run_says_what_the_copy_does() {
    let place = Place::in_memory();
    let server = place.serve(&["--allow", "any"]);
    for seed in 0..60 {
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        let (at, put) = (seed.to_string(), rng.chance(0.5));
        let (ours, theirs) = (place.path(&at), place.path("share").join(&at));
        let (from, to) = if put {
            (&ours, &theirs)
        } else {
            (&theirs, &ours)
        };
        let (from, to) = (from.join("src"), to.join("to"));
        fs::create_dir_all(&ours).expect("ours");
        fs::create_dir_all(&theirs).expect("ours");
        plant(&from, &from, (2, false), &mut rng);
        if rng.chance(0.9) {
            plant(&to, &to, (2, true), &mut rng);
        }
        copy(&place, &server, (&at, put), &flags(&mut rng));
    }
}

/// A place with `src` and, in the share, `to`.
struct Pair(Place);

impl Pair {
    fn new() -> Self {
        Self(Place::in_memory())
    }

    fn source(&self, name: &str) -> std::path::PathBuf {
        self.0.path("x/src").join(name)
    }

    fn target(&self, name: &str) -> std::path::PathBuf {
        self.0.path("share/x/to").join(name)
    }

    /// Sends it, and compares; the actions on these.
    fn send(&self, flags: &[&str], paths: &[&str]) -> Vec<String> {
        let server = self.0.serve(&["--allow", "any"]);
        let plan = copy(&self.0, &server, ("x", true), flags);
        let action = |path: &&str| plan.get(*path).cloned().unwrap_or_default();
        paths.iter().map(action).collect()
    }
}

#[test]
fn nothing_gets_below_what_is_no_folder() {
    for (mirrors, expected) in [(false, ["fail"; 3]), (true, ["make", "make", "send"])] {
        for links in [false, true] {
            let pair = Pair::new();
            write(&pair.source("d/e/f"), b"f", 1);
            write(&pair.target("other/x"), b"x", 1);
            if links {
                symlink("other", pair.target("d")).expect("ours");
            } else {
                write(&pair.target("d"), b"d", 1);
            }
            let flags: &[&str] = if mirrors { &["--delete"] } else { &[] };
            assert_eq!(pair.send(flags, &["d", "d/e", "d/e/f"]), expected);
        }
    }
}

#[test]
fn names_of_one_file_follow_the_first() {
    let pair = Pair::new();
    for tree in [pair.source(""), pair.target("")] {
        write(&tree.join("a"), b"same", 1);
        fs::hard_link(tree.join("a"), tree.join("b")).expect("ours");
        write(&tree.join("c"), tree.to_str().expect("text").as_bytes(), 1);
        fs::hard_link(tree.join("c"), tree.join("d")).expect("ours");
    }
    write(&pair.source("e"), b"e", 1);
    fs::hard_link(pair.source("e"), pair.source("f")).expect("ours");
    drop(UnixListener::bind(pair.target("e")).expect("ours"));
    let actions = pair.send(&["-H"], &["a", "b", "c", "d", "e", "f"]);
    assert_eq!(actions, ["keep", "keep", "replace", "link", "fail", "fail"]);
}

#[test]
fn a_link_to_a_file_that_waits_for_its_name_is_made() {
    let pair = Pair::new();
    write(&pair.source("a"), b"a", 1);
    fs::hard_link(pair.source("a"), pair.source("b")).expect("ours");
    write(&pair.target("a/old"), b"old", 1);
    let actions = pair.send(&["-H", "--delete"], &["a", "b"]);
    assert_eq!(actions, ["replace", "link"]);
    let inode = |name| fs::metadata(pair.target(name)).expect("it is there").ino();
    assert_eq!(inode("a"), inode("b"));
}

#[test]
fn what_is_to_be_kept_is_kept_whatever_it_is() {
    let pair = Pair::new();
    write(&pair.source("a"), b"a", 1);
    fs::hard_link(pair.source("a"), pair.source("b")).expect("ours");
    write(&pair.source("s"), b"s", 1);
    write(&pair.target("b"), b"other", 1);
    drop(UnixListener::bind(pair.target("s")).expect("ours"));
    let actions = pair.send(&["-H", "--ignore-existing"], &["a", "b", "s"]);
    assert_eq!(actions, ["send", "keep", "keep"]);
}

#[test]
fn a_backup_without_a_name_is_foretold() {
    let pair = Pair::new();
    for name in ["a", "a~", "b", "k"] {
        write(&pair.source(name), b"new", 1);
        write(&pair.target(name), b"older", 1);
    }
    // Links are replaced before the next is listed.
    for name in ["l", "m"] {
        symlink("new", pair.source(name)).expect("ours");
        symlink("old", pair.target(name)).expect("ours");
    }
    write(&pair.source("l~"), b"new", 1);
    for folder in ["b~", "m~"] {
        write(&pair.target(folder).join("x"), b"x", 1);
    }
    let long = "n".repeat(255);
    write(&pair.source(&long), b"new", 1);
    write(&pair.target(&long), b"older", 1);
    let paths = ["a", "a~", "b", "k", "l", "l~", "m", &long];
    let actions = pair.send(&["--backup=~"], &paths);
    let expected = "fail replace fail replace link fail fail fail";
    assert_eq!(actions.join(" "), expected);
}

#[test]
fn a_folder_that_stays_keeps_its_name_from_a_file() {
    for flags in [
        &["--delete", "--exclude=*.log"][..],
        &["--delete", "--max-delete=1"],
    ] {
        let pair = Pair::new();
        write(&pair.source("a"), b"a", 1);
        write(&pair.target("a/keep.log"), b"log", 1);
        write(&pair.target("a/old"), b"old", 1);
        assert_eq!(pair.send(flags, &["a"]), ["replace"]);
        assert!(pair.target("a/keep.log").exists());
    }
}

#[test]
fn names_of_the_state_of_copies_are_refused() {
    let place = Place::in_memory();
    let server = place.serve(&["--allow", "any"]);
    write(&place.path("f"), b"f", 1);
    let to = server.to(".x.0123456789abcdef.farhaul-part");
    for flags in [&["-n"][..], &[]] {
        let out = place.run(&[&["cp", "--trust-any", "f", &to][..], flags].concat());
        assert_eq!(code(&out), 4, "{}", printed(&out));
        assert!(printed(&out).contains("reserved"), "{}", printed(&out));
    }
}

#[test]
fn a_folder_of_another_user_takes_nothing() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root");
        return;
    }
    let pair = Pair::new();
    for name in ["a", "d/b", "e/c"] {
        write(&pair.source(name), b"new", 1);
    }
    write(&pair.target("d/there"), b"there", 1);
    fs::create_dir(pair.target("e")).expect("ours");
    for theirs in ["", "e"] {
        std::os::unix::fs::chown(pair.target(theirs), Some(65_534), None).expect("ours");
    }
    let server = Place::serve_by(pair.0.server_of_nobody());
    let plan = copy(&pair.0, &server, ("x", true), &["--delete"]);
    let actions = ["a", "d/b", "e/c"].map(|path| &plan[path][..]);
    assert_eq!(actions, ["send", "fail", "send"]);
}
