//! Is the connection alive, ending or over? Silence ends it, after keep-alives (RFC 9293 §3.8.4); a
//! close is told until it is answered or a few round trips have passed.

use std::time::Duration;

use farhaul_core::{protocol::CloseReason, time::Instant};

use super::wire::Cause;

/// The code the application sees when the peer found a violation of the protocol.
pub const CODE_PROTOCOL: u32 = u32::MAX - 1;
/// The code the application sees when the peer's store failed.
pub const CODE_STORE: u32 = u32::MAX;

/// Silence that ends a connection.
const IDLE: Duration = Duration::from_mins(1);
/// Silence after which the peer is asked for a word, and pauses between asking.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// The longest a closing session lingers.
const MAX_LINGER: Duration = Duration::from_secs(3);

/// What the peer is told at the end.
#[derive(Clone, Debug)]
pub(super) struct Farewell {
    pub(super) cause: Cause,
    pub(super) code: u32,
    pub(super) text: String,
}

impl Farewell {
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
    let text = String::from_utf8_lossy(text).into_owned();
    let code = match cause {
        Cause::Application => code,
        Cause::Protocol => CODE_PROTOCOL,
        Cause::Store => CODE_STORE,
    };
    CloseReason::Peer { code, text }
}

#[derive(Clone, Debug)]
enum State {
    Open,
    Closing {
        farewell: Farewell,
        due: bool,
        again: Instant,
        pause: Duration,
        until: Instant,
    },
    Over,
}

/// Liveness of a session.
#[derive(Clone, Debug)]
pub(super) struct Life {
    state: State,
    heard: Instant,
    asked: Instant,
}

impl Life {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            state: State::Open,
            heard: now,
            asked: now,
        }
    }

    pub(super) const fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    pub(super) const fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    pub(super) const fn on_heard(&mut self, now: Instant) {
        self.heard = now;
    }

    /// Ends at once.
    pub(super) fn end(&mut self) {
        self.state = State::Over;
    }

    /// Ends once the peer has answered, or after a while.
    pub(super) fn close(&mut self, now: Instant, farewell: Farewell, rtt: Duration) {
        let pause = rtt * 3 / 2 + Duration::from_millis(10);
        self.state = State::Closing {
            farewell,
            due: true,
            again: now + pause,
            pause,
            until: now + (pause * 6).min(MAX_LINGER),
        };
    }

    /// The peer went first: it is answered once.
    pub(super) fn answer(&mut self, now: Instant) {
        self.state = State::Closing {
            farewell: Farewell {
                cause: Cause::Application,
                code: 0,
                text: String::new(),
            },
            due: true,
            again: now,
            pause: Duration::ZERO,
            until: now,
        };
    }

    /// Something arrived after the close: it is told again.
    pub(super) const fn repeat(&mut self) {
        if let State::Closing { due, .. } = &mut self.state {
            *due = true;
        }
    }

    /// What to tell the peer now, if anything.
    pub(super) fn take_farewell(&mut self) -> Option<Farewell> {
        match &mut self.state {
            State::Closing { farewell, due, .. } if *due => {
                *due = false;
                Some(farewell.clone())
            }
            _ => None,
        }
    }

    /// When the connection is lost.
    pub(super) fn idle_at(&self) -> Instant {
        self.heard + IDLE
    }

    /// When the peer is asked for a word.
    pub(super) fn ask_at(&self) -> Instant {
        self.heard.max(self.asked) + KEEP_ALIVE
    }

    pub(super) const fn on_asked(&mut self, now: Instant) {
        self.asked = now;
    }

    /// When a closing session's state changes by itself.
    pub(super) fn due(&self) -> Option<Instant> {
        match &self.state {
            State::Closing { again, until, .. } => Some(*again.min(until)),
            State::Open | State::Over => None,
        }
    }

    pub(super) fn on_timeout(&mut self, now: Instant) {
        let State::Closing {
            due,
            again,
            pause,
            until,
            ..
        } = &mut self.state
        else {
            return;
        };
        if *until <= now {
            self.state = State::Over;
        } else if *again <= now {
            *due = true;
            *pause *= 2;
            *again = now + *pause;
        }
    }
}
