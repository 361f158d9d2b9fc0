//! `farhaul cp` against `farhaul serve` on the loopback: real processes, real sockets, real signals.

use std::{
    fs,
    io::{BufRead, BufReader, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use serde_json::Value;

/// A folder for one test, with a configuration of its own.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().expect("a temporary folder"));
        fs::create_dir(place.path("share")).expect("a share");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_farhaul"));
        command
            .args(args)
            .current_dir(self.0.path())
            .env("XDG_CONFIG_HOME", self.path("config"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the program starts")
    }

    /// Starts a server; where it listens.
    fn serve(&self, more: &[&str]) -> Served {
        let share = format!("s={}:rw", self.path("share").display());
        let args = [
            &["serve", "--listen", "127.0.0.1:0", "--share", &share],
            more,
        ]
        .concat();
        let mut child = self.command(&args).spawn().expect("the program starts");
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let said = lines
            .by_ref()
            .map_while(Result::ok)
            .find(|l| l.starts_with("listening on"));
        let said = said.expect("the server says where it listens");
        let mut words = said.split([' ', '/']);
        let at = words.nth(2).expect("an address").to_string();
        let key = said.rsplit(' ').next().expect("a key").to_string();
        // Whatever it says later must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Served { child, at, key }
    }
}

struct Served {
    child: Child,
    at: String,
    key: String,
}

impl Served {
    fn to(&self, path: &str) -> String {
        format!("{}::s/{path}", self.at)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = farhaul_core::rng::Rng::new(seed);
    let mut bytes: Vec<u8> = (0..len.div_ceil(8))
        .flat_map(|_| rng.next_u64().to_le_bytes())
        .collect();
    bytes.truncate(len);
    bytes
}

fn code(output: &Output) -> i32 {
    output
        .status
        .code()
        .unwrap_or_else(|| panic!("ended by a signal: {output:?}"))
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Paths, sizes, modes, times and contents below `dir`.
fn tree(dir: &Path) -> Vec<(PathBuf, u32, i64, i64, Vec<u8>)> {
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
    assert_eq!(code(&out), 0, "{}", said(&out));
    let word: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(
        (&word["ok"], &word["files"]["sent"]),
        (&Value::Bool(true), &Value::from(51))
    );
    assert_eq!(tree(&place.path("src")), tree(&place.path("share/a/src")));
    let out = place.run(&["cp", "--trust-any", &server.to("a/src/"), "back"]);
    assert_eq!(code(&out), 0, "{}", said(&out));
    assert_eq!(tree(&place.path("src")), tree(&place.path("back")));
    let out = place.run(&["cp", "--trust-any", "--json", &server.to("a/src/"), "back"]);
    let word: Value = serde_json::from_slice(&out.stdout).unwrap();
    // The first file of fifty is empty: there is nothing to compare.
    assert_eq!(
        (&word["bytes_payload"], &word["files"]["skipped"]),
        (&Value::from(0), &Value::from(50))
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
    assert!(said(&out).contains(&line), "{}", said(&out));
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
    assert_eq!(code(&out), 15, "{}", said(&out));
    assert!(!place.path("share/g").exists());
}

#[test]
fn only_known_peers_are_let_in() {
    let place = Place::new();
    fs::write(place.path("f"), "content").unwrap();
    let mine = place.run(&["key", "gen"]);
    let mine = String::from_utf8(mine.stdout).unwrap();
    let shown = String::from_utf8(place.run(&["key", "show"]).stdout).unwrap();
    assert_eq!(mine, shown);
    assert_eq!(
        code(&place.run(&["key", "gen"])),
        10,
        "a key is not replaced by accident"
    );
    let open = place.serve(&["--allow", mine.trim()]);
    assert_eq!(
        code(&place.run(&["cp", "--trust-any", "f", &open.to("")])),
        0
    );
    place.run(&["key", "gen", "--out", "other"]);
    let out = place.run(&["cp", "--trust-any", "-i", "other", "f", &open.to("g")]);
    assert_eq!(code(&out), 15, "{}", said(&out));
    let shut = place.serve(&[]);
    let out = place.run(&["cp", "--trust-any", "f", &shut.to("g")]);
    assert_eq!(code(&out), 15, "{}", said(&out));
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
        assert_eq!(code(&out), expected, "{args:?}: {}", said(&out));
        assert!(!said(&out).is_empty(), "{args:?}");
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
    assert_eq!(code(&out), 4, "{}", said(&out));
}

/// Ends a client or server once the share holds `bytes` of a part, by `signal`.
fn end_when(place: &Place, bytes: u64, into: &str, child: &mut Child, signal: &str) {
    let part_bytes = || {
        let entries = fs::read_dir(place.path(into))
            .into_iter()
            .flatten()
            .flatten();
        let parts = entries.filter(|e| e.file_name().to_string_lossy().ends_with("-part"));
        parts
            .filter_map(|e| e.metadata().ok())
            .map(|m| m.blocks() * 512)
            .sum::<u64>()
    };
    while part_bytes() < bytes {
        assert!(
            child.try_wait().expect("our own child").is_none(),
            "it ended before it could be ended"
        );
        std::thread::yield_now();
    }
    let id = child.id().to_string();
    assert!(
        Command::new("kill")
            .args([signal, &id])
            .status()
            .expect("kill exists")
            .success()
    );
}

#[test]
fn killed_at_either_end_it_continues() {
    const SIZE: usize = 160 << 20;
    let place = Place::new();
    fs::write(place.path("big"), noise(1, SIZE)).unwrap();
    let mut server = place.serve(&["--allow", "any"]);
    let mut sent = 0;
    for (round, kills_server) in [(1, false), (2, true), (3, false)] {
        let mut args = vec!["cp", "--trust-any", "--max-rate", "2Gbit", "big"];
        let to = server.to("");
        args.push(&to);
        let mut client = place.command(&args).spawn().unwrap();
        let mark = round * (36 << 20);
        if kills_server {
            end_when(&place, mark, "share", &mut server.child, "-KILL");
            client.kill().unwrap();
            client.wait().unwrap();
            server = place.serve(&["--allow", "any"]);
        } else {
            end_when(&place, mark, "share", &mut client, "-KILL");
            client.wait().unwrap();
            // The server hears nothing more; the next run takes over from the dead one.
        }
        sent = mark;
    }
    let out = place.run(&["cp", "--trust-any", "--json", "big", &server.to("")]);
    assert_eq!(code(&out), 0, "{}", said(&out));
    let word: Value = serde_json::from_slice(&out.stdout).unwrap();
    let resumed = word["resumed_bytes"].as_u64().unwrap();
    assert!(resumed + (64 << 20) >= sent, "resumed {resumed} of {sent}");
    assert!(fs::read(place.path("share/big")).unwrap() == fs::read(place.path("big")).unwrap());
    assert_eq!(
        fs::read_dir(place.path("share")).unwrap().count(),
        1,
        "nothing is left behind"
    );
}

#[test]
fn interrupted_it_says_how_to_continue() {
    let place = Place::new();
    fs::create_dir(place.path("into")).unwrap();
    fs::write(place.path("share/big"), noise(1, 120 << 20)).unwrap();
    let server = place.serve(&["--allow", "any"]);
    let args = ["cp", "--trust-any", &server.to("big"), "into"];
    let mut client = place.command(&args).spawn().unwrap();
    end_when(&place, 20 << 20, "into", &mut client, "-INT");
    let mut text = String::new();
    client
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(client.wait().unwrap().code(), Some(130), "{text}");
    assert!(text.contains("same command again"), "{text}");
    let out = place.run(&args);
    assert_eq!(code(&out), 0, "{}", said(&out));
    assert!(said(&out).contains("need not be sent"), "{}", said(&out));
    assert!(
        fs::read(place.path("into/big")).unwrap() == fs::read(place.path("share/big")).unwrap()
    );
}
