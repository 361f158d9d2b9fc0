//! Servers that get SIGTERM, SIGINT or SIGKILL while a copy shakes hands, lists, sends, checks or
//! ends, in both directions. The client ends with the code that says what happened, and no file is
//! there that is not whole. The same command then completes the copy.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, Read as _},
    net::UdpSocket,
    path::{Path, PathBuf},
    process::{Child, Command, Output},
    sync::Arc,
    thread,
};

use serde_json::Value;

use crate::{
    kit::Names,
    place::{Place, Served, await_part, await_that, code, kill, noise, printed},
};

const SIGNALS: [&str; 3] = ["-TERM", "-INT", "-KILL"];

/// A tree on one side, and a folder for it on the other.
struct Scene {
    place: Place,
    put: bool,
    signal: &'static str,
}

type Files = BTreeMap<String, Vec<u8>>;

impl Scene {
    fn new(put: bool, signal: &'static str, files: &Files) -> Self {
        // Many small files, which a disk takes its time for.
        let place = Place::in_memory();
        let scene = Self { place, put, signal };
        let source = scene.source();
        fs::create_dir_all(&source).expect("a folder");
        fs::create_dir(scene.place.path("into")).expect("a folder");
        for (name, bytes) in files {
            fs::write(source.join(name), bytes).expect("a file");
        }
        scene
    }

    fn source(&self) -> PathBuf {
        self.place.path(if self.put { "src" } else { "share/src" })
    }

    /// Path where it arrives.
    fn target(&self) -> PathBuf {
        self.place
            .path(if self.put { "share/src" } else { "into/src" })
    }

    /// A server to whose place another one may come.
    fn serve(&self) -> Served {
        self.place.serve_to_return(&["--allow", "any"])
    }

    fn serve_again(&self, at: &str) -> Served {
        self.place.serve_at(at, &["--allow", "any"])
    }

    /// The copy from or to a server `at`, which gives up a dead one sooner than people want: see `cp/ends.rs` for that.
    fn command(&self, at: &str, more: &[&str]) -> Command {
        let far = format!("{at}::s/{}", if self.put { "" } else { "src" });
        let ends = if self.put {
            ["src", &far]
        } else {
            [&far, "into"]
        };
        let flags = ["cp", "--trust-any", "--idle", "5s"];
        self.place.command(&[&flags[..], more, &ends].concat())
    }

    fn slow_copy(&self, at: &str, rate: &str) -> Child {
        let child = self.command(at, &["--json", "--max-rate", rate]).spawn();
        child.expect("it starts")
    }

    /// The server has been sent the signal while `client` was at work: how that ends, and how it goes on.
    fn goes_on(&self, server: Served, client: Child, allowed: &[i32], files: &Files) {
        let out = client.wait_with_output().expect("it ends");
        self.ended(&out, allowed);
        self.completes(server, files);
    }

    /// Completes the copy: the server ends, and another one at its place serves the rest.
    fn completes(&self, mut server: Served, files: &Files) {
        let status = server.child.wait().expect("our own child");
        let expected = (self.signal != "-KILL").then_some(0);
        assert_eq!(status.code(), expected, "{}: the server", self.signal);
        self.no_part_is_named(files);
        let server = self.serve_again(&server.at);
        let out = self
            .command(&server.at, &["--json"])
            .output()
            .expect("it starts");
        Names::documented().object(&out, 0);
        let found = fs::read_dir(self.target()).expect("a folder");
        let found = found.map(|e| e.expect("an entry").file_name());
        let mut found: Vec<_> = found.map(|n| n.into_string().expect("text")).collect();
        found.sort();
        assert!(found.iter().eq(files.keys()), "{}: {found:?}", self.signal);
        self.no_part_is_named(files);
    }

    fn ended(&self, out: &Output, allowed: &[i32]) {
        let what = format!("{} put {}: {}", self.signal, self.put, printed(out));
        assert!(allowed.contains(&code(out)), "{what}");
        let word: Value = serde_json::from_slice(&out.stdout).expect("one object");
        assert_eq!(word["ok"], code(out) == 0, "{what}");
        if code(out) != 0 {
            assert_eq!(word["exit"]["code"], code(out), "{what}");
            let fix = word["exit"]["fix"].as_str().unwrap_or_default();
            assert!(!fix.is_empty() && printed(out).contains(fix), "{what}");
        }
    }

    /// Checks that every named file has all its content.
    fn no_part_is_named(&self, files: &Files) {
        for (name, bytes) in files {
            if let Ok(there) = fs::read(self.target().join(name)) {
                assert!(there == *bytes, "{}: {name} is not whole", self.signal);
            }
        }
    }
}

/// Each signal in each direction, side by side.
fn each(files: &Files, test: impl Fn(&Scene) + Sync) {
    thread::scope(|scope| {
        for signal in SIGNALS {
            for put in [true, false] {
                let test = &test;
                scope.spawn(move || {
                    println!("{signal}, put: {put}");
                    test(&Scene::new(put, signal, files));
                });
            }
        }
    });
}

fn one(len: usize) -> Files {
    Files::from([("big".into(), noise(7, len))])
}

/// Many files, with names that say nothing of each other.
fn many(number: u64, len: usize) -> Files {
    let letters = |i| noise(i, 80).into_iter().map(|b| char::from(b'a' + b % 26));
    let name = |i| letters(i).collect::<String>();
    (0..number).map(|i| (name(i), noise(i, len))).collect()
}

/// Relay between the two: after `before` datagrams of the client it acts, and goes on to pass them
/// on.
fn between(server: &str, before: usize, act: impl FnOnce() + Send + 'static) -> String {
    let local = || Arc::new(UdpSocket::bind("127.0.0.1:0").expect("a port"));
    let (front, back) = (local(), local());
    back.connect(server).expect("an address");
    let at = front.local_addr().expect("bound").to_string();
    thread::spawn(move || {
        let (mut bytes, mut act, mut seen) = (vec![0; 65_536], Some(act), 0);
        while let Ok((len, client)) = front.recv_from(&mut bytes) {
            if seen == 0 {
                let (front, back) = (Arc::clone(&front), Arc::clone(&back));
                thread::spawn(move || {
                    let mut bytes = vec![0; 65_536];
                    loop {
                        // A server that is gone is an error now and then.
                        let Ok(len) = back.recv(&mut bytes) else {
                            continue;
                        };
                        let _lost = front.send_to(&bytes[..len], client);
                    }
                });
            }
            seen += 1;
            if seen == before
                && let Some(act) = act.take()
            {
                act();
            }
            let _lost = back.send(&bytes[..len]);
        }
    });
    at
}

#[test]
fn while_they_shake_hands() {
    let files = one(300_000);
    for before in [1, 2] {
        each(&files, |scene| {
            let server = scene.serve();
            let (id, signal) = (server.child.id(), scene.signal);
            let at = between(&server.at, before, move || kill(id, signal));
            let client = scene.command(&at, &["--json"]).spawn().expect("it starts");
            // It may have been ready to serve this last one; nobody may listen any more; or it says that it stops.
            scene.goes_on(server, client, &[0, 16, 17, 18], &files);
        });
    }
}

/// Codes of a client whose server got the signal while it was at work. Either may have been quicker
/// than the test. After SIGTERM, copies under way are finished, unless that takes too long.
fn allowed(signal: &str) -> &'static [i32] {
    match signal {
        "-KILL" => &[0, 17],
        _ => &[0, 18],
    }
}

#[test]
fn while_files_are_listed() {
    let files = many(600, 10);
    each(&files, |scene| {
        let server = scene.serve();
        let mut client = scene.slow_copy(&server.at, "200kbit");
        let there = |dir: &Path| fs::read_dir(dir).is_ok_and(|mut d| d.next().is_some());
        await_that(&mut client, || there(&scene.target()));
        server.signal(scene.signal);
        scene.goes_on(server, client, allowed(scene.signal), &files);
    });
}

#[test]
fn while_content_is_sent() {
    let files = one(8 << 20);
    each(&files, |scene| {
        let server = scene.serve();
        let mut client = scene.slow_copy(&server.at, "16Mbit");
        await_part(&scene.target(), 1 << 20, &mut client);
        server.signal(scene.signal);
        scene.goes_on(server, client, allowed(scene.signal), &files);
    });
}

#[test]
fn while_what_is_there_is_checked() {
    let files = many(1_500, 1_000);
    each(&files, |scene| {
        let server = scene.serve();
        let first = scene.command(&server.at, &["--json"]).output();
        Names::documented().object(&first.expect("it starts"), 0);
        let mut command = scene.command(&server.at, &["--json-stream", "--max-rate", "200kbit"]);
        let mut client = command.spawn().expect("it starts");
        let mut lines = BufReader::new(client.stdout.take().expect("piped")).lines();
        let checked = |line: String| {
            let event: Value = serde_json::from_str(&line).expect("an object a line");
            event["files_done"].as_u64().filter(|n| *n > 0)
        };
        let done = lines.by_ref().map_while(Result::ok).find_map(checked);
        assert!(
            done.expect("an event") < 1_500,
            "there is some left to check"
        );
        server.signal(scene.signal);
        let mut rest = String::new();
        lines.map_while(Result::ok).for_each(|line| rest = line);
        let mut said = String::new();
        let mut stderr = client.stderr.take().expect("piped");
        stderr.read_to_string(&mut said).expect("text");
        let status = client.wait().expect("our own child");
        let out = Output {
            status,
            stdout: rest.into_bytes(),
            stderr: said.into_bytes(),
        };
        scene.ended(&out, allowed(scene.signal));
        scene.completes(server, &files);
    });
}

#[test]
fn when_the_last_file_is_there() {
    let files = one(3 << 20);
    each(&files, |scene| {
        let server = scene.serve();
        let mut client = scene
            .command(&server.at, &["--json"])
            .spawn()
            .expect("it starts");
        await_that(&mut client, || scene.target().join("big").exists());
        server.signal(scene.signal);
        scene.goes_on(server, client, &[0, 17, 18], &files);
    });
}

#[test]
fn interrupted_again_and_again_it_ends_and_goes_on_later() {
    let files = one(12 << 20);
    for put in [true, false] {
        let scene = Scene::new(put, "-INT", &files);
        let mut server = scene.serve();
        let mut client = scene.slow_copy(&server.at, "40Mbit");
        await_part(&scene.target(), 6 << 20, &mut client);
        // It cannot send a close.
        server.signal("-STOP");
        while client.try_wait().expect("our own child").is_none() {
            kill(client.id(), "-INT");
        }
        assert_eq!(client.wait().expect("our own child").code(), Some(130));
        scene.no_part_is_named(&files);
        server.signal("-CONT");
        server.signal("-INT");
        assert_eq!(server.child.wait().expect("our own child").code(), Some(0));
        let server = scene.serve_again(&server.at);
        let out = scene
            .command(&server.at, &["--json"])
            .output()
            .expect("it starts");
        let word = Names::documented().object(&out, 0);
        assert!(
            word["resumed_bytes"].as_u64().is_some_and(|n| n > 0),
            "{word}"
        );
        scene.no_part_is_named(&files);
    }
}
