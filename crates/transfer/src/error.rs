//! Describes failures in a form for both scripts and people. Every failure carries one of the
//! stable exit codes, its cause and the fix.
//!
//! - The numbers are part of the product's interface and never change.

use std::{fmt, io, ops::Deref};

use crate::wire::{Exit, path};

/// The words of advice to give the same command once more.
const AGAIN: &str = "run the same command again";
/// Words for its effect, if the copy left something to continue.
const CONTINUES: &str = ": it continues where it stopped";

/// Advice to people about a failure; may be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advice {
    text: String,
    /// Set if they are asked to run the same command again: the advice where nothing could continue.
    again: Option<String>,
}

impl Advice {
    /// Advice to run the same command again.
    pub fn again(text: impl Into<String>) -> Self {
        let text = text.into();
        debug_assert!(text.contains(AGAIN), "{text}");
        let again = Some(text.clone());
        Self { text, again }
    }

    /// Advice to run the same command again, after which the copy continues.
    pub fn resume(text: &str) -> Self {
        Self::again(text).with_end(CONTINUES)
    }

    /// Adds words that a query leaves out.
    #[must_use]
    pub(crate) fn with_end(mut self, end: &str) -> Self {
        self.text += end;
        self
    }

    /// Adds more advice.
    #[must_use]
    pub fn also(mut self, more: &str) -> Self {
        self.text += more;
        if let Some(again) = &mut self.again {
            *again += more;
        }
        self
    }

    /// Advice of a peer, which sends only its words.
    pub(crate) fn of_peer(text: String) -> Self {
        let again = text.contains(AGAIN);
        let again = again.then(|| text.replace(CONTINUES, ""));
        Self { text, again }
    }

    /// True if people are asked to run the same command again.
    pub const fn is_again(&self) -> bool {
        self.again.is_some()
    }

    fn of_query(mut self) -> Self {
        if let Some(again) = &self.again {
            self.text.clone_from(again);
        }
        self
    }
}

impl From<String> for Advice {
    fn from(text: String) -> Self {
        Self { text, again: None }
    }
}

impl From<&str> for Advice {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<Advice> for String {
    fn from(advice: Advice) -> Self {
        advice.text
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Deref for Advice {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

/// Failure of a transfer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct TransferError {
    /// The exit code.
    pub code: Exit,
    /// Event and place, for people.
    pub text: String,
    /// Advice; may be empty.
    pub fix: Advice,
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
            return Self::new(Exit::Internal, text);
        };
        Self::new(Exit::NetSetup, text).fix(refused(errno))
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
            Exit::NetSetup => Self::new(Exit::Busy, format!("the server {}", self.text)),
            _ => self,
        }
    }

    /// An error without advice.
    pub fn new(code: Exit, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
            fix: Advice::default(),
            settled: false,
        }
    }

    /// Makes the error one of a query, which leaves nothing that could go on.
    #[must_use]
    pub fn of_query(mut self) -> Self {
        self.fix = self.fix.of_query();
        self
    }

    /// Adds advice.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<Advice>) -> Self {
        self.fix = fix.into();
        self
    }

    /// A server refuses a request, for this reason and with this advice.
    pub(crate) fn refused(code: Exit, text: &[u8], fix: &[u8]) -> Self {
        Self::new(code.of_server(), path::show(text)).fix(Advice::of_peer(path::show(fix)))
    }

    /// The peer did what no correct peer does.
    pub fn protocol(text: impl Into<String>) -> Self {
        Self::new(Exit::Protocol, text)
    }
}

/// Advice for a system that starts nothing.
fn refused(errno: rustix::io::Errno) -> Advice {
    use rustix::io::Errno;
    Advice::again(match errno {
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
    })
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
            assert_eq!(error.code, Exit::NetSetup, "{error:?}");
            assert!(error.fix.contains(fix), "{error:?}");
            assert_eq!(error.of_server().code, Exit::Busy);
        }
        let other = io::Error::other("ours");
        assert_eq!(TransferError::no_thread(&other).code, Exit::Internal);
    }

    #[test]
    fn a_signal_to_the_server_is_none_to_its_client() {
        let refused = TransferError::refused(Exit::INTERRUPTED, b"it stops", b"try again");
        assert_eq!(refused.code, Exit::ConnectionLost);
        assert_eq!((&*refused.text, &*refused.fix), ("it stops", "try again"));
    }

    #[test]
    fn a_query_leaves_nothing_to_continue() {
        let copy = TransferError::new(Exit::Busy, "full")
            .fix(Advice::resume("later, run the same command again"));
        assert!(copy.fix.is_again() && copy.fix.ends_with(CONTINUES));
        let told = Advice::of_peer(copy.fix.to_string());
        assert_eq!(
            (told.is_again(), told.of_query().to_string()),
            (true, copy.clone().of_query().fix.to_string())
        );
        assert_eq!(&*copy.of_query().fix, "later, run the same command again");
        assert!(!Advice::from("name a folder").is_again());
    }
}
