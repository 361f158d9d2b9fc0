//! Watches whether the peer is alive. A timer of libudt gets longer each time, and libudt gives up
//! after about 46 s of silence. The fixed session sends something at least every second, less and
//! less often while nothing arrives, and gives up after 15 s of silence.
//!
//! Keep-alives become rarer. Every packet starts libudt's timer anew, and that timer alone makes it
//! send again what a dark path has swallowed.

use std::time::Duration;

use farhaul_core::{path::Rtt, time::Instant};

use super::{Behaviour, rtt::timeout, send::SYN};

/// Expirations after which libudt gives up, and the least time the last one took.
const LAST: u32 = 16;
const LEAST: Duration = Duration::from_secs(5);
/// Unit of libudt's timer.
const UNIT: Duration = Duration::from_millis(300);
/// The fixed session sends something this often, and bears this much silence; more if answers
/// take very long, but never more than libudt.
const KEEP_ALIVE: Duration = Duration::from_secs(1);
const GONE: Duration = Duration::from_secs(15);
const NEVER_LONGER: Duration = Duration::from_secs(46);

/// Silence that the fixed session bears.
fn gone(rtt: &Rtt) -> Duration {
    (timeout(rtt) * 4).clamp(GONE, NEVER_LONGER)
}

/// Action of the timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Silence {
    /// The `n`th expiration in a row.
    Expired(u32),
    /// The peer is gone.
    Dead,
}

/// Liveness of a peer.
#[derive(Clone, Debug)]
pub(super) struct Liveness {
    behaviour: Behaviour,
    heard: Instant,
    sent: Instant,
    expired: u32,
}

impl Liveness {
    pub(super) const fn new(behaviour: Behaviour, now: Instant) -> Self {
        Self {
            behaviour,
            heard: now,
            sent: now,
            expired: 1,
        }
    }

    /// Notes that something arrived.
    pub(super) const fn on_heard(&mut self, now: Instant) {
        (self.heard, self.expired) = (now, 1);
    }

    /// Notes that something was sent.
    pub(super) const fn on_sent(&mut self, now: Instant) {
        self.sent = now;
    }

    pub(super) fn deadline(&self, rtt: &Rtt) -> Instant {
        let n = self.expired;
        match self.behaviour {
            Behaviour::Libudt => self.heard + (timeout(rtt) * n + SYN).max(UNIT * n),
            Behaviour::Fixed => {
                let pause = (timeout(rtt) + SYN * 2).max(KEEP_ALIVE).min(NEVER_LONGER);
                (self.heard + gone(rtt)).min(self.sent + pause * n)
            }
        }
    }

    /// Action of the deadline, if it passed.
    pub(super) fn check(&mut self, now: Instant, rtt: &Rtt) -> Option<Silence> {
        if self.deadline(rtt) > now {
            return None;
        }
        let dead = match self.behaviour {
            Behaviour::Libudt => self.expired > LAST && now.since(self.heard) > LEAST,
            Behaviour::Fixed => now >= self.heard + gone(rtt),
        };
        if dead {
            return Some(Silence::Dead);
        }
        let n = self.expired;
        (self.expired, self.sent) = (n + 1, now);
        if self.behaviour == Behaviour::Libudt {
            self.heard = now;
        }
        Some(Silence::Expired(n))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::rtt::guess, *};

    /// When a session of this behaviour gives up on a silent peer, and how often it asked.
    fn silent(behaviour: Behaviour) -> (Duration, u32) {
        let start = Instant::from_nanos(1_000_000_000);
        let (mut life, rtt) = (Liveness::new(behaviour, start), guess(behaviour, None));
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
