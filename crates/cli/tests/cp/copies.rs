//! Files there and back, keys, mistakes, interrupts.

use std::{
    fs,
    io::Read as _,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::place::{Place, code, end_when, noise, part_bytes, printed};

/// Paths, sizes, modes, times and contents below `dir`.
pub(crate) fn tree(dir: &Path) -> Vec<(PathBuf, u32, i64, i64, Vec<u8>)> {
    let mut all = Vec::new();
    let mut stack = vec![dir.to_path_buf()];
    while let Some(at) = stack.pop() {
        for entry in fs::read_dir(&at).expect("a folder") {
            let path = entry.expect("an entry").path();
            let meta = path.symlink_metadata().expect("facts");
            let content = if meta.is_dir() {
                stack.push(path.clone());
                Vec::new()
            } else {
                fs::read(&path).expect("content")
            };
            let name = path.strip_prefix(dir).expect("below").to_path_buf();
            all.push((name, meta.mode(), meta.mtime(), meta.mtime_nsec(), content));
        }
    }
    all.sort();
    all
}

#[test]
fn files_go_there_and_back() {
    let place = Place::new();
    fs::create_dir_all(place.path("src/deep/er")).unwrap();
    for i in 0..50 {
        fs::write(
            place.path(&format!("src/{i}")),
            noise(i, usize::try_from(i).unwrap() * 700),
        )
        .unwrap();
    }
    fs::write(place.path("src/deep/er/big"), noise(7, 9_000_001)).unwrap();
    let server = place.serve(&["--allow", "any"]);
    let out = place.run(&["cp", "--trust-any", "--json", "src", &server.to("a/")]);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    let word: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(
        (&word["ok"], &word["files"]["sent"]),
        (&Value::Bool(true), &Value::from(51))
    );
    assert_eq!(tree(&place.path("src")), tree(&place.path("share/a/src")));
    let out = place.run(&["cp", "--trust-any", &server.to("a/src/"), "back"]);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    assert_eq!(tree(&place.path("src")), tree(&place.path("back")));
    let out = place.run(&["cp", "--trust-any", "--json", &server.to("a/src/"), "back"]);
    let word: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(
        (&word["bytes_payload"], &word["files"]["skipped"]),
        (&Value::from(0), &Value::from(51))
    );
}

#[test]
fn a_server_is_trusted_once_known() {
    let place = Place::new();
    fs::write(place.path("f"), "content").unwrap();
    let server = place.serve(&["--allow", "any"]);
    let out = place.run(&["cp", "f", &server.to("")]);
    assert_eq!(code(&out), 15);
    let line = format!("farhaul key trust {} {}", server.at, server.key);
    assert!(printed(&out).contains(&line), "{}", printed(&out));
    assert!(!place.path("share/f").exists());
    let words: Vec<_> = line.split(' ').skip(1).collect();
    assert_eq!(code(&place.run(&words)), 0);
    assert_eq!(code(&place.run(&["cp", "f", &server.to("")])), 0);
    assert_eq!(fs::read(place.path("share/f")).unwrap(), b"content");
    // Another key at the same place.
    let other = place.run(&["key", "gen", "--out", "other"]);
    let other = String::from_utf8(other.stdout).unwrap();
    assert_eq!(
        code(&place.run(&["key", "trust", &server.at, other.trim()])),
        0
    );
    let out = place.run(&["cp", "f", &server.to("g")]);
    assert_eq!(code(&out), 15, "{}", printed(&out));
    assert!(!place.path("share/g").exists());
}

#[test]
fn a_key_that_is_made_is_said_and_one_that_is_replaced_is_kept() {
    let place = Place::new();
    fs::write(place.path("f"), "content").unwrap();
    let open = place.serve(&["--allow", "any"]);
    fs::remove_dir_all(place.path("config/farhaul")).unwrap_or_default();
    let first = place.run(&["cp", "--trust-any", "f", &open.to("")]);
    let made = String::from_utf8(place.run(&["key", "show"]).stdout).unwrap();
    assert!(printed(&first).contains(made.trim()), "{}", printed(&first));
    let later = place.run(&["cp", "--trust-any", "f", &open.to("g")]);
    assert!(!printed(&later).contains(made.trim()));
    let id = place.path("config/farhaul/id");
    let before = fs::read(&id).unwrap();
    let replaced = place.run(&["key", "gen", "--force"]);
    let said = printed(&replaced);
    assert!(
        said.contains("id.old") && said.contains("--allow"),
        "{said}"
    );
    assert_ne!(fs::read(&id).unwrap(), before);
    assert_eq!(fs::read(id.with_extension("old")).unwrap(), before);
}

#[test]
fn only_known_peers_are_let_in() {
    let place = Place::new();
    fs::write(place.path("f"), "content").unwrap();
    let mine = place.run(&["key", "gen"]);
    let mine = String::from_utf8(mine.stdout).unwrap();
    let shown = String::from_utf8(place.run(&["key", "show"]).stdout).unwrap();
    assert_eq!(mine, shown);
    let again = place.run(&["key", "gen"]);
    assert_eq!(code(&again), 0, "{}", printed(&again));
    assert!(printed(&again).contains("exists, and stays"));
    let again = String::from_utf8(again.stdout).unwrap();
    assert_eq!(mine, again, "a key is not replaced by accident");
    let open = place.serve(&["--allow", mine.trim()]);
    assert_eq!(
        code(&place.run(&["cp", "--trust-any", "f", &open.to("")])),
        0
    );
    place.run(&["key", "gen", "--out", "other"]);
    let out = place.run(&["cp", "--trust-any", "-i", "other", "f", &open.to("g")]);
    assert_eq!(code(&out), 15, "{}", printed(&out));
    let shut = place.serve_others();
    let out = place.run(&["cp", "--trust-any", "f", &shut.to("g")]);
    assert_eq!(code(&out), 15, "{}", printed(&out));
    assert!(!place.path("share/g").exists());
}

#[test]
fn mistakes_have_their_codes() {
    let place = Place::new();
    fs::write(place.path("f"), "content").unwrap();
    let server = place.serve(&["--allow", "any"]);
    let nobody = {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        format!("{}::s/", socket.local_addr().unwrap())
    };
    let unknown = format!("{}::nothing/f", server.at);
    let cases: [(&[&str], i32); 11] = [
        (&["cp"], 2),
        (&["cp", "f", "g"], 2),
        (&["cp", "me@:f", "g"], 2),
        (&["cp", &server.to("f"), &unknown], 2),
        (&["cp", "--max-rate", "100", "f", &unknown], 2),
        (&["cp", "--rtt", "9ms", "f", &unknown], 2),
        (&["cp", "none", &server.to("")], 3),
        (&["cp", "--trust-any", &server.to("none"), "here"], 3),
        (&["cp", "--trust-any", "f", &unknown], 15),
        (&["cp", "--trust-any", "f", &nobody], 16),
        (&["cp", "--trust-any", "f", "no.such.host.invalid::s/"], 11),
    ];
    for (args, expected) in cases {
        let out = place.run(args);
        assert_eq!(code(&out), expected, "{args:?}: {}", printed(&out));
        assert!(!printed(&out).is_empty(), "{args:?}");
        let with_json = [args, &["--json"]].concat();
        let out = place.run(&with_json);
        assert_eq!(code(&out), expected, "{with_json:?}");
        let word: Value =
            serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{with_json:?}: {e}"));
        assert_eq!(
            (&word["ok"], &word["exit"]["code"]),
            (&Value::Bool(false), &Value::from(expected)),
            "{with_json:?}"
        );
    }
    fs::write(place.path("share/file"), "x").unwrap();
    let out = place.run(&["cp", "--trust-any", "f", "f", &server.to("file")]);
    assert_eq!(code(&out), 4, "{}", printed(&out));
}

#[test]
fn interrupted_it_prints_how_to_continue() {
    let place = Place::new();
    fs::create_dir(place.path("into")).unwrap();
    fs::write(place.path("share/big"), noise(1, 120 << 20)).unwrap();
    let server = place.serve(&["--allow", "any"]);
    let args = ["cp", "--trust-any", &server.to("big"), "into"];
    for (signal, expected) in [("-INT", 130), ("-TERM", 143), ("-HUP", 129)] {
        // More than is there: it is at work then, and takes signals.
        let bytes = part_bytes(&place.path("into")) + (10 << 20);
        let mut client = place.command(&args).spawn().unwrap();
        end_when(&place, bytes, "into", &mut client, signal);
        let mut text = String::new();
        let mut stderr = client.stderr.take().unwrap();
        stderr.read_to_string(&mut text).unwrap();
        assert_eq!(client.wait().unwrap().code(), Some(expected), "{text}");
        assert!(text.contains("same command again"), "{text}");
    }
    let out = place.run(&args);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    assert!(printed(&out).contains("already there"), "{}", printed(&out));
    assert!(
        fs::read(place.path("into/big")).unwrap() == fs::read(place.path("share/big")).unwrap()
    );
}

#[test]
fn of_two_files_for_one_name_the_first_arrives_whole() {
    let place = Place::new();
    fs::create_dir(place.path("other")).unwrap();
    let (long, short) = (noise(1, 5_000_000), noise(2, 3_000_000));
    fs::write(place.path("f"), &long).unwrap();
    fs::write(place.path("other/f"), &short).unwrap();
    let server = place.serve(&["--allow", "any"]);
    for (first, second, content) in [("f", "other/f", &long), ("other/", "f", &short)] {
        let to = server.to(&format!("{}/", content.len()));
        let out = place.run(&["cp", "--trust-any", first, second, &to]);
        assert_eq!(code(&out), 5, "{}", printed(&out));
        let named = if second == "f" {
            "f: an"
        } else {
            "other/f: an"
        };
        assert!(printed(&out).contains(named), "{}", printed(&out));
        assert!(printed(&out).contains("1 file, "), "{}", printed(&out));
        let arrived = place
            .path("share")
            .join(content.len().to_string())
            .join("f");
        assert_eq!(&fs::read(arrived).unwrap(), content);
    }
    let out = place.run(&["cp", "--trust-any", "f", "f", "./f", &server.to("same/")]);
    assert_eq!(code(&out), 0, "the same file again: {}", printed(&out));
    assert_eq!(fs::read(place.path("share/same/f")).unwrap(), long);
}

#[test]
fn refused_keys_and_invalid_patterns_are_reported() {
    let place = Place::new();
    fs::write(place.path("f"), "content").unwrap();
    let shut = place.serve_others();
    let out = place.run(&["cp", "--trust-any", "f", &shut.to("")]);
    assert_eq!(code(&out), 15);
    assert!(printed(&out).contains("does not accept your key fh-pub1"));
    let open = place.serve(&["--allow", "any"]);
    let out = place.run(&["cp", "--trust-any", &open.to("*.dat"), "here"]);
    assert_eq!(code(&out), 3);
    assert!(printed(&out).contains("--include"), "{}", printed(&out));
}

#[test]
fn first_copies_at_the_same_time_make_one_key() {
    let place = Place::new();
    let made = place.run(&["key", "gen", "--out", "server.key"]);
    assert_eq!(code(&made), 0, "{}", printed(&made));
    let server = place.serve(&["--allow", "any", "--identity", "server.key"]);
    fs::write(place.path("f"), "f").unwrap();
    let children: Vec<_> = (0..8)
        .map(|n| {
            let to = server.to(&n.to_string());
            let args = ["cp", "--trust-any", "f", &to];
            place.command(&args).spawn().expect("it starts")
        })
        .collect();
    let mut makers = 0;
    for child in children {
        let out = child.wait_with_output().expect("it ends");
        assert_eq!(code(&out), 0, "{}", printed(&out));
        makers += usize::from(printed(&out).contains("made a key for you"));
    }
    assert_eq!(makers, 1);
    for entry in fs::read_dir(place.path("config/farhaul")).unwrap() {
        let name = entry.unwrap().file_name();
        assert!(!name.to_string_lossy().contains("new-"), "{name:?}");
    }
}
