//! Tracks whether a session is open, closing or closed. An idle timeout ends a session, after
//! keep-alives. A close is sent to the peer and repeated in answer to whatever still arrives.
//! Repeating ends when the peer confirms or a few round trips have passed. The content of the close
//! frame (`F`) is the protocol's.
//!
//! What arrives after the close is answered at most once a round trip and eight times in all:
//! its source address may be forged.

use std::time::Duration;

use crate::{stats::Why, time::Instant};

/// The longest a closing session lingers.
const MAX_LINGER: Duration = Duration::from_secs(3);
/// Closes sent in answer to what arrives after the first.
const MAX_ANSWERS: u8 = 8;
/// Idle time after which a keep-alive is sent.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
enum State<F> {
    Open,
    Closing {
        close_frame: F,
        send: bool,
        again: Instant,
        pause: Duration,
        until: Instant,
        rtt: Duration,
        /// Time before which the next answer does not leave.
        quiet_until: Instant,
        answers: u8,
        /// True if the peer closed first: it is over once this was sent.
        is_answer: bool,
    },
    Over,
}

/// Liveness of a session.
#[derive(Clone, Debug)]
pub struct Life<F> {
    state: State<F>,
    idle: Duration,
    /// Silence after which a keep-alive is sent, and the least time between two (a third).
    pauses: (Duration, Duration),
    heard: Instant,
    pinged: Instant,
}

impl<F: Clone> Life<F> {
    /// Open, with the idle timeout `idle`; none if that is [`Duration::MAX`].
    pub fn new(now: Instant, idle: Duration) -> Self {
        Self {
            state: State::Open,
            idle,
            pauses: pauses(idle),
            heard: now,
            pinged: now,
        }
    }

    /// Lowers the idle timeout to the `peer`'s, but not below one second.
    pub fn limit_idle(&mut self, peer: Duration) {
        let floor = Duration::from_secs(1);
        self.idle = self.idle.min(peer.max(floor));
        self.pauses = pauses(self.idle);
    }

    /// An authentic datagram was received.
    pub const fn on_heard(&mut self, now: Instant) {
        self.heard = now;
    }

    /// True if the session is neither closing nor over.
    pub const fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    /// True if the session is closed: nothing more is sent.
    pub const fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// Ends at once.
    pub fn end(&mut self) {
        self.state = State::Over;
    }

    /// Starts closing: sends `close_frame` if there is one, else ends at once.
    pub fn close(&mut self, now: Instant, close_frame: Option<F>, rtt: Duration) {
        let Some(close_frame) = close_frame else {
            return self.end();
        };
        let pause = rtt * 3 / 2 + Duration::from_millis(10);
        self.state = State::Closing {
            close_frame,
            send: true,
            again: now + pause,
            pause: pause * 2,
            until: now + (pause * 5).min(MAX_LINGER),
            rtt,
            quiet_until: now,
            answers: 0,
            is_answer: false,
        };
    }

    /// The peer closed first: the close frame is sent once, in answer.
    pub const fn answer_close(&mut self, now: Instant) {
        if let State::Closing {
            quiet_until,
            is_answer,
            ..
        } = &mut self.state
        {
            (*quiet_until, *is_answer) = (now, true);
        }
    }

    /// The peer closes, too, or once more: it is over, unless it has not been answered yet.
    pub fn confirmed(&mut self) {
        if !self.owes_answer() {
            self.end();
        }
    }

    /// True if the peer closed first, and has not been answered.
    const fn owes_answer(&self) -> bool {
        matches!(
            self.state,
            State::Closing {
                send: true,
                is_answer: true,
                ..
            }
        )
    }

    /// Answers a datagram that arrived after the close with the close, within bounds.
    pub fn repeat(&mut self, now: Instant) {
        if let State::Closing {
            send,
            rtt,
            quiet_until,
            answers,
            ..
        } = &mut self.state
            && *answers < MAX_ANSWERS
            && now >= *quiet_until
        {
            *send = true;
            *quiet_until = now + *rtt;
            *answers += 1;
        }
    }

    /// Takes the close frame, if it is time to send one.
    pub fn take_closing(&mut self) -> Option<F> {
        match &mut self.state {
            State::Closing {
                close_frame,
                send,
                until,
                quiet_until,
                is_answer,
                ..
            } if *send => {
                *send = false;
                if *is_answer {
                    *until = *quiet_until;
                }
                Some(close_frame.clone())
            }
            _ => None,
        }
    }

    /// Time at which a keep-alive is due, if nothing is received before.
    fn ping_at(&self) -> Instant {
        let (pause, again) = self.pauses;
        (self.heard + pause).max(self.pinged + again)
    }

    /// True if a keep-alive is to be sent now.
    pub fn ping(&mut self, now: Instant) -> bool {
        let due = self.idle < Duration::MAX && now >= self.ping_at();
        if due {
            self.pinged = now;
        }
        due
    }

    /// Time at which the idle timeout expires.
    pub fn idle_at(&self) -> Instant {
        self.heard + self.idle
    }

    /// Time at which [`Self::on_timeout`] is due.
    pub fn deadline(&self) -> Option<(Instant, Why)> {
        let at = match &self.state {
            State::Open if self.idle == Duration::MAX => return None,
            State::Open => self.idle_at().min(self.ping_at()),
            State::Closing { again, until, .. } => *again.min(until),
            State::Over => return None,
        };
        Some((at, Why::Liveness))
    }

    /// Ends or repeats a close.
    pub fn on_timeout(&mut self, now: Instant) {
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

/// Divided once, for deadlines are asked for with each batch.
fn pauses(idle: Duration) -> (Duration, Duration) {
    let pause = KEEP_ALIVE.min(idle / 3);
    (pause, pause / 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_silent_peer_is_asked_before_it_is_given_up() {
        let mut life: Life<()> = Life::new(at(0), Duration::from_mins(1));
        assert_eq!(life.ping_at(), at(10_000));
        assert!(life.ping(at(10_000)) && !life.ping(at(10_000)));
        assert!(life.ping_at() > at(10_000) && life.ping_at() < life.idle_at());
        life.on_heard(at(20_000));
        assert_eq!(life.idle_at(), at(80_000));
    }

    #[test]
    fn a_peer_cannot_ask_for_no_silence_at_all() {
        let mut life: Life<()> = Life::new(at(0), Duration::from_mins(1));
        life.limit_idle(Duration::ZERO);
        assert_eq!(life.idle_at(), at(1_000));
    }

    #[test]
    fn a_close_is_said_again_when_something_arrives_and_in_silence() {
        let mut life = Life::new(at(0), Duration::from_mins(1));
        life.close(at(0), Some("bye"), Duration::from_millis(100));
        assert_eq!(life.take_closing(), Some("bye"));
        assert_eq!(life.take_closing(), None);
        life.repeat(at(1));
        assert_eq!(life.take_closing(), Some("bye"));
        life.repeat(at(2));
        assert_eq!(life.take_closing(), None, "one answer a round trip");
        life.repeat(at(101));
        assert_eq!(life.take_closing(), Some("bye"));
        let mut said = 0;
        while !life.is_over() {
            let (due, _) = life.deadline().unwrap();
            life.on_timeout(due);
            said += usize::from(life.take_closing().is_some());
        }
        assert!((1..5).contains(&said), "{said}");
        assert_eq!(life.deadline(), None);
    }

    #[test]
    fn answers_to_what_arrives_after_the_close_are_bounded() {
        let mut life = Life::new(at(0), Duration::from_mins(1));
        life.close(at(0), Some(()), Duration::from_micros(10));
        assert!(life.take_closing().is_some());
        let mut said = 0;
        for millis in 0..1_000 {
            life.repeat(at(millis));
            said += u32::from(life.take_closing().is_some());
        }
        assert_eq!(said, u32::from(MAX_ANSWERS));
    }

    #[test]
    fn an_answer_is_owed_whatever_else_the_peer_sends_and_whatever_timer_is_due() {
        let mut life = Life::new(at(0), Duration::from_mins(1));
        life.close(at(0), Some("bye"), Duration::from_millis(100));
        life.answer_close(at(0));
        life.on_timeout(at(0));
        life.confirmed();
        assert!(!life.is_over());
        assert_eq!(life.take_closing(), Some("bye"));
        life.confirmed();
        assert!(life.is_over());
    }

    #[test]
    fn an_answer_is_said_once() {
        let mut life = Life::new(at(0), Duration::from_mins(1));
        life.close(at(0), Some(()), Duration::from_millis(100));
        life.answer_close(at(0));
        assert_eq!(life.take_closing(), Some(()));
        life.on_timeout(at(0));
        assert!(life.is_over());
    }
}
