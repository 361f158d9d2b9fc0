//! Opens a session. Both ends greet, and the client proves its address: by a control lane whose
//! token its datagrams repeat, or by repeating what the listener sent.
//!
//! | | with a control lane | without |
//! |---|---|---|
//! | client | frame `Hello`; `Join` until it is confirmed | `HELLO` until `WELCOME` comes |
//! | listener | frame `Hello`; confirms | `WELCOME` for each `HELLO` |
//! | client | frame `Ready` | `READY` until a `CHANNEL` datagram comes |

use std::time::Duration;

use super::{
    carrier::SessionState,
    channel::Channel,
    datagram::{self, HEAD, HELLO, Join, READY, WELCOME},
    frame::MAX_GREETING,
    machine::Machine,
    session::Shell,
};
use crate::{
    codec::{DecodeError, NoRoom, Writer},
    protocol::CloseReason,
    time::Instant,
};

/// Pauses before repetitions: the first, then twice as long each time, up to the second. A datagram
/// that joins may overtake the token on its lane.
const AGAIN: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(250)];
/// A smaller full datagram than this is not agreed to.
const LEAST_DATAGRAM: u16 = 64;
/// Anti-amplification limit: an answer is at most this many times as long as its request.
const MOST_ANSWERED: usize = 3;
/// The least rtt that an opening is believed to have shown.
const LEAST_RTT: Duration = Duration::from_micros(100);

/// State of the opening.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) started: Instant,
    /// True if the control lane is open.
    pub(super) lane: bool,
    /// True if the peer's datagrams come (client: and its own arrive).
    joined: bool,
    /// True if the peer's greeting was received.
    pub(super) greeted: bool,
    /// Time at which the own greeting left.
    asked: Option<Instant>,
    /// Time at which a handshake datagram is retransmitted.
    pub(super) again: Option<Instant>,
    pause: Duration,
    /// Answers due, and the length of the datagrams that they answer.
    owed: u32,
    asked_len: usize,
}

impl Opening {
    pub(super) fn new(now: Instant, asks: bool) -> Self {
        Self {
            started: now,
            lane: false,
            joined: false,
            greeted: false,
            asked: None,
            again: asks.then_some(now),
            pause: if asks { AGAIN[1] } else { AGAIN[0] },
            owed: 0,
            asked_len: 0,
        }
    }

    /// Schedules the next retransmission.
    fn repeat(&mut self, now: Instant) {
        self.again = Some(now + self.pause);
        self.pause = (self.pause * 2).min(AGAIN[1]);
    }
}

impl<M: Machine> Shell<M> {
    /// Reason why the opening was not done in time.
    pub(super) fn unopened(&self) -> CloseReason {
        let (Some(opening), true) = (&self.opening, self.ends.client) else {
            return CloseReason::Unfinished;
        };
        if self.ends.token.is_none() {
            return CloseReason::NoAnswer;
        }
        let text = match (opening.lane, opening.greeted) {
            (false, _) => {
                "no answer to the control connection (TCP): is somebody there, and is the TCP port of \
                 that number open?"
            }
            (true, true) => {
                "datagrams reach the peer, but none comes back: does something on the way block UDP \
                 from there? The control connection (TCP) works"
            }
            (true, false) => {
                "the control connection (TCP) works, but the peer does not answer to it: does \
                 something on the way block UDP, or is it another protocol that listens there?"
            }
        };
        CloseReason::Lane(text.into())
    }

    /// The peer's greeting came, over whatever carries it.
    pub(super) fn agree(
        &mut self,
        now: Instant,
        datagram: u16,
        greeting: &[u8],
    ) -> Result<(), DecodeError> {
        let Some(opening) = self.opening.as_mut().filter(|o| !o.greeted) else {
            return Err(DecodeError::Malformed("a greeting, out of turn"));
        };
        if datagram < LEAST_DATAGRAM || greeting.len() > MAX_GREETING {
            return Err(DecodeError::Malformed("greeting"));
        }
        self.machine.on_greeting(greeting)?;
        opening.greeted = true;
        self.datagram = self.datagram.min(datagram);
        let rtt = opening.asked.map_or(Duration::ZERO, |at| now.since(at));
        self.begin(now, rtt);
        Ok(())
    }

    /// The machine may work, and an answer takes `rtt`.
    fn begin(&mut self, now: Instant, rtt: Duration) {
        if self.ends.client || !rtt.is_zero() {
            self.rtt = rtt.max(LEAST_RTT);
        }
        self.channel.set_rtt(self.rtt);
        self.machine.open(now, self.datagram.into(), self.rtt);
    }

    /// The session is open.
    fn opened(&mut self, state: &mut SessionState) {
        self.opening = None;
        state.opened(self.limits.idle);
    }

    /// The client has returned the nonce or the token: its address is validated.
    pub(super) fn on_ready(&mut self, state: &mut SessionState) -> Result<(), DecodeError> {
        let opening = self.opening.as_ref();
        let asked = opening.filter(|o| o.greeted && !self.ends.client);
        let Some(asked) = asked.and_then(|o| o.asked) else {
            return Err(DecodeError::Malformed("ready, out of turn"));
        };
        self.begin(state.now, state.now.since(asked).max(LEAST_RTT));
        self.opened(state);
        Ok(())
    }

    pub(super) fn own_greeting(&mut self, now: Instant) -> Vec<u8> {
        if let Some(opening) = &mut self.opening {
            opening.asked.get_or_insert(now);
        }
        let mut greeting = Vec::new();
        self.machine.greeting(&mut greeting);
        greeting
    }

    /// True if the lane may carry the own greeting.
    pub(super) fn greets(&self) -> bool {
        self.opening
            .as_ref()
            .is_some_and(|o| o.asked.is_none() && (self.ends.client || o.greeted))
    }

    /// True once when the session opens: a client knows the listener's greeting and that datagrams
    /// pass.
    pub(super) fn becomes_ready(&mut self, state: &mut SessionState) -> bool {
        let opening = self.opening.as_ref();
        let ready = self.ends.client && opening.is_some_and(|o| o.greeted && o.joined);
        if ready {
            self.opened(state);
        }
        ready
    }

    /// The lane is there.
    pub(super) fn on_lane_opened(&mut self, now: Instant) {
        if let Some(opening) = &mut self.opening {
            opening.lane = true;
            opening.again = self.ends.client.then_some(now);
        }
    }

    /// Handles a datagram that joins.
    pub(super) fn on_join(&mut self, join: Join) -> Result<(), DecodeError> {
        let token = self.ends.token;
        match (join, self.ends.client) {
            (Join::Asked(t), false) if Some(t) == token => {
                if let Channel::Lane(lane) = &mut self.channel {
                    lane.joins_owed = (lane.joins_owed + 1).min(8);
                }
            }
            (Join::Confirmed(t), true) if Some(t) == token => {
                if let Some(opening) = &mut self.opening {
                    opening.joined = true;
                    opening.again = None;
                }
            }
            _ => return Err(DecodeError::Malformed("token")),
        }
        Ok(())
    }

    /// A datagram that joins and is due.
    pub(super) fn take_join(&mut self, now: Instant) -> Option<Join> {
        let token = self.ends.token?;
        if let Channel::Lane(lane) = &mut self.channel
            && lane.joins_owed > 0
        {
            lane.joins_owed -= 1;
            return Some(Join::Confirmed(token));
        }
        let opening = self.opening.as_mut()?;
        opening.again.filter(|at| *at <= now)?;
        opening.repeat(now);
        Some(Join::Asked(token))
    }

    /// A datagram of the opening came, without a lane.
    pub(super) fn on_greeting(
        &mut self,
        state: &mut SessionState,
        kind: u8,
        body: &[u8],
    ) -> Result<(), DecodeError> {
        const TURN: DecodeError = DecodeError::Malformed("opening, out of turn");
        match (kind, self.ends.client) {
            (HELLO, false) => {
                if self.opening.as_ref().is_some_and(|o| !o.greeted) {
                    let (datagram, greeting) = datagram::hello(body)?;
                    self.agree(state.now, datagram, greeting)?;
                }
                if let Some(opening) = &mut self.opening {
                    let len = HEAD + body.len();
                    opening.asked_len = match opening.owed {
                        0 => len,
                        _ => opening.asked_len.min(len),
                    };
                    opening.owed = (opening.owed + 1).min(2);
                }
                Ok(())
            }
            (WELCOME, true) if self.opening.is_some() => {
                let (nonce, hello) = body.split_first_chunk::<8>().ok_or(TURN)?;
                let (datagram, greeting) = datagram::hello(hello)?;
                self.agree(state.now, datagram, greeting)?;
                self.ends.nonce = *nonce;
                self.channel.says_ready(state.now);
                self.opened(state);
                Ok(())
            }
            (WELCOME, true) => Ok(()),
            (READY, false) if body == self.ends.nonce => {
                self.channel.answer();
                if self.opening.is_some() {
                    self.on_ready(state)?;
                }
                Ok(())
            }
            _ => Err(TURN),
        }
    }

    /// The type of a datagram of the opening that is due, without a lane.
    pub(super) fn greeting_due(&mut self, now: Instant) -> Option<u8> {
        if self.ends.token.is_some() {
            return None;
        }
        if self.channel.take_ready(now) {
            return Some(READY);
        }
        let opening = self.opening.as_mut()?;
        if opening.owed > 0 {
            opening.owed -= 1;
            return Some(WELCOME);
        }
        opening.again.filter(|at| *at <= now)?;
        opening.repeat(now);
        Some(HELLO)
    }

    /// Writes the greeting.
    pub(super) fn write_greeting(
        &mut self,
        now: Instant,
        kind: u8,
        w: &mut Writer<'_>,
    ) -> Result<bool, NoRoom> {
        if kind != HELLO {
            w.put(&self.ends.nonce)?;
        }
        if kind != READY {
            let greeting = self.own_greeting(now);
            w.u16(self.datagram)?;
            w.put(&greeting)?;
        }
        // The asker may be somebody else than the one who is answered.
        let asked = self.opening.as_ref().map_or(0, |o| o.asked_len);
        Ok(kind != WELCOME || w.len() <= MOST_ANSWERED * asked)
    }
}
