//! Endings of a transfer: the codes of messages and of the process.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_unique_and_come_back() {
        for code in Code::ALL {
            assert_eq!(Code::from_number(code.number()), Some(code));
        }
        assert_eq!(Code::from_number(99), None);
    }
}
