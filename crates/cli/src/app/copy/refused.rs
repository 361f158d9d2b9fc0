//! Explains to the user the end of a session. The text says more than the session could know. It
//! adds how the far end was to be reached, and how the two sides know each other's keys.

use std::net::SocketAddr;

use farhaul_core::protocol::CloseReason;
use farhaul_haul::PublicKey;
use farhaul_transfer::{Advice, Exit, Outcome};

use crate::{
    connect::Carrier,
    reach::{KnownBy, Unreached, refused},
};

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
    }

    fn unreached(&self, unreached: Unreached) -> (Exit, String, Advice) {
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
            Exit::ConnectionLost,
            format!("{carrier} gets to {server}, but the farhaul there did not answer through it"),
            Advice::again(NOT_THROUGH),
        )
    }
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
            assert_eq!(code, Exit::ConnectionLost);
            assert!(text.contains("gets to host"), "{text}");
            assert!(fix.contains("admit lo"), "{fix}");
        }
    }
}
