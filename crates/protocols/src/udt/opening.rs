//! How does a connection come about, as seen by who asks? A client asks twice, for a cookie and with
//! it; two equals ask each other at once. What is asked is asked again every 250 ms.
//!
//! A cookie that is not answered for half a second is asked for anew: libudt's listeners refuse a
//! cookie of the minute before without a word.

use std::time::Duration;

use farhaul_core::time::Instant;

use super::{
    seq,
    wire::{Handshake, Request, SocketType, VERSION},
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
    /// A client with one.
    Show { cookie: u32, since: Instant },
    /// An equal that has heard nothing.
    Meet,
    /// An equal that has heard the other.
    Met(Agreed),
}

/// What both sides know once the connection is made.
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

/// What a handshake brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nothing, or not yet.
    Waiting,
    /// The connection is made.
    Made(Agreed),
    /// The peer refuses.
    Refused(String),
}

/// Who asks.
#[derive(Clone, Debug)]
pub(super) struct Opening {
    /// What is asked, apart from request, cookie and packet size.
    ours: Handshake,
    step: Step,
    started: Instant,
    due: Instant,
    limit: Duration,
    heard: bool,
    asked: Option<Instant>,
    rtt: Option<Duration>,
}

impl Opening {
    /// Asks with `ours`; gives up after `limit`.
    pub(super) const fn new(now: Instant, ours: Handshake, limit: Duration) -> Self {
        let step = match ours.request {
            Request::Rendezvous => Step::Meet,
            _ => Step::Ask,
        };
        Self {
            ours,
            step,
            started: now,
            due: now,
            limit,
            heard: false,
            asked: None,
            rtt: None,
        }
    }

    pub(super) const fn due(&self) -> Instant {
        self.due
    }

    pub(super) fn gives_up_at(&self) -> Instant {
        self.started + self.limit
    }

    /// Something was heard.
    pub(super) const fn heard(&self) -> bool {
        self.heard
    }

    /// How long an answer took.
    pub(super) const fn rtt(&self) -> Option<Duration> {
        self.rtt
    }

    /// What to send now, if anything, and to which socket.
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
        self.asked = match self.asked {
            // Asked again: the answer may be to either.
            Some(_) => None,
            None => Some(now),
        };
        let (to, request, cookie, mss) = match self.step {
            Step::Ask => (0, Request::Connect, 0, self.ours.mss),
            Step::Show { cookie, .. } => (0, Request::Response, cookie, self.ours.mss),
            Step::Meet => (0, Request::Rendezvous, 0, self.ours.mss),
            Step::Met(agreed) => (agreed.peer, Request::Response, 0, agreed.mss),
        };
        let ask = Handshake {
            mss,
            request,
            cookie,
            ..self.ours
        };
        Some((to, ask))
    }

    /// The peer said `theirs`.
    pub(super) fn on_handshake(&mut self, now: Instant, theirs: &Handshake) -> Progress {
        let equal = matches!(self.step, Step::Meet | Step::Met(_));
        if let Request::Rejected(code) = theirs.request {
            self.heard = true;
            return Progress::Refused(format!(
                "the peer refuses the connection (UDT error {code}): another version, the other kind \
                 of socket, or too many connections"
            ));
        }
        if equal {
            self.on_equal(now, theirs)
        } else {
            self.on_listener(now, theirs)
        }
    }

    fn on_listener(&mut self, now: Instant, theirs: &Handshake) -> Progress {
        let took = self.asked.take().map(|at| now.since(at));
        match (theirs.request, self.step) {
            (Request::Connect, Step::Ask) => {
                self.heard = true;
                self.rtt = took.or(self.rtt);
                self.step = Step::Show {
                    cookie: theirs.cookie,
                    since: now,
                };
                self.due = now;
                Progress::Waiting
            }
            // A listener's session also answers a first request so, when its own answer was lost.
            (Request::Response, Step::Ask | Step::Show { .. }) => {
                self.heard = true;
                self.rtt = took.or(self.rtt);
                if theirs.isn != self.ours.isn {
                    return Progress::Refused(
                        "the answer has another initial sequence number (UDT error 1004)".into(),
                    );
                }
                self.agree(theirs).map_or(Progress::Waiting, Progress::Made)
            }
            _ => Progress::Waiting,
        }
    }

    fn on_equal(&mut self, now: Instant, theirs: &Handshake) -> Progress {
        self.heard = true;
        match (theirs.request, self.step) {
            (Request::Connect, _) => Progress::Refused(
                "the peer is a client, and this side waits for an equal (rendezvous)".into(),
            ),
            (Request::Rendezvous | Request::Response | Request::Confirm, Step::Meet) => {
                if let Some(agreed) = self.agree(theirs) {
                    self.step = Step::Met(agreed);
                    self.due = now;
                    self.asked = None;
                }
                Progress::Waiting
            }
            (Request::Response | Request::Confirm, Step::Met(agreed)) => Progress::Made(agreed),
            _ => Progress::Waiting,
        }
    }

    /// The other equal already sends: its last handshake was lost.
    pub(super) const fn on_packet(&self) -> Option<Agreed> {
        match self.step {
            Step::Met(agreed) => Some(agreed),
            _ => None,
        }
    }

    fn agree(&self, theirs: &Handshake) -> Option<Agreed> {
        agree(&self.ours, theirs)
    }
}

/// What two handshakes make, if they can: the smaller packet size, each side's numbers and room.
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

/// True if the peer speaks this version and kind of socket.
pub(super) fn is_compatible(theirs: &Handshake, socket: SocketType) -> bool {
    theirs.version == VERSION && theirs.socket == socket
}

#[cfg(test)]
mod tests;
