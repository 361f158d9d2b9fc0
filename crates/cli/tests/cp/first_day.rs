//! Habits of a first day: flags of rsync as they are typed, names of files as they go, a server that says what to type.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use serde_json::Value;

use crate::place::{Place, code, printed};

fn stdout(out: &std::process::Output) -> String {
    String::from_utf8_lossy(&out.stdout).into_owned()
}

#[test]
fn verbose_names_what_is_sent_and_not_what_was_there() {
    let place = Place::new();
    let server = place.serve(&["--allow", "any"]);
    fs::create_dir_all(place.path("t/d")).expect("ours");
    fs::write(place.path("t/d/small"), "x").expect("ours");
    fs::write(place.path("t/empty"), "").expect("ours");
    fs::write(place.path("t/large"), vec![7; 3 << 20]).expect("ours");
    fs::write(place.path("t/odd\nname\u{1b}[2J"), "yy").expect("ours");
    let names = |from: &str, to: &str| {
        let out = place.run(&["cp", "-v", "--trust-any", from, to]);
        assert_eq!(code(&out), 0, "{}", printed(&out));
        let text = stdout(&out);
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let all = ["d/small", "empty", "large", "odd\\nname\\u{1b}[2J"];
    assert_eq!(names("t/", &server.to("")), all);
    assert!(names("t/", &server.to("")).is_empty(), "nothing was sent");
    assert_eq!(names(&server.to(""), "back/"), all);
    assert!(names(&server.to(""), "back/").is_empty());
    fs::write(place.path("t/d/small"), "longer").expect("ours");
    assert_eq!(names("t/", &server.to("")), ["d/small"]);
    assert_eq!(names(&server.to(""), "back/"), ["d/small"]);
    // Programs read of the same in objects.
    let out = place.run(&[
        "cp",
        "-v",
        "--trust-any",
        "--json-stream",
        "t/",
        &server.to("again/"),
    ]);
    let sent = |line: &str| {
        let event: Value = serde_json::from_str(line).expect("an object a line");
        (event["type"] == "file").then(|| event["sent"].clone())
    };
    let sent: Vec<_> = stdout(&out).lines().filter_map(sent).collect();
    assert_eq!(sent, [true; 4].map(Value::from));
}

#[test]
fn what_users_of_rsync_type_copies() {
    let place = Place::new();
    let server = place.serve(&["--allow", "any"]);
    fs::write(place.path("f"), "content").expect("ours");
    for (number, flags) in [
        &["-av"][..],
        &["-avz"],
        &["-avP"],
        &["-avzP", "--bwlimit=10m"],
        &["-avh", "--progress"],
        &["-P"],
        &["-avC"],
        &["-z", "--bwlimit", "2000"],
    ]
    .into_iter()
    .enumerate()
    {
        let to = server.to(&number.to_string());
        let out = place.run(&[&["cp", "--trust-any"], flags, &["f", &to]].concat());
        assert_eq!(code(&out), 0, "{flags:?}: {}", printed(&out));
        assert!(place.path("share").join(number.to_string()).is_file());
        let asked = flags
            .iter()
            .any(|f| !f.starts_with("--") && f.contains(['z', 'C']));
        let warned = printed(&out).contains("does not compress");
        assert_eq!(warned, asked, "{flags:?}: {}", printed(&out));
        // The same letter leaves files out in rsync.
        let is_told = printed(&out).contains("write --exclude GLOB");
        assert_eq!(is_told, flags.contains(&"-avC"), "{}", printed(&out));
    }
}

#[test]
fn a_server_says_what_to_type_and_that_works() {
    let place = Place::new();
    fs::write(place.path("f"), "content").expect("ours");
    let server = place.serve(&["--allow", "any"]);
    let typed = |head: &str| {
        let line = server.says(head);
        let words = line.split_whitespace().skip(1);
        words.map(str::to_owned).collect::<Vec<_>>()
    };
    for mut words in [typed("farhaul key trust"), typed("farhaul cp")] {
        for word in &mut words {
            if word == "FILES" {
                *word = "f".into();
            }
        }
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let out = place.run(&words);
        assert_eq!(code(&out), 0, "{words:?}: {}", printed(&out));
    }
    assert_eq!(fs::read(place.path("share/f")).expect("copied"), b"content");
    let line = server.says("received");
    let (date, rest) = line.split_once(' ').expect("a time");
    assert!(date.len() == 20 && date.ends_with('Z'), "{line}");
    assert!(rest.starts_with("127.0.0.1:"), "{line}");
}

#[test]
fn a_server_that_nobody_may_use_is_refused() {
    let place = Place::new();
    let out = place.run(&["serve", "--listen", "127.0.0.1:0", "--share", "s=share"]);
    let text = printed(&out);
    assert_eq!(code(&out), 2, "{text}");
    assert!(
        text.contains("nobody") && text.contains("--allow KEY"),
        "{text}"
    );
}

#[test]
fn a_server_says_why_a_client_left() {
    let place = Place::new();
    fs::write(place.path("f"), "content").expect("ours");
    let server = place.serve(&["--allow", "any"]);
    let out = place.run(&["cp", "f", &server.to("")]);
    assert_eq!(code(&out), 15, "{}", printed(&out));
    server.says("the client does not trust this server's key yet, and left (15)");
    let other = stdout(&place.run(&["key", "gen", "--out", "other"]));
    place.run(&["key", "trust", &server.at, other.trim()]);
    let out = place.run(&["cp", "f", &server.to("")]);
    assert_eq!(code(&out), 15, "{}", printed(&out));
    server.says("the client knows another key of this server, and left (15)");
}

#[test]
fn a_server_is_asked_for_its_key_whether_it_admits_this_user_or_not() {
    let place = Place::new();
    for server in [place.serve(&["--allow", "any"]), place.serve_others()] {
        let ask = || place.run(&["key", "trust", &server.at]);
        let out = ask();
        let text = printed(&out);
        // Without a terminal nobody is asked, and nothing is stored.
        assert_eq!(code(&out), 15, "{text}");
        let line = format!("farhaul key trust {} {}", server.at, server.key);
        assert!(text.contains(&line), "{text}");
        assert!(stdout(&place.run(&["key", "list"])).is_empty());
        let trusted = place.run(&["key", "trust", &server.at, &server.key]);
        assert_eq!(code(&trusted), 0);
        let out = ask();
        assert_eq!(code(&out), 0, "{}", printed(&out));
        assert_eq!(stdout(&out).trim(), server.key);
        place.run(&["key", "untrust", &server.at]);
    }
    let out = place.run(&["key", "trust", "127.0.0.1:1"]);
    assert_eq!(code(&out), 16, "{}", printed(&out));
}

#[test]
fn a_long_listing_has_modes_and_times() {
    let place = Place::new();
    let server = place.serve(&["--allow", "any"]);
    let file = place.path("share/f");
    fs::write(&file, "content").expect("ours");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("ours");
    let time = std::time::UNIX_EPOCH + std::time::Duration::new(1_700_000_000, 5);
    let opened = fs::File::options().append(true).open(&file).expect("ours");
    opened.set_modified(time).expect("ours");
    fs::create_dir(place.path("share/d")).expect("ours");
    std::os::unix::fs::symlink("f", place.path("share/l")).expect("ours");
    place.run(&["key", "trust", &server.at, &server.key]);
    let text = stdout(&place.run(&["ls", "-l", &server.to("")]));
    let line = |name: &str| {
        let line = text.lines().find(|line| line.ends_with(name));
        line.unwrap_or_else(|| panic!("{name} is not in {text}"))
    };
    assert!(
        line(" f").starts_with("-rw-r-----  2023-11-14 22:13 "),
        "{text}"
    );
    assert!(line(" d/").starts_with("drwx"), "{text}");
    assert!(line(" l@").starts_with("lrwx"), "{text}");
    let short = stdout(&place.run(&["ls", &server.to("")]));
    assert!(!short.contains("2023-11-14"), "{short}");
    let out = place.run(&["ls", "-J", &server.to("")]);
    let object: Value = serde_json::from_slice(&out.stdout).expect("an object");
    let entries = object["entries"].as_array().expect("a list");
    let f = entries.iter().find(|e| e["path"] == "f").expect("listed");
    assert_eq!(
        (&f["mode"], &f["modified"]),
        (&"0640".into(), &"2023-11-14T22:13:20.000000005Z".into())
    );
    assert!(Path::new(&file).exists());
}

#[test]
fn strangers_who_come_again_and_again_do_not_fill_the_log() {
    let place = Place::new();
    fs::write(place.path("f"), "content").expect("ours");
    let server = place.serve_others();
    for _ in 0..5 {
        let out = place.run(&["cp", "--trust-any", "f", &server.to("")]);
        assert_eq!(code(&out), 15, "{}", printed(&out));
    }
    server.says("not authenticated");
    server.signal("-INT");
    let line = server.said.recv().expect("it says how many more");
    assert!(
        line.contains("127.0.0.1: 4 more handshakes failed"),
        "{line}"
    );
}

#[test]
fn a_jump_host_of_scp_is_answered_with_what_to_write() {
    let place = Place::new();
    fs::write(place.path("f"), "content").expect("ours");
    let out = place.run(&["cp", "-J", "far", "f", "host:x"]);
    assert_eq!(code(&out), 2, "{}", printed(&out));
    assert!(
        printed(&out).contains("-o ProxyJump=far"),
        "{}",
        printed(&out)
    );
    let server = place.serve(&["--allow", "any"]);
    let out = place.run(&["cp", "--trust-any", "-J", "f", &server.to("")]);
    assert_eq!(code(&out), 0, "{}", printed(&out));
}

#[test]
fn what_names_no_server_is_not_trusted() {
    let place = Place::new();
    let key = stdout(&place.run(&["key", "gen", "--out", "other"]));
    for name in ["", "h::s", "[::1]:99999", "a b", "h\nother"] {
        for args in [
            &["key", "trust", name, key.trim()][..],
            &["key", "trust", name],
        ] {
            let out = place.run(args);
            assert_eq!(code(&out), 2, "{args:?}: {}", printed(&out));
        }
    }
    assert!(stdout(&place.run(&["key", "list"])).is_empty());
}
