//! Exit codes with stable names, and the failure that carries one. Scripts and schedulers decide by
//! them whether to try again.

use std::fmt;
#[cfg(feature = "lab")]
use std::io::ErrorKind;

#[cfg(feature = "lab")]
use farhaul_lab::scenario::RunError;
#[cfg(feature = "lab")]
use farhaul_sim::Error;
use farhaul_transfer::{Code, TransferError};
use serde_json::{Value, json};

use crate::interrupt;

/// An exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Everything was done, or there was nothing to do.
    Ok,
    /// A fault of ours.
    Internal,
    /// Invalid arguments.
    Usage,
    /// No source could be read.
    SourceMissing,
    /// The destination is not writable, of the wrong type, or not allowed.
    DestError,
    /// Part of the files failed.
    Partial,
    /// Files changed while they were sent.
    SourceChanged,
    /// Content differs after repair.
    VerifyFailed,
    /// No space or quota.
    NoSpace,
    /// The target is in use by another run.
    Locked,
    /// Configuration, key file or its permissions.
    Config,
    /// Name resolution, route or local address.
    NetSetup,
    /// ssh failed.
    Ssh,
    /// farhaul was not found on the remote.
    RemoteMissing,
    /// No common protocol version.
    Version,
    /// The peer's identity was refused, or ours.
    Auth,
    /// Missing UDP path.
    UdpBlocked,
    /// Connection lost or stalled.
    ConnectionLost,
    /// The server is full or draining.
    Busy,
    /// A limit the user set was reached.
    Limit,
    /// The peer violated the protocol.
    Protocol,
    /// A comparison failed.
    Threshold,
    /// Ended by a signal.
    Signal(u8),
    /// A program that we ran ended with this code.
    Program(u8),
}

/// A code's number and name, whether trying again may help, what it means and what to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row(
    pub(crate) u8,
    pub(crate) &'static str,
    pub(crate) bool,
    pub(crate) &'static str,
    pub(crate) &'static str,
);

const SIGNAL: &str =
    "ended by that signal; a copy's journal is kept (servers that receive one end with 0)";
const AGAIN: &str = "give the same command again: a copy continues where it stopped";

impl Exit {
    /// Every code that is no signal's and no other program's.
    pub(crate) const ALL: [Self; 22] = [
        Self::Ok,
        Self::Internal,
        Self::Usage,
        Self::SourceMissing,
        Self::DestError,
        Self::Partial,
        Self::SourceChanged,
        Self::VerifyFailed,
        Self::NoSpace,
        Self::Locked,
        Self::Config,
        Self::NetSetup,
        Self::Ssh,
        Self::RemoteMissing,
        Self::Version,
        Self::Auth,
        Self::UdpBlocked,
        Self::ConnectionLost,
        Self::Busy,
        Self::Limit,
        Self::Protocol,
        Self::Threshold,
    ];

    /// Documentation of the code.
    #[expect(clippy::too_many_lines, reason = "a table")]
    pub(crate) const fn row(self) -> Row {
        match self {
            Self::Ok => Row(
                0,
                "ok",
                false,
                "done: what was sent is verified as received and synced, what looks unchanged was not read",
                "nothing",
            ),
            Self::Internal => Row(
                1,
                "internal",
                false,
                "a fault of ours: please report it",
                "report it with the command and what it printed; a copy continues when the same command is given again",
            ),
            Self::Usage => Row(
                2,
                "usage",
                false,
                "invalid arguments",
                "correct the command; `farhaul COMMAND --help` shows its flags and an example",
            ),
            Self::SourceMissing => Row(
                3,
                "source_missing",
                false,
                "no source could be read",
                "check the spelling and the permissions of what is to be copied",
            ),
            Self::DestError => Row(
                4,
                "dest_error",
                false,
                "destination not writable, wrong type, not allowed; stdout not writable",
                "check the permissions and the file system of the destination, and what has that name already",
            ),
            Self::Partial => Row(
                5,
                "partial",
                true,
                "some files failed",
                "correct what is named for each file, and give the same command again: what has arrived is kept",
            ),
            Self::SourceChanged => Row(
                6,
                "source_changed",
                true,
                "files changed or vanished meanwhile",
                "copy again when nothing writes there, or copy a snapshot",
            ),
            Self::VerifyFailed => Row(
                7,
                "verify_failed",
                true,
                "content still differed after repair",
                "test the memory and the disks of both machines; what was received is beside its name, ending in .bad",
            ),
            Self::NoSpace => Row(
                8,
                "no_space",
                false,
                "space or quota, also where stdout goes",
                "free space or raise the quota there; then the same command continues",
            ),
            Self::Locked => Row(
                9,
                "locked",
                true,
                "the target is in use by another run",
                "wait for the other run, which is named",
            ),
            Self::Config => Row(
                10,
                "config",
                false,
                "configuration, key file or its permissions",
                "correct the named line or permissions; `farhaul config` shows what applies",
            ),
            Self::NetSetup => Row(
                11,
                "net_setup",
                true,
                "name resolution, route, local address, a firewall here",
                "check the name, `ip route get ADDRESS` and the firewall of this machine; `farhaul doctor`",
            ),
            Self::Ssh => Row(
                12,
                "ssh",
                false,
                "ssh failed",
                "see what ssh printed; `ssh HOST true` must work",
            ),
            Self::RemoteMissing => Row(
                13,
                "remote_missing",
                false,
                "farhaul is not installed at the other end of ssh",
                "cp --install-remote copies this one there; or give its path with --remote-bin",
            ),
            Self::Version => Row(
                14,
                "version",
                false,
                "no common protocol version",
                "install a newer release at the end that is named",
            ),
            Self::Auth => Row(
                15,
                "auth",
                false,
                "a key, ticket, share or policy was refused, or more than the server allows",
                "ask the operator of the server, with your key from `farhaul key show`; servers you know are listed by `farhaul key list`",
            ),
            Self::UdpBlocked => Row(
                16,
                "udp_blocked",
                false,
                "nobody answers, nothing listens, or UDP does not get through",
                "start the server there, and open its UDP port (17992) both ways in every firewall between",
            ),
            Self::ConnectionLost => Row(
                17,
                "connection_lost",
                true,
                "lost or stalled; the journal is kept",
                "give the same command again: it continues where it stopped",
            ),
            Self::Busy => Row(
                18,
                "busy",
                true,
                "the server is full or stopping, or began to answer and did not finish",
                "give the same command again later",
            ),
            Self::Limit => Row(
                19,
                "limit",
                false,
                "a limit you set was reached",
                "raise it, or give the same command again to continue",
            ),
            Self::Protocol => Row(
                20,
                "protocol",
                false,
                "the peer broke the protocol",
                "do not trust the other end; if it is your own, report this",
            ),
            Self::Threshold => Row(
                22,
                "threshold",
                false,
                "a comparison failed",
                "see which figure missed its bound",
            ),
            Self::Signal(1) => Row(129, "hup", true, SIGNAL, AGAIN),
            Self::Signal(13) => Row(
                141,
                "pipe",
                false,
                "what read the standard output has ended, as `head` does: no failure",
                "nothing, if it had read enough",
            ),
            Self::Signal(2) => Row(130, "int", true, SIGNAL, AGAIN),
            Self::Signal(15) => Row(143, "term", true, SIGNAL, AGAIN),
            Self::Signal(n) => Row(128 + n, "signal", true, SIGNAL, AGAIN),
            Self::Program(code) => Row(
                code,
                "program",
                false,
                "that of a program which farhaul ran",
                "see what it printed",
            ),
        }
    }

    /// The one with this number, of a copy.
    pub(crate) fn of_code(code: u8) -> Self {
        let found = Self::ALL.into_iter().find(|exit| exit.code() == code);
        found.unwrap_or(match code.checked_sub(128) {
            Some(signal @ (1 | 2 | 15)) => Self::Signal(signal),
            _ => Self::Internal,
        })
    }

    /// The number.
    pub(crate) const fn code(self) -> u8 {
        self.row().0
    }

    /// Name of the code.
    pub(crate) const fn name(self) -> &'static str {
        self.row().1
    }

    /// The `exit` member of JSON output.
    pub(crate) fn object(self) -> Value {
        let Row(code, name, retryable, ..) = self.row();
        json!({ "code": code, "name": name, "retryable": retryable })
    }
}

impl From<Code> for Exit {
    fn from(code: Code) -> Self {
        match code {
            Code::Ok => Self::Ok,
            Code::Usage => Self::Usage,
            Code::SourceMissing => Self::SourceMissing,
            Code::DestError => Self::DestError,
            Code::Partial => Self::Partial,
            Code::SourceChanged => Self::SourceChanged,
            Code::VerifyFailed => Self::VerifyFailed,
            Code::NoSpace => Self::NoSpace,
            Code::Locked => Self::Locked,
            Code::Config => Self::Config,
            Code::NetSetup => Self::NetSetup,
            Code::Version => Self::Version,
            Code::Auth => Self::Auth,
            Code::UdpBlocked => Self::UdpBlocked,
            Code::ConnectionLost => Self::ConnectionLost,
            Code::Busy => Self::Busy,
            Code::Limit => Self::Limit,
            Code::Protocol => Self::Protocol,
            Code::HungUp => Self::Signal(1),
            Code::Terminated => Self::Signal(15),
            Code::Interrupted => Self::Signal(interrupt::signal()),
            _ => Self::Internal,
        }
    }
}

/// Failure of a command: text for people, and a code.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// The code.
    pub(crate) exit: Exit,
    /// Cause and fix in one sentence; empty if everything has been printed.
    pub(crate) text: String,
    /// The fix alone, where it is known apart; it is in `text`, too, behind a cause of so many bytes.
    fix: String,
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

    /// Advice of the failure; may be empty.
    pub(crate) fn advice(&self) -> &str {
        &self.fix
    }

    /// Adds `object` for `--json`; `error` and `exit` are added where they are missing.
    pub(crate) fn with_object(mut self, object: Value) -> Self {
        self.object = Some(Box::new(object));
        self
    }

    /// Invalid arguments.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::new(Exit::Usage, text)
    }

    /// A fault of ours, or of the system.
    pub(crate) fn internal(e: &dyn fmt::Display) -> Self {
        Self::new(Exit::Internal, e.to_string())
    }

    /// The object of `--json`.
    pub(crate) fn object(&self) -> Value {
        let mut exit = self.exit.object();
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
        let Row(code, name, retryable, meaning, fix) = exit.row();
        Self {
            code,
            name,
            retryable,
            meaning,
            fix,
        }
    }
}

/// Every row of the table, those of interrupts included.
pub fn exits() -> impl Iterator<Item = ExitRow> {
    let signals = [1, 2, 15].map(Exit::Signal);
    Exit::ALL.into_iter().chain(signals).map(ExitRow::from)
}

/// Failure of a command that ran in another program.
#[derive(Clone, Debug)]
pub struct Failed {
    /// Exit code of the failure.
    pub exit: ExitRow,
    /// Cause and fix.
    pub text: String,
    /// Advice.
    pub fix: String,
    /// Object that `--json` would have printed.
    pub object: Box<Value>,
}

impl Failed {
    /// Invalid arguments.
    pub fn usage(text: impl Into<String>) -> Self {
        Failure::usage(text).into()
    }

    /// A fault of ours.
    pub fn internal(text: impl Into<String>) -> Self {
        Failure::new(Exit::Internal, text).into()
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Failed {}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Self {
        let exit = ExitRow::from(failure.exit);
        let object = Box::new(failure.object());
        // What some commands fail with has its text in the object only.
        let told = object["error"].as_str().unwrap_or(exit.meaning);
        let text = if failure.text.is_empty() {
            told.to_string()
        } else {
            failure.text
        };
        let fix = if failure.fix.is_empty() {
            exit.fix.to_string()
        } else {
            failure.fix
        };
        Self {
            exit,
            text,
            fix,
            object,
        }
    }
}

impl From<&TransferError> for Failure {
    fn from(e: &TransferError) -> Self {
        Self::new(e.code.into(), e.text.as_str()).fix(&*e.fix)
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
        f.write_str(&self.text)
    }
}

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
        let said = (corrected.cause(), corrected.advice());
        assert_eq!(said, ("no", "say: please"));
        assert_eq!(Failure::usage("no: no: ").cause(), "no: no: ");
        assert_eq!(object["exit"]["code"], 2);
        assert_eq!(object["exit"]["name"], "usage");
        assert_eq!(Exit::Signal(2).code(), 130);
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
            let Row(code, name, retryable, meaning, _) = exit.row();
            let again = if retryable { "yes" } else { "" };
            assert_eq!(
                shown[..4],
                [code.to_string().as_str(), name, again, meaning]
            );
        }
    }

    #[test]
    fn the_library_has_the_same_text_for_each_code() {
        for number in 0..=u8::MAX {
            let Some(code) = Code::from_number(number) else {
                continue;
            };
            let Row(ours, name, retryable, ..) = Exit::from(code).row();
            assert_eq!((ours, retryable), (number, code.retryable()), "{name}");
        }
    }
}
