//! How does a run end? Stable exit codes with names, and the failure that carries one. Scripts and
//! schedulers decide by them whether to try again.

use std::{fmt, io::ErrorKind, process::ExitCode};

use farhaul_lab::scenario::RunError;
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
    /// Some files failed.
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
    /// No UDP path.
    UdpBlocked,
    /// Lost or stalled.
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

impl Exit {
    /// Its number, name, and whether trying again may help.
    const fn row(self) -> (u8, &'static str, bool) {
        match self {
            Self::Ok => (0, "ok", false),
            Self::Internal => (1, "internal", false),
            Self::Usage => (2, "usage", false),
            Self::SourceMissing => (3, "source_missing", false),
            Self::DestError => (4, "dest_error", false),
            Self::Partial => (5, "partial", true),
            Self::SourceChanged => (6, "source_changed", true),
            Self::VerifyFailed => (7, "verify_failed", true),
            Self::NoSpace => (8, "no_space", false),
            Self::Locked => (9, "locked", true),
            Self::Config => (10, "config", false),
            Self::NetSetup => (11, "net_setup", true),
            Self::Ssh => (12, "ssh", false),
            Self::RemoteMissing => (13, "remote_missing", false),
            Self::Version => (14, "version", false),
            Self::Auth => (15, "auth", false),
            Self::UdpBlocked => (16, "udp_blocked", false),
            Self::ConnectionLost => (17, "connection_lost", true),
            Self::Busy => (18, "busy", true),
            Self::Limit => (19, "limit", false),
            Self::Protocol => (20, "protocol", false),
            Self::Threshold => (22, "threshold", false),
            Self::Signal(1) => (129, "hup", true),
            Self::Signal(2) => (130, "int", true),
            Self::Signal(15) => (143, "term", true),
            Self::Signal(n) => (128 + n, "signal", true),
            Self::Program(code) => (code, "program", false),
        }
    }

    /// The number.
    pub(crate) const fn code(self) -> u8 {
        self.row().0
    }

    /// Its name.
    pub(crate) const fn name(self) -> &'static str {
        self.row().1
    }

    /// The `exit` member of JSON output.
    pub(crate) fn object(self) -> Value {
        let (code, name, retryable) = self.row();
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
            Code::Interrupted => Self::Signal(interrupt::signal()),
            _ => Self::Internal,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

/// Why a command failed: for people, and as a code.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// The code.
    pub(crate) exit: Exit,
    /// Cause and fix in one sentence; empty if everything has been printed.
    pub(crate) text: String,
    /// The fix alone, where it is known apart; it is in `text`, too.
    fix: String,
    /// The object of `--json`, where a command has more data.
    object: Option<Box<Value>>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, text: impl Into<String>) -> Self {
        Self {
            exit,
            text: text.into(),
            fix: String::new(),
            object: None,
        }
    }

    /// The same with what to do about it, if anything can be.
    pub(crate) fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = fix.into();
        if !self.fix.is_empty() {
            self.text = format!("{}: {}", self.text, self.fix);
        }
        self
    }

    /// The same, with `object` for `--json`, to which `error` and `exit` are added where they are missing.
    pub(crate) fn with_object(mut self, object: Value) -> Self {
        self.object = Some(Box::new(object));
        self
    }

    /// Invalid arguments.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::new(Exit::Usage, text)
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

impl From<&TransferError> for Failure {
    fn from(e: &TransferError) -> Self {
        Self::new(e.code.into(), e.text.as_str()).fix(e.fix.as_str())
    }
}

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
        let page = include_str!("../../../docs/using.md");
        let shown: Vec<_> = page
            .lines()
            .skip_while(|line| !line.starts_with("| code | name |"))
            .skip(2)
            .map_while(|line| line.strip_prefix("| "))
            .map(|line| line.split('|').map(str::trim).collect::<Vec<_>>())
            .collect();
        let all = [
            Exit::Ok,
            Exit::Internal,
            Exit::Usage,
            Exit::SourceMissing,
            Exit::DestError,
            Exit::Partial,
            Exit::SourceChanged,
            Exit::VerifyFailed,
            Exit::NoSpace,
            Exit::Locked,
            Exit::Config,
            Exit::NetSetup,
            Exit::Ssh,
            Exit::RemoteMissing,
            Exit::Version,
            Exit::Auth,
            Exit::UdpBlocked,
            Exit::ConnectionLost,
            Exit::Busy,
            Exit::Limit,
            Exit::Protocol,
            Exit::Threshold,
        ];
        assert_eq!(shown.len(), all.len() + 1, "and a row of signals");
        for (exit, shown) in all.iter().zip(shown) {
            let (code, name, retryable) = exit.row();
            let again = if retryable { "yes" } else { "" };
            assert_eq!(shown[..3], [code.to_string().as_str(), name, again]);
        }
    }

    #[test]
    fn the_library_has_the_same_text_for_each_code() {
        for number in 0..=u8::MAX {
            let Some(code) = Code::from_number(number) else {
                continue;
            };
            if code == Code::Interrupted {
                continue;
            }
            let (ours, name, retryable) = Exit::from(code).row();
            assert_eq!((ours, retryable), (number, code.retryable()), "{name}");
        }
    }
}
