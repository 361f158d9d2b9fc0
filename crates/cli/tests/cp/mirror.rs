//! Mirrors: owners, attributes, links of several names, files that the source lacks, and existing
//! files that are kept.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::Path,
    process::Output,
};

use rustix::fs::XattrFlags;
use serde_json::Value;

use crate::place::{Place, Served, code, json, noise, printed};

/// Copies `src/` to the share's `to/`, or from the share's `src/` to `to/`.
fn copy(place: &Place, server: &Served, put: bool, flags: &[&str]) -> Output {
    let far = server.to(if put { "to/" } else { "src/" });
    let paths: [&str; 2] = if put { ["src/", &far] } else { [&far, "to/"] };
    place.run(&[&["cp", "--trust-any", "--json"], flags, &paths].concat())
}

fn source(put: bool) -> &'static str {
    if put { "src" } else { "share/src" }
}

fn target(put: bool) -> &'static str {
    if put { "share/to" } else { "to" }
}

fn write(root: &Path, name: &str, content: &[u8]) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().expect("below")).expect("ours");
    fs::write(path, content).expect("ours");
}

fn names(root: &Path) -> Vec<String> {
    let mut all = Vec::new();
    let mut stack = vec![root.to_path_buf()];
    while let Some(at) = stack.pop() {
        for entry in fs::read_dir(&at).expect("a folder").flatten() {
            let path = entry.path();
            let name = path.strip_prefix(root).expect("below");
            all.push(name.to_str().expect("text").to_owned());
            if path.is_dir() && !path.is_symlink() {
                stack.push(path);
            }
        }
    }
    all.sort();
    all
}

fn attribute(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 100];
    let len = rustix::fs::getxattr(path, name, &mut value[..]).ok()?;
    value.truncate(len);
    Some(value)
}

/// A source, and a destination that has more.
fn two_trees(from: &Path, to: &Path) {
    // Of another size: all are written in the same tick of the clock.
    write(from, "a", b"newer");
    write(from, "d/b", b"b");
    // Links that are not sent.
    for name in ["out", "mnt"] {
        symlink("/absolute", from.join(name)).expect("ours");
    }
    for name in [
        "a",
        "d/b",
        "d/gone",
        "x/y/z",
        "keep.log",
        "d/keep.log",
        "x/keep.log",
        "out",
        "mnt/old",
    ] {
        write(to, name, b"old");
    }
    write(to.parent().expect("ours"), "beside", b"not ours");
    symlink("../beside", to.join("link")).expect("ours");
}

/// Paths that the plan would delete.
fn deletions(planned: &Value) -> Vec<String> {
    let plan = planned["plan"].as_array().expect("a plan").iter();
    let deleted = plan.filter(|p| p["action"] == "delete");
    let mut deleted: Vec<String> = deleted
        .map(|p| p["path"].as_str().expect("text").to_owned())
        .collect();
    deleted.sort_unstable();
    deleted
}

#[test]
fn what_the_source_lacks_is_deleted_both_ways() {
    for put in [true, false] {
        let place = Place::new();
        let (from, to) = (place.path(source(put)), place.path(target(put)));
        two_trees(&from, &to);
        let server = place.serve(&["--allow", "any"]);
        let copy = |more: &[&str], expected: i32| {
            let flags = [&["--delete", "--links=skip", "--exclude", "*.log"], more].concat();
            let out = copy(&place, &server, put, &flags);
            assert_eq!(code(&out), expected, "{}", printed(&out));
            json(&out)
        };
        let all = names(&to);

        let planned = copy(&["-n"], 0);
        assert_eq!(deletions(&planned), ["d/gone", "link", "x/y", "x/y/z"]);
        assert_eq!(planned["files"]["deleted"], 4);
        assert_eq!(names(&to), all, "a dry run changes nothing");
        let planned = copy(&["-n", "--max-delete", "3"], 19);
        assert_eq!(deletions(&planned).len(), 4);

        let few = copy(&["--max-delete", "3"], 19);
        let text = few["exit"]["text"].as_str().unwrap();
        assert!(text.contains("--max-delete"), "{text}");
        assert_eq!(names(&to), all, "nothing is deleted beyond the limit");
        assert_eq!(fs::read(to.join("a")).unwrap(), b"newer", "it has arrived");

        assert_eq!(copy(&["--max-delete", "4"], 0)["files"]["deleted"], 4);
        let left = [
            "a",
            "d",
            "d/b",
            "d/keep.log",
            "keep.log",
            "mnt",
            "mnt/old",
            "out",
            "x",
            "x/keep.log",
        ];
        assert_eq!(names(&to), left, "put: {put}");
        assert!(to.parent().unwrap().join("beside").exists());

        copy(&["--delete-excluded"], 0);
        let left = ["a", "d", "d/b", "mnt", "mnt/old", "out"];
        assert_eq!(names(&to), left, "put: {put}");
        let time = |path: &Path| fs::metadata(path).unwrap().mtime_nsec();
        assert_eq!(time(&from.join("d")), time(&to.join("d")), "of folders");
    }
}

#[test]
fn nothing_is_deleted_after_an_error_or_in_other_shares() {
    let place = Place::new();
    write(&place.path("src"), "a", b"a");
    write(&place.path("share/to"), "old", b"old");
    symlink("nowhere", place.path("src/broken")).unwrap();
    let server = place.serve(&["--allow", "any"]);
    let out = copy(&place, &server, true, &["--delete", "-L"]);
    assert_eq!(code(&out), 5, "{}", printed(&out));
    assert!(place.path("share/to/old").exists());
    let warnings = json(&out)["warnings"].to_string();
    assert!(warnings.contains("nothing was deleted"), "{warnings}");
    fs::remove_file(place.path("src/broken")).unwrap();
    fs::remove_file(place.path("share/to/a")).unwrap();

    let only = format!("w={}:wo", place.path("share").display());
    let server = place.serve(&["--allow", "any", "--share", &only]);
    let far = format!("{}::w/to/", server.at);
    for flag in ["--delete", "--backup"] {
        let out = place.run(&["cp", "--trust-any", flag, "src/", &far]);
        assert_eq!(code(&out), 15, "{}", printed(&out));
        assert!(
            printed(&out).contains("request the share as rw"),
            "{}",
            printed(&out)
        );
        assert!(place.path("share/to/old").exists() && !place.path("share/to/a").exists());
    }
    for (flags, said) in [
        (&["--delete", "src/a"][..], "needs a folder"),
        (&["--delete", "--max-size", "5MB", "src/"], "--max-size"),
        (
            &["--delete", "--files-from", "/dev/null", "src/"],
            "--files-from",
        ),
        (&["--max-delete", "5", "src/"], "--delete"),
        (&["--backup=numbered", "src/"], "suffix"),
        (&["--backup=a/b", "src/"], "without a slash"),
        (&["--preserve=colour", "src/"], "colour"),
    ] {
        let far = server.to("to/");
        let out = place.run(&[&["cp", "--trust-any"], flags, &[&far]].concat());
        assert_eq!(code(&out), 2, "{flags:?}: {}", printed(&out));
        assert!(printed(&out).contains(said), "{flags:?}: {}", printed(&out));
    }
    assert!(place.path("share/to/old").exists());
}

#[test]
fn what_is_replaced_or_deleted_keeps_another_name() {
    let place = Place::new();
    let (small, large) = (noise(1, 3000), noise(2, 3 << 20));
    for (name, content) in [("small", &small), ("large", &large)] {
        write(&place.path("src"), name, content);
    }
    for name in ["small", "large", "gone", "d/gone"] {
        write(&place.path("share/to"), name, name.as_bytes());
    }
    symlink("small", place.path("src/link")).unwrap();
    let server = place.serve(&["--allow", "any"]);
    let out = copy(&place, &server, true, &["--delete", "--backup=.old"]);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    let to = place.path("share/to");
    let expected = [
        "d",
        "d/gone.old",
        "gone.old",
        "large",
        "large.old",
        "link",
        "small",
        "small.old",
    ];
    assert_eq!(names(&to), expected);
    for name in ["small", "large", "gone", "d/gone"] {
        let backup = fs::read(to.join(format!("{name}.old"))).unwrap();
        assert_eq!(backup, name.as_bytes());
    }
    assert_eq!(fs::read(to.join("large")).unwrap(), large);
    // A second run replaces nothing, and the backups stay.
    let out = copy(&place, &server, true, &["--delete", "--backup=.old"]);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    assert_eq!(names(&to), expected);
    assert_eq!(json(&out)["files"]["deleted"], 0);
}

#[test]
fn several_names_of_a_file_stay_names_of_one() {
    for put in [true, false] {
        let place = Place::new();
        let from = place.path(source(put));
        write(&from, "a/first", &noise(3, 2 << 20));
        write(&from, "small", b"small");
        fs::create_dir(from.join("b")).unwrap();
        fs::hard_link(from.join("a/first"), from.join("b/second")).unwrap();
        fs::hard_link(from.join("small"), from.join("b/small")).unwrap();
        let server = place.serve(&["--allow", "any"]);
        let to = place.path(target(put));
        let inode = |name: &str| fs::metadata(to.join(name)).unwrap().ino();
        for run in 0..2 {
            let out = copy(&place, &server, put, &["-H"]);
            assert_eq!(code(&out), 0, "run {run}: {}", printed(&out));
            assert_eq!(inode("a/first"), inode("b/second"));
            assert_eq!(inode("small"), inode("b/small"));
            assert_eq!(json(&out)["files"]["failed"], 0);
            if run == 1 {
                assert_eq!(json(&out)["files"]["sent"], 0, "nothing has changed");
            }
        }
        // Its content changes: all names have the new one.
        fs::write(from.join("small"), "another").unwrap();
        let out = copy(&place, &server, put, &["-H"]);
        assert_eq!(code(&out), 0, "{}", printed(&out));
        assert_eq!(fs::read(to.join("b/small")).unwrap(), b"another");
        assert_eq!(inode("small"), inode("b/small"));
        let out = copy(&place, &server, put, &[]);
        assert_eq!(code(&out), 0, "{}", printed(&out));
    }
}

#[test]
fn attributes_and_lists_are_preserved_where_that_is_permitted() {
    let place = Place::new();
    let from = place.path("src");
    write(&from, "f", b"content");
    write(&from, "d/g", b"content");
    let set = |path: &Path, name: &str, value: &[u8]| {
        rustix::fs::setxattr(path, name, value, XattrFlags::empty())
    };
    if set(&from.join("f"), "user.note", b"kept").is_err() {
        println!("skipped: no user attributes in the temporary folder");
        return;
    }
    set(&from.join("d"), "user.folder", b"also").unwrap();
    // u::rw-, u:1234:r--, g::r--, m::r--, o::---
    let acl = [
        &[2, 0, 0, 0][..],
        &[1, 0, 6, 0, 255, 255, 255, 255],
        &[2, 0, 4, 0, 210, 4, 0, 0],
        &[4, 0, 4, 0, 255, 255, 255, 255],
        &[16, 0, 4, 0, 255, 255, 255, 255],
        &[32, 0, 0, 0, 255, 255, 255, 255],
    ]
    .concat();
    let acls = set(&from.join("f"), "system.posix_acl_access", &acl).is_ok();
    let server = place.serve(&["--allow", "any"]);
    let to = place.path("share/to");
    let out = copy(&place, &server, true, &[]);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    assert_eq!(attribute(&to.join("f"), "user.note"), None, "not asked for");
    // Existing files get them too.
    let out = copy(&place, &server, true, &["-X", "-A"]);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    assert_eq!(attribute(&to.join("f"), "user.note").unwrap(), b"kept");
    assert_eq!(attribute(&to.join("d"), "user.folder").unwrap(), b"also");
    if acls {
        assert_eq!(
            attribute(&to.join("f"), "system.posix_acl_access").unwrap(),
            acl
        );
    }
    // What the source has no longer is removed.
    rustix::fs::removexattr(from.join("f"), "user.note").unwrap();
    let out = copy(&place, &server, true, &["--preserve=xattr"]);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    assert_eq!(attribute(&to.join("f"), "user.note"), None);
}

#[test]
fn owners_are_preserved_by_root_alone_and_never_by_a_strangers_word() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root");
        return;
    }
    let place = Place::new();
    // Fetching, this process decides.
    let from = place.path("share/src");
    write(&from, "f", b"content");
    symlink("f", from.join("l")).unwrap();
    std::os::unix::fs::chown(from.join("f"), Some(1234), Some(2345)).unwrap();
    std::os::unix::fs::lchown(from.join("l"), Some(1234), Some(2345)).unwrap();
    fs::set_permissions(from.join("f"), fs::Permissions::from_mode(0o4755)).unwrap();
    let server = place.serve(&["--allow", "any"]);
    let facts = |path: &Path| {
        let found = fs::symlink_metadata(path).unwrap();
        (found.uid(), found.gid(), found.mode() & 0o7777)
    };
    let out = copy(&place, &server, false, &[]);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    assert_eq!(facts(&place.path("to/f")), (0, 0, 0o755), "not asked for");
    // As of scp and rsync, not of cp.
    let out = copy(&place, &server, false, &["-rpt"]);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    assert_eq!(facts(&place.path("to/f")), (0, 0, 0o755), "nor by -p");
    let out = copy(&place, &server, false, &["-rlptgoD"]);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    assert_eq!(facts(&place.path("to/f")), (1234, 2345, 0o4755));
    fs::remove_dir_all(place.path("to")).unwrap();
    let out = copy(&place, &server, false, &["--preserve", "--numeric-ids"]);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    assert_eq!(facts(&place.path("to/f")), (1234, 2345, 0o4755));
    let link = facts(&place.path("to/l"));
    assert_eq!((link.0, link.1), (1234, 2345));
    // Delivering, the server does not believe it, and says so once.
    fs::rename(place.path("to"), place.path("src")).unwrap();
    let out = copy(&place, &server, true, &["-a"]);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    assert_eq!(facts(&place.path("share/to/f")), (0, 0, 0o755));
    let warnings = json(&out)["warnings"].as_array().unwrap().clone();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].as_str().unwrap().contains("not preserved"),
        "{warnings:?}"
    );
}

#[test]
fn of_a_changed_file_only_the_blocks_that_differ_are_sent() {
    const MIB: usize = 1 << 20;
    for put in [true, false] {
        let place = Place::new();
        let from = place.path(source(put));
        let mut content = noise(7, 12 * MIB + 5);
        write(&from, "f", &content);
        let server = place.serve(&["--allow", "any"]);
        assert_eq!(code(&copy(&place, &server, put, &[])), 0);
        // Two blocks of it, and a longer end.
        content[3 * MIB + 9] ^= 1;
        content[7 * MIB..7 * MIB + 5].copy_from_slice(b"other");
        content.extend_from_slice(b"more");
        write(&from, "f", &content);
        let out = copy(&place, &server, put, &[]);
        assert_eq!(code(&out), 0, "{}", printed(&out));
        let summary = json(&out);
        assert_eq!(summary["bytes_payload"], 2 * MIB + 9, "put: {put}");
        assert_eq!(summary["resumed_bytes"], 10 * MIB);
        assert_eq!(
            fs::read(place.path(target(put)).join("f")).unwrap(),
            content
        );
        // Nothing of it differs, and its time does.
        write(&from, "f", &content);
        let out = copy(&place, &server, put, &[]);
        assert_eq!(json(&out)["bytes_payload"], 0, "{}", printed(&out));
        let time = |path: &Path| fs::metadata(path).unwrap().mtime_nsec();
        let to = place.path(target(put)).join("f");
        assert_eq!(time(&from.join("f")), time(&to));
        // Shorter, and whole on request.
        content.truncate(5 * MIB);
        content[0] ^= 1;
        write(&from, "f", &content);
        let out = copy(&place, &server, put, &["-W"]);
        assert_eq!(json(&out)["bytes_payload"], 5 * MIB, "{}", printed(&out));
        content[1] ^= 1;
        write(&from, "f", &content);
        let out = copy(&place, &server, put, &[]);
        assert_eq!(json(&out)["bytes_payload"], MIB, "{}", printed(&out));
        assert_eq!(fs::read(to).unwrap(), content);
    }
}
