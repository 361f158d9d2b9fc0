//! Fixtures of the tests that run the program: a folder each, with a configuration of its own, and
//! servers that end with the test.

#[path = "../environment/mod.rs"]
pub(crate) mod environment;
#[path = "../environment/memory.rs"]
pub(crate) mod memory;
#[path = "../environment/pause.rs"]
pub(crate) mod pause;

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Output, Stdio},
    thread,
};

use serde_json::Value;

/// The program in `place`.
pub(crate) fn command(place: &Path, args: &[&str]) -> Command {
    let mut command = environment::command(env!("CARGO_BIN_EXE_farhaul"), place);
    command.args(args).stdin(Stdio::null());
    command
}

/// Runs all cases at a time: they mostly wait.
pub(crate) fn side_by_side<T: Sync>(cases: &[T], test: impl Fn(&T) + Sync) {
    thread::scope(|scope| {
        for case in cases {
            scope.spawn(|| test(case));
        }
    });
}

/// Runs it to its end.
pub(crate) fn run(place: &Path, args: &[&str]) -> Output {
    command(place, args).output().expect("the program starts")
}

/// Standard output of a run that ends with `code`.
pub(crate) fn stdout_of(place: &Path, args: &[&str], code: i32) -> String {
    let output = run(place, args);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {complaint}");
    String::from_utf8(output.stdout).expect("text")
}

/// Output of the program, read as one object.
pub(crate) fn object(place: &Path, args: &[&str], code: i32) -> Value {
    serde_json::from_str(&stdout_of(place, args, code)).expect("one object")
}

/// A server; where it listens.
pub(crate) struct Served(pub(crate) Child, pub(crate) String);

impl Served {
    /// Starts it, and waits until it says where it is.
    pub(crate) fn start(place: &Path, args: &[&str]) -> Self {
        Self::of(&mut command(place, args))
    }

    /// Starts a server by a command that has more to it.
    pub(crate) fn of(command: &mut Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let at = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| {
                let from = &line[line.find("127.0.0.1:")?..];
                Some(from.split([' ', '/']).next()?.to_string())
            })
            .expect("the server says where it listens");
        thread::spawn(move || lines.for_each(drop));
        Self(child, at)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}
