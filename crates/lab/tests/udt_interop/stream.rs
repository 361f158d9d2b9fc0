//! Our end of a stream: sends or takes it, and says how that ended.

use std::sync::mpsc;

use farhaul_core::{
    protocol::{CloseReason, Event, Session},
    store::{Extent, Store, StoreError},
    time::Instant,
};
use farhaul_io::App;

use super::{PAYLOAD, content};

/// Bytes written at a time: whole packets, so that only the end of a stream is a short one.
const CHUNK: u64 = 42 * PAYLOAD;
/// Bytes after which a stream is under way.
const UNDER_WAY: u64 = 500_000;

/// Event at an end of ours.
#[derive(Debug)]
pub(crate) enum Seen {
    /// The given number of bytes is across.
    UnderWay,
    /// The stream is over: bytes sent or taken, and why.
    Over(u64, CloseReason),
}

/// Way in which the bytes get to the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Written.
    Writes,
    /// Sent as an object, which is read when a packet leaves.
    Sends,
    /// Read.
    Takes,
}

pub(crate) struct Stream {
    role: Role,
    bytes: u64,
    done: u64,
    under_way: bool,
    inbox: Vec<u8>,
    events: mpsc::Sender<Seen>,
}

impl Stream {
    pub(crate) const fn new(role: Role, bytes: u64, events: mpsc::Sender<Seen>) -> Self {
        Self {
            role,
            bytes,
            done: 0,
            under_way: false,
            inbox: Vec::new(),
            events,
        }
    }

    fn report(&self, events: Seen) {
        // Who does not wait for it does not need it.
        let _ = self.events.send(events);
    }
}

impl Store for Stream {
    fn fill(&mut self, extents: &[Extent], batch: &mut [u8]) -> Result<(), StoreError> {
        for extent in extents {
            let piece = &mut batch[extent.at as usize..][..extent.len as usize];
            for (at, byte) in (extent.offset..).zip(piece) {
                *byte = content(at);
            }
        }
        Ok(())
    }

    fn place(&mut self, _: &[Extent], _: &[u8]) -> Result<(), StoreError> {
        Err(StoreError("a stream has no objects".into()))
    }
}

impl App for Stream {
    fn on_event(&mut self, now: Instant, event: Event, session: &mut dyn Session) {
        match event {
            Event::Connected { .. } if self.role == Role::Sends => {
                session.send(1, 0, self.bytes);
                self.done = self.bytes;
            }
            Event::Readable => {
                session.read(&mut self.inbox);
                for byte in self.inbox.drain(..) {
                    assert_eq!(byte, content(self.done), "at {}", self.done);
                    self.done += 1;
                }
            }
            Event::Closed(reason) => self.report(Seen::Over(self.done, reason)),
            Event::Delivered if self.role != Role::Takes && self.done == self.bytes => {
                session.close(now, 0, "done");
            }
            Event::Connected { .. } | Event::Delivered => {}
        }
        self.poll(now, session);
    }

    fn poll(&mut self, _: Instant, session: &mut dyn Session) {
        while self.role == Role::Writes && self.done < self.bytes && session.unwritten() < 1 << 20 {
            let end = self.bytes.min(self.done + CHUNK);
            let chunk: Vec<u8> = (self.done..end).map(content).collect();
            session.write(&chunk);
            self.done = end;
        }
        let stats = session.stats();
        if !self.under_way && stats.data_acked.max(stats.data_received) > UNDER_WAY {
            self.under_way = true;
            self.report(Seen::UnderWay);
        }
    }
}
