//! Is the session alive, ending or over? Silence ends it; a close is told to the peer and told again
//! in answer to whatever still arrives, until the peer confirms or a few rtts have passed.

use std::time::Duration;

use farhaul_core::{protocol::CloseReason, time::Instant};

use crate::wire::frame::Cause;

/// The code the application sees when the peer found a violation of the protocol.
pub const CODE_PROTOCOL: u32 = u32::MAX - 1;
/// The code the application sees when the peer's store failed.
pub const CODE_STORE: u32 = u32::MAX;

/// The longest a closing session lingers.
const MAX_LINGER: Duration = Duration::from_secs(3);
/// Silence after which the peer is asked for a word.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// What the peer is told at the end.
#[derive(Clone, Debug)]
pub(crate) struct Farewell {
    pub(crate) cause: Cause,
    pub(crate) code: u32,
    pub(crate) text: String,
}

#[derive(Clone, Debug)]
enum State {
    Open,
    Closing {
        farewell: Farewell,
        send: bool,
        again: Instant,
        pause: Duration,
        until: Instant,
    },
    Over,
}

/// Liveness of a session.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    state: State,
    idle: Duration,
    heard: Instant,
    pinged: Instant,
}

impl Life {
    pub(crate) const fn new(now: Instant, idle: Duration) -> Self {
        Self {
            state: State::Open,
            idle,
            heard: now,
            pinged: now,
        }
    }

    pub(crate) fn limit_idle(&mut self, peer: Duration) {
        let floor = Duration::from_secs(1);
        self.idle = self.idle.min(peer.max(floor));
    }

    pub(crate) const fn on_heard(&mut self, now: Instant) {
        self.heard = now;
    }

    pub(crate) const fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    pub(crate) const fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// Ends at once.
    pub(crate) fn end(&mut self) {
        self.state = State::Over;
    }

    /// Ends after the peer was told.
    pub(crate) fn close(&mut self, now: Instant, farewell: Farewell, rtt: Duration) {
        let pause = rtt * 3 / 2 + Duration::from_millis(10);
        self.state = State::Closing {
            farewell,
            send: true,
            again: now + pause,
            pause: pause * 2,
            until: now + (pause * 5).min(MAX_LINGER),
        };
    }

    /// The peer closed first: the farewell is said once, in answer.
    pub(crate) const fn last_word(&mut self, now: Instant) {
        if let State::Closing { again, until, .. } = &mut self.state {
            (*again, *until) = (now, now);
        }
    }

    /// Something arrived after the close: it is answered by the close.
    pub(crate) const fn repeat(&mut self) {
        if let State::Closing { send, .. } = &mut self.state {
            *send = true;
        }
    }

    /// The farewell, if it is time to send it.
    pub(crate) fn take_farewell(&mut self) -> Option<Farewell> {
        match &mut self.state {
            State::Closing { farewell, send, .. } if *send => {
                *send = false;
                Some(farewell.clone())
            }
            _ => None,
        }
    }

    /// The peer is asked for a word at this time, if it says none before.
    pub(crate) fn ping_at(&self) -> Instant {
        let pause = KEEP_ALIVE.min(self.idle / 3);
        (self.heard + pause).max(self.pinged + pause / 3)
    }

    pub(crate) const fn on_ping(&mut self, now: Instant) {
        self.pinged = now;
    }

    /// The connection is lost at this time.
    pub(crate) fn idle_at(&self) -> Instant {
        self.heard + self.idle
    }

    /// When the state changes by itself.
    pub(crate) fn due(&self) -> Option<Instant> {
        match &self.state {
            State::Open | State::Over => None,
            State::Closing { again, until, .. } => Some(*again.min(until)),
        }
    }

    pub(crate) fn on_timeout(&mut self, now: Instant) {
        let State::Closing {
            send,
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
            *send = true;
            *again = now + *pause;
        }
    }
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
