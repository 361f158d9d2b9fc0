//! Explains to the user the end of a session. The text says more than the session could know. It
//! adds how the far end was to be reached, and how the two sides know each other's keys.

use std::net::SocketAddr;

use farhaul_core::protocol::CloseReason;
use farhaul_haul::PublicKey;
use farhaul_transfer::{Advice, Code, Outcome};

use crate::{connect::Carrier, reach::Unreached};

/// Way in which the two sides know each other's keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum KnownBy {
    /// The user decided about the server's, its administrator about the user's.
    Key,
    /// Exchanged through ssh.
    Ssh,
    /// Contained in a ticket.
    Ticket,
}

/// The far end of an attempt.
pub(super) struct FarEnd<'a> {
    /// Name of the server as people know it.
    pub(super) server: &'a str,
    /// Address to which its datagrams went.
    pub(super) to: SocketAddr,
    /// Carrier of its datagrams.
    pub(super) carrier: Carrier,
    pub(super) known_by: KnownBy,
    /// Key of this side.
    pub(super) own: PublicKey,
}

/// A tunnel ends in a socket on the loopback device of the far end.
const NOT_THROUGH: &str = "run the same command again; if it stays so, a firewall there may keep it from reaching itself by UDP: admit lo; the server's log may say more";

impl FarEnd<'_> {
    /// Makes more of an error than the session could know.
    pub(super) fn explain(
        &self,
        outcome: &mut Outcome,
        reason: &CloseReason,
        unreached: Option<Unreached>,
    ) {
        let Some(error) = &mut outcome.error else {
            return;
        };
        if let Some(unreached) = unreached {
            (error.code, error.text, error.fix) = self.unreached(unreached);
        } else if let Some((text, fix)) = refused(reason, self.server, self.known_by, self.own) {
            (error.text, error.fix) = (text, fix);
        }
        outcome.summary.exit = outcome.summary.exit.with(error);
    }

    fn unreached(&self, unreached: Unreached) -> (Code, String, Advice) {
        let server = self.server;
        let carrier = match self.carrier {
            Carrier::Udp => {
                let text = unreached.text(server, self.to);
                let mut fix = unreached.fix("`farhaul serve`", self.to);
                if unreached == Unreached::Silent && self.known_by != KnownBy::Ssh {
                    fix = fix
                        .also("; where UDP is blocked, `farhaul serve --tcp` there takes TCP too");
                }
                return (unreached.code(), text, fix);
            }
            Carrier::Ssh => "ssh",
            Carrier::Tcp => "TCP",
            Carrier::Relay => "the relay",
        };
        (
            Code::ConnectionLost,
            format!("{carrier} gets to {server}, but the farhaul there did not answer through it"),
            Advice::again(NOT_THROUGH),
        )
    }
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
fn refused(
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

    #[test]
    fn who_is_not_answered_through_a_tunnel_learns_where_it_ends() {
        for carrier in [Carrier::Tcp, Carrier::Ssh] {
            let far = FarEnd {
                server: "host",
                to: SocketAddr::from(([127, 0, 0, 1], 9)),
                carrier,
                known_by: KnownBy::Key,
                own: PublicKey::from_bytes([7; 32]),
            };
            let (code, text, fix) = far.unreached(Unreached::Silent);
            assert_eq!(code, Code::ConnectionLost);
            assert!(text.contains("gets to host"), "{text}");
            assert!(fix.contains("admit lo"), "{fix}");
        }
    }
}
