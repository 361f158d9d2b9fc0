//! The process as a console: stderr, stdout, and a person at the terminal, whatever the standard input is. A signal or the
//! end of the input ends a question without an agreement.

use std::{
    fs::File,
    io::{self, IsTerminal as _, Read as _, Write as _},
    os::fd::{AsFd as _, OwnedFd},
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;

use crate::{
    app::console::{Answer, Cancel, Console, Level},
    interrupt, out,
};

/// Interval at which a question looks for signals.
const LOOK: Duration = Duration::from_millis(50);
/// Longest answer that is read, in bytes.
const LONGEST: usize = 256;

/// The process: signals end its command.
pub(crate) struct Terminal;

impl Console for Terminal {
    fn event(&self, event: &Value) {
        out::event(event);
    }

    fn wants_events(&self) -> bool {
        out::is_reported()
    }

    fn message(&self, _level: Level, text: &str) {
        errln!("{text}");
    }

    fn line(&self, text: &str) {
        out::line(text);
    }

    fn ask(&self, question: &str) -> Answer {
        ask(question)
    }

    fn cancel(&self) -> Option<&Cancel> {
        None
    }
}

fn ask(text: &str) -> Answer {
    let mut shown = io::stderr();
    let from = terminal();
    let Some(from) = from.filter(|_| shown.is_terminal()) else {
        return Answer::NotAsked;
    };
    let asked = write!(shown, "{text} [y/N] ").and_then(|()| shown.flush());
    let answer = asked.and_then(|()| answer(File::from(from)));
    if !matches!(answer, Ok(Answer::Yes | Answer::No)) {
        errln!("");
    }
    // What cannot be asked is not agreed to.
    answer.unwrap_or(Answer::No)
}

/// The terminal of this process; of one without, the standard input, if that is a terminal.
fn terminal() -> Option<OwnedFd> {
    if let Ok(terminal) = File::open("/dev/tty") {
        return Some(terminal.into());
    }
    let stdin = io::stdin();
    let is_terminal = stdin.is_terminal();
    is_terminal.then(|| stdin.as_fd().try_clone_to_owned().ok())?
}

fn answer(mut from: File) -> io::Result<Answer> {
    let look = Timespec::try_from(LOOK).map_err(io::Error::other)?;
    let mut line = Vec::new();
    loop {
        let mut fds = [PollFd::new(&from, PollFlags::IN)];
        match poll(&mut fds, Some(&look)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        let events = fds[0].revents();
        if interrupt::is_signalled() {
            return Ok(Answer::Interrupted);
        }
        if events.intersects(PollFlags::HUP | PollFlags::ERR) {
            return Ok(Answer::HungUp);
        }
        if !events.contains(PollFlags::IN) {
            continue;
        }
        let mut bytes = [0; LONGEST];
        let n = from.read(&mut bytes)?;
        line.extend_from_slice(&bytes[..n]);
        if n == 0 || line.contains(&b'\n') || line.len() > LONGEST {
            break;
        }
    }
    let agreed = matches!(line.trim_ascii(), b"y" | b"Y" | b"yes") && line.ends_with(b"\n");
    Ok(if agreed { Answer::Yes } else { Answer::No })
}
