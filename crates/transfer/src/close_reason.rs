//! Carries an error in the reason with which a session is closed, and reads it there.

use farhaul_core::protocol::CloseReason;

use crate::{
    error::{Advice, TransferError},
    wire::Exit,
};

/// Separator of cause and remedy in a close reason.
const ADVICE: &str = "; what to do: ";

/// The close reason for an error that ends the session.
pub(crate) fn close_text(error: &TransferError) -> String {
    if error.fix.is_empty() {
        return error.text.clone();
    }
    [&error.text, ADVICE, &error.fix].concat()
}

/// Reason of a close that a server of benches gave, which takes messages of copies for broken ones of its own. It
/// declares nothing.
pub(crate) fn of_benches(reason: CloseReason, declares: bool) -> CloseReason {
    const BROKEN: u32 = 1;
    match reason {
        CloseReason::Peer { code: BROKEN, .. } if !declares => {
            let text = "it may be a `farhaul bench serve`, which takes no part in copies";
            let fix =
                "start `farhaul serve` there on another port, or measure with `farhaul bench HOST`";
            CloseReason::Peer {
                code: Exit::Version.number().into(),
                text: [text, ADVICE, fix].concat(),
            }
        }
        reason => reason,
    }
}

/// Exit that a close states, if it states one.
fn exit_of(code: u32) -> Option<Exit> {
    u8::try_from(code).ok().and_then(Exit::from_number)
}

/// Failure that a close states.
fn failure_of(code: u32) -> Exit {
    let failure = exit_of(code).filter(|exit| *exit != Exit::Ok);
    failure.unwrap_or(Exit::ConnectionLost)
}

/// Reason of a close as a client knows it.
pub fn closed_by_server(reason: &CloseReason) -> CloseReason {
    let mut reason = reason.clone();
    if let CloseReason::Peer { code, .. } = &mut reason
        && let Some(theirs) = exit_of(*code)
    {
        *code = theirs.of_server().number().into();
    }
    reason
}

/// Error that the end of a session means for a transfer that was not finished.
pub fn error_of(reason: &CloseReason) -> TransferError {
    let resume = || Advice::resume("run the same command again");
    match reason {
        CloseReason::Peer { code, text } => {
            let code = failure_of(*code);
            let (text, theirs) = text.rsplit_once(ADVICE).unwrap_or((text, ""));
            let text = format!("the peer ended the transfer: {text}");
            let fix = match code {
                Exit::NoSpace => {
                    Advice::resume("free space there, then run the same command again")
                }
                Exit::Busy if !text.contains("sessions") => resume(),
                Exit::Busy if text.contains("from your address") => Advice::again(
                    "run the same command again when one of them has ended; `farhaul serve --max-per-source` there sets their maximum number",
                ),
                Exit::Busy => Advice::resume("run the same command again later").also(
                    "; `farhaul serve --max-sessions` there sets the maximum number of sessions",
                ),
                _ if !theirs.is_empty() => Advice::of_peer(theirs.to_owned()),
                _ if code.retryable() || code == Exit::Limit => resume(),
                _ => Advice::default(),
            };
            TransferError::new(code, text).fix(fix)
        }
        CloseReason::Local { code, text } => {
            TransferError::new(failure_of(*code), text.clone()).fix(resume())
        }
        CloseReason::NoAnswer => TransferError::new(Exit::UdpBlocked, "no answer from the peer")
            .fix("check that `farhaul serve` runs there and that its UDP port is open"),
        CloseReason::Unfinished => TransferError::new(
            Exit::Busy,
            "the peer answered, but the handshake was not finished",
        )
        .fix(Advice::again(
            "it is overloaded, or loss is high: run the same command again later",
        )),
        CloseReason::Version(text) => {
            TransferError::new(Exit::Version, format!("no common version: {text}"))
                .fix("install the same version on both sides")
        }
        CloseReason::Auth(text) | CloseReason::Denied(text) => {
            TransferError::new(Exit::Auth, format!("not authenticated: {text}"))
        }
        CloseReason::Protocol(text) => TransferError::new(
            Exit::Protocol,
            format!("the peer violated the protocol: {text}"),
        ),
        CloseReason::Store(text) => TransferError::new(Exit::Protocol, text.clone()),
        CloseReason::Starved(text) => TransferError::new(Exit::ConnectionLost, text.clone()).fix(
            Advice::resume("check the disk there, then run the same command again"),
        ),
        CloseReason::Internal(text) => {
            TransferError::new(Exit::Internal, format!("a fault of this program: {text}"))
                .fix(Advice::resume("report it; run the same command again"))
        }
        _ => TransferError::new(Exit::ConnectionLost, "the connection was lost").fix(resume()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_peer_advises_is_handed_on() {
        let reported = |error: &TransferError| {
            let code = u32::from(error.code.number());
            let text = close_text(error);
            error_of(&CloseReason::Peer { code, text })
        };
        let error = TransferError::new(Exit::DestError, "the disk is gone; look").fix("mount it");
        let heard = reported(&error);
        assert_eq!((heard.code, &heard.fix[..]), (Exit::DestError, "mount it"));
        assert!(heard.text.ends_with("the disk is gone; look"), "{heard}");
        let silent = reported(&TransferError::new(Exit::DestError, "gone"));
        assert!(silent.text.ends_with("gone") && silent.fix.is_empty());
        let lost = reported(&TransferError::new(Exit::ConnectionLost, "gone"));
        assert!(lost.fix.contains("run the same command again"));
    }

    #[test]
    fn a_receiver_without_room_is_tried_again_later() {
        let e = error_of(&CloseReason::Starved("no room".into()));
        assert!(e.code.retryable(), "{e}");
        assert!(e.fix.contains("disk there") && e.fix.contains("run the same command again"));
    }

    #[test]
    fn a_panic_here_is_our_fault_and_not_the_networks() {
        let e = error_of(&CloseReason::Internal("index out of bounds".into()));
        assert_eq!(e.code, Exit::Internal);
        assert!(e.text.contains("index out of bounds"), "{e}");
        assert_eq!(error_of(&CloseReason::TimedOut).code, Exit::ConnectionLost);
    }
}
