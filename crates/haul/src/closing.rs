//! What is said at the end, and what does the application hear of it?

use farhaul_core::protocol::CloseReason;

use crate::wire::frame::Cause;

/// The code the application sees when the peer found a violation of the protocol.
pub const CODE_PROTOCOL: u32 = u32::MAX - 1;
/// The code the application sees when the peer's store failed.
pub const CODE_STORE: u32 = u32::MAX;

/// The code the application sees when the peer had an internal error.
pub const CODE_INTERNAL: u32 = 1;

/// What the peer is told at the end.
#[derive(Clone, Debug)]
pub(crate) struct Closing {
    pub(crate) cause: Cause,
    pub(crate) code: u32,
    pub(crate) text: String,
}

/// What this side reports when the peer closed.
pub(crate) fn told(cause: Cause, code: u32, text: String) -> CloseReason {
    match cause {
        Cause::Application => CloseReason::Peer { code, text },
        Cause::Auth => CloseReason::Denied(text),
        Cause::Protocol => CloseReason::Peer {
            code: CODE_PROTOCOL,
            text,
        },
        Cause::Store => CloseReason::Peer {
            code: CODE_STORE,
            text,
        },
    }
}

/// What the peer is told when this side closes for `reason`; nothing if nobody would hear it.
pub(crate) fn close_frame(reason: &CloseReason) -> Option<Closing> {
    let (cause, code, text) = match reason {
        CloseReason::Local { code, text } => (Cause::Application, *code, text),
        CloseReason::Auth(text) => (Cause::Auth, 0, text),
        CloseReason::Protocol(text) => (Cause::Protocol, 0, text),
        CloseReason::Store(text) | CloseReason::Starved(text) => (Cause::Store, 0, text),
        CloseReason::Internal(text) => (Cause::Application, CODE_INTERNAL, text),
        _ => return None,
    };
    Some(Closing {
        cause,
        code,
        text: text.clone(),
    })
}
