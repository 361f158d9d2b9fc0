//! Exit codes with stable names, and the failure that carries one. Scripts and schedulers decide by
//! them whether to try again.

use std::fmt;
#[cfg(feature = "lab")]
use std::io::ErrorKind;

pub(crate) use farhaul_core::exit::Exit;
#[cfg(feature = "lab")]
use farhaul_lab::scenario::RunError;
#[cfg(feature = "lab")]
use farhaul_sim::Error;
use farhaul_transfer::TransferError;
use serde_json::{Value, json};

use crate::interrupt;

/// The `exit` member of JSON output.
pub(crate) fn object(exit: Exit) -> Value {
    json!({ "code": exit.number(), "name": exit.name(), "retryable": exit.retryable() })
}

/// Exit of this process after an error: an interrupted copy ends by the signal that came.
pub(crate) fn of_error(e: &TransferError) -> Exit {
    match e.code {
        Exit::INTERRUPTED => Exit::Signal(interrupt::signal()),
        code => code,
    }
}

/// Failure of a command: text for people, and a code.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The code.
    pub exit: Exit,
    /// Cause and fix in one sentence; empty if everything has been printed.
    pub(crate) text: String,
    /// The fix alone, where it is known apart; it is in `text`, too, behind a cause of so many bytes.
    pub(crate) fix: String,
    cause: usize,
    /// The object of `--json`, where a command has more data.
    object: Option<Box<Value>>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, text: impl Into<String>) -> Self {
        Self {
            exit,
            text: text.into(),
            fix: String::new(),
            cause: 0,
            object: None,
        }
    }

    /// Replaces the advice, if anything can be done.
    pub(crate) fn fix(mut self, fix: impl Into<String>) -> Self {
        let fix = fix.into();
        if !fix.is_empty() {
            let cause = self.cause().to_owned();
            self.text = format!("{cause}: {fix}");
            (self.fix, self.cause) = (fix, cause.len());
        }
        self
    }

    /// Cause of the failure, without its advice.
    pub(crate) fn cause(&self) -> &str {
        if self.fix.is_empty() {
            return &self.text;
        }
        &self.text[..self.cause]
    }

    /// Advice of the failure, or else that of its code.
    pub fn advice(&self) -> &str {
        match &*self.fix {
            "" => ExitRow::from(self.exit).fix,
            fix => fix,
        }
    }

    /// Adds `object` for `--json`; `error` and `exit` are added where they are missing.
    pub(crate) fn with_object(mut self, object: Value) -> Self {
        self.object = Some(Box::new(object));
        self
    }

    /// Invalid arguments.
    pub fn usage(text: impl Into<String>) -> Self {
        Self::new(Exit::Usage, text)
    }

    /// The end by a signal, or by the program around the command.
    pub(crate) fn interrupted() -> Self {
        Self::new(Exit::Signal(interrupt::signal()), "interrupted")
    }

    /// A fault of ours, or of the system.
    pub fn internal(e: &dyn fmt::Display) -> Self {
        Self::new(Exit::Internal, e.to_string())
    }

    /// The object of `--json`.
    pub fn object(&self) -> Value {
        let mut exit = object(self.exit);
        exit["fix"] = self.fix.as_str().into();
        let Some(object) = &self.object else {
            return json!({
                "schema": "farhaul.failure/1",
                "ok": false,
                "version": env!("CARGO_PKG_VERSION"),
                "error": self.text,
                "exit": exit,
            });
        };
        let mut object = Value::clone(object);
        if let Some(members) = object.as_object_mut() {
            members.entry("error").or_insert(self.text.as_str().into());
            members.entry("exit").or_insert(exit);
        }
        object
    }
}

/// A row of the table of exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitRow {
    /// The code.
    pub code: u8,
    /// Name of the code.
    pub name: &'static str,
    /// True if trying again may help.
    pub retryable: bool,
    /// Meaning of the code.
    pub meaning: &'static str,
    /// Advice.
    pub fix: &'static str,
}

impl From<Exit> for ExitRow {
    fn from(exit: Exit) -> Self {
        let (meaning, fix) = explained(exit);
        Self {
            code: exit.number(),
            name: exit.name(),
            retryable: exit.retryable(),
            meaning,
            fix,
        }
    }
}

/// Meaning of an exit, and advice.
#[expect(clippy::too_many_lines, reason = "a table")]
const fn explained(exit: Exit) -> (&'static str, &'static str) {
    match exit {
        Exit::Ok => (
            "done: what was sent is verified as received and synced, what looks unchanged was not read",
            "nothing",
        ),
        Exit::Internal => (
            "a fault of ours: please report it",
            "report it with the command and what it printed; a copy continues when the same command is given again",
        ),
        Exit::Usage => (
            "invalid arguments",
            "correct the command; `farhaul COMMAND --help` shows its flags and an example",
        ),
        Exit::SourceMissing => (
            "no source could be read",
            "check the spelling and the permissions of what is to be copied",
        ),
        Exit::DestError => (
            "destination not writable, wrong type, not allowed; stdout not writable",
            "check the permissions and the file system of the destination, and what has that name already",
        ),
        Exit::Partial => (
            "some files failed",
            "correct what is named for each file, and give the same command again: what has arrived is kept",
        ),
        Exit::SourceChanged => (
            "files changed or vanished meanwhile",
            "copy again when nothing writes there, or copy a snapshot",
        ),
        Exit::VerifyFailed => (
            "content still differed after repair",
            "test the memory and the disks of both machines; what was received is beside its name, ending in .bad",
        ),
        Exit::NoSpace => (
            "space or quota, also where stdout goes",
            "free space or raise the quota there; then the same command continues",
        ),
        Exit::Locked => (
            "the target is in use by another run",
            "wait for the other run, which is named",
        ),
        Exit::Config => (
            "configuration, key file or its permissions",
            "correct the named line or permissions; `farhaul config` shows what applies",
        ),
        Exit::NetSetup => (
            "name resolution, route, local address, a firewall here",
            "check the name, `ip route get ADDRESS` and the firewall of this machine; `farhaul doctor`",
        ),
        Exit::Ssh => (
            "ssh failed",
            "see what ssh printed; `ssh HOST true` must work",
        ),
        Exit::RemoteMissing => (
            "farhaul is not installed at the other end of ssh",
            "cp --install-remote copies this one there; or give its path with --remote-bin",
        ),
        Exit::Version => (
            "no common protocol version",
            "install a newer release at the end that is named",
        ),
        Exit::Auth => (
            "a key, ticket, share or policy was refused, or more than the server allows",
            "ask the operator of the server, with your key from `farhaul key show`; servers you know are listed by `farhaul key list`",
        ),
        Exit::UdpBlocked => (
            "nobody answers, nothing listens, or UDP does not get through",
            "start the server there, and open its UDP port (17992) both ways in every firewall between",
        ),
        Exit::ConnectionLost => (
            "lost or stalled; the journal is kept",
            "give the same command again: it continues where it stopped",
        ),
        Exit::Busy => (
            "the server is full or stopping, or began to answer and did not finish",
            "give the same command again later",
        ),
        Exit::Limit => (
            "a limit you set was reached",
            "raise it, or give the same command again to continue",
        ),
        Exit::Protocol => (
            "the peer broke the protocol",
            "do not trust the other end; if it is your own, report this",
        ),
        Exit::Threshold => ("a comparison failed", "see which figure missed its bound"),
        Exit::Signal(13) => (
            "what read the standard output has ended, as `head` does: no failure",
            "nothing, if it had read enough",
        ),
        Exit::Signal(_) => (
            "ended by that signal; a copy's journal is kept (servers that receive one end with 0)",
            "give the same command again: a copy continues where it stopped",
        ),
        Exit::Program(_) => ("that of a program which farhaul ran", "see what it printed"),
    }
}

/// Every row of the table, those of interrupts included.
pub fn exits() -> impl Iterator<Item = ExitRow> {
    Exit::ALL
        .into_iter()
        .chain(Exit::SIGNALS)
        .map(ExitRow::from)
}

impl From<&TransferError> for Failure {
    fn from(e: &TransferError) -> Self {
        Self::new(of_error(e), e.text.as_str()).fix(&*e.fix)
    }
}

impl From<TransferError> for Failure {
    fn from(e: TransferError) -> Self {
        Self::from(&e)
    }
}

#[cfg(feature = "lab")]
impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        let exit = match &error {
            RunError::Keep { error, .. } if error.kind() == ErrorKind::ResourceBusy => Exit::Locked,
            RunError::Interrupted { .. } => Exit::Signal(interrupt::signal()),
            RunError::Write { .. } | RunError::Keep { .. } => Exit::DestError,
            RunError::Choice(_) => Exit::Usage,
            RunError::Sim { error, .. } if !matches!(error, Error::Livelock { .. }) => Exit::Usage,
            _ => Exit::Internal,
        };
        Self::new(exit, error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What some commands fail with has its text in the object only.
        let object = self
            .object
            .as_ref()
            .and_then(|object| object["error"].as_str());
        f.write_str(match &*self.text {
            "" => object.unwrap_or(ExitRow::from(self.exit).meaning),
            text => text,
        })
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_an_object_with_its_code() {
        let object = Failure::usage("no").fix("say yes").object();
        assert_eq!(object["ok"], false);
        assert_eq!(object["error"], "no: say yes");
        assert_eq!(object["exit"]["fix"], "say yes");
        let corrected = Failure::usage("no").fix("say yes").fix("say: please");
        assert_eq!(corrected.text, "no: say: please");
        let said = (corrected.cause(), &*corrected.fix);
        assert_eq!(said, ("no", "say: please"));
        assert_eq!(Failure::usage("no: no: ").cause(), "no: no: ");
        assert_eq!(object["exit"]["code"], 2);
        assert_eq!(object["exit"]["name"], "usage");
        let whole = Failure::usage("no")
            .with_object(json!({ "ok": false }))
            .object();
        assert_eq!(whole["error"], "no", "also where a command has an object");
        assert_eq!(whole["exit"]["code"], 2);
    }

    #[test]
    fn the_documented_table_is_the_one_that_is_used() {
        let page = include_str!("../../../docs/reference.md");
        let shown: Vec<_> = page
            .lines()
            .skip_while(|line| !line.starts_with("| code | name |"))
            .skip(2)
            .map_while(|line| line.strip_prefix("| "))
            .map(|line| line.split('|').map(str::trim).collect::<Vec<_>>())
            .collect();
        let all = Exit::ALL;
        assert_eq!(shown.len(), all.len() + 2, "and the rows of signals");
        for (exit, shown) in all.iter().zip(shown) {
            let row = ExitRow::from(*exit);
            let again = if row.retryable { "yes" } else { "" };
            assert_eq!(
                shown[..4],
                [row.code.to_string().as_str(), row.name, again, row.meaning]
            );
        }
    }
}
