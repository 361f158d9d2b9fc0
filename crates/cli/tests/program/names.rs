//! Names and places of files. Odd names arrive byte by byte; a path that would leave a share, or is
//! not allowed there, is refused with its code.

use std::{
    ffi::{OsStr, OsString},
    fs,
    os::unix::{ffi::OsStrExt as _, fs::symlink},
    path::Path,
};

use super::kit::{Served, command, run};

/// Serves `shares` below `place` to anybody.
fn serve(place: &Path, shares: &[&str]) -> Served {
    let mut args = vec!["serve", "--listen", "127.0.0.1:0", "--allow", "any"];
    for share in shares {
        args.extend(["--share", share]);
    }
    Served::start(place, &args)
}

fn code(place: &Path, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> (Option<i32>, String) {
    let mut cp = command(place, &["cp", "--trust-any"]);
    let output = cp.arg(from).arg(to).output().expect("it starts");
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), printed)
}

#[test]
fn odd_names_arrive_byte_by_byte() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let place = place.path();
    fs::create_dir(place.join("src")).expect("ours");
    fs::create_dir(place.join("far")).expect("ours");
    let long = "n".repeat(255);
    let names: [&[u8]; 7] = [
        b"\xff\xfe not UTF-8",
        b"new\nline",
        b"-rf",
        b"a:b::c",
        b"..dots..",
        b"\x1b[31mred",
        long.as_bytes(),
    ];
    for name in names {
        let path = place.join("src").join(OsStr::from_bytes(name));
        fs::write(path, name).expect("this file system takes it");
    }
    let server = serve(place, &["s=far:rw"]);
    let (ended, printed) = code(place, "src", format!("{}::s/", server.1));
    assert_eq!(ended, Some(0), "{printed}");
    assert!(
        !printed.contains('\x1b'),
        "names are shown without their escapes: {printed}"
    );
    let (ended, printed) = code(place, format!("{}::s/src/", server.1), "back");
    assert_eq!(ended, Some(0), "{printed}");
    for name in names {
        for folder in ["far/src", "back"] {
            let path = place.join(folder).join(OsStr::from_bytes(name));
            assert_eq!(fs::read(&path).expect("it arrived"), name);
        }
    }
    // One of them by itself, typed as it is.
    let mut one = OsString::from(format!("{}::s/src/", server.1));
    one.push(OsStr::from_bytes(names[0]));
    let (ended, printed) = code(place, one, "one");
    assert_eq!(ended, Some(0), "{printed}");
    assert_eq!(fs::read(place.join("one")).expect("it arrived"), names[0]);
}

#[test]
fn nothing_leaves_a_share() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let place = place.path();
    fs::create_dir(place.join("far")).expect("ours");
    fs::write(place.join("secret"), "s").expect("ours");
    fs::write(place.join("f"), "content").expect("ours");
    symlink("..", place.join("far/up")).expect("ours");
    symlink("../secret", place.join("far/leak")).expect("ours");
    let server = serve(place, &["s=far:rw"]);
    for (path, expected) in [
        ("../secret", 2),
        ("a/../../secret", 2),
        ("/etc/passwd", 3),
        ("up/secret", 3),
        ("leak", 3),
    ] {
        let (ended, printed) = code(place, format!("{}::s/{path}", server.1), "here");
        assert_eq!(ended, Some(expected), "{path}: {printed}");
        assert!(!place.join("here").exists(), "{path}");
    }
    let long = "n".repeat(256);
    // A second slash means nothing: the place is in the share all the same.
    for (path, expected) in [("../x", 2), (&*long, 2), ("/etc/x", 0), ("up/x", 4)] {
        let (ended, printed) = code(place, "f", format!("{}::s/{path}", server.1));
        assert_eq!(ended, Some(expected), "{path}: {printed}");
    }
    assert!(place.join("far/etc/x").exists());
    assert!(!place.join("x").exists() && !Path::new("/etc/x").exists());
}

#[test]
fn shares_have_a_direction_and_a_path() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let place = place.path();
    fs::create_dir(place.join("far")).expect("ours");
    fs::write(place.join("far/there"), "x").expect("ours");
    fs::write(place.join("f"), "content").expect("ours");
    let server = serve(
        place,
        &["ro=far:ro", "wo=far:wo", "new=far:create", "proc=/proc:rw"],
    );
    let at = |share: &str| format!("{}::{share}", server.1);
    for (from, to, expected) in [
        ("f".into(), at("ro/"), 15),
        (at("wo/there"), "here".into(), 15),
        ("f".into(), at("none/"), 15),
        (at("none/there"), "here".into(), 15),
        // Not even root writes there.
        ("f".into(), at("proc/"), 4),
        (at("ro/there"), "here".into(), 0),
        ("f".into(), at("new/there"), 4),
        (at("new/there"), "here".into(), 15),
        ("f".into(), at("new/arrived"), 0),
        ("f".into(), at("wo/"), 0),
    ] {
        let (ended, printed) = code(place, &from, &to);
        assert_eq!(ended, Some(expected), "{from} {to}: {printed}");
    }
    assert_eq!(
        fs::read(place.join("far/f")).expect("it arrived"),
        b"content"
    );
    // The other end of a fetch: a destination that cannot be.
    let (ended, printed) = code(place, at("ro/there"), "/proc/none/x");
    assert_eq!(ended, Some(4), "{printed}");
    let several = ["cp", "--trust-any", "f", "far", &at("wo/there")];
    assert_eq!(run(place, &several).status.code(), Some(4));
}
