//! Retries of a copy: only with the flag, and only where another attempt may help.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Child, ChildStdout},
};

use serde_json::Value;

use crate::place::{Place, Served, await_part, code, kill, noise, printed};

const SIZE: usize = 12 << 20;

/// A copy that prints its events, and what it prints.
struct Copying(Child, BufReader<ChildStdout>);

impl Copying {
    fn start(place: &Place, ends: [&str; 2]) -> Self {
        // Slow enough that the server can be ended meanwhile.
        let flags = [
            "cp",
            "--retry",
            "--json-stream",
            "--trust-any",
            "--idle=2s",
            "--max-rate=40Mbit",
        ];
        let mut child = place
            .command(&[&flags[..], &ends].concat())
            .spawn()
            .expect("the program starts");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        Self(child, out)
    }

    /// The next event of this type.
    fn event(&mut self, kind: &str) -> Value {
        loop {
            let mut line = String::new();
            self.1.read_line(&mut line).expect("text");
            let event: Value = serde_json::from_str(&line)
                .unwrap_or_else(|e| panic!("no event '{kind}': {e}: {:?}", self.0.wait()));
            if event["type"] == kind {
                return event;
            }
        }
    }

    /// Exit code of the copy.
    fn ended(mut self) -> Option<i32> {
        self.0.wait().expect("our own child").code()
    }
}

/// Ends a server once a part of the copy is there; where it listened.
fn ended(
    place: &Place,
    mut server: Served,
    into: &str,
    copy: &mut Copying,
    signal: &str,
) -> String {
    await_part(&place.path(into), 2 << 20, &mut copy.0);
    server.signal(signal);
    server.child.wait().expect("our own child");
    server.at.clone()
}

#[test]
fn a_copy_whose_server_is_started_again_ends_well() {
    const SERVE: &[&str] = &["--allow", "any", "--drain", "0s"];
    for (put, signal) in [(true, "-KILL"), (false, "-KILL"), (true, "-TERM")] {
        let place = Place::in_memory();
        fs::create_dir(place.path("into")).expect("a folder");
        let (from, into) = if put {
            ("big", "share")
        } else {
            ("share/big", "into")
        };
        fs::write(place.path(from), noise(7, SIZE)).expect("a file");
        let server = place.serve_to_return(SERVE);
        let far = server.to(if put { "" } else { "big" });
        let ends = if put { ["big", &far] } else { [&far, "into"] };
        let mut copy = Copying::start(&place, ends);
        let at = ended(&place, server, into, &mut copy, signal);
        let retry = copy.event("retry");
        let why = if signal == "-KILL" { 17 } else { 18 };
        assert_eq!(retry["exit"]["code"], why, "{retry}");
        assert_eq!(retry["attempt"], 2, "{retry}");
        assert!(retry["wait_s"].as_f64().is_some_and(|s| s > 0.0), "{retry}");
        let _again = place.serve_at(&at, SERVE);
        let end = copy.event("summary");
        assert_eq!(end["ok"], true, "{end}");
        assert!(end["attempts"].as_u64() >= Some(2), "{end}");
        assert_eq!(end["files"]["sent"], 1, "{end}");
        assert_eq!(copy.ended(), Some(0));
        let got = fs::read(place.path(into).join("big")).expect("it is there");
        assert!(got == noise(7, SIZE), "{signal}");
    }
}

#[test]
fn an_interrupt_ends_the_pause_and_the_same_command_continues() {
    let place = Place::in_memory();
    fs::write(place.path("big"), noise(7, SIZE)).expect("a file");
    let server = place.serve_to_return(&["--allow", "any"]);
    let far = server.to("");
    let mut copy = Copying::start(&place, ["big", &far]);
    let at = ended(&place, server, "share", &mut copy, "-KILL");
    copy.event("retry");
    // In an attempt that nobody answers it would come to the same.
    kill(copy.0.id(), "-INT");
    let end = copy.event("summary");
    assert_eq!(end["exit"]["code"], 130, "{end}");
    assert_eq!(copy.ended(), Some(130));
    let _again = place.serve_at(&at, &["--allow", "any"]);
    let out = place.run(&["cp", "--trust-any", "--json", "big", &far]);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    let object: Value = serde_json::from_slice(&out.stdout).expect("one object");
    assert_eq!(object["attempts"], 1, "{object}");
}

#[test]
fn it_gives_up_after_its_time_and_at_once_where_nobody_ever_answered() {
    let place = Place::new();
    fs::write(place.path("f"), "f").expect("a file");
    let out = place.run(&[
        "cp",
        "--retry=2s",
        "--trust-any",
        "f",
        "no.such.host.invalid::s/",
    ]);
    assert_eq!(code(&out), 11, "{}", printed(&out));
    let told = "waiting for the network: attempt 2 begins in";
    assert_eq!(printed(&out).matches(told).count(), 1, "{}", printed(&out));
    let server = place.serve(&["--allow", "any"]);
    let far = server.to("");
    drop(server);
    let out = place.run(&["cp", "--retry", "--json", "--trust-any", "f", &far]);
    assert_eq!(code(&out), 16, "{}", printed(&out));
    let object: Value = serde_json::from_slice(&out.stdout).expect("one object");
    assert_eq!(object["attempts"], 1, "{object}");
}
