//! Exits: how a program of farhaul, a copy or one of its files ended. The numbers are the process's exit codes, and the
//! codes of messages between the ends of a copy.
//!
//! - Numbers and names are part of the product's interface and never change.

use std::io;

/// Ending of a program, of a copy or of one of its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Exit {
    /// Success: everything sent, verified as received and synced, or nothing to do.
    Ok,
    /// Bug of ours.
    Internal,
    /// The command makes no sense.
    Usage,
    /// Missing sources: none could be read.
    SourceMissing,
    /// The destination is not writable, of the wrong type, or not allowed.
    DestError,
    /// Partial success: some files failed, others arrived.
    Partial,
    /// Files changed or vanished while they were read.
    SourceChanged,
    /// Content differed after repair, on arrival or as the disk gave it back.
    VerifyFailed,
    /// Space or quota.
    NoSpace,
    /// Target held by another run.
    Locked,
    /// Configuration, key file or permissions.
    Config,
    /// Name resolution, no route, bind failed.
    NetSetup,
    /// ssh failed.
    Ssh,
    /// farhaul was not found at the other end of ssh.
    RemoteMissing,
    /// Missing common protocol version.
    Version,
    /// Refused key, ticket or share.
    Auth,
    /// Missing UDP path to the peer.
    UdpBlocked,
    /// Lost or stalled; the journal is kept.
    ConnectionLost,
    /// The server is full or draining.
    Busy,
    /// A limit that the user set was reached.
    Limit,
    /// The peer violated the protocol.
    Protocol,
    /// A comparison failed.
    Threshold,
    /// End by this signal, after a clean journal.
    Signal(u8),
    /// End of another program, with this number.
    Program(u8),
}

impl Exit {
    /// End by SIGHUP.
    pub const HUNG_UP: Self = Self::Signal(1);
    /// End by SIGINT.
    pub const INTERRUPTED: Self = Self::Signal(2);
    /// End by SIGTERM.
    pub const TERMINATED: Self = Self::Signal(15);

    /// Signals by which a copy ends.
    pub const SIGNALS: [Self; 3] = [Self::HUNG_UP, Self::INTERRUPTED, Self::TERMINATED];

    /// Every exit that is no signal's and no other program's.
    pub const ALL: [Self; 22] = [
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

    /// Number, name, and whether the same command may succeed later.
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
            Self::HUNG_UP => (129, "hup", true),
            Self::INTERRUPTED => (130, "int", true),
            Self::TERMINATED => (143, "term", true),
            Self::Signal(13) => (141, "pipe", false),
            Self::Signal(n) => (128 + n, "signal", true),
            Self::Program(n) => (n, "program", false),
        }
    }

    /// The process's exit code.
    pub const fn number(self) -> u8 {
        self.row().0
    }

    /// The name used in output.
    pub const fn name(self) -> &'static str {
        self.row().1
    }

    /// True if the same command may succeed later as it is.
    pub const fn retryable(self) -> bool {
        self.row().2
    }

    /// Exit of a farhaul program that ended with this number.
    pub fn of_process(number: u8) -> Option<Self> {
        let mut known = Self::ALL.into_iter().chain(Self::SIGNALS);
        known.find(|exit| exit.number() == number)
    }

    /// Ending of a copy with this number: none for exits that only a program has, which no message may carry.
    pub fn from_number(number: u8) -> Option<Self> {
        let programs = [Self::Ssh, Self::RemoteMissing, Self::Threshold];
        Self::of_process(number).filter(|exit| !programs.contains(exit))
    }

    /// Exit that a server's exit means for its client: a signal that ended the server did not end
    /// the client.
    #[must_use]
    pub const fn of_server(self) -> Self {
        match self {
            Self::Signal(_) => Self::ConnectionLost,
            other => other,
        }
    }

    /// Exit for an error at the destination.
    pub fn of_write(e: &io::Error) -> Self {
        match e.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace,
            _ => Self::DestError,
        }
    }

    /// Exit for an error at the source.
    pub fn of_read(e: &io::Error) -> Self {
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
        for exit in Exit::ALL.into_iter().chain(Exit::SIGNALS) {
            assert_eq!(Exit::of_process(exit.number()), Some(exit));
        }
        assert_eq!(Exit::of_process(99), None);
    }

    #[test]
    fn messages_carry_no_exit_of_a_program_alone() {
        let refused = (0..=30).filter(|n| Exit::from_number(*n).is_none());
        assert_eq!(refused.take(4).collect::<Vec<_>>(), [12, 13, 21, 22]);
        let signals = (31..=u8::MAX).filter_map(Exit::from_number);
        assert_eq!(signals.collect::<Vec<_>>(), Exit::SIGNALS);
    }
}
