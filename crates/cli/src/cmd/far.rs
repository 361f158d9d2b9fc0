//! `farhaul _serve`: the far end of a copy through ssh. Reads one line, says in one line where it serves what that line
//! asks for, and serves.

use std::io;

use serde::de::DeserializeOwned;

use crate::{
    app::far::Opened,
    exit::{Exit, Failure},
    out,
    ssh::{Answer, MAGIC, Misheard, RELEASE, read_ask},
};

/// Serves one near end.
pub(crate) fn run() -> Result<(), Failure> {
    let opened = heard().and_then(|ask| Opened::of(&ask));
    let answer = match &opened {
        Ok(opened) => opened.answer(),
        Err(e) => Answer {
            refusal: Some((e.text.clone(), e.exit.number())),
            release: RELEASE.into(),
            ..Answer::default()
        },
    };
    let line = serde_json::to_string(&answer).map_err(|e| Failure::internal(&e))?;
    out::line(format!("{MAGIC}{line}"));
    match opened {
        Ok(opened) => opened.serve(),
        // It is in the answer: said here, too, ssh would show it twice.
        Err(e) => Err(Failure::new(e.exit, "")),
    }
}

/// The line of the near end.
pub(super) fn heard<T: DeserializeOwned>() -> Result<T, Failure> {
    read_ask(&mut io::stdin().lock()).map_err(|e| match e {
        Misheard::Unread(e) => Failure::internal(&e),
        Misheard::Foreign => Failure::new(
            Exit::Version,
            "this is started by `farhaul cp` through ssh; versions of both ends must agree",
        ),
        Misheard::Odd(e) => Failure::new(Exit::Version, e.to_string()),
    })
}
