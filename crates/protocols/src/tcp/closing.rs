//! What is said at the end, and what does the application hear of it?

use farhaul_core::protocol::CloseReason;

use super::wire::Cause;

/// The code the application sees when the peer found a violation of the protocol.
pub const CODE_PROTOCOL: u32 = u32::MAX - 1;
/// The code the application sees when the peer's store failed.
pub const CODE_STORE: u32 = u32::MAX;

/// What the peer is told at the end.
#[derive(Clone, Debug)]
pub(super) struct Closing {
    pub(super) cause: Cause,
    pub(super) code: u32,
    pub(super) text: String,
}

impl Closing {
    /// The answer to the peer's.
    pub(super) const fn answer() -> Self {
        Self {
            cause: Cause::Application,
            code: 0,
            text: String::new(),
        }
    }

    /// What to tell when closing for `reason`; nothing if nobody would hear it.
    pub(super) fn of(reason: &CloseReason) -> Option<Self> {
        let (cause, code, text) = match reason {
            CloseReason::Local { code, text } => (Cause::Application, *code, text),
            CloseReason::Protocol(text) => (Cause::Protocol, 0, text),
            CloseReason::Store(text) => (Cause::Store, 0, text),
            _ => return None,
        };
        let text = text.clone();
        Some(Self { cause, code, text })
    }
}

/// What this side reports when the peer told `cause`, `code` and `text`.
pub(super) fn told(cause: Cause, code: u32, text: &[u8]) -> CloseReason {
    let text = farhaul_core::text::shown(text);
    let code = match cause {
        Cause::Application => code,
        Cause::Protocol => CODE_PROTOCOL,
        Cause::Store => CODE_STORE,
    };
    CloseReason::Peer { code, text }
}
