//! How much may be on its way to a store that is full? Reports tell the room that is left there. While
//! half of it is free the store keeps up and grants everything. From then on what may be in flight is
//! what it drains in a round trip, and the room beyond half, or less what that lacks: so half of it is
//! kept filled, whatever the path holds. What a store drains shows while something waits in it; one that
//! runs empty is tried with a little more, and with twice as much after it stood still, until the
//! congestion law's window is the smaller one.
//!
//! Invariant: no value in a report overflows; one that is older than another changes nothing.

use std::time::Duration;

use super::{Taken, Way};
use crate::units::Rate;

/// Datagrams in a round trip for which pacing always leaves room.
const LEAST: u64 = 4;

/// More than it drains is tried on a store that runs empty.
const GROWTH: f64 = 1.125;

/// How far the store was at a time.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at_us: u64,
    /// Bytes arrived and room: it grows by what is drained.
    limit: u64,
}

/// What is granted by a store that was found more than half full.
#[derive(Clone, Copy, Debug)]
struct Limited {
    /// About a round trip ago, at most two, and later.
    marks: [Mark; 2],
    /// Since when reports have told of much that waits, or of little.
    since_us: u64,
    busy: bool,
    /// It drained nothing, and little has waited ever since it went on.
    stopped: bool,
    /// What the store drains.
    rate: Rate,
    granted: u64,
    pace: Rate,
}

impl Limited {
    const fn new(now: Mark) -> Self {
        Self {
            marks: [now; 2],
            since_us: now.at_us,
            busy: true,
            stopped: false,
            rate: Rate::from_bps(0),
            granted: 0,
            pace: Rate::UNLIMITED,
        }
    }

    /// A store that has been busy all the time shows what it drains; one that has not may drain more.
    fn measure(&mut self, now: Mark, busy: bool, round: Duration, datagram: u32) {
        let between = |from: u64| Duration::from_micros(now.at_us.saturating_sub(from));
        if between(self.marks[1].at_us) >= round {
            self.marks = [self.marks[1], now];
        }
        if self.busy != busy {
            (self.busy, self.since_us) = (busy, now.at_us);
            self.stopped &= !busy;
        }
        let [older, _] = self.marks;
        // Less than a round trip after the beginning it is not known for longer.
        let age = between(older.at_us).max(round);
        let rate = Rate::of(now.limit.saturating_sub(older.limit), age);
        if busy && self.since_us <= older.at_us {
            self.rate = rate;
            self.stopped |= rate.bytes_in(round) < LEAST * u64::from(datagram);
            return;
        }
        let grows = !busy && between(self.since_us) >= round.saturating_mul(2);
        let more = match self.stopped {
            _ if !grows => rate,
            true => rate.scale(2.0),
            false => rate.scale(GROWTH),
        };
        self.rate = self.rate.max(more);
    }
}

/// What the receiver's store may be given.
#[derive(Clone, Debug, Default)]
pub struct Credit {
    /// Room of the empty store, as far as was told.
    most: u64,
    limited: Option<Limited>,
}

impl Credit {
    /// Takes what a report says, whose host had `room` then.
    pub fn update(&mut self, taken: Taken, room: Option<u64>, way: &Way) {
        let Some(room) = room else {
            self.limited = None;
            return;
        };
        self.most = self.most.max(room);
        let half = self.most / 2;
        let now = Mark {
            at_us: taken.at_us,
            limit: taken.bytes.saturating_add(room),
        };
        let keeps_up = room >= half.max(u64::from(way.datagram));
        if self.limited.is_none() && keeps_up {
            return;
        }
        let limited = self.limited.get_or_insert(Limited::new(now));
        if now.at_us < limited.marks[1].at_us {
            return;
        }
        let round = way.rtt.saturating_add(way.interval);
        limited.measure(now, room <= self.most - self.most / 8, round, way.datagram);
        let drained = limited.rate.bytes_in(round);
        limited.granted = drained.saturating_add(room).saturating_sub(half);
        // What comes in bursts fills the store at times and at others lets it run empty. What is known of
        // it is a round trip old, so that half of what is too much or too little is enough.
        let paced = (drained.saturating_add(room / 2).saturating_sub(half / 2))
            .max(LEAST * u64::from(way.datagram));
        limited.pace = Rate::of(paced, round);
        if keeps_up && limited.granted >= way.window {
            self.limited = None;
        }
    }

    /// No faster than that, as far as the store is concerned.
    pub fn pace(&self) -> Rate {
        self.limited.map_or(Rate::UNLIMITED, |limited| limited.pace)
    }

    /// Bytes that may be in flight, as far as the store is concerned.
    pub fn granted(&self) -> u64 {
        self.limited.map_or(u64::MAX, |limited| limited.granted)
    }
}

#[cfg(test)]
mod tests;
