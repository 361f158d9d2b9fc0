//! One tree sent by several nodes, each with a part of it.

use std::{
    fs,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, chown, symlink},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::Output,
};

use serde_json::Value;

use crate::place::{Place, Served, await_part, code, copy_program, end_when, json, noise, printed};
use crate::policy::key;

/// A tree and a server.
struct Shards {
    place: Place,
    server: Served,
}

impl Shards {
    fn new() -> Self {
        let place = Self::tree();
        let server = place.serve(&["--allow", "any"]);
        Self { place, server }
    }

    /// A tree with a folder that its owner may not write to.
    fn tree() -> Place {
        let place = Place::in_memory();
        fs::create_dir_all(place.path("tree/a/shut")).expect("ours");
        fs::create_dir_all(place.path("tree/b/empty")).expect("ours");
        for i in 0..30_usize {
            let folder = ["tree/a", "tree/b", "tree/a/shut"][i % 3];
            let file = place.path(folder).join(format!("f{i}"));
            fs::write(file, noise(i as u64, i * 5_000)).expect("ours");
        }
        fs::write(place.path("tree/large"), noise(99, 5_000_000)).expect("ours");
        symlink("b/f1", place.path("tree/link")).expect("ours");
        for (folder, mode) in [
            ("tree/a/shut", 0o555),
            ("tree/b/empty", 0o750),
            ("tree", 0o755),
        ] {
            let shut = fs::Permissions::from_mode(mode);
            fs::set_permissions(place.path(folder), shut).expect("ours");
        }
        place
    }

    fn args(shard: &str) -> [&str; 5] {
        ["cp", "--trust-any", "--json", "--shard", shard]
    }

    /// Sends a shard, whose report goes to a file.
    fn send(&self, shard: &str, to: &str, report: &str) -> Output {
        self.send_by(&[], shard, to, report)
    }

    /// Sends a shard with flags.
    fn send_by(&self, flags: &[&str], shard: &str, to: &str, report: &str) -> Output {
        let to = self.server.to(to);
        let words = [&Self::args(shard)[..], flags, &["tree", &to]].concat();
        let out = self.place.run(&words);
        self.keep(report, &out.stdout);
        out
    }

    fn keep(&self, report: &str, text: &[u8]) {
        fs::write(self.place.path(report), text).expect("ours");
    }

    fn merge(&self, reports: &[&str]) -> Output {
        self.place.run(&[&["cp", "--merge"], reports].concat())
    }

    /// Checks that nothing that copies keep for themselves is left.
    fn has_no_leftovers(&self, to: &str) {
        let folder = self.place.path("share").join(to);
        assert_eq!(leftovers(&folder), Vec::<PathBuf>::new());
    }

    /// Compares everything below, with modes and times.
    fn same(&self, to: &str) {
        let (from, to) = (self.place.path("tree"), self.place.path("share").join(to));
        let mut left = vec![(from, to)];
        while let Some((from, to)) = left.pop() {
            let meta = |path: &Path| {
                let meta = path.symlink_metadata();
                meta.unwrap_or_else(|e| panic!("{}: {e}", path.display()))
            };
            let (a, b) = (meta(&from), meta(&to));
            assert_eq!(a.mode(), b.mode(), "{}", to.display());
            if a.is_symlink() {
                assert_eq!(
                    fs::read_link(&from).expect("it is there"),
                    fs::read_link(&to).expect("it is there")
                );
                continue;
            }
            let time = |m: &fs::Metadata| (m.mtime(), m.mtime_nsec());
            assert_eq!(time(&a), time(&b), "{}", to.display());
            if a.is_file() {
                assert!(
                    fs::read(&from).expect("it is there") == fs::read(&to).expect("it is there")
                );
                continue;
            }
            let names = |path: &Path| {
                let names = fs::read_dir(path).expect("it is there");
                let mut names: Vec<_> =
                    names.map(|e| e.expect("it is there").file_name()).collect();
                names.sort();
                names
            };
            assert_eq!(names(&from), names(&to), "{}", to.display());
            left.extend(names(&from).iter().map(|n| (from.join(n), to.join(n))));
        }
    }
}

#[test]
fn shards_at_the_same_time_are_the_whole() {
    let shards = Shards::new();
    let to = shards.server.to("");
    let children: Vec<_> = ["1/3", "2/3", "3/3"]
        .map(|shard| {
            let args = [&Shards::args(shard)[..], &["tree", &to]].concat();
            shards.place.command(&args).spawn().expect("it starts")
        })
        .into_iter()
        .enumerate()
        .map(|(i, child)| (format!("{i}.json"), child.wait_with_output().unwrap()))
        .collect();
    let mut bytes = 0;
    for (report, out) in &children {
        assert_eq!(code(out), 0, "{}", printed(out));
        shards.keep(report, &out.stdout);
        let shard = &json(out)["shard"];
        bytes += shard["own"]["bytes"].as_u64().unwrap();
        assert_eq!(shard["whole"]["files"], 31);
        assert_eq!(shard["own"]["files"], json(out)["files"]["total"]);
        assert_eq!(shard["listing"], json(&children[0].1)["shard"]["listing"]);
    }
    assert_eq!(json(&children[0].1)["shard"]["whole"]["bytes"], bytes);
    shards.same("tree");
    let out = shards.merge(&["2.json", "0.json", "1.json"]);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(said.starts_with("complete: 3 shards, 31 files, "), "{said}");
    let out = shards.merge(&["--json", "0.json", "1.json", "2.json"]);
    let object = json(&out);
    assert_eq!(object["schema"], "farhaul.merge/1");
    assert_eq!(
        (&object["ok"], &object["run_again"]),
        (&true.into(), &Value::Array(vec![]))
    );
}

#[test]
fn in_any_order_and_what_is_missing_is_named() {
    let shards = Shards::new();
    for (shard, report) in [("2/2", "b.json"), ("1/2", "a.json")] {
        let out = shards.send(shard, "x/", report);
        assert_eq!(code(&out), 0, "{}", printed(&out));
    }
    shards.same("x/tree");
    // Again: nothing is sent.
    let out = shards.send("2/2", "x/", "b.json");
    assert_eq!((code(&out), &json(&out)["bytes_payload"]), (0, &0.into()));
    shards.same("x/tree");
    assert_eq!(code(&shards.merge(&["a.json", "b.json"])), 0);
    shards.keep("killed.json", b"");
    shards.send("2/2", "y/", "y.json");
    shards.send("1/3", "x/", "third.json");
    let fails: [(&[&str], i32, &str); 9] = [
        (
            &["a.json"],
            5,
            "1 of 2 shards are not complete: 2 (no report)",
        ),
        (&["b.json", "killed.json"], 5, "killed.json: of a run"),
        (&["a.json", "a.json"], 2, "both of shard 1"),
        (&["a.json", "y.json"], 2, "not of one copy: one went to"),
        (&["a.json", "third.json"], 2, "one of 2 shards, one of 3"),
        (&["a.json", "tree/large"], 2, "tree/large"),
        (&["a.json", "none.json"], 2, "none.json"),
        (
            &["--delete", "a.json"],
            2,
            "--delete means nothing with --merge",
        ),
        (&["killed.json"], 5, "no report says"),
    ];
    for (reports, expected, words) in fails {
        let out = shards.merge(reports);
        assert_eq!(code(&out), expected, "{reports:?}: {}", printed(&out));
        assert!(printed(&out).contains(words), "{}", printed(&out));
        let out = shards.merge(&[&["--json"], reports].concat());
        assert_eq!(json(&out)["exit"]["code"], expected, "{reports:?}");
    }
    // A tree that changed between the shards.
    fs::write(shards.place.path("tree/a/f0"), "more").expect("ours");
    shards.send("1/2", "x/", "a.json");
    let out = shards.merge(&["a.json", "b.json"]);
    assert_eq!(code(&out), 6, "{}", printed(&out));
}

#[test]
fn a_shard_that_died_is_run_again() {
    let shards = Shards::new();
    let more = shards.place.path("tree/huge");
    fs::write(more, noise(5, 80_000_000)).expect("ours");
    let to = shards.server.to("");
    let slowly = ["--max-rate", "80Mbit", "tree", &to];
    let args = [&Shards::args("1/2")[..], &slowly].concat();
    let mut child = shards.place.command(&args).spawn().expect("it starts");
    end_when(&shards.place, 2_000_000, "share/tree", &mut child, "-TERM");
    let out = child.wait_with_output().expect("it ends");
    assert_eq!(code(&out), 143, "{}", printed(&out));
    shards.keep("died.json", &out.stdout);
    shards.send("2/2", "", "b.json");
    let out = shards.merge(&["died.json", "b.json"]);
    assert_eq!(code(&out), 5, "{}", printed(&out));
    assert!(
        printed(&out).contains("1 (died.json: 143 term)"),
        "{}",
        printed(&out)
    );
    let out = shards.send("1/2", "", "a.json");
    assert_eq!(code(&out), 0, "{}", printed(&out));
    // What the other has sent of the file is not sent again, nor what it had sent itself.
    let report = json(&out);
    let own = report["shard"]["own"]["bytes"].as_u64().unwrap();
    assert_eq!(report["shard"]["divided"], 1);
    assert!(report["resumed_bytes"].as_u64().unwrap() > 0, "{report}");
    assert!(report["bytes_payload"].as_u64().unwrap() < own, "{report}");
    let out = shards.merge(&["died.json", "a.json", "b.json"]);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    shards.same("tree");
    shards.has_no_leftovers("tree");
}

#[test]
fn a_divided_file_gets_its_name_once_all_of_it_is_there() {
    let shards = Shards::new();
    let large = shards.place.path("tree/large");
    let content = noise(7, 120_000_000);
    fs::write(&large, &content).expect("ours");
    let target = shards.place.path("share/tree/large");
    for (shard, report) in [("1/3", "1.json"), ("3/3", "3.json")] {
        let out = shards.send(shard, "", report);
        assert_eq!(code(&out), 0, "{}", printed(&out));
        assert!(!target.exists());
        let leftover = shards.place.run(&["clean", "share"]);
        assert!(
            printed(&leftover).contains("in use"),
            "{}",
            printed(&leftover)
        );
    }
    assert_eq!(code(&shards.merge(&["1.json", "3.json"])), 5);
    // All that was sent twice is found where it is collected.
    let out = shards.send("1/3", "", "1.json");
    assert_eq!((code(&out), &json(&out)["bytes_payload"]), (0, &0.into()));
    // What something else wrote there is found, and sent again.
    spoil(&leftovers(&shards.place.path("share/tree"))[0], 3);
    let out = shards.send("1/3", "", "1.json");
    assert_eq!(code(&out), 0, "{}", printed(&out));
    assert!(json(&out)["bytes_payload"].as_u64().unwrap() > 0);
    let out = shards.send("2/3", "", "2.json");
    assert_eq!(code(&out), 0, "{}", printed(&out));
    let out = shards.merge(&["1.json", "2.json", "3.json"]);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    shards.same("tree");
    shards.has_no_leftovers("tree");
    // It is there: nothing is sent.
    for (shard, report) in [("1/3", "1.json"), ("2/3", "2.json"), ("3/3", "3.json")] {
        let out = shards.send(shard, "", report);
        assert_eq!((code(&out), &json(&out)["bytes_payload"]), (0, &0.into()));
        assert_eq!(json(&out)["shard"]["stripes"], Value::Array(vec![]));
    }
    assert_eq!(code(&shards.merge(&["1.json", "2.json", "3.json"])), 0);
    // One stripe of the existing file has changed without a trace: all are put together anew.
    spoil(&target, 70_000_000);
    let time = large.metadata().and_then(|about| about.modified());
    let file = fs::File::open(&target).expect("it is there");
    file.set_modified(time.expect("it has one")).expect("ours");
    for (shard, expected) in [("1/3", 0), ("2/3", 5), ("3/3", 5), ("1/3", 0)] {
        let out = shards.send_by(&["--checksum"], shard, "", &format!("{}.json", &shard[..1]));
        assert_eq!(code(&out), 0, "{}", printed(&out));
        let out = shards.merge(&["1.json", "2.json", "3.json"]);
        assert_eq!(code(&out), expected, "{shard}: {}", printed(&out));
    }
    shards.same("tree");
    // Blocks that are the same in another version are not sent.
    let mut other = content;
    other[60_000_000] ^= 1;
    fs::write(&large, &other).expect("ours");
    let sent: Vec<_> = ["2/3", "1/3", "3/3"]
        .map(|shard| {
            let out = shards.send(shard, "", &format!("{}.json", &shard[..1]));
            assert_eq!(code(&out), 0, "{}", printed(&out));
            json(&out)["bytes_payload"].as_u64().unwrap()
        })
        .into();
    assert_eq!(sent.iter().sum::<u64>(), 1 << 20);
    shards.same("tree");
    assert_eq!(code(&shards.merge(&["1.json", "2.json", "3.json"])), 0);
}

/// Changes a byte of a file.
fn spoil(path: &Path, at: u64) {
    let file = fs::File::options().write(true).open(path);
    file.expect("it is ours")
        .write_all_at(b"x", at)
        .expect("ours");
}

/// Files that copies have left in a folder.
fn leftovers(folder: &Path) -> Vec<PathBuf> {
    let there = fs::read_dir(folder).expect("it is there");
    let there = there.map(|e| e.expect("it is there").path());
    let hidden = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|n| n.as_bytes().starts_with(b"."))
    };
    there.filter(hidden).collect()
}

#[test]
fn holes_stay_holes_and_what_the_disk_has_is_verified() {
    let shards = Shards::new();
    let large = shards.place.path("tree/large");
    let file = fs::File::create(&large).expect("ours");
    file.set_len(200 << 20).expect("ours");
    for at in [0, 3 << 20, 130 << 20, (200 << 20) - 100] {
        file.write_all_at(&noise(at, 100), at).expect("ours");
    }
    for (to, flags) in [("a", &["--verify-disk"][..]), ("b", &["-P", "2"])] {
        let place = shards.server.to(to);
        for shard in ["2/2", "1/2"] {
            let args = [&Shards::args(shard)[..], flags, &["tree/large", &place]].concat();
            let out = shards.place.run(&args);
            assert_eq!(code(&out), 0, "{}", printed(&out));
            assert_eq!(json(&out)["shard"]["divided"], 1);
        }
        let there = shards.place.path("share").join(to);
        assert!(fs::read(&there).expect("it is there") == fs::read(&large).expect("ours"));
        let stored = there.metadata().expect("it is there").blocks() * 512;
        assert!(stored < 8 << 20, "{stored}");
    }
}

#[test]
fn stripes_of_two_states_of_a_file_are_not_put_together() {
    let shards = Shards::new();
    let large = shards.place.path("tree/large");
    fs::write(&large, noise(7, 80_000_000)).expect("ours");
    shards.send("1/2", "", "1.json");
    // The same size, another time.
    fs::write(&large, noise(8, 80_000_000)).expect("ours");
    shards.send("2/2", "", "2.json");
    assert!(!shards.place.path("share/tree/large").exists());
    let out = shards.merge(&["1.json", "2.json"]);
    assert_eq!(code(&out), 6, "{}", printed(&out));
    shards.send("1/2", "", "1.json");
    let out = shards.merge(&["1.json", "2.json"]);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    // What was collected of the first state belongs to no copy any more, and may be removed.
    let collected = leftovers(&shards.place.path("share/tree"));
    let file = fs::File::open(&collected[0]).expect("it is there");
    file.set_modified(std::time::UNIX_EPOCH).expect("ours");
    let out = shards.place.run(&["clean", "--delete", "share"]);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    shards.has_no_leftovers("tree");
    let there = fs::read(shards.place.path("share/tree/large")).expect("it is there");
    assert!(there == noise(8, 80_000_000));
}

#[test]
fn a_time_that_is_put_back_does_not_hide_a_change() {
    let shards = Shards::new();
    let large = shards.place.path("tree/large");
    fs::write(&large, noise(7, 80_000_000)).expect("ours");
    shards.send("1/2", "", "1.json");
    let time = fs::metadata(&large).and_then(|about| about.modified());
    fs::write(&large, noise(8, 80_000_000)).expect("ours");
    let file = fs::File::open(&large).expect("ours");
    file.set_modified(time.expect("it has one")).expect("ours");
    shards.send("2/2", "", "2.json");
    assert_eq!(code(&shards.merge(&["1.json", "2.json"])), 6);
    assert!(!shards.place.path("share/tree/large").exists());
}

#[test]
fn one_run_delivers_a_stripe_at_a_time() {
    let shards = Shards::new();
    let large = shards.place.path("tree/large");
    fs::write(&large, noise(7, 80_000_000)).expect("ours");
    key(&shards.place, "other.key");
    let to = shards.server.to("");
    let slowly = ["--max-rate", "200Mbit", "tree/large", &to];
    let args = [&Shards::args("1/2")[..], &slowly].concat();
    let mut child = shards.place.command(&args).spawn().expect("it starts");
    await_part(&shards.place.path("share"), 4 << 20, &mut child);
    // On another node, with a key of its own.
    let args = [
        &Shards::args("1/2")[..],
        &["-i", "other.key", "tree/large", &to],
    ]
    .concat();
    let out = shards.place.run(&args);
    assert_eq!(code(&out), 9, "{}", printed(&out));
    let out = child.wait_with_output().expect("it ends");
    assert_eq!(code(&out), 0, "{}", printed(&out));
    shards.keep("1.json", &out.stdout);
    let out = shards
        .place
        .run(&[&Shards::args("2/2")[..], &["tree/large", &to]].concat());
    assert_eq!(code(&out), 0, "{}", printed(&out));
    shards.keep("2.json", &out.stdout);
    let out = shards.merge(&["1.json", "2.json"]);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    let there = fs::read(shards.place.path("share/large")).expect("it is there");
    assert!(there == noise(7, 80_000_000));
}

#[test]
fn peers_that_may_not_replace_put_nothing_together() {
    let place = Shards::tree();
    fs::write(place.path("tree/large"), noise(7, 80_000_000)).expect("ours");
    let server = unprivileged(&place, "create");
    let shards = Shards { place, server };
    key(&shards.place, "other.key");
    let to = shards.server.to("");
    shards.send("1/2", "", "1.json");
    // As if the server had been killed just before it gave the file its name.
    let collected = &leftovers(&shards.place.path("share/tree"))[0];
    fs::set_permissions(collected, fs::Permissions::from_mode(0o444)).expect("ours");
    for identity in [&["-i", "other.key"][..], &[]] {
        let args = [&Shards::args("2/2")[..], identity, &["tree", &to]].concat();
        let out = shards.place.run(&args);
        assert_eq!(code(&out), 0, "{}", printed(&out));
        shards.keep("2.json", &out.stdout);
        let out = shards.merge(&["1.json", "2.json"]);
        let expected = if identity.is_empty() { 0 } else { 5 };
        assert_eq!(code(&out), expected, "{}", printed(&out));
    }
    let same = fs::read(shards.place.path("share/tree/large")).expect("it is there");
    assert!(same == noise(7, 80_000_000));
}

/// A server for a share of this mode, of another user if this is root: root may write to any folder.
fn unprivileged(place: &Place, mode: &str) -> Served {
    let share = place.path("share");
    let mut command = place.copied_command(&["serve", "--listen", "127.0.0.1:0"]);
    command.arg("--share");
    command.arg(format!("s={}:{mode}", share.display()));
    command.args(["--allow", "any"]);
    if rustix::process::geteuid().is_root() {
        give_to_other(place);
        command.uid(65_534).gid(65_534);
        command.env("XDG_CONFIG_HOME", place.path("share"));
    }
    Place::serve_by(command)
}

/// Gives another user what that one writes to.
fn give_to_other(place: &Place) {
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(place.0.path(), open).expect("ours");
    for name in ["share", "config", "run"] {
        fs::create_dir_all(place.path(name)).expect("ours");
        chown(place.path(name), Some(65_534), Some(65_534)).expect("root may");
    }
}

#[test]
fn a_folder_that_one_shard_has_closed_is_filled_by_the_next() {
    for mode in ["rw", "wo", "create"] {
        let place = Shards::tree();
        let server = unprivileged(&place, mode);
        let shards = Shards { place, server };
        for shard in ["3/3", "1/3", "2/3"] {
            let out = shards.send(shard, "", "report");
            assert_eq!(code(&out), 0, "{mode}: {}", printed(&out));
        }
        if mode == "rw" {
            shards.same("tree");
            continue;
        }
        let shut = shards.place.path("share/tree/a/shut");
        assert_eq!(fs::read_dir(&shut).expect("it is there").count(), 10);
        let mode = fs::metadata(&shut).expect("it is there").mode() & 0o777;
        assert_eq!(mode, 0o755, "later copies add to it");
    }
}

/// Started by ssh, as that user.
const AS_OTHER: &str = "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nshift 2\n\
    exec setpriv --reuid 65534 --regid 65534 --clear-groups env HOME=HOME_DIR sh -c \"$*\"\n";

#[test]
fn folders_that_nobody_may_enter_are_filled_by_shards_through_ssh() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root can list folders that it may not enter");
    }
    let place = Shards::tree();
    give_to_other(&place);
    drop(place.copied_command(&[]));
    let home = place.path("share");
    let ssh = place.path("ssh");
    let script = AS_OTHER.replace("HOME_DIR", home.to_str().expect("text"));
    let text = place.path("script");
    fs::write(&text, script).expect("ours");
    fs::set_permissions(&text, fs::Permissions::from_mode(0o755)).expect("ours");
    copy_program(&text, &ssh);
    for (folder, mode) in [("tree/a/shut", 0), ("tree/a", 0o444)] {
        let closed = fs::Permissions::from_mode(mode);
        fs::set_permissions(place.path(folder), closed).expect("ours");
    }
    let program = place.path("farhaul-copy");
    let to = format!("localhost:{}/", home.display());
    let args = |shard| {
        let ssh = ssh.to_str().expect("text");
        let program = program.to_str().expect("text");
        let more = ["--ssh", ssh, "--remote-bin", program, "tree", &to];
        place.command(&[&Shards::args(shard)[..], &more].concat())
    };
    for together in [&["2/3"][..], &["1/3", "3/3"]] {
        let children = together
            .iter()
            .map(|shard| args(shard).spawn().expect("it starts"));
        for child in children.collect::<Vec<_>>() {
            let out = child.wait_with_output().expect("it ends");
            assert_eq!(code(&out), 0, "{}", printed(&out));
        }
    }
    let server = place.serve(&["--allow", "any"]);
    Shards { place, server }.same("tree");
}
