//! Why was a server not reached? Distinguished by what was received: nothing, port unreachable, a
//! beginning without an end, or not even a way out of this machine.

use std::{io, net::SocketAddr};

use farhaul_core::protocol::CloseReason;
use farhaul_transfer::Code;

use crate::exit::{Exit, Failure};

/// What was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreached {
    /// Nothing.
    Silent,
    /// The host answered that nothing listens there ("port unreachable").
    Refused,
    /// The server answered, and then sent nothing more before the handshake was finished.
    Unfinished,
    /// Something on the way, or here, says that the host cannot be reached: so do firewalls that reject.
    Rejected,
    /// This machine or its network does not let datagrams go there.
    NoWay(io::ErrorKind),
}

impl Unreached {
    /// What the end of a session means, if there never was one. `refused`: port unreachable was received;
    /// `failed`: why the kernel last refused to send.
    pub(crate) fn of(
        reason: &CloseReason,
        refused: bool,
        failed: Option<io::ErrorKind>,
    ) -> Option<Self> {
        match (reason, refused, failed) {
            (CloseReason::NoAnswer, true, _) => Some(Self::Refused),
            (CloseReason::NoAnswer, false, Some(io::ErrorKind::HostUnreachable)) => {
                Some(Self::Rejected)
            }
            (CloseReason::NoAnswer, false, Some(kind)) => Some(Self::NoWay(kind)),
            (CloseReason::NoAnswer, false, None) => Some(Self::Silent),
            (CloseReason::Unfinished, ..) => Some(Self::Unfinished),
            _ => None,
        }
    }

    pub(crate) const fn code(self) -> Code {
        match self {
            Self::Silent | Self::Refused | Self::Rejected => Code::UdpBlocked,
            Self::Unfinished => Code::Busy,
            Self::NoWay(_) => Code::NetSetup,
        }
    }

    /// What happened; `server` as people know it.
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
            Self::NoWay(kind) => {
                format!("datagrams to {at} cannot be sent from this machine or its network: {kind}")
            }
        }
    }

    /// The same with what to do, as a command's end.
    pub(crate) fn failure(self, what: &str, to: SocketAddr) -> Failure {
        let text = self.text(&to.to_string(), to);
        Failure::new(Exit::from(self.code()), text).fix(self.fix(what, to))
    }

    /// What to do about it; `what` should run there.
    pub(crate) fn fix(self, what: &str, to: SocketAddr) -> String {
        match self {
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
                "its UDP port is open: the server is overloaded, or loss is high; run the same \
                                 command again later"
                    .into()
            }
            Self::NoWay(_) => {
                "check routes and firewall here, as `ip route get` and `nft list ruleset` show them"
                    .into()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_firewall_that_rejects_is_not_taken_for_one_here() {
        let to: SocketAddr = "10.0.0.1:5".parse().unwrap();
        let failed = Some(io::ErrorKind::HostUnreachable);
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
        let denied = Some(io::ErrorKind::PermissionDenied);
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
                "permission denied",
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
