//! Opens a connection, as seen by the end that asks. A client asks twice, for a cookie and with it;
//! two equals ask each other at once. Each question is repeated every 250 ms.
//!
//! A cookie without an answer for half a second is asked for anew: libudt's listeners refuse a
//! cookie of the minute before without a word.

use std::time::Duration;

use farhaul_core::time::Instant;

use super::{
    seq,
    wire::{Handshake, Request},
};

const AGAIN: Duration = Duration::from_millis(250);
const STALE: Duration = Duration::from_millis(500);
/// The least packet size that is agreed to.
pub(super) const MIN_MSS: u32 = 76;
/// The most packets a peer is believed to have room for.
const MAX_WINDOW: u32 = 1 << 24;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// A client without a cookie.
    Ask,
    /// A client with a cookie.
    Show { cookie: u32, since: Instant },
    /// An equal that has received nothing.
    Meet,
    /// An equal that has received the other's handshake.
    Met(Agreed),
}

/// Parameters that both sides know once the connection is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Agreed {
    /// Socket id of the peer.
    pub(super) peer: u32,
    /// The peer's initial sequence number.
    pub(super) isn: u32,
    pub(super) mss: u32,
    /// Packets the peer has room for.
    pub(super) window: u32,
}

/// Result of a handshake: the agreement, nothing yet, or why the peer refuses.
pub(super) type Progress = Result<Option<Agreed>, String>;

/// State of the end that asks.
#[derive(Clone, Debug)]
pub(super) struct Opening {
    /// Handshake that is sent, apart from request, cookie and packet size.
    ours: Handshake,
    step: Step,
    /// Time to ask again, and when to give up.
    pub(super) due: Instant,
    pub(super) ends: Instant,
    /// True if something has been received.
    pub(super) answered: bool,
    asked: Option<Instant>,
    /// Time that an answer took.
    pub(super) rtt: Option<Duration>,
}

impl Opening {
    /// Asks with `ours`; gives up after `limit`.
    pub(super) fn new(now: Instant, ours: Handshake, limit: Duration) -> Self {
        let step = match ours.request {
            Request::RENDEZVOUS => Step::Meet,
            _ => Step::Ask,
        };
        Self {
            ours,
            step,
            due: now,
            ends: now + limit,
            answered: false,
            asked: None,
            rtt: None,
        }
    }

    /// Handshake to send now, if any, and the socket to send it to.
    pub(super) fn ask(&mut self, now: Instant) -> Option<(u32, Handshake)> {
        if self.due > now {
            return None;
        }
        if let Step::Show { since, .. } = self.step
            && now.since(since) >= STALE
        {
            self.step = Step::Ask;
        }
        self.due = now + AGAIN;
        // Asked again: the answer may be to either.
        self.asked = self.asked.xor(Some(now));
        let mut ask = self.ours;
        let to;
        (ask.request, to, ask.cookie, ask.mss) = match self.step {
            Step::Ask => (Request::CONNECT, 0, 0, ask.mss),
            Step::Show { cookie, .. } => (Request::RESPONSE, 0, cookie, ask.mss),
            Step::Meet => (Request::RENDEZVOUS, 0, 0, ask.mss),
            Step::Met(agreed) => (Request::RESPONSE, agreed.peer, 0, agreed.mss),
        };
        Some((to, ask))
    }

    /// The peer said `theirs`.
    pub(super) fn on_handshake(&mut self, now: Instant, theirs: &Handshake) -> Progress {
        if let Some(code) = theirs.request.rejected() {
            self.answered = true;
            return Err(format!(
                "the peer refuses the connection (UDT error {code}): another version, the other kind \
                 of socket, or too many connections"
            ));
        }
        match self.step {
            Step::Meet | Step::Met(_) => self.on_equal(now, theirs),
            Step::Ask | Step::Show { .. } => self.on_listener(now, theirs),
        }
    }

    fn on_listener(&mut self, now: Instant, theirs: &Handshake) -> Progress {
        let took = self.asked.take().map(|at| now.since(at));
        match (theirs.request, self.step) {
            (Request::CONNECT, Step::Ask) => {
                self.answered = true;
                self.rtt = took.or(self.rtt);
                self.step = Step::Show {
                    cookie: theirs.cookie,
                    since: now,
                };
                self.due = now;
                Ok(None)
            }
            // A listener's session also answers a first request so, when its own answer was lost.
            (Request::RESPONSE, Step::Ask | Step::Show { .. }) => {
                self.answered = true;
                self.rtt = took.or(self.rtt);
                if theirs.isn != self.ours.isn {
                    return Err(
                        "the answer has another initial sequence number (UDT error 1004)".into(),
                    );
                }
                Ok(agree(&self.ours, theirs))
            }
            _ => Ok(None),
        }
    }

    fn on_equal(&mut self, now: Instant, theirs: &Handshake) -> Progress {
        self.answered = true;
        match (theirs.request, self.step) {
            (Request::CONNECT, _) => {
                Err("the peer is a client, and this side waits for an equal (rendezvous)".into())
            }
            (Request::RENDEZVOUS | Request::RESPONSE | Request::CONFIRM, Step::Meet) => {
                if let Some(agreed) = agree(&self.ours, theirs) {
                    self.step = Step::Met(agreed);
                    self.due = now;
                    self.asked = None;
                }
                Ok(None)
            }
            (Request::RESPONSE | Request::CONFIRM, Step::Met(agreed)) => Ok(Some(agreed)),
            _ => Ok(None),
        }
    }

    /// The other equal already sends: its last handshake was lost.
    pub(super) const fn on_packet(&self) -> Option<Agreed> {
        match self.step {
            Step::Met(agreed) => Some(agreed),
            _ => None,
        }
    }
}

/// Agreement of two handshakes, if they can agree: the smaller packet size, each side's numbers and
/// room.
pub(super) fn agree(ours: &Handshake, theirs: &Handshake) -> Option<Agreed> {
    let sane = theirs.isn <= seq::MAX
        && (1..=seq::MAX).contains(&theirs.id)
        && theirs.mss >= MIN_MSS
        && theirs.window >= 2;
    sane.then(|| Agreed {
        peer: theirs.id,
        isn: theirs.isn,
        mss: ours.mss.min(theirs.mss),
        window: theirs.window.min(MAX_WINDOW),
    })
}

#[cfg(test)]
mod tests;
