//! Bounds the data in flight to a store that is full. Reports carry the store's free space. While
//! half of the store is free, the store keeps up and grants everything. From then on the grant is
//! what the store drains in a round trip, plus the room beyond half or minus what that room lacks.
//! So half of the store is kept filled, whatever the path holds. The drain rate shows while
//! something waits in the store. An empty store is tried with a little more, and with twice as much
//! after a standstill, until the congestion law's window is the smaller one.
//!
//! Invariant: no value in a report overflows; one that is older than another changes nothing.

use std::time::Duration;

use super::{Drained, RatePath};
use crate::units::Rate;

/// Datagrams in a round trip for which pacing always leaves room.
const LEAST: u64 = 4;

/// Factor on the drain rate for a store that has run empty for `spell`. The factor is a quarter
/// more after two round trips, and after every two further ones twice that much. A store that was
/// slow for a moment soon has its rate again.
fn growth(spell: Duration, round: Duration) -> f64 {
    let tries = spell.as_nanos() / round.as_nanos().max(1) / 2;
    match tries {
        0 | 1 => 1.25,
        2 => 1.5,
        _ => 2.0,
    }
}

/// Limit of the store at a time.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at_us: u64,
    /// Bytes arrived and room: grows by the bytes drained.
    limit: u64,
}

/// Drain rate of a store, over one to two round trips.
#[derive(Clone, Copy, Debug)]
struct DrainRate {
    /// About a round trip ago, at most two, and later.
    marks: [Mark; 2],
}

impl DrainRate {
    /// Newest rate, and since when it was measured; `now` is not before the marks.
    fn add(&mut self, now: Mark, round: Duration) -> (Rate, u64) {
        let since_us = now.at_us.saturating_sub(self.marks[1].at_us);
        if Duration::from_micros(since_us) >= round {
            self.marks = [self.marks[1], now];
        }
        let [older, _] = self.marks;
        // Less than a round trip after the beginning it is not known for longer.
        let age = Duration::from_micros(now.at_us.saturating_sub(older.at_us)).max(round);
        let drained = now.limit.saturating_sub(older.limit);
        (Rate::of(drained, age), older.at_us)
    }
}

/// Grant of a store that was found more than half full.
#[derive(Clone, Copy, Debug)]
struct Limited {
    /// Time since which reports show that much waits, or little.
    since: Mark,
    busy: bool,
    /// True if something has waited for about a round trip: the rate drained then is the most that
    /// can be.
    known: bool,
    /// True if the store drained nothing, and little has waited ever since it went on.
    stopped: bool,
    /// Drain rate of the store.
    rate: Rate,
    granted: u64,
    pace: Rate,
}

impl Limited {
    const fn new(now: Mark) -> Self {
        Self {
            since: now,
            busy: true,
            known: false,
            stopped: false,
            rate: Rate::from_bps(0),
            granted: 0,
            pace: Rate::UNLIMITED,
        }
    }

    /// A store that has been busy all the time since `from_us` drains `rate`; one that has not may drain
    /// more.
    fn judge(&mut self, now: Mark, (rate, from_us): (Rate, u64), busy: bool, way: &RatePath) {
        if self.busy != busy {
            (self.busy, self.since) = (busy, now);
            self.stopped &= !busy;
        }
        let spell = Duration::from_micros(now.at_us.saturating_sub(self.since.at_us));
        let round = way.round();
        if busy && self.since.at_us <= from_us {
            let least = LEAST * u64::from(way.datagram);
            self.stopped |= rate.bytes_in(round) < least;
            self.rate = rate;
            self.known = true;
        } else if !self.known {
            // The measurement began before: as long as this may be a pause it counts.
            self.known = busy && spell >= (round / 4).saturating_mul(3);
            let drained = now.limit.saturating_sub(self.since.limit);
            self.rate = if self.known {
                Rate::of(drained, spell)
            } else {
                rate
            };
        } else if !busy && spell >= round.saturating_mul(2) {
            let factor = if self.stopped {
                2.0
            } else {
                growth(spell, round)
            };
            self.rate = self.rate.max(rate.scale(factor));
        } else if !busy {
            self.rate = self.rate.max(rate);
        }
    }
}

/// Grant of bytes for the receiver's store.
#[derive(Clone, Debug, Default)]
pub struct Credit {
    /// Time at which the newest report was made.
    newest_us: u64,
    /// Room of the empty store, as far as reported.
    most: u64,
    drain: Option<DrainRate>,
    limited: Option<Limited>,
}

impl Credit {
    /// Takes what a report says, whose host had `room` then.
    pub fn update(&mut self, taken: Drained, room: Option<u64>, way: &RatePath) {
        if taken.at_us < self.newest_us {
            return;
        }
        self.newest_us = taken.at_us;
        let Some(room) = room else {
            *self = Self {
                newest_us: taken.at_us,
                ..Self::default()
            };
            return;
        };
        self.most = self.most.max(room);
        let half = self.most / 2;
        let now = Mark {
            at_us: taken.at_us,
            limit: taken.bytes.saturating_add(room),
        };
        let drain = self.drain.get_or_insert(DrainRate { marks: [now; 2] });
        let measured = drain.add(now, way.round());
        let keeps_up = room >= half.max(u64::from(way.datagram));
        if self.limited.is_none() && keeps_up {
            return;
        }
        let limited = self.limited.get_or_insert(Limited::new(now));
        let busy = room <= self.most - self.most / 8;
        limited.judge(now, measured, busy, way);
        let drained = limited.rate.bytes_in(way.round());
        limited.granted = drained.saturating_add(room).saturating_sub(half);
        // What comes in bursts fills the store at times and at others lets it run empty. What is known of
        // it is a round trip old, so that half of what is too much or too little is enough.
        let paced = (drained.saturating_add(room / 2).saturating_sub(half / 2))
            .max(LEAST * u64::from(way.datagram));
        limited.pace = Rate::of(paced, way.round());
        // It was a pause of less than a round trip or two, or the path is the narrower one.
        let over = !limited.known && !busy || limited.granted >= way.window;
        if keeps_up && over {
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
