//! `farhaul ls PLACE PLACE...`: each place by itself and under its own name, as ls(1) lists folders. In one copy their
//! entries would be mixed, and of two of one name the second would be left out.

use std::{ffi::OsString, os::unix::ffi::OsStrExt as _, path::Path, slice, sync::Arc};

use farhaul_core::text;
use serde_json::{Value, json};

use super::Args;
use crate::{
    app::console::{Console, Level},
    cmd::cp,
    exit::{Exit, Failure},
    line::Line,
    out, place,
};

/// Lists them in order; what fails at one place is no reason to leave out the next, which may be on another server.
pub(super) fn list(
    args: &Args,
    nowhere: &Path,
    line: &Line,
    console: &Arc<dyn Console>,
) -> Result<Value, Failure> {
    let mut all = All::default();
    let mut first: Option<Failure> = None;
    for (number, typed) in args.places.iter().enumerate() {
        let place = called(typed);
        if !args.json {
            let gap = if number > 0 { "\n" } else { "" };
            out::line(format!("{gap}{place}:"));
        }
        let copy = args.as_copy(slice::from_ref(typed), nowhere, line);
        let failed = match copy.and_then(|copy| cp::list(&copy, args.long, console)) {
            Ok(report) => {
                all.add(&place, report.object());
                continue;
            }
            Err(failed) => failed,
        };
        all.fail(&place, &failed);
        if first.is_some() {
            console.message(Level::Important, &format!("farhaul: {failed}"));
        }
        let ends = matches!(
            failed.exit,
            Exit::Signal(_) | Exit::Usage | Exit::Config | Exit::Internal
        );
        first.get_or_insert(failed);
        if ends {
            break;
        }
    }
    if let Some(mut failed) = first {
        if all.listed > 0 && failed.exit == Exit::SourceMissing {
            failed.exit = Exit::Partial;
        }
        return Err(failed.with_object(all.object(false)));
    }
    Ok(all.object(true))
}

/// Prints what all places have together.
pub(super) fn print(all: &Value, places: usize) {
    let files = &all["total"]["files"];
    let noun = if *files == 1 { "file" } else { "files" };
    errln!("{files} {noun} in {places} places");
}

/// Place as it was typed; a ticket is not for everybody's eyes.
fn called(typed: &OsString) -> String {
    let bytes = typed.as_bytes();
    if place::as_ticket(bytes).is_some() {
        "ticket:".into()
    } else {
        text::shown(bytes)
    }
}

/// Findings at all places.
#[derive(Default)]
struct All {
    /// Places that were listed, whole.
    listed: u64,
    files: u64,
    bytes: u64,
    entries: Vec<Value>,
    failures: Vec<Value>,
}

impl All {
    fn add(&mut self, place: &str, listed: Value) {
        self.listed += 1;
        self.take(place, listed);
    }

    /// Notes that a place cannot be listed, after those before.
    fn fail(&mut self, place: &str, failed: &Failure) {
        let mut object = failed.object();
        self.failures.push(json!({
            "place": place,
            "error": object["error"].take(),
            "exit": object["exit"].take(),
        }));
        self.take(place, object);
    }

    fn take(&mut self, place: &str, mut listed: Value) {
        let total = |of: &str| listed["total"][of].as_u64().unwrap_or_default();
        self.files += total("files");
        self.bytes += total("bytes");
        if let Value::Array(entries) = listed["entries"].take() {
            self.entries.extend(entries.into_iter().map(|mut entry| {
                entry["place"] = place.into();
                entry
            }));
        }
    }

    fn object(self, ok: bool) -> Value {
        json!({
            "schema": "farhaul.list/1",
            "ok": ok,
            "total": { "files": self.files, "bytes": self.bytes },
            "entries": self.entries,
            "failures": self.failures,
        })
    }
}
