//! Describes failures in a form for both scripts and people. Every failure carries one of the
//! stable exit codes, its cause and the fix.
//!
//! - The numbers are part of the product's interface and never change.

use std::io;

use serde::Serialize;

/// Ending of a transfer, or of one of its files. The number is the process's exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
#[non_exhaustive]
pub enum Code {
    /// Success: everything sent, verified as received and synced, or nothing to do.
    Ok = 0,
    /// Bug of ours.
    Internal = 1,
    /// The command makes no sense.
    Usage = 2,
    /// Missing sources: none could be read.
    SourceMissing = 3,
    /// The destination cannot be written or has the wrong type.
    DestError = 4,
    /// Partial success: some files failed, others arrived.
    Partial = 5,
    /// Files changed or vanished while they were read.
    SourceChanged = 6,
    /// Content differed after repair, on arrival or as the disk gave it back.
    VerifyFailed = 7,
    /// Space or quota.
    NoSpace = 8,
    /// Target held by another run.
    Locked = 9,
    /// Configuration, key file or permissions.
    Config = 10,
    /// Name resolution, no route, bind failed.
    NetSetup = 11,
    /// Missing common protocol version.
    Version = 14,
    /// Peer key or share refused.
    Auth = 15,
    /// Missing UDP path to the peer.
    UdpBlocked = 16,
    /// Lost or stalled; the journal is kept.
    ConnectionLost = 17,
    /// The server is full.
    Busy = 18,
    /// A limit that the user set was reached.
    Limit = 19,
    /// The peer violated the protocol.
    Protocol = 20,
    /// Stopped by SIGHUP after a clean journal.
    HungUp = 129,
    /// Interruption by SIGINT.
    Interrupted = 130,
    /// Interruption by SIGTERM.
    Terminated = 143,
}

impl Code {
    const ALL: [Self; 22] = [
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
        Self::Version,
        Self::Auth,
        Self::UdpBlocked,
        Self::ConnectionLost,
        Self::Busy,
        Self::Limit,
        Self::Protocol,
        Self::HungUp,
        Self::Interrupted,
        Self::Terminated,
    ];

    /// The process's exit code.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The code with this number.
    pub fn from_number(n: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|c| c.number() == n)
    }

    /// Code that a server's code means for its client: a signal that ended the server did not end
    /// the client.
    pub(crate) const fn of_server(self) -> Self {
        match self {
            Self::HungUp | Self::Interrupted | Self::Terminated => Self::ConnectionLost,
            other => other,
        }
    }

    /// The name used in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Internal => "internal",
            Self::Usage => "usage",
            Self::SourceMissing => "source_missing",
            Self::DestError => "dest_error",
            Self::Partial => "partial",
            Self::SourceChanged => "source_changed",
            Self::VerifyFailed => "verify_failed",
            Self::NoSpace => "no_space",
            Self::Locked => "locked",
            Self::Config => "config",
            Self::NetSetup => "net_setup",
            Self::Version => "version",
            Self::Auth => "auth",
            Self::UdpBlocked => "udp_blocked",
            Self::ConnectionLost => "connection_lost",
            Self::Busy => "busy",
            Self::Limit => "limit",
            Self::Protocol => "protocol",
            Self::HungUp => "hup",
            Self::Interrupted => "int",
            Self::Terminated => "term",
        }
    }

    /// True if the same command may succeed later as it is.
    pub const fn retryable(self) -> bool {
        matches!(
            self,
            Self::Partial
                | Self::SourceChanged
                | Self::VerifyFailed
                | Self::Locked
                | Self::NetSetup
                | Self::ConnectionLost
                | Self::Busy
                | Self::HungUp
                | Self::Interrupted
                | Self::Terminated
        )
    }

    /// Code for an error at the destination.
    pub(crate) fn of_write(e: &io::Error) -> Self {
        match e.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace,
            _ => Self::DestError,
        }
    }

    /// Code for an error at the source.
    pub(crate) fn of_read(e: &io::Error) -> Self {
        match e.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof => Self::SourceChanged,
            _ => Self::Partial,
        }
    }
}

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

    #[test]
    fn numbers_are_unique_and_come_back() {
        for code in Code::ALL {
            assert_eq!(Code::from_number(code.number()), Some(code));
        }
        assert_eq!(Code::from_number(99), None);
    }
}
