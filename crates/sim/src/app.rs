//! The two applications of a flow. The sender offers an object, endless or of a given length; the
//! receiver counts which of its bytes have been placed. An application that writes piece by piece
//! calls them now one object, now another, in one space of offsets: so no packet holds two. A flow
//! may have somebody else's applications instead.
//!
//! Invariant: a byte placed twice is counted once.

use std::time::Duration;

use farhaul_core::{
    app::App,
    loss::Ranges,
    protocol::Session,
    store::{self, Extent, ObjectId, Store, StoreError},
    time::{Instant, nanos},
    units::Rate,
};

use crate::disk::Disk;

/// The one object of a flow, and the other name of every second write.
const OBJECT: ObjectId = 0;
const OTHER: ObjectId = 1;
/// An endless sender keeps at least this many bytes queued ...
const LOW: u64 = 1 << 30;
/// ... and this many are queued at a time.
const CHUNK: u64 = 1 << 32;
/// Bytes that an application that writes keeps queued.
const WRITTEN: u64 = 8 << 20;

/// The sender's queue.
#[derive(Debug)]
pub(crate) struct Supply {
    /// Bytes queued so far.
    offered: u64,
    /// Bytes to send in all; endless if not given.
    limit: Option<u64>,
    /// Bytes of a write.
    write: Option<u64>,
    object: ObjectId,
}

impl Supply {
    pub(crate) const fn new(limit: Option<u64>, write: Option<u64>) -> Self {
        Self {
            offered: 0,
            limit,
            write,
            object: OBJECT,
        }
    }

    /// True if everything there is has been queued.
    pub(crate) fn is_spent(&self) -> bool {
        self.limit == Some(self.offered)
    }

    /// Queues what there is; true if it queued anything.
    pub(crate) fn top_up(&mut self, session: &mut dyn Session) -> bool {
        if let Some(write) = self.write {
            return self.write(write, session);
        }
        let more = match self.limit {
            Some(limit) => limit - self.offered,
            None if session.unsent() < LOW => CHUNK,
            None => 0,
        };
        if more > 0 {
            session.send(OBJECT, self.offered, more);
            self.offered += more;
        }
        more > 0
    }
}

impl Supply {
    /// Writes until enough is queued; true if it wrote anything.
    fn write(&mut self, bytes: u64, session: &mut dyn Session) -> bool {
        let before = self.offered;
        let limit = self.limit.unwrap_or(u64::MAX);
        while self.offered < limit && session.unsent() < WRITTEN {
            let len = bytes.min(limit - self.offered);
            session.send(self.object, self.offered, len);
            self.offered += len;
            self.object = OBJECT + OTHER - self.object;
        }
        self.offered > before
    }
}

/// Bytes that have arrived. A sink also stands in as the sender's store, where nothing is placed.
#[derive(Default)]
pub(crate) struct Sink {
    /// Application that owns the bytes, if not the simulator's own.
    pub(crate) app: Option<Box<dyn App>>,
    placed: Ranges,
    /// Disk that writes the bytes.
    pub(crate) disk: Option<Disk>,
    /// Distinct bytes placed.
    pub(crate) bytes: u64,
    /// Bytes placed.
    given: u64,
}

impl Sink {
    /// Advances the disk to `now`.
    #[inline]
    pub(crate) fn pass(&mut self, now: Instant) {
        if let Some(disk) = &mut self.disk {
            disk.pass(now);
        }
    }

    /// Time at which the disk has written something next, or the application wants to be called.
    pub(crate) fn wake(&self) -> Option<Instant> {
        let app = self.app.as_ref().and_then(App::next_wake);
        let disk = self.disk.as_ref().and_then(Disk::wake);
        app.into_iter().chain(disk).min()
    }
}

impl Store for Sink {
    fn fill(&mut self, extents: &[Extent], batch: &mut [u8]) -> Result<(), StoreError> {
        match &mut self.app {
            Some(app) => app.fill(extents, batch),
            None => Ok(()),
        }
    }

    fn place(&mut self, extents: &[Extent], batch: &[u8]) -> Result<(), StoreError> {
        let before = self.bytes;
        let mut run = 0..0;
        self.given += extents.iter().map(|e| u64::from(e.len)).sum::<u64>();
        for extent in extents.iter().filter(|e| e.object <= OTHER) {
            if extent.offset == run.end {
                run.end = extent.end();
            } else {
                self.bytes += self.placed.insert(run);
                run = extent.offset..extent.end();
            }
        }
        self.bytes += self.placed.insert(run);
        let new = self.bytes - before;
        if let Some(app) = &mut self.app {
            return app.place(extents, batch);
        }
        if self.disk.as_mut().is_none_or(|disk| disk.take(new)) {
            Ok(())
        } else {
            Err(StoreError("more than there is room for".into()))
        }
    }

    fn sink(&self) -> store::Sink {
        if let Some(app) = &self.app {
            return app.sink();
        }
        let state = |disk: &Disk| store::Sink {
            free: disk.room(),
            drained: self.given - disk.waiting(),
        };
        self.disk.as_ref().map_or(store::Sink::ENDLESS, state)
    }
}

/// Finds the first span as long as the path's rtt in which the receiver gets nine tenths of its
/// share of the link.
#[derive(Debug)]
pub(crate) struct Climb {
    start: Instant,
    /// Length of a bin, ns; [`BINS`] of them are the span.
    bin: u64,
    /// Bytes in a span that count as arrived.
    goal: u64,
    /// Totals at the ends of the last bins.
    totals: [u64; BINS],
    current: u64,
    total: u64,
    /// Time from the flow's start to the beginning of that span.
    pub(crate) reached: Option<Duration>,
}

const BINS: usize = 16;
const MIN_SPAN: Duration = Duration::from_millis(48);

impl Climb {
    pub(crate) fn new(start: Instant, rtt: Duration, share: Rate) -> Self {
        let bin = nanos(rtt.max(MIN_SPAN)) / BINS as u64;
        let span = Duration::from_nanos(bin * BINS as u64);
        Self {
            start,
            bin,
            goal: share.scale(0.9).bytes_in(span),
            totals: [0; BINS],
            current: 0,
            total: 0,
            reached: None,
        }
    }

    /// `total` bytes have been received.
    #[inline]
    pub(crate) fn note(&mut self, now: Instant, total: u64) {
        if self.reached.is_some() || total == self.total {
            return;
        }
        let bin = nanos(now.since(self.start)) / self.bin;
        for ended in self.current..bin.min(self.current + BINS as u64) {
            self.totals[slot(ended)] = self.total;
        }
        self.current = bin;
        self.total = total;
        let before = self.totals[slot(bin)];
        if total - before >= self.goal {
            let span = Duration::from_nanos(self.bin * BINS as u64);
            self.reached = Some(now.since(self.start).saturating_sub(span));
        }
    }
}

/// The slot of a bin; in it, until that bin ends, is the total at the end of the bin one span before.
#[expect(clippy::cast_possible_truncation, reason = "below BINS")]
const fn slot(bin: u64) -> usize {
    (bin % BINS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_placed_twice_count_once() {
        let mut sink = Sink::default();
        let extent = |offset, len| Extent {
            object: OBJECT,
            offset,
            len,
            at: 0,
        };
        sink.place(&[extent(0, 10), extent(10, 10), extent(30, 5)], &[])
            .unwrap();
        sink.place(&[extent(5, 10), extent(20, 10)], &[]).unwrap();
        assert_eq!(sink.bytes, 35);
    }

    #[test]
    fn the_climb_ends_where_the_full_span_begins() {
        let rtt = Duration::from_millis(160);
        let start = Instant::from_nanos(5_000_000);
        let mut climb = Climb::new(start, rtt, Rate::from_bps(8_000_000));
        let mut total = 0;
        for ms in 0..1_000_u64 {
            total += if ms < 500 { 500 } else { 1_000 };
            climb.note(start + Duration::from_millis(ms), total);
        }
        let reached = climb.reached.unwrap().as_millis();
        assert!((460..=500).contains(&reached), "{reached}");
    }
}
