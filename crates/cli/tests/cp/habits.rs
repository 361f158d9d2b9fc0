//! Habits of people who know cp, scp and rsync. They are clusters of letters, flags between places,
//! links and devices as destinations, a dry run that names what would fail.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _, process::CommandExt as _},
    path::PathBuf,
};

use serde_json::Value;

use crate::place::{Place, code, printed};

#[test]
fn what_is_typed_for_rsync_works() {
    let place = Place::new();
    fs::create_dir(place.path("d")).unwrap();
    fs::write(place.path("d/f"), "content").unwrap();
    let server = place.serve(&["--allow", "any"]);
    for (i, flags) in [
        &["-avh"][..],
        &["-rtvh", "--progress", "--partial"],
        &["-aSH", "--sparse", "--times", "-e", "ssh"],
        &["--human-readable", "-vv", "--mkpath"],
    ]
    .iter()
    .enumerate()
    {
        let to = server.to(&format!("{i}/"));
        let args = [&["cp", "--trust-any"], *flags, &["d", &to]].concat();
        let out = place.run(&args);
        assert_eq!(code(&out), 0, "{flags:?}: {}", printed(&out));
        let text = String::from_utf8_lossy(&out.stdout);
        assert!(!text.contains("Usage"), "{flags:?}: no help was asked for");
        let there = place.path("share").join(i.to_string()).join("d/f");
        assert_eq!(fs::read(there).unwrap(), b"content", "{flags:?}");
    }
    let to = server.to("between");
    let out = place.run(&["cp", "d/f", "-v", &to, "--trust-any"]);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    assert_eq!(fs::read(place.path("share/between")).unwrap(), b"content");
    let out = place.run(&["cp", "-h"]);
    assert_eq!(code(&out), 0);
    assert!(String::from_utf8_lossy(&out.stdout).contains("Usage"));
    let out = place.run(&["cp", "-avh", "d"]);
    assert_eq!(code(&out), 2, "{}", printed(&out));
    assert!(printed(&out).contains("destination"), "{}", printed(&out));
}

#[test]
fn a_file_that_is_taken_for_a_flag_is_named_with_what_to_write() {
    let place = Place::new();
    for name in ["-dash", "--dash", "-2020.dat"] {
        fs::write(place.path(name), name).unwrap();
    }
    let server = place.serve(&["--allow", "any"]);
    let to = server.to("");
    for name in ["-dash", "--dash", "-2020.dat"] {
        let out = place.run(&["cp", "--trust-any", name, &to]);
        assert_eq!(code(&out), 2, "{}", printed(&out));
        let words = format!("if the file {name} is meant, write ./{name}, or -- before");
        assert!(printed(&out).contains(&words), "{}", printed(&out));
    }
    for words in [&["./-dash", &to][..], &["--", "-dash", &to]] {
        let out = place.run(&[&["cp", "--trust-any"], words].concat());
        assert_eq!(code(&out), 0, "{}", printed(&out));
    }
    let out = place.run(&["cp", "--trust-any", "--none", &to]);
    assert!(!printed(&out).contains("./"), "{}", printed(&out));
}

#[test]
fn a_link_here_stays_and_what_it_leads_to_is_replaced() {
    let place = Place::new();
    // Of another size: both are written in the same tick of the clock.
    fs::write(place.path("share/f"), "newer").unwrap();
    fs::create_dir(place.path("dir")).unwrap();
    fs::write(place.path("dir/file"), "old").unwrap();
    for (name, to) in [
        ("link", "dir/file"),
        ("again", "link"),
        ("broken", "gone"),
        ("null", "/dev/null"),
    ] {
        std::os::unix::fs::symlink(to, place.path(name)).unwrap();
    }
    let server = place.serve(&["--allow", "any"]);
    let fetch = |to: &str| place.run(&["cp", "--trust-any", &server.to("f"), to]);
    let out = fetch("again");
    assert_eq!(code(&out), 0, "{}", printed(&out));
    assert_eq!(fs::read(place.path("dir/file")).unwrap(), b"newer");
    assert_eq!(
        fs::read_link(place.path("link")).unwrap(),
        PathBuf::from("dir/file")
    );
    assert_eq!(fs::read_dir(place.path("dir")).unwrap().count(), 1);
    for (to, words) in [
        ("broken", "link to nothing"),
        ("null", "write - for the standard output"),
        ("/dev/stdout", "write - for the standard output"),
        ("/dev/null", "write - for the standard output"),
    ] {
        let out = fetch(to);
        assert_eq!(code(&out), 4, "{to}: {}", printed(&out));
        assert!(printed(&out).contains(words), "{to}: {}", printed(&out));
    }
    assert!(place.path("broken").is_symlink() && !place.path("gone").exists());
}

#[test]
fn each_file_that_is_over_is_an_event() {
    let place = Place::new();
    let odd = std::ffi::OsStr::from_bytes(b"odd\xff\n\x1b[2J");
    fs::create_dir(place.path("d")).unwrap();
    fs::write(place.path("d").join(odd), "odd").unwrap();
    fs::write(place.path("d/empty"), "").unwrap();
    fs::write(place.path("d/big"), vec![7; 3 << 20]).unwrap();
    fs::create_dir_all(place.path("share/d/taken")).unwrap();
    fs::write(place.path("d/taken"), "a folder has its name").unwrap();
    let server = place.serve(&["--allow", "any"]);
    let files = |from: &str, to: &str, expected: i32| {
        let out = place.run(&["cp", "--trust-any", "--json-stream", from, to]);
        assert_eq!(code(&out), expected, "{}", printed(&out));
        let text = String::from_utf8(out.stdout).unwrap();
        assert!(!text.contains('\x1b'), "nothing steers a terminal");
        let all = text.lines().map(|line| serde_json::from_str(line).unwrap());
        let files = all.filter(|event: &Value| event["type"] == "file");
        let mut files: Vec<_> = files
            .map(|event| {
                let hex = event["path_hex"].as_str().unwrap_or_default().to_owned();
                let path = event["path"].as_str().unwrap().to_owned();
                (path, hex, event["bytes"].clone(), event["ok"] == true)
            })
            .collect();
        files.sort_by(|a, b| a.0.cmp(&b.0));
        files
    };
    let sent = files("d", &server.to(""), 4);
    let names: Vec<_> = sent.iter().map(|f| (&f.0[..], f.3)).collect();
    assert_eq!(
        names,
        [
            ("d/big", true),
            ("d/empty", true),
            ("d/odd\u{fffd}\n\u{1b}[2J", true),
            ("d/taken", false)
        ]
    );
    assert_eq!(sent[0].2, 3 << 20);
    assert_eq!(sent[2].1, "642f6f6464ff0a1b5b324a");
    let received = files(&server.to("d/"), "here", 0);
    assert_eq!(received.len(), 3, "{received:?}");
    assert!(received.iter().all(|f| f.3), "{received:?}");
}

#[test]
fn a_dry_run_names_what_cannot_be_read() {
    let place = Place::new();
    fs::create_dir(place.path("d")).unwrap();
    fs::write(place.path("d/f"), "content").unwrap();
    fs::write(place.path("d/secret"), "secret").unwrap();
    let bits = fs::Permissions::from_mode;
    fs::set_permissions(place.path("d/secret"), bits(0)).unwrap();
    fs::set_permissions(place.0.path(), bits(0o755)).unwrap();
    let server = place.serve(&["--allow", "any"]);
    let to = server.to("");
    for json in [true, false] {
        let args = ["cp", "-n", "--trust-any", "d", &to];
        let args = [&args[..], if json { &["--json"] } else { &[] }].concat();
        let mut command = place.command(&args);
        if fs::File::open(place.path("d/secret")).is_ok() {
            // The super-user reads everything.
            command = place.copied_command(&args);
            command.uid(65_534).env("XDG_CONFIG_HOME", "/nonexistent");
        }
        let out = command.output().unwrap();
        assert_eq!(code(&out), 5, "{}", printed(&out));
        if !json {
            let text = String::from_utf8(out.stdout).unwrap();
            let fails: Vec<_> = text.lines().filter(|l| l.starts_with("fail")).collect();
            assert_eq!(fails.len(), 1, "{text}");
            assert!(fails[0].contains("secret: Permission denied"), "{text}");
            continue;
        }
        let object: Value = serde_json::from_slice(&out.stdout).unwrap();
        let plan = object["plan"].as_array().expect("a plan");
        let fails: Vec<_> = plan.iter().filter(|e| e["action"] == "fail").collect();
        assert_eq!(fails.len(), 1, "{object}");
        let why = fails[0]["why"].as_str().expect("a reason");
        assert!(why.contains("secret") && why.contains("denied"), "{why}");
        assert!(plan.iter().any(|e| e["path"] == "d/f"), "{object}");
    }
    assert_eq!(fs::read_dir(place.path("share")).unwrap().count(), 0);
}

#[test]
fn a_share_that_the_servers_user_may_not_enter_is_called_one() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root, which may be another user");
        return;
    }
    let place = Place::new();
    fs::write(place.path("f"), "content").unwrap();
    let shut = fs::Permissions::from_mode(0o700);
    fs::set_permissions(place.path("share"), shut).unwrap();
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(place.path("."), open).unwrap();
    let mut command = place.server_of_nobody();
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut before = String::new();
    let at = loop {
        let line = lines.next().unwrap().unwrap();
        if let Some(rest) = line.strip_prefix("listening on ") {
            break rest.split('/').next().unwrap().to_string();
        }
        before += &line;
    };
    assert!(before.contains("uid 65534) may not enter"), "{before}");
    let place_there = format!("{at}::s/");
    let put = place.run(&["cp", "--trust-any", "f", &place_there]);
    let get = place.run(&["cp", "--trust-any", &format!("{place_there}x"), "here"]);
    child.kill().unwrap();
    child.wait().unwrap();
    for (out, expected) in [(put, 4), (get, 3)] {
        let text = printed(&out);
        assert_eq!(code(&out), expected, "{text}");
        assert!(
            text.contains("the server's user may not enter share 's'"),
            "{text}"
        );
    }
}
