//! State that every session keeps for its application: events, whether all data that the
//! application gave have been reported as delivered, and counters.

use std::collections::VecDeque;

use crate::{
    datagram::TxBuf,
    protocol::{CloseReason, Event},
    send::STREAM,
    stats::{Stats, Why},
    store::ObjectId,
    time::Instant,
};

/// Events, delivery state and counters that a session keeps for its application.
#[derive(Debug, Default)]
pub struct AppSide {
    /// Counters.
    pub stats: Stats,
    events: VecDeque<Event>,
    /// True if the application gave something that has not been reported as delivered.
    undelivered: bool,
    closed: bool,
}

impl AppSide {
    /// The handshake is done.
    pub fn connected(&mut self, peer_key: Option<Vec<u8>>) {
        self.events.push_back(Event::Connected { peer_key });
    }

    /// The ordered stream has more to read.
    pub fn readable(&mut self) {
        if self.events.back() != Some(&Event::Readable) {
            self.events.push_back(Event::Readable);
        }
    }

    /// Registers `len` bytes of `object` for delivery tracking; false if they are rejected.
    pub const fn give(&mut self, object: ObjectId, len: u64) -> bool {
        // The last object number is the stream's.
        let taken = object != STREAM && len > 0 && !self.closed;
        self.undelivered |= taken;
        taken
    }

    /// Registers `bytes` of the stream for delivery tracking; false if they are rejected.
    pub const fn write(&mut self, bytes: &[u8]) -> bool {
        self.give(0, bytes.len() as u64)
    }

    /// Emits [`Event::Delivered`], once, if everything registered is acknowledged (`done`).
    pub fn settle(&mut self, done: bool) {
        if done && !self.closed && std::mem::take(&mut self.undelivered) {
            self.events.push_back(Event::Delivered);
        }
    }

    /// Marks the session closed for `reason`; false if it already was.
    pub fn close(&mut self, now: Instant, reason: CloseReason) -> bool {
        if self.closed {
            return false;
        }
        self.closed = true;
        self.stats.held.set(now, None);
        self.events.push_back(Event::Closed(reason));
        true
    }

    /// Records that sending is blocked by `why`.
    pub fn hold(&mut self, now: Instant, why: Why) {
        self.stats.held.set(now, Some(why));
    }

    /// Counts the batch in `out` as sent.
    pub fn sent(&mut self, out: &TxBuf) {
        self.stats.wire_sent += out.bytes().len() as u64;
        self.stats.datagrams_sent += out.count() as u64;
    }

    /// A datagram of `len` bytes arrived and was accepted.
    pub const fn received(&mut self, len: usize) {
        self.stats.wire_received += len as u64;
        self.stats.datagrams_received += 1;
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

/// The earliest of `deadlines`; of equal ones the one listed first.
#[inline]
pub fn earliest<const N: usize>(deadlines: [Option<(Instant, Why)>; N]) -> Option<(Instant, Why)> {
    let mut first: Option<(Instant, Why)> = None;
    for (at, why) in deadlines.into_iter().flatten() {
        if first.is_none_or(|(earliest, _)| at < earliest) {
            first = Some((at, why));
        }
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_once_and_none_after_the_end() {
        let (mut app, now) = (AppSide::default(), Instant::EPOCH);
        app.connected(None);
        app.settle(true);
        assert!(app.give(7, 1) && app.write(b"x"));
        assert!(!app.give(7, 0) && !app.give(STREAM, 1) && !app.write(b""));
        app.readable();
        app.readable();
        app.settle(false);
        app.settle(true);
        app.settle(true);
        assert!(app.give(7, 1));
        assert!(app.close(now, CloseReason::TimedOut));
        assert!(!app.close(now, CloseReason::NoAnswer) && !app.give(7, 1));
        app.settle(true);
        let events: Vec<Event> = std::iter::from_fn(|| app.poll_event()).collect();
        let connected = Event::Connected { peer_key: None };
        let closed = Event::Closed(CloseReason::TimedOut);
        assert_eq!(
            events,
            [connected, Event::Readable, Event::Delivered, closed]
        );
    }

    #[test]
    fn of_equal_deadlines_the_first_named_counts() {
        let at = |ns| Some(Instant::from_nanos(ns));
        let named = |ns, why| at(ns).map(|at| (at, why));
        let pick = [
            None,
            named(5, Why::Law),
            named(4, Why::Repair),
            named(4, Why::Peer),
        ];
        assert_eq!(earliest(pick), named(4, Why::Repair));
        assert_eq!(earliest([None]), None);
    }
}
