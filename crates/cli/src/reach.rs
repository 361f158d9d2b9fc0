//! Reasons that a server was not reached. They are distinguished by what was received: nothing,
//! port unreachable, a beginning without an end, or not even a way out of this machine.

use std::{io, net::SocketAddr};

use farhaul_core::protocol::CloseReason;
use farhaul_haul::PublicKey;
use farhaul_io::{ShardError, Unsent};
use farhaul_transfer::{Advice, Exit, TransferError};
use rustix::io::Errno;

use crate::exit::Failure;

/// Signs that were received of a server that was not reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreached {
    /// Nothing was received.
    Silent,
    /// The host answered that nothing listens there ("port unreachable").
    Refused,
    /// The server answered, and then sent nothing more before the handshake was finished.
    Unfinished,
    /// A host on the way, or this one, reports that the server cannot be reached: so do firewalls
    /// that reject.
    Rejected,
    /// The machine or its network does not let datagrams go there: an error number of the system.
    NoWay(i32),
    /// A first datagram of `needs` bytes is longer than the packets that go there.
    TooLong { needs: usize, mtu: Option<u32> },
}

impl Unreached {
    /// Meaning of the end of a session, if there never was one. `refused`: port unreachable was
    /// received; `unsent`: why a datagram did not leave last.
    pub(crate) fn of(reason: &CloseReason, refused: bool, unsent: Option<Unsent>) -> Option<Self> {
        match (reason, refused) {
            (CloseReason::NoAnswer, true) => Some(Self::Refused),
            (CloseReason::NoAnswer, false) => Some(unsent.map_or(Self::Silent, Self::unsent)),
            (CloseReason::Unfinished, _) => Some(Self::Unfinished),
            _ => None,
        }
    }

    const fn unsent(why: Unsent) -> Self {
        match why {
            Unsent::Refused(errno) if errno == Errno::HOSTUNREACH.raw_os_error() => Self::Rejected,
            Unsent::Refused(errno) => Self::NoWay(errno),
            Unsent::TooLong { bytes, mtu } => Self::TooLong { needs: bytes, mtu },
        }
    }

    pub(crate) const fn code(self) -> Exit {
        match self {
            Self::Silent | Self::Refused | Self::Rejected => Exit::UdpBlocked,
            Self::Unfinished => Exit::Busy,
            Self::NoWay(_) | Self::TooLong { .. } => Exit::NetSetup,
        }
    }

    /// Message about the failure; `server` as people know it.
    pub(crate) fn text(self, server: &str, to: SocketAddr) -> String {
        let at = if server == to.to_string() {
            format!("{to}/udp")
        } else {
            format!("{server} ({to}/udp)")
        };
        match self {
            Self::Silent => format!("no answer from {at}"),
            Self::Refused => format!("nothing listens on {at}"),
            Self::Rejected => format!("{at} is not reached: host unreachable"),
            Self::Unfinished => format!("{at} answered, but the handshake was not finished"),
            Self::NoWay(errno) => {
                let why = io::Error::from_raw_os_error(errno);
                format!("datagrams to {at} cannot be sent from this machine or its network: {why}")
            }
            Self::TooLong { needs, mtu } => {
                let needs = needs + if to.is_ipv4() { 28 } else { 48 };
                let carries =
                    mtu.map_or("shorter ones only".into(), |mtu| format!("{mtu} (its MTU)"));
                format!(
                    "datagrams to {at} cannot be sent from this machine: the first has {needs} bytes with its headers, and the link carries {carries}"
                )
            }
        }
    }

    /// Failure with advice, as a command's end.
    pub(crate) fn failure(self, what: &str, to: SocketAddr) -> Failure {
        let text = self.text(&to.to_string(), to);
        Failure::new(self.code(), text).fix(self.fix(what, to))
    }

    /// Advice about the failure; `what` should run there.
    pub(crate) fn fix(self, what: &str, to: SocketAddr) -> Advice {
        let fix = match self {
            Self::Silent => format!(
                "check that {what} runs there and that UDP port {} is open both ways; an overloaded server does \
                 not answer either",
                to.port()
            ),
            Self::Refused => {
                format!(
                    "start {what} there, or correct the port; if it runs, a firewall there rejects it"
                )
            }
            Self::Rejected => format!(
                "a firewall at or before {ip} rejects UDP {}, which is to be opened there, or that host is down (`ip route get {ip}`)",
                to.port(),
                ip = to.ip()
            ),
            Self::Unfinished => {
                return Advice::again(
                    "its UDP port is open: the server is overloaded, or loss is high; run the same command again later",
                );
            }
            Self::NoWay(errno) => return local_fix(errno, to),
            Self::TooLong { .. } => format!(
                "raise the MTU of the link to 1280 or more: `ip route get {}` names the device, `ip link set DEVICE mtu 1280` sets it; \
                 or go through ssh or TCP, which need no such datagrams",
                to.ip()
            ),
        };
        fix.into()
    }
}

/// Advice where the kernel refuses to send to `to` with this error number.
fn local_fix(errno: i32, to: SocketAddr) -> Advice {
    let ip = to.ip();
    match Errno::from_raw_os_error(errno) {
        Errno::PERM => {
            "a firewall here forbids it: `nft list ruleset` or `iptables -S` shows the rule".into()
        }
        Errno::ACCESS => format!(
            "a firewall here or on the way forbids it, or {ip} is the broadcast address of a network: give the address of one host"
        )
        .into(),
        Errno::NETUNREACH | Errno::NETDOWN | Errno::INVAL | Errno::ADDRNOTAVAIL => format!(
            "this machine has no route or no address for it now: `ip route get {ip}` and `ip address` show what there is"
        )
        .into(),
        Errno::NOBUFS | Errno::NOMEM => {
            Advice::again("the kernel has no memory for datagrams: end other programs, or run the same command again later")
        }
        _ => "check routes and firewall here, as `ip route get` and `nft list ruleset` show them"
            .into(),
    }
}

/// The end of a session that could not even begin.
pub(crate) fn unopened(e: &ShardError) -> TransferError {
    let error = TransferError::new(Exit::NetSetup, e.to_string());
    match e {
        ShardError::Connect(to, e) if let Some(errno) = e.raw_os_error() => {
            error.fix(local_fix(errno, *to))
        }
        _ => error,
    }
}

/// Way in which the two sides know each other's keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum KnownBy {
    /// The user decided about the server's, its administrator about the user's.
    Key,
    /// Exchanged through ssh.
    Ssh,
    /// Contained in a ticket.
    Ticket,
}

/// Message and remedy if a server whose key people know refused that of this side, or the other way round.
pub(crate) fn refused_key(
    reason: &CloseReason,
    server: &str,
    own: PublicKey,
) -> Option<(String, Advice)> {
    refused(reason, server, KnownBy::Key, own)
}

/// Message and remedy if a server has another key than is known of it, or than its ticket names.
pub(crate) fn other_key(server: &str, by_ticket: bool, own: PublicKey) -> (String, Advice) {
    let known_by = if by_ticket {
        KnownBy::Ticket
    } else {
        KnownBy::Key
    };
    let reason = CloseReason::Auth(String::new());
    refused(&reason, server, known_by, own).unwrap_or_default()
}

/// Message and remedy if one side refused the other's key.
pub(crate) fn refused(
    reason: &CloseReason,
    server: &str,
    known_by: KnownBy,
    own: PublicKey,
) -> Option<(String, Advice)> {
    let (text, fix): (String, Advice) = match (reason, known_by) {
        (CloseReason::Auth(_), KnownBy::Key) => (
            format!(
                "{server} shows another key than the one that you trusted; someone may impersonate the server, or its key was \
                 replaced"
            ),
            format!(
                "ask its administrator which key is right; if the new one is, type: farhaul key trust {server} fh-pub1..."
            )
            .into(),
        ),
        (CloseReason::Denied(_), KnownBy::Key) => (
            format!("{server} does not accept your key {own}"),
            format!(
                "give your key to its administrator, who starts `farhaul serve` with --allow {own}"
            )
            .into(),
        ),
        (CloseReason::Auth(_), KnownBy::Ticket) => (
            format!("{server} has another key than the ticket names"),
            "ask whoever gave you the ticket for a new one".into(),
        ),
        (CloseReason::Denied(_), KnownBy::Ticket) => (
            format!(
                "{server} does not know the ticket, or no longer, or has no share that takes tickets"
            ),
            "ask its administrator for a new one, and for `--allow ticket` at the server".into(),
        ),
        // Both keys were generated for this copy, and exchanged through ssh.
        (CloseReason::Auth(_), KnownBy::Ssh) => (
            format!("what answers at {server} over UDP is not the farhaul that ssh started there"),
            Advice::again("run the same command again, or name other ports with --remote-port"),
        ),
        (CloseReason::Denied(_), KnownBy::Ssh) => (
            format!("the farhaul that answers at {server} over UDP does not accept your key"),
            Advice::again("run the same command again, or name other ports with --remote-port"),
        ),
        _ => return None,
    };
    Some((text, fix))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn refused(errno: Errno) -> Unsent {
        Unsent::Refused(errno.raw_os_error())
    }

    #[test]
    fn what_this_machine_refuses_is_told_with_the_reason_of_the_system() {
        let to: SocketAddr = "10.0.0.1:5".parse().unwrap();
        let too_long = |mtu| Unsent::TooLong { bytes: 1_200, mtu };
        for (unsent, text, fix) in [
            (refused(Errno::PERM), "not permitted", "`nft list ruleset`"),
            (
                refused(Errno::ACCESS),
                "ermission denied",
                "broadcast address",
            ),
            (
                refused(Errno::NETUNREACH),
                "unreachable",
                "`ip route get 10.0.0.1`",
            ),
            (refused(Errno::NOBUFS), "buffer space", "no memory"),
            (too_long(Some(1_200)), "carries 1200 (its MTU)", "mtu 1280"),
            (too_long(None), "shorter ones only", "mtu 1280"),
        ] {
            let found = Unreached::of(&CloseReason::NoAnswer, false, Some(unsent)).unwrap();
            let texts = (found.text("h", to), found.fix("it", to));
            assert_eq!(found.code(), Exit::NetSetup, "{texts:?}");
            assert!(texts.0.contains(text) && texts.1.contains(fix), "{texts:?}");
        }
        let e = ShardError::Connect(to, Errno::NETUNREACH.into());
        assert!(unopened(&e).fix.contains("`ip route get 10.0.0.1`"));
    }

    #[test]
    fn a_firewall_that_rejects_is_not_taken_for_one_here() {
        let to: SocketAddr = "10.0.0.1:5".parse().unwrap();
        let failed = Some(refused(Errno::HOSTUNREACH));
        let found = Unreached::of(&CloseReason::NoAnswer, false, failed).unwrap();
        assert_eq!(found.code().number(), 16);
        let fix = found.fix("it", to);
        assert!(
            fix.contains("a firewall at or before 10.0.0.1 rejects UDP 5"),
            "{fix}"
        );
    }

    #[test]
    fn answers_are_distinguished() {
        use CloseReason::{NoAnswer, TimedOut, Unfinished};
        let to: SocketAddr = "10.0.0.1:5".parse().unwrap();
        let denied = Some(refused(Errno::PERM));
        for (reason, refused, failed, code, text, fix) in [
            (
                NoAnswer,
                false,
                None,
                16,
                "no answer from h (10.0.0.1:5/udp)",
                "UDP port 5 is open",
            ),
            (
                NoAnswer,
                true,
                None,
                16,
                "nothing listens on h (10.0.0.1:5/udp)",
                "a firewall there rejects it",
            ),
            (
                NoAnswer,
                true,
                denied,
                16,
                "nothing listens on",
                "start it there",
            ),
            (
                NoAnswer,
                false,
                denied,
                11,
                "not permitted",
                "firewall here",
            ),
            (
                Unfinished,
                false,
                None,
                18,
                "answered, but the handshake",
                "overloaded",
            ),
            (
                Unfinished,
                true,
                denied,
                18,
                "answered, but the handshake",
                "overloaded",
            ),
        ] {
            let found = Unreached::of(&reason, refused, failed).unwrap();
            let texts = (found.text("h", to), found.fix("it", to));
            assert_eq!(found.code().number(), code, "{texts:?}");
            assert!(texts.0.contains(text) && texts.1.contains(fix), "{texts:?}");
        }
        assert_eq!(
            Unreached::of(&TimedOut, true, denied),
            None,
            "there was a session"
        );
        assert_eq!(
            Unreached::Silent.text("10.0.0.1:5", to),
            "no answer from 10.0.0.1:5/udp"
        );
    }
}
