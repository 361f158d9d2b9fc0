//! Is the peer alive, and has it been told of the end? libudt counts expirations of a timer that gets
//! longer each time and gives up after about 46 s of silence; the fixed session says something at
//! least every second, less and less often while it hears nothing, and gives up after 15 s without a
//! word. A shutdown is said once by libudt, three times by the fixed.
//!
//! Less and less often: whatever libudt hears starts its timer anew, and that timer is all that makes
//! it send again what a dark path has swallowed.

use std::time::Duration;

use farhaul_core::time::Instant;

use super::{Behaviour, rtt::RoundTrip, send::SYN};

/// Expirations after which libudt gives up, and the least time the last one took.
const LAST: u32 = 16;
const LEAST: Duration = Duration::from_secs(5);
/// Unit of libudt's timer.
const UNIT: Duration = Duration::from_millis(300);
/// The fixed session says something this often, and waits this long for a word; longer if answers
/// take very long, but never longer than libudt.
const WORD: Duration = Duration::from_secs(1);
const GONE: Duration = Duration::from_secs(15);
const NEVER_LONGER: Duration = Duration::from_secs(46);

/// How long the fixed session waits for a word.
fn gone(rtt: &RoundTrip) -> Duration {
    (rtt.patience() * 4).clamp(GONE, NEVER_LONGER)
}

/// What the timer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Silence {
    /// The `n`th expiration in a row.
    Expired(u32),
    /// The peer is gone.
    Dead,
}

#[derive(Clone, Debug)]
struct Closing {
    left: u8,
    at: Instant,
    pause: Duration,
    body: Vec<u8>,
}

/// Liveness of a session.
#[derive(Clone, Debug)]
pub(super) struct Life {
    behaviour: Behaviour,
    since: Instant,
    spoke: Instant,
    expired: u32,
    over: bool,
    closing: Option<Closing>,
}

impl Life {
    pub(super) const fn new(behaviour: Behaviour, now: Instant) -> Self {
        Self {
            behaviour,
            since: now,
            spoke: now,
            expired: 1,
            over: false,
            closing: None,
        }
    }

    /// The peer was heard.
    pub(super) const fn heard(&mut self, now: Instant) {
        (self.since, self.expired) = (now, 1);
    }

    pub(super) fn deadline(&self, rtt: &RoundTrip) -> Instant {
        match self.behaviour {
            Behaviour::Libudt => {
                let answer = rtt.patience() * self.expired + SYN;
                self.since + answer.max(UNIT * self.expired)
            }
            Behaviour::Fixed => {
                let pause = (rtt.patience() + SYN * 2).max(WORD).min(NEVER_LONGER);
                (self.since + gone(rtt)).min(self.spoke + pause * self.expired)
            }
        }
    }

    /// Something was sent.
    pub(super) const fn spoke(&mut self, now: Instant) {
        self.spoke = now;
    }

    /// The deadline passed, if it did.
    pub(super) fn check(&mut self, now: Instant, rtt: &RoundTrip) -> Option<Silence> {
        if self.deadline(rtt) > now {
            return None;
        }
        let dead = match self.behaviour {
            Behaviour::Libudt => self.expired > LAST && now.since(self.since) > LEAST,
            Behaviour::Fixed => now >= self.since + gone(rtt),
        };
        if dead {
            return Some(Silence::Dead);
        }
        let n = self.expired;
        self.expired += 1;
        self.spoke = now;
        if self.behaviour == Behaviour::Libudt {
            self.since = now;
        }
        Some(Silence::Expired(n))
    }

    pub(super) const fn is_open(&self) -> bool {
        !self.over
    }

    /// Ends; the peer is told `body`, unless it is gone itself.
    pub(super) fn end(&mut self, now: Instant, rtt: &RoundTrip, body: Option<Vec<u8>>) {
        self.over = true;
        self.closing = body.map(|body| Closing {
            left: match self.behaviour {
                Behaviour::Libudt => 1,
                Behaviour::Fixed => 3,
            },
            at: now,
            pause: rtt.smoothed().min(Duration::from_millis(500)) + SYN,
            body,
        });
    }

    /// The body of the shutdown to send now.
    pub(super) fn take_closing(&mut self, now: Instant) -> Option<Vec<u8>> {
        let closing = self.closing.as_mut().filter(|f| f.at <= now)?;
        closing.left -= 1;
        closing.at = now + closing.pause;
        let body = closing.body.clone();
        if closing.left == 0 {
            self.closing = None;
        }
        Some(body)
    }

    pub(super) fn closing_at(&self) -> Option<Instant> {
        self.closing.as_ref().map(|f| f.at)
    }

    /// Nothing is left to say.
    pub(super) const fn is_over(&self) -> bool {
        self.over && self.closing.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When a session of this behaviour gives up on a silent peer, and how often it asked.
    fn silent(behaviour: Behaviour) -> (Duration, u32) {
        let start = Instant::from_nanos(1_000_000_000);
        let (mut life, rtt) = (Life::new(behaviour, start), RoundTrip::new(behaviour, None));
        let mut asked = 0;
        loop {
            let now = life.deadline(&rtt);
            match life.check(now, &rtt) {
                Some(Silence::Expired(n)) => asked = n,
                Some(Silence::Dead) => return (now - start, asked),
                None => panic!("a deadline that is none"),
            }
        }
    }

    #[test]
    fn libudt_notices_after_46_seconds_and_the_fixed_after_15() {
        let (after, asked) = silent(Behaviour::Libudt);
        assert!((46..47).contains(&after.as_secs()), "{after:?}");
        assert_eq!(asked, 16);
        assert_eq!(silent(Behaviour::Fixed), (Duration::from_secs(15), 4));
    }
}
