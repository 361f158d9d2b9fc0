//! What is said at the end, and what does the application hear of it?

use farhaul_core::protocol::CloseReason;

use crate::wire::frame::Cause;

/// The code the application sees when the peer found a violation of the protocol.
pub const CODE_PROTOCOL: u32 = u32::MAX - 1;
/// The code the application sees when the peer's store failed.
pub const CODE_STORE: u32 = u32::MAX;

/// What the peer is told at the end.
#[derive(Clone, Debug)]
pub(crate) struct Farewell {
    pub(crate) cause: Cause,
    pub(crate) code: u32,
    pub(crate) text: String,
}

/// The peer's words as they may be shown: without what would steer a terminal.
pub(crate) fn words(text: &[u8]) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in String::from_utf8_lossy(text).chars() {
        if c.is_control() {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// What this side reports when the peer closed.
pub(crate) fn told(cause: Cause, code: u32, text: String) -> CloseReason {
    match cause {
        Cause::Application => CloseReason::Peer { code, text },
        Cause::Auth => CloseReason::Auth(text),
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
pub(crate) fn farewell(reason: &CloseReason) -> Option<Farewell> {
    let (cause, code, text) = match reason {
        CloseReason::Local { code, text } => (Cause::Application, *code, text),
        CloseReason::Auth(text) => (Cause::Auth, 0, text),
        CloseReason::Protocol(text) => (Cause::Protocol, 0, text),
        CloseReason::Store(text) => (Cause::Store, 0, text),
        _ => return None,
    };
    Some(Farewell {
        cause,
        code,
        text: text.clone(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_peers_words_do_not_steer_a_terminal() {
        assert_eq!(words("schön".as_bytes()), "schön");
        assert_eq!(words(b"a\x1b[2Jb\r\nc\xff"), "a\\u{1b}[2Jb\\r\\nc\u{fffd}");
        assert_eq!(words("\u{9b}31m".as_bytes()), "\\u{9b}31m");
    }

    proptest! {
        #[test]
        fn any_words_are_shown(text in proptest::collection::vec(any::<u8>(), 0..60)) {
            prop_assert!(!words(&text).contains(char::is_control));
        }
    }
}
