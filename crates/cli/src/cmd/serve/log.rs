//! Log of a server: lines on stderr, for people or as an object each. Names of files and words of
//! peers are escaped.

use std::{
    env,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use farhaul_core::{text, units::Size};
use farhaul_io::clock;
use farhaul_transfer::{
    Outcome, TransferError,
    server::{Changed, Probed},
};
use serde_json::{Value, json};

use super::{
    rejected::More,
    sessions::{Facts, View},
};
use crate::{exit::Exit, out, when};

/// Format of lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Format of all lines: there is one stderr, and one way to write to it.
static JSON: AtomicBool = AtomicBool::new(false);
/// Lines for people begin with the time.
static DATED: AtomicBool = AtomicBool::new(false);
/// Set by systemd, whose journal has the time of each line.
const JOURNAL: &str = "JOURNAL_STREAM";

/// Begins lines for people with the time from now on, unless a journal adds it.
pub(super) fn date() {
    let stderr = rustix::fs::fstat(std::io::stderr()).ok();
    let own = stderr.map(|stat| format!("{}:{}", stat.st_dev, stat.st_ino));
    let journal = env::var(JOURNAL).ok();
    DATED.store(journal.is_none() || journal != own, Relaxed);
}

/// A line for people.
fn say(line: &str) {
    errln!("{}", stamped(line));
}

fn stamped(line: &str) -> String {
    if DATED.load(Relaxed) {
        format!("{} {line}", when::utc(clock::unix_seconds()))
    } else {
        line.to_owned()
    }
}

pub(super) fn set(format: Format) {
    JSON.store(format == Format::Json, Relaxed);
}

/// Lets a thread of its own write the lines from now on, until the answer is dropped: a server does
/// not wait for readers.
pub(super) fn queue() -> Result<out::Queue, TransferError> {
    let dropped = |lines| {
        let text = format!("{lines} lines of this log were dropped: nobody read them in time");
        line("warning", &text)
    };
    out::Queue::start(dropped).map_err(|e| TransferError::no_thread(&e))
}

/// A line for people; as an object of this event.
pub(crate) fn note(event: &str, text: &str) {
    errln!("{}", line(event, text));
}

/// Help for a person who starts a server; programs are not shown it.
pub(super) fn hint(text: &str) {
    if !JSON.load(Relaxed) {
        errln!("{text}");
    }
}

pub(super) fn line(event: &str, text: &str) -> String {
    if JSON.load(Relaxed) {
        dated(json!({ "event": event, "text": text }))
    } else if event == "warning" {
        stamped(&format!("warning: {text}"))
    } else {
        stamped(text)
    }
}

fn object(object: Value) {
    errln!("{}", dated(object));
}

fn dated(mut object: Value) -> String {
    object["time"] = when::now().into();
    out::escaped(&object.to_string())
}

/// Name of the peer, for people.
fn who(view: &View, facts: &Facts) -> String {
    let name = match (&facts.name, &facts.key) {
        (Some(name), _) => format!(" {name}"),
        (None, Some(key)) => format!(" {key}"),
        (None, None) => String::new(),
    };
    let share = facts.share.as_deref().map(text::plain);
    let share = share.map_or_else(String::new, |share| format!(" '{share}'"));
    format!("{}{name}{share}", view.from)
}

fn of(event: &str, view: &View, facts: &Facts) -> Value {
    json!({
        "event": event,
        "session": view.id,
        "peer": view.from.to_string(),
        "key": facts.key.map(|key| key.to_string()),
        "name": facts.name,
        "share": facts.share,
        "lane": facts.lane,
        "probe": facts.probe.map(word),
        "direction": (facts.probe.is_some() || facts.share.is_some()).then_some(if facts.put { "put" } else { "get" }),
    })
}

const fn word(probed: Probed) -> &'static str {
    match probed {
        Probed::Upload => "upload",
        Probed::Download => "download",
        Probed::Disk => "disk",
    }
}

/// A peer asked for something.
pub(super) fn asked(view: &View, facts: &Facts) {
    if JSON.load(Relaxed) {
        return object(of("request", view, facts));
    }
    let verb = match (facts.probe, facts.put) {
        (Some(Probed::Upload), _) => "probes the path to here",
        (Some(Probed::Download), _) => "probes the path from here",
        (Some(Probed::Disk), _) => "measures the disk",
        (None, true) => "delivers",
        (None, false) => "fetches",
    };
    let lane = if facts.lane { ", a further lane" } else { "" };
    say(&format!("{}: {verb}{lane}", who(view, facts)));
}

/// A session that asked for no transfer has ended, by its client and as it should.
pub(super) fn visited(view: &View, facts: &Facts, kind: &str, seconds: f64) {
    if JSON.load(Relaxed) {
        let mut line = of("session", view, facts);
        line["visit"] = kind.into();
        line["outcome"] = Exit::Ok.name().into();
        line["code"] = Exit::Ok.number().into();
        line["error"] = Value::Null;
        line["elapsed_s"] = seconds.into();
        return object(line);
    }
    say(&format!("{}: {kind} in {seconds:.1} s", who(view, facts)));
}

/// Logs a change that a peer asked for in a share.
pub(super) fn changed(view: &View, change: &Changed<'_>) {
    let facts = view.facts();
    let code = change.failed.map_or(Exit::Ok, |e| e.code);
    let [path, to] = [Some(change.path), change.change.to()].map(|path| path.map(text::shown));
    if JSON.load(Relaxed) {
        let mut line = of("change", view, &facts);
        line["share"] = text::shown(change.share).into();
        line["change"] = change.change.verb().into();
        line["path"] = path.into();
        line["to"] = to.into();
        line["outcome"] = code.name().into();
        line["code"] = code.number().into();
        line["error"] = change.failed.map(|e| e.text.as_str()).into();
        return object(line);
    }
    let path = path.unwrap_or_default();
    let to = to.map_or_else(String::new, |to| format!(" to {to}"));
    let why = change.failed.map_or_else(String::new, |e| {
        format!("; {} ({})", e.text, e.code.number())
    });
    let verb = change.change.verb();
    say(&format!("{}: {verb} {path}{to}{why}", who(view, &facts)));
}

/// Logs failed handshakes that were not written one by one.
pub(super) fn rejected(all: Vec<More>) {
    for More { from, failures } in all {
        let from = from.unwrap_or_else(|| "other addresses".to_owned());
        if JSON.load(Relaxed) {
            object(json!({ "event": "rejected", "peer": from, "failures": failures }));
        } else {
            say(&format!(
                "{from}: {failures} more handshakes failed within a minute"
            ));
        }
    }
}

/// Logs the end of a session.
pub(super) fn ended(view: &View, facts: &Facts, outcome: &Outcome) {
    let (summary, error) = (&outcome.summary, &outcome.error);
    let stats = view.figures().stats;
    if JSON.load(Relaxed) {
        let mut line = of("session", view, facts);
        line["outcome"] = summary.exit.name.into();
        line["code"] = summary.exit.code.into();
        line["error"] = error.as_ref().map(|e| e.text.as_str()).into();
        line["bytes"] = summary.bytes_payload.into();
        line["resumed_bytes"] = summary.resumed_bytes.into();
        line["bytes_wire"] = (stats.wire_sent + stats.wire_received).into();
        line["files"] = json!(summary.files);
        line["elapsed_s"] = summary.elapsed_s.into();
        line["goodput_bps"] = summary.goodput_bps.into();
        line["loss_ratio"] = summary.loss_ratio.into();
        line["rtt_s"] = json!(summary.rtt_s);
        return object(line);
    }
    if facts.lane {
        // What it carried is in the line of its copy.
        if let Some(e) = error {
            let code = e.code.number();
            say(&format!(
                "{}: a lane was lost; {} ({code})",
                who(view, facts),
                e.text
            ));
        }
        return;
    }
    if let Some(probed) = facts.probe {
        let [sent, received] = [stats.wire_sent, stats.wire_received].map(Size::from_bytes);
        let why = error.as_ref().map_or_else(String::new, |e| {
            format!("; {} ({})", e.text, e.code.number())
        });
        return say(&format!(
            "{}: probe ({}): {sent} sent and {received} received in {:.1} s{why}",
            who(view, facts),
            word(probed),
            summary.elapsed_s
        ));
    }
    if facts.share.is_none()
        && let Some(e) = error
    {
        let code = e.code.number();
        return say(&format!("{}: {} ({code})", who(view, facts), e.text));
    }
    // Mirrored: the client's "sent" was received here.
    let verb = if summary.direction == "put" {
        "received"
    } else {
        "sent"
    };
    let line = summary.line();
    let rest = line.split_once(' ').map_or("", |(_, rest)| rest);
    let why = error.as_ref().map_or_else(String::new, |e| {
        format!("; {} ({})", e.text, e.code.number())
    });
    say(&format!("{}: {verb} {rest}{why}", who(view, facts)));
}
