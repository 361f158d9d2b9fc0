//! Writes lines and objects to stdout: a closed pipe ends the program quietly, as it would end
//! `cat`. Messages for people go to stderr, and a failure there must not end a copy or a server.

use std::{
    fmt::{Arguments, Display},
    io::{self, ErrorKind, Write},
    sync::{
        PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc::{self, Receiver, SyncSender},
    },
    thread,
    time::Duration,
};

use farhaul_core::text;
use serde::Serialize;
use serde_json::Value;

use crate::{
    exit::{Exit, Failure},
    ssh::Said,
};

/// True if the output is for the near end.
static REPORTED: AtomicBool = AtomicBool::new(false);
/// The most bytes of text in one report; a line of reports is bounded.
const PIECE: usize = 8 << 10;

/// Reports the output from now on to the near end of ssh, which prints it.
pub(crate) fn report_all() {
    REPORTED.store(true, Relaxed);
}

/// Lines of a server for stderr, which a thread of its own writes: who says something waits for nobody who reads.
static QUEUE: RwLock<Option<SyncSender<String>>> = RwLock::new(None);
/// Lines that the queue had no place for, and that were not yet reported.
static DROPPED: AtomicU64 = AtomicU64::new(0);
/// Highest number of lines in the queue.
const QUEUED: usize = 4_096;
/// Longest time that the last lines may take.
const LAST: Duration = Duration::from_secs(1);

/// Queue of lines for stderr, written by a thread of its own. Dropping the queue waits [`LAST`] for the last lines.
pub(crate) struct Queue(Receiver<()>);

impl Queue {
    /// Starts to queue lines; `dropped` makes the line about those for which there was no place.
    pub(crate) fn start(dropped: fn(u64) -> String) -> io::Result<Self> {
        let (to, lines) = mpsc::sync_channel::<String>(QUEUED);
        let (end, written) = mpsc::channel();
        let write = move || {
            for line in lines {
                write_error(&line);
                if let lost @ 1.. = DROPPED.swap(0, Relaxed) {
                    write_error(&dropped(lost));
                }
            }
            // The wait is for its end.
            drop::<mpsc::Sender<()>>(end);
        };
        thread::Builder::new().name("log".into()).spawn(write)?;
        *QUEUE.write().unwrap_or_else(PoisonError::into_inner) = Some(to);
        Ok(Self(written))
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        *QUEUE.write().unwrap_or_else(PoisonError::into_inner) = None;
        // Nothing is ever sent: the thread has ended, or nobody reads what it writes.
        let _ended = self.0.recv_timeout(LAST);
    }
}

fn write_error(text: &str) {
    // One write, so that lines of several processes are not interleaved; an error cannot be reported.
    let _ignored = io::stderr()
        .lock()
        .write_all(format!("{}\n", safe(text)).as_bytes());
}

/// One report.
pub(crate) fn report(said: &Said) {
    match serde_json::to_string(said) {
        Ok(line) => written(|out| writeln!(out, "{line}")),
        Err(e) => written(|out| writeln!(out, "{e}")),
    }
}

/// `text` in pieces.
fn report_pieces(text: &str, said: fn(String) -> Said) {
    let mut rest = text;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rest.floor_char_boundary(PIECE));
        report(&said(piece.into()));
        rest = after;
    }
}

/// A line on stderr, as `eprintln!`, but errors of stderr are ignored.
macro_rules! errln {
    ($($text:tt)*) => {
        $crate::out::err_line(format_args!($($text)*))
    };
}

/// Writes a line as `errln!` does.
pub(crate) fn err_line(text: Arguments<'_>) {
    if is_reported() {
        return report_pieces(&text.to_string(), Said::Err);
    }
    let queue = QUEUE.read().unwrap_or_else(PoisonError::into_inner);
    match &*queue {
        None => write_error(&text.to_string()),
        Some(queue) => {
            let full = queue.try_send(text.to_string()).is_err();
            DROPPED.fetch_add(full.into(), Relaxed);
        }
    }
}

/// `text` with line breaks kept and all other control characters escaped, which a peer or a file name may
/// contain.
fn safe(text: &str) -> String {
    let lines: Vec<_> = text.split('\n').map(text::plain).collect();
    lines.join("\n")
}

/// One line on stdout.
pub(crate) fn line(text: impl Display) {
    if is_reported() {
        return report_pieces(&format!("{text}\n"), Said::Out);
    }
    bytes(format!("{text}\n").as_bytes());
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

/// Help and version, on stdout.
pub(crate) fn help(text: &clap::Error) {
    or_end(text.print().and_then(|()| io::stdout().flush()));
}

/// Ends the program if writing to stdout failed.
fn or_end(written: io::Result<()>) {
    if let Err(e) = written {
        // 141 is what a shell reports for SIGPIPE; anything else is treated as a file that cannot be written.
        let exit = match e.kind() {
            ErrorKind::BrokenPipe => std::process::exit(141),
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                Exit::NoSpace
            }
            _ => Exit::DestError,
        };
        errln!("farhaul: cannot write to stdout: {e}");
        std::process::exit(exit.number().into());
    }
}

/// One object on stdout.
pub(crate) fn json(object: &impl Serialize) {
    match serde_json::to_string_pretty(object) {
        Ok(text) => line(escaped(&text)),
        Err(e) => errln!("farhaul: cannot be written as JSON: {e}"),
    }
}

/// True if the near end of ssh prints the output.
pub(crate) fn is_reported() -> bool {
    REPORTED.load(Relaxed)
}

/// One event: for the near end, or on a line of stdout.
pub(crate) fn event(event: &Value) {
    if is_reported() {
        report(&Said::Event(event.clone()));
    } else {
        json_line(event);
    }
}

/// One object on a line of stdout.
fn json_line(object: &Value) {
    line(escaped(&object.to_string()));
}

/// The last one of a stream of events.
pub(crate) fn summary_line(mut object: Value) {
    object["type"] = "summary".into();
    json_line(&object);
}

/// The object of a failure for `--json`, or for `--json-stream`.
pub(crate) fn failure(failure: &Failure, json_mode: bool, stream: bool) {
    if stream {
        summary_line(failure.object());
    } else if json_mode {
        json(&failure.object());
    }
}

/// JSON with control characters escaped in JSON's form; they can occur in strings only.
pub(crate) fn escaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if c == '\n' || !text::steers(c) {
            out.push(c);
            continue;
        }
        let mut units = [0; 2];
        out.extend(
            c.encode_utf16(&mut units)
                .iter()
                .map(|u| format!("\\u{u:04x}")),
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    proptest! {
        #[test]
        fn nothing_printed_steers_a_terminal(words in any::<String>()) {
            let said = safe(&words);
            prop_assert!(!said.contains(|c| c != '\n' && text::steers(c)), "{said:?}");
            let object = json!({ "path": words });
            let text = escaped(&serde_json::to_string_pretty(&object).unwrap());
            prop_assert!(!text.contains(|c| c != '\n' && text::steers(c)), "{text:?}");
            prop_assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), object);
        }
    }

    #[test]
    fn characters_beyond_the_first_plane_are_escaped_as_pairs() {
        assert_eq!(
            escaped("\"\u{e0041}\u{202e}\""),
            "\"\\udb40\\udc41\\u202e\""
        );
        assert_eq!(safe("a\nb\x1b[2J"), "a\nb\\u{1b}[2J");
    }
}
