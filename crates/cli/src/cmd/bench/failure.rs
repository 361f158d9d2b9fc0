//! Failures of a bench: their exit codes, and what to type.

use farhaul_core::protocol::CloseReason;
use farhaul_haul::Identity;
use farhaul_measure::bench::{self, BenchError, Target};
use farhaul_measure::registry::Choice;
use farhaul_transfer::TransferError;

use crate::{
    exit::{Exit, Failure},
    interrupt,
    reach::{Unreached, unopened},
};

/// Failure for a session that there never was.
pub(super) fn unreached(error: &BenchError, target: &Target) -> Option<Failure> {
    let unreached = match error {
        BenchError::Refused(_) => Some(Unreached::Refused),
        BenchError::Unsent(why) => Unreached::of(&CloseReason::NoAnswer, false, Some(*why)),
        BenchError::Closed(reason) => Unreached::of(reason, false, None),
        _ => None,
    };
    // A server of another protocol does not answer.
    let what = match target.protocol.as_str() {
        "haul" => "`farhaul bench serve`".into(),
        other => format!("`farhaul bench serve --protocol {other}`"),
    };
    unreached.map(|unreached| unreached.failure(&what, target.to))
}

/// Failure of the server, which has no key to be accepted.
pub(super) fn served(error: &BenchError) -> Failure {
    failure(error, &Choice::default())
}

pub(super) fn failure(error: &BenchError, choice: &Choice) -> Failure {
    match error {
        BenchError::Thread(e) => return Failure::from(TransferError::no_thread(e)),
        BenchError::Shard(e) => return Failure::from(unopened(e)),
        _ => {}
    }
    let exit = match error {
        BenchError::Closed(reason) => match reason {
            CloseReason::Lane(_) => Exit::UdpBlocked,
            CloseReason::Version(_) => Exit::Version,
            CloseReason::Auth(_) | CloseReason::Denied(_) => Exit::Auth,
            CloseReason::Protocol(_) => Exit::Protocol,
            reason if is_of_files(reason) => Exit::Usage,
            CloseReason::Local { .. } => Exit::Signal(interrupt::signal()),
            CloseReason::Peer { code, .. } => match *code {
                bench::REFUSED => Exit::Auth,
                bench::OTHER_VERSION => Exit::Version,
                bench::BROKEN => Exit::Protocol,
                bench::IDLE => Exit::ConnectionLost,
                _ => Exit::Busy,
            },
            CloseReason::Store(_) => Exit::VerifyFailed,
            CloseReason::Internal(_) => Exit::Internal,
            // Timed out, or something newer.
            _ => Exit::ConnectionLost,
        },
        _ => Exit::Internal,
    };
    let text = match error {
        BenchError::Closed(CloseReason::TimedOut) => {
            "the connection was lost: has the server ended, or the network in between? Try again, or `farhaul doctor HOST`".into()
        }
        BenchError::Closed(CloseReason::Denied(_)) => {
            match choice.identity.as_deref().map(Identity::from_seed) {
                Some(Ok(own)) => {
                    let own = own.public();
                    format!("the server does not accept your key {own}: start it with --allow {own}")
                }
                _ => "the server does not accept the key made for this run: name the file of yours with --identity, and \
                      start the server with --allow and what `farhaul key show` prints"
                    .into(),
            }
        }
        BenchError::Closed(reason) if is_of_files(reason) => {
            "`farhaul serve` runs there, which serves files: `farhaul doctor HOST` measures the path to it, or start \
             `farhaul bench serve` there on another port"
                .into()
        }
        other => other.to_string(),
    };
    Failure::new(exit, text)
}

/// True if the reason is a server of files.
const fn is_of_files(reason: &CloseReason) -> bool {
    matches!(reason, CloseReason::Local { code, .. } if *code == bench::OTHER_APP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_here_is_an_internal_error() {
        let exit = |reason| served(&BenchError::Closed(reason)).exit;
        assert_eq!(exit(CloseReason::Internal("x".into())), Exit::Internal);
        assert_eq!(exit(CloseReason::TimedOut), Exit::ConnectionLost);
    }
}
