//! Messages of one end when the other is gone, has to stop, or is already at work. Each has its
//! code, and the same command continues.

use std::{
    fs,
    process::{Child, Output},
    thread,
};

use serde_json::Value;

use crate::place::{Place, Served, await_part, code, end_when, noise, printed};

const SIZE: usize = 48 << 20;
/// Slow enough that a copy is under way when a test gets to it, on any machine.
const RATE: &str = "40Mbit";

/// A file of [`SIZE`] on one side, and a folder for it on the other.
struct Run {
    place: Place,
    /// True if the copy goes to the server, not from it.
    put: bool,
}

impl Run {
    fn new(put: bool) -> Self {
        let place = Place::in_memory();
        fs::create_dir(place.path("into")).expect("a folder");
        let from = if put { "big" } else { "share/big" };
        fs::write(place.path(from), noise(7, SIZE)).expect("a file");
        Self { place, put }
    }

    /// The folder that it arrives in.
    fn target(&self) -> &'static str {
        if self.put { "share" } else { "into" }
    }

    fn start(&self, server: &Served, rate: &str) -> Child {
        let flags = ["cp", "--trust-any", "--json", "--max-rate", rate];
        let far = server.to(if self.put { "" } else { "big" });
        let ends = if self.put {
            ["big", &far]
        } else {
            [&far, "into"]
        };
        let args = [&flags[..], &ends].concat();
        self.place
            .command(&args)
            .spawn()
            .expect("the program starts")
    }

    /// Starts it, ends its server once some of it is there, and waits for what it says of that.
    fn outlives(&self, signal: &str) -> (Served, Output) {
        let mut server = self.place.serve_to_return(&["--allow", "any"]);
        let client = self.start(&server, RATE);
        end_when(
            &self.place,
            8 << 20,
            self.target(),
            &mut server.child,
            signal,
        );
        (server, client.wait_with_output().expect("it ends"))
    }

    /// Runs the same command again, which ends well and sends less than all.
    fn continues(&self, server: &Served) {
        let out = self
            .start(server, "10Gbit")
            .wait_with_output()
            .expect("it ends");
        assert_eq!(code(&out), 0, "{}", printed(&out));
        let resumed = object(&out)["resumed_bytes"].as_u64().expect("a number");
        assert!(resumed > 1 << 20, "{resumed} of {SIZE} resumed");
        self.is_whole();
    }

    fn is_whole(&self) {
        let dir = self.place.path(self.target());
        assert!(fs::read(dir.join("big")).expect("it is there") == noise(7, SIZE));
        assert_eq!(
            fs::read_dir(dir).expect("a folder").count(),
            1,
            "nothing else"
        );
    }
}

fn object(out: &Output) -> Value {
    serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {out:?}"))
}

/// Checks that the program ended with this code, by all accounts.
fn ended(out: &Output, number: i32, name: &str) {
    assert_eq!(code(out), number, "{}", printed(out));
    let word = object(out);
    let exit = &word["exit"];
    assert_eq!(
        (&exit["code"], &exit["name"]),
        (&number.into(), &name.into())
    );
    assert_eq!(exit["retryable"], true, "{word}");
    let (text, fix) = (
        exit["text"].as_str().expect("text"),
        exit["fix"].as_str().expect("text"),
    );
    for part in [text, fix] {
        assert!(printed(out).contains(part), "{part}: {}", printed(out));
    }
    assert_eq!(word["ok"], false, "{word}");
}

fn says_to_go_on(out: &Output) {
    assert!(
        printed(out).contains("same command again"),
        "{}",
        printed(out)
    );
}

/// Runs the test both ways at a time.
fn both_ways(test: impl Fn(Run) + Sync) {
    thread::scope(|scope| {
        for put in [true, false] {
            let test = &test;
            scope.spawn(move || {
                println!("put: {put}");
                test(Run::new(put));
            });
        }
    });
}

#[test]
fn a_client_of_a_dead_server_ends_by_itself_and_can_resume() {
    both_ways(|copy| {
        let (server, out) = copy.outlives("-KILL");
        ended(&out, 17, "connection_lost");
        says_to_go_on(&out);
        assert!(!copy.place.path(copy.target()).join("big").exists());
        let server = copy.place.serve_at(&server.at, &["--allow", "any"]);
        copy.continues(&server);
    });
}

#[test]
fn interrupted_while_it_sends_it_goes_on_later() {
    let copy = Run::new(true);
    let server = copy.place.serve(&["--allow", "any"]);
    let mut client = copy.start(&server, RATE);
    end_when(&copy.place, 8 << 20, copy.target(), &mut client, "-INT");
    let out = client.wait_with_output().unwrap();
    ended(&out, 130, "int");
    says_to_go_on(&out);
    copy.continues(&server);
}

#[test]
fn a_stopped_server_sends_a_close_and_the_copy_resumes() {
    both_ways(|copy| {
        let (mut server, out) = copy.outlives("-INT");
        ended(&out, 18, "busy");
        assert!(
            printed(&out).contains("the server stops"),
            "{}",
            printed(&out)
        );
        says_to_go_on(&out);
        assert_eq!(server.child.wait().unwrap().code(), Some(0));
        let server = copy.place.serve_at(&server.at, &["--allow", "any"]);
        copy.continues(&server);
    });
}

#[test]
fn a_target_that_another_run_writes_is_refused_with_its_process_or_server() {
    both_ways(|copy| {
        let server = copy.place.serve(&["--allow", "any"]);
        let mut first = copy.start(&server, RATE);
        await_part(&copy.place.path(copy.target()), 1, &mut first);
        let second = copy.start(&server, RATE).wait_with_output().unwrap();
        ended(&second, 9, "locked");
        // The process of a server is that of all its copies.
        let holder = if copy.put {
            "being written by another copy of this server".into()
        } else {
            format!("being written by pid {} on ", first.id())
        };
        assert!(printed(&second).contains(&holder), "{}", printed(&second));
        assert!(
            printed(&second).contains("wait for it"),
            "{}",
            printed(&second)
        );
        // The first does not notice, and once it is over the second is let in.
        end_when(&copy.place, 8 << 20, copy.target(), &mut first, "-INT");
        ended(&first.wait_with_output().unwrap(), 130, "int");
        copy.continues(&server);
    });
}
