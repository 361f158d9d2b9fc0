//! When does a copy go through ssh? When ssh has started its far end, and UDP does not get through, or does no longer.

use std::net::SocketAddr;

use farhaul_haul::{Identity, PeerPolicy, PublicKey};
use farhaul_io::Stop;
use farhaul_transfer::{Code, TransferError};

use super::{Ended, Run};

/// How it goes on.
struct Way {
    /// Where sessions find the far end.
    at: SocketAddr,
    warning: String,
}

impl Run<'_> {
    /// How the copy ended by UDP, or else through ssh.
    pub(super) fn or_through_ssh(
        &self,
        ended: Result<Ended, TransferError>,
        identity: &Identity,
        trusted: &[PublicKey],
        stop: &Stop,
    ) -> Result<Ended, TransferError> {
        let Some(way) = self.way_through_ssh(&ended, stop) else {
            return ended;
        };
        let peers = PeerPolicy::Keys(trusted.to_vec());
        let mut ended = self.once(way.at, identity, peers, stop)?;
        ended.outcome.summary.warnings.insert(0, way.warning);
        Ok(ended)
    }

    /// The way through ssh, if the attempts by UDP ended so that it is needed, and there is one.
    fn way_through_ssh(&self, ended: &Result<Ended, TransferError>, stop: &Stop) -> Option<Way> {
        let bridge = self.bridge.as_ref()?;
        if !self.args.falls_back() || stop.is_set() || self.pipe.has_begun() {
            return None;
        }
        let (code, began) = match ended {
            Err(e) => (e.code, false),
            Ok(ended) => (ended.outcome.error.as_ref()?.code, !ended.unreached),
        };
        let lost = match code {
            Code::UdpBlocked | Code::NetSetup => !began,
            // What went through a pipe cannot be continued.
            Code::ConnectionLost => began && !self.job.is_piped(),
            _ => false,
        };
        if !lost {
            return None;
        }
        let (at, heard) = match bridge.tunnel() {
            Ok(found) => found,
            Err(e) => {
                errln!("farhaul: warning: cannot go through ssh: {e}");
                return None;
            }
        };
        self.tunnelled.set(true);
        let port = self.job.server().port;
        let cause = if began {
            format!("UDP got through no longer (port {port})")
        } else if code == Code::NetSetup {
            format!("UDP cannot leave this machine for port {port} there")
        } else if heard {
            format!(
                "UDP from there to here is blocked (port {port}): datagrams arrived there, and no answer here"
            )
        } else {
            format!("UDP from here to there is blocked (port {port}): nothing arrived there")
        };
        let warning = format!("{cause}; the copy goes through ssh, which may be slower");
        if !self.args.quiet && !self.args.for_programs() {
            errln!("farhaul: {warning}");
        }
        Some(Way { at, warning })
    }
}
