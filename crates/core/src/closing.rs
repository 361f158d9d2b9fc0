//! Encodes the content of a close frame, and translates a close into what the peer's application
//! sees.

use crate::protocol::CloseReason;

/// The code the application sees when the peer had an internal error.
pub const CODE_INTERNAL: u32 = 1;
/// The code the application sees when the peer found a violation of the protocol.
pub const CODE_PROTOCOL: u32 = u32::MAX - 1;
/// The code the application sees when the peer's store failed.
pub const CODE_STORE: u32 = u32::MAX;

/// Reason of a close, as sent to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Closed by the application.
    Application,
    /// The peer's identity was refused.
    Auth,
    /// The peer broke the protocol.
    Protocol,
    /// The application's store failed.
    Store,
}

/// Content of a close frame.
#[derive(Clone, Debug)]
pub struct Closing {
    /// Cause of the close.
    pub cause: Cause,
    /// Application code.
    pub code: u32,
    /// Text for people.
    pub text: String,
}

impl Closing {
    /// The answer to the peer's.
    pub const fn answer() -> Self {
        Self {
            cause: Cause::Application,
            code: 0,
            text: String::new(),
        }
    }

    /// Close frame to send when this side closes for `reason`; none if the peer could not receive it.
    pub fn of(reason: &CloseReason) -> Option<Self> {
        let (cause, code, text) = match reason {
            CloseReason::Local { code, text } => (Cause::Application, *code, text),
            CloseReason::Auth(text) => (Cause::Auth, 0, text),
            CloseReason::Protocol(text) => (Cause::Protocol, 0, text),
            CloseReason::Store(text) | CloseReason::Starved(text) => (Cause::Store, 0, text),
            CloseReason::Internal(text) => (Cause::Application, CODE_INTERNAL, text),
            _ => return None,
        };
        let text = text.clone();
        Some(Self { cause, code, text })
    }
}

/// Reason that this side reports when the peer closed.
pub fn reported(cause: Cause, code: u32, text: String) -> CloseReason {
    let code = match cause {
        Cause::Application => code,
        Cause::Auth => return CloseReason::Denied(text),
        Cause::Protocol => CODE_PROTOCOL,
        Cause::Store => CODE_STORE,
    };
    CloseReason::Peer { code, text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peer_reports_who_ended_it() {
        let text = || "why".to_owned();
        let seen = |reason: &CloseReason| {
            let Closing { cause, code, text } = Closing::of(reason)?;
            Some(reported(cause, code, text))
        };
        let peer = |code| Some(CloseReason::Peer { code, text: text() });
        let local = |code| CloseReason::Local { code, text: text() };
        assert_eq!(seen(&local(7)), peer(7));
        assert_eq!(seen(&CloseReason::Protocol(text())), peer(CODE_PROTOCOL));
        assert_eq!(seen(&CloseReason::Store(text())), peer(CODE_STORE));
        assert_eq!(seen(&CloseReason::Starved(text())), peer(CODE_STORE));
        assert_eq!(seen(&CloseReason::Internal(text())), peer(CODE_INTERNAL));
        let denied = Some(CloseReason::Denied(text()));
        assert_eq!(seen(&CloseReason::Auth(text())), denied);
        assert_eq!(seen(&CloseReason::TimedOut), None);
        assert_eq!(seen(&peer(3).unwrap()), None);
    }
}
