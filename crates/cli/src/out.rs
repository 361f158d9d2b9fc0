//! How is it said? Lines and objects on stdout: a reader that has gone away ends the program quietly, as
//! it would end `cat`. What is said to people goes to stderr, and must not end a copy or a server when
//! nobody reads it.

use std::{
    fmt::{Arguments, Display},
    io::{self, ErrorKind, Write},
};

use serde::Serialize;

/// A line for people, as `eprintln!`; a broken stderr is none of the program's business.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::out::say(format_args!($($text)*))
    };
}

/// What `say!` does.
pub(crate) fn say(text: Arguments<'_>) {
    // One write, so that lines of several processes stay whole; there is nobody to tell of its failure.
    let _unheard = io::stderr()
        .lock()
        .write_all(format!("{text}\n").as_bytes());
}

/// One line on stdout.
pub(crate) fn line(text: impl Display) {
    written(|out| writeln!(out, "{text}"));
}

/// Bytes on stdout.
pub(crate) fn bytes(bytes: &[u8]) {
    written(|out| out.write_all(bytes));
}

fn written(write: impl FnOnce(&mut io::StdoutLock<'_>) -> io::Result<()>) {
    let mut out = io::stdout().lock();
    let ended = write(&mut out).and_then(|()| out.flush());
    drop(out);
    or_end(ended);
}

/// What was asked about the program itself, on stdout.
pub(crate) fn help(told: &clap::Error) {
    or_end(told.print().and_then(|()| io::stdout().flush()));
}

/// Ends the program if stdout did not take it.
fn or_end(written: io::Result<()>) {
    if let Err(e) = written {
        // 141 is what a shell reports for SIGPIPE; anything else means stdout is broken.
        if e.kind() == ErrorKind::BrokenPipe {
            std::process::exit(141);
        }
        say!("farhaul: cannot write to stdout: {e}");
        std::process::exit(1);
    }
}

/// One object on stdout.
pub(crate) fn json(object: &impl Serialize) {
    match serde_json::to_string_pretty(object) {
        Ok(text) => line(text),
        Err(e) => say!("farhaul: cannot be told as JSON: {e}"),
    }
}
