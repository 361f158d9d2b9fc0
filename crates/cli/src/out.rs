//! How is it said? Lines and objects on stdout. A reader that has gone away ends the program quietly,
//! as it would end `cat`.

use std::{
    fmt::Display,
    io::{self, ErrorKind, Write},
};

use serde::Serialize;

/// One line on stdout.
pub(crate) fn line(text: impl Display) {
    let mut out = io::stdout().lock();
    if let Err(e) = writeln!(out, "{text}").and_then(|()| out.flush()) {
        // 141 is what a shell reports for SIGPIPE; anything else means stdout is broken.
        std::process::exit(if e.kind() == ErrorKind::BrokenPipe {
            141
        } else {
            1
        });
    }
}

/// One object on stdout.
pub(crate) fn json(object: &impl Serialize) {
    match serde_json::to_string_pretty(object) {
        Ok(text) => line(text),
        Err(e) => eprintln!("farhaul: cannot be told as JSON: {e}"),
    }
}
