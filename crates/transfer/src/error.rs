//! Describes failures in a form for both scripts and people. Every failure carries one of the
//! stable exit codes, its cause and the fix.
//!
//! - The numbers are part of the product's interface and never change.

use std::io;

use crate::wire::Code;

/// Failure of a transfer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct TransferError {
    /// The exit code.
    pub code: Code,
    /// Event and place, for people.
    pub text: String,
    /// Advice; may be empty.
    pub fix: String,
    /// True if the same command ends so again, whatever its code says.
    pub(crate) settled: bool,
}

impl TransferError {
    /// True if the same command may succeed later as it is.
    pub const fn retryable(&self) -> bool {
        self.code.retryable() && !self.settled
    }

    /// A thread cannot be started: for lack of processes, which others may give back.
    pub fn no_thread(e: &io::Error) -> Self {
        Self::cannot_start("a thread", e)
    }

    /// Error for a program or thread that cannot be started.
    pub fn cannot_start(what: &str, e: &io::Error) -> Self {
        let text = format!("cannot start {what}: {e}");
        let Some(errno) = rustix::io::Errno::from_io_error(e) else {
            return Self::new(Code::Internal, text);
        };
        Self::new(Code::NetSetup, text).fix(refused(errno))
    }

    /// A session cannot be begun: for lack of descriptors or memory, or because this program may not.
    pub fn no_session(e: &io::Error) -> Self {
        Self::cannot_start("a session", e)
    }

    /// Makes the error one that a server reports of itself: it is busy where it lacks something
    /// that others may give back.
    #[must_use]
    pub(crate) fn of_server(self) -> Self {
        match self.code {
            Code::NetSetup => Self::new(Code::Busy, format!("the server {}", self.text)),
            _ => self,
        }
    }

    /// An error without advice.
    pub fn new(code: Code, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
            fix: String::new(),
            settled: false,
        }
    }

    /// Makes the error one of a query, which leaves nothing that could go on.
    #[must_use]
    pub fn of_query(mut self) -> Self {
        for goes_on in [": it continues where it stopped", ": it continues"] {
            self.fix = self.fix.replace(goes_on, "");
        }
        self
    }

    /// Adds advice.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = fix.into();
        self
    }

    /// The peer did what no correct peer does.
    pub(crate) fn protocol(text: impl Into<String>) -> Self {
        Self::new(Code::Protocol, text)
    }
}

/// Advice for a system that starts nothing.
const fn refused(errno: rustix::io::Errno) -> &'static str {
    use rustix::io::Errno;
    match errno {
        Errno::MFILE => {
            "raise the limit of open files (`ulimit -n`); then run the same command again"
        }
        Errno::NFILE | Errno::NOMEM => {
            "end other programs of this machine; then run the same command again"
        }
        Errno::AGAIN => {
            "end other programs of this user, or raise the limit of processes (`ulimit -u`); then run the same command \
             again"
        }
        _ => {
            "see what forbids it to programs here, as the rules of a container do; then run the same command again"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_refuses_is_no_fault_of_the_program() {
        use rustix::io::Errno;
        for (errno, fix) in [
            (Errno::AGAIN, "`ulimit -u`"),
            (Errno::MFILE, "`ulimit -n`"),
            (Errno::NOMEM, "other programs"),
            (Errno::PERM, "container"),
        ] {
            let error = TransferError::no_session(&errno.into());
            assert_eq!(error.code, Code::NetSetup, "{error:?}");
            assert!(error.fix.contains(fix), "{error:?}");
            assert_eq!(error.of_server().code, Code::Busy);
        }
        let other = io::Error::other("ours");
        assert_eq!(TransferError::no_thread(&other).code, Code::Internal);
    }
}
