//! `farhaul top`: what the sessions of a running server do; `farhaul ctl`: changes what they may.

use std::{
    io::{self, IsTerminal as _},
    path::PathBuf,
};

use console::{Term, truncate_str};
use farhaul_core::{
    text,
    units::{Rate, Size},
};
use farhaul_io::Stop;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr},
};
use serde_json::{Value, json};

use crate::{
    control::{self, Change, Request, Target},
    exit::Failure,
    interrupt, out, typed,
};

/// Time between two looks.
const EVERY: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Control socket of the server [default: the only one that runs as this user]
    #[arg(value_name = "SOCKET")]
    socket: Option<PathBuf>,
    /// One JSON object, once
    #[arg(long, short = 'J')]
    json: bool,
    /// Print once, as when the output is no terminal
    #[arg(long, short = '1')]
    once: bool,
}

/// Shows the sessions.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let look = || control::ask(args.socket.as_deref(), &Request::Sessions);
    if args.json {
        let answer = look()?;
        out::json(&json!({
            "schema": "farhaul.top/1",
            "ok": true,
            "draining": answer.draining,
            "sessions": answer.sessions,
        }));
        return Ok(());
    }
    if args.once || !io::stdout().is_terminal() {
        out::line(table(&look()?.sessions, usize::MAX));
        return Ok(());
    }
    let before = terminal();
    // At once, for a second interrupt ends the program in whatever it waits for.
    let restored = before.clone();
    let stop = interrupt::stop_and(move || restore(restored.as_ref()))?;
    let keys = Keys::open(before);
    loop {
        let answer = look()?;
        let state = if answer.draining { ", stopping" } else { "" };
        let noun = if answer.sessions.len() == 1 {
            "session"
        } else {
            "sessions"
        };
        let head = format!("{} {noun}{state}; q ends", answer.sessions.len());
        // From the top left, and what was below is gone.
        let columns = usize::from(Term::stdout().size().1);
        let table = table(&answer.sessions, columns);
        out::bytes(format!("\x1b[H\x1b[2J{head}\n\n{table}\n").as_bytes());
        if keys.end(&stop).map_err(|e| Failure::internal(&e))? {
            return Ok(());
        }
    }
}

/// The keys of the terminal, each when it is pressed and not shown, until this is dropped. Where the input is no terminal
/// there are none.
struct Keys(Option<Termios>);

/// Settings of the terminal, if the input is one.
fn terminal() -> Option<Termios> {
    let stdin = io::stdin();
    stdin
        .is_terminal()
        .then(|| tcgetattr(&stdin).ok())
        .flatten()
}

fn restore(terminal: Option<&Termios>) {
    if let Some(before) = terminal {
        let _may_fail = tcsetattr(io::stdin(), OptionalActions::Now, before);
    }
}

impl Keys {
    fn open(before: Option<Termios>) -> Self {
        if let Some(before) = &before {
            let mut single = before.clone();
            single.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
            // Otherwise `q` waits for the end of its line.
            let _may_fail = tcsetattr(io::stdin(), OptionalActions::Now, &single);
        }
        Self(before)
    }

    /// Waits until it is time to look again; true if it is time to end.
    fn end(&self, stop: &Stop) -> io::Result<bool> {
        let stdin = io::stdin();
        let mut waits = vec![PollFd::new(stop, PollFlags::IN)];
        if self.0.is_some() {
            waits.push(PollFd::new(&stdin, PollFlags::IN));
        }
        match poll(&mut waits, Some(&EVERY)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        if stop.is_set() {
            return Ok(true);
        }
        if waits.get(1).is_none_or(|keys| keys.revents().is_empty()) {
            return Ok(false);
        }
        let mut pressed = [0; 64];
        let n = rustix::io::read(&stdin, &mut pressed[..])?;
        // None: the terminal is gone.
        Ok(n == 0 || pressed[..n].contains(&b'q'))
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        restore(self.0.as_ref());
    }
}

/// Columns that make room on a narrow terminal, the first of them first.
const LEAST: [usize; 4] = [7, 3, 9, 6];

fn table(sessions: &[Value], columns: usize) -> String {
    let mut rows = vec![
        [
            "ID",
            "PEER",
            "SHARE",
            "",
            "DONE",
            "RATE",
            "RTT",
            "LOSS",
            "STATE",
            "LIMITED BY",
        ]
        .map(String::from),
    ];
    rows.extend(sessions.iter().map(row));
    let mut widths = [0; 10];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut shown = [true; 10];
    let needed = |shown: &[bool; 10]| {
        let kept = widths.iter().zip(shown).filter(|(_, shown)| **shown);
        kept.map(|(width, _)| width + 2)
            .sum::<usize>()
            .saturating_sub(2)
    };
    for column in LEAST {
        if needed(&shown) > columns {
            shown[column] = false;
        }
    }
    let line = |row: &[String; 10]| {
        let cells = row.iter().zip(widths).zip(shown);
        let cells = cells.filter(|(_, shown)| *shown);
        let cells = cells.map(|((cell, width), _)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        truncate_str(line.trim_end(), columns, "").into_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Cells of a row as people read them; unknown values are a dash.
fn row(session: &Value) -> [String; 10] {
    let dash = || "-".to_string();
    let word = |key: &str| session[key].as_str().map(text::plain);
    let number = |key: &str| session[key].as_f64();
    let size = |key: &str| Size::from_bytes(session[key].as_u64().unwrap_or_default());
    let lane = if session["lane"] == true {
        ", a further lane"
    } else {
        ""
    };
    let limit = session["max_rate_bps"].as_u64().map(Rate::from_bps);
    let limit = limit.map_or_else(String::new, |rate| format!(" (at most {rate})"));
    [
        session["session"].to_string(),
        word("name").or_else(|| word("peer")).unwrap_or_else(dash),
        word("share").unwrap_or_else(dash),
        word("direction").unwrap_or_else(dash),
        match session["bytes_total"].as_u64() {
            // Of a delivery only the peer knows it.
            Some(0) | None => size("bytes_done").to_string(),
            Some(_) => format!("{} of {}", size("bytes_done"), size("bytes_total")),
        },
        number("goodput_bps").map_or_else(dash, |bps| Rate::from_f64(bps).to_string()),
        number("rtt_s").map_or_else(dash, |s| format!("{:.1} ms", s * 1e3)),
        number("loss_ratio").map_or_else(dash, |l| format!("{:.2} %", l * 100.0)),
        word("state").unwrap_or_else(dash) + lane + &limit,
        word("limited_by").unwrap_or_else(dash),
    ]
}

/// Arguments of `ctl`.
#[derive(Debug, clap::Args)]
pub(crate) struct Ctl {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Set the highest rate of a session, below those of the server's configuration
    Rate {
        #[command(flatten)]
        which: Which,
        /// A rate with its unit, or off
        #[arg(value_name = "RATE|off", value_parser = rate)]
        rate: Rate,
    },
    /// Slow a session to 100 kbit/s; the session keeps its place
    Pause {
        #[command(flatten)]
        which: Which,
    },
    /// Let a session go on
    Resume {
        #[command(flatten)]
        which: Which,
    },
}

#[derive(Debug, clap::Args)]
struct Which {
    /// The number that `farhaul top` shows, or all
    #[arg(value_name = "ID|all", value_parser = target)]
    session: Target,
    /// Control socket of the server [default: the only one that runs as this user]
    #[arg(long, value_name = "SOCKET")]
    socket: Option<PathBuf>,
}

fn rate(text: &str) -> Result<Rate, String> {
    if text == "off" {
        return Ok(Rate::UNLIMITED);
    }
    typed::limit(text).map_err(|e| format!("{e}, or the word off"))
}

fn target(text: &str) -> Result<Target, String> {
    match text {
        "all" => Ok(Target::All),
        _ => text
            .parse()
            .map(Target::Session)
            .map_err(|_| "give the number of a session, or the word all".into()),
    }
}

/// Changes the sessions.
pub(crate) fn ctl(args: &Ctl) -> Result<(), Failure> {
    let (which, change) = match &args.verb {
        Verb::Rate { which, rate } => (which, Change::Rate(rate.bps())),
        Verb::Pause { which } => (which, Change::Pause),
        Verb::Resume { which } => (which, Change::Resume),
    };
    let request = Request::Change {
        target: which.session,
        change,
    };
    let changed = control::ask(which.socket.as_deref(), &request)?.changed;
    let noun = if changed == 1 { "session" } else { "sessions" };
    errln!("{changed} {noun} changed");
    Ok(())
}
