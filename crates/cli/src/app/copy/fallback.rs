//! Moves a copy into a tunnel when UDP does not get through, or does no longer, and there is a
//! tunnel. The tunnel is the ssh that started its far end, or TCP to a server that was started with
//! --tcp.

use std::{io, net::SocketAddr, time::Duration};

use farhaul_core::protocol::CloseReason;
use farhaul_io::tunnel::{Answer, Tunnel};
use farhaul_transfer::{Exit, TransferError};

use super::{Run, attempt::Ended};
use crate::{
    app::console::Level,
    connect::{self, Carrier, no_tunnel},
    ssh::chunks,
};

/// Time that the machine that ordered the copy may take to answer, which asks the far end first.
const RELAY_ANSWER: Duration = Duration::from_secs(20);

/// Way of an attempt.
pub(super) struct Way {
    pub(super) tunnel: Tunnel,
    pub(super) warning: Option<String>,
    /// True if there was a session before, in which something may have been done.
    pub(super) goes_on: bool,
}

/// Reason that UDP is not the way.
enum Cause {
    /// UDP was not to be tried.
    Unwanted,
    /// The session was lost.
    Broken,
    /// The machine or its network refuses to send.
    Refused,
    /// The peer did not answer.
    Silent,
}

impl Run {
    /// The tunnel, if the attempts by UDP ended so that one is needed, or there were none. An error if that is the reason
    /// why the copy cannot go on; where there is no tunnel, `ended` says why.
    pub(super) fn way_around(
        &self,
        ended: Option<&Result<Ended, TransferError>>,
        addresses: &[SocketAddr],
    ) -> Result<Option<Way>, TransferError> {
        let Some(cause) = self.cause(ended) else {
            return Ok(None);
        };
        match self.tunnel(addresses) {
            Ok((tunnel, carrier)) => {
                self.carrier.set(carrier);
                let warning = self.warning(&cause, &tunnel);
                if let Some(warning) = &warning {
                    self.say(Level::Notice, &format!("farhaul: {warning}"));
                }
                let goes_on = matches!(cause, Cause::Broken);
                Ok(Some(Way {
                    tunnel,
                    warning,
                    goes_on,
                }))
            }
            Err((carrier, e)) if ended.is_none() => Err(no_tunnel(carrier, &e)),
            Err((Carrier::Ssh, e)) => {
                let text = format!("farhaul: warning: cannot go through ssh: {e}");
                self.say(Level::Important, &text);
                Ok(None)
            }
            Err((Carrier::Relay, e)) => {
                let text = format!("farhaul: warning: the copy cannot be relayed: {e}");
                self.say(Level::Important, &text);
                Ok(None)
            }
            // Most servers do not take TCP, and whether one listens is no news where none answers.
            Err(_) => Ok(None),
        }
    }

    /// Reason to open a tunnel.
    fn cause(&self, ended: Option<&Result<Ended, TransferError>>) -> Option<Cause> {
        let Some(ended) = ended else {
            return Some(Cause::Unwanted);
        };
        if !self.request.ways.falls_back || self.pipe.has_begun() {
            return None;
        }
        let ended = match ended {
            Err(e) => return (e.code == Exit::NetSetup).then_some(Cause::Refused),
            Ok(ended) => ended,
        };
        if self.is_other(ended) {
            return Some(Cause::Silent);
        }
        match (&ended.reason, ended.outcome.error.as_ref()?.code) {
            (CloseReason::NoAnswer, Exit::UdpBlocked) => Some(Cause::Silent),
            (CloseReason::NoAnswer, Exit::NetSetup) => Some(Cause::Refused),
            // What went through a pipe cannot be continued.
            (CloseReason::TimedOut, Exit::ConnectionLost) if !self.request.job.is_piped() => {
                Some(Cause::Broken)
            }
            _ => None,
        }
    }

    fn tunnel(&self, addresses: &[SocketAddr]) -> Result<(Tunnel, Carrier), (Carrier, io::Error)> {
        if let (Some(_), Some(_)) = (&self.request.ordered, &self.met) {
            let tunnel = chunks::tunnel(RELAY_ANSWER);
            return tunnel
                .map(|tunnel| (tunnel, Carrier::Relay))
                .map_err(|e| (Carrier::Relay, e));
        }
        connect::tunnel(self.bridge.as_ref(), addresses, &self.request.ways)
    }

    /// Warning for people: the direction that is blocked.
    fn warning(&self, cause: &Cause, tunnel: &Tunnel) -> Option<String> {
        let port = self.request.job.server().port;
        if let (Carrier::Relay, Some(ordered)) = (self.carrier.get(), &self.request.ordered) {
            let (from, to) = (&ordered.called, self.request.job.server());
            let cause = match cause {
                Cause::Unwanted => return None,
                Cause::Broken => "gets through no longer",
                Cause::Refused | Cause::Silent => "does not get through",
            };
            return Some(format!(
                "UDP from {from} to {to} {cause} (port {port}); the copy is relayed through this machine, which may be slower"
            ));
        }
        let heard = tunnel.answer() == Answer::Heard;
        let cause = match cause {
            Cause::Unwanted => return None,
            Cause::Broken => format!("UDP got through no longer (port {port})"),
            Cause::Refused => format!("UDP cannot leave this machine for port {port} there"),
            Cause::Silent if heard => format!(
                "UDP from there to here is blocked (port {port}): datagrams arrived there, and no answer here"
            ),
            Cause::Silent => {
                format!("UDP from here to there is blocked (port {port}): nothing arrived there")
            }
        };
        let way = self.carrier.get().way();
        Some(format!("{cause}; the copy goes {way}, which may be slower"))
    }
}
