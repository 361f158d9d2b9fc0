//! The two ends of the data: one offers bytes until the limit is reached, the other counts them.
//! Either may be the client's or the server's.

use std::time::Duration;

use farhaul_core::{
    protocol::Session,
    store::{Extent, StoreError},
    time::{Instant, nanos},
};
use farhaul_io::{clock, cpu};

use super::{
    constant::{Counter, Stamps},
    message::{Limit, Mark, Message, Side, send},
    payload::{self, Coverage, OBJECT},
};
use crate::histogram::{Histogram, RttMs};

/// Bytes queued ahead of those sent.
const AHEAD: u64 = 1 << 30;
const RTT_SAMPLING: Duration = Duration::from_millis(10);

/// Resources that a process has used since an application began.
#[derive(Debug)]
pub(super) struct Meter {
    cpu: Duration,
    rtt: Histogram,
    next_sample: Instant,
}

impl Meter {
    pub(super) fn new() -> Self {
        Self {
            cpu: cpu::process_time(),
            rtt: Histogram::default(),
            next_sample: Instant::EPOCH,
        }
    }

    /// Samples the rtt if it is time to.
    pub(super) fn sample(&mut self, now: Instant, session: &dyn Session) {
        if now < self.next_sample {
            return;
        }
        self.next_sample = now + RTT_SAMPLING;
        if let Some(rtt) = session.stats().rtt_smoothed {
            self.rtt.add(rtt);
        }
    }

    /// Figures that this end has to report so far.
    pub(super) fn side(&self, session: &dyn Session) -> Side {
        let stats = session.stats();
        Side {
            cpu_seconds: cpu::process_time().saturating_sub(self.cpu).as_secs_f64(),
            max_rss_bytes: cpu::max_rss(),
            rtt: RttMs::new(stats.rtt_min, &self.rtt),
            ..Side::default()
        }
        .with(&stats)
    }
}

/// The end that sends.
#[derive(Debug)]
pub(super) struct Sending {
    limit: Limit,
    started: Instant,
    offered: u64,
    done: bool,
    /// Numbers of the datagrams of a test at a constant rate.
    stamps: Option<Stamps>,
}

impl Sending {
    /// Sends until `limit`, whose time counts from `started`.
    pub(super) const fn new(limit: Limit, started: Instant) -> Self {
        Self {
            limit,
            started,
            offered: 0,
            done: false,
            stamps: None,
        }
    }

    /// Numbers the datagrams, if the rate is constant.
    #[must_use]
    pub(super) fn stamped(mut self, constant: bool) -> Self {
        self.stamps = constant.then(Stamps::default);
        self
    }

    /// Fills each extent's place in `batch`.
    pub(super) fn fill(&mut self, extents: &[Extent], batch: &mut [u8]) {
        payload::fill(extents, batch);
        if let Some(stamps) = &mut self.stamps {
            stamps.fill(clock::now(), extents, batch);
        }
    }

    /// Offers more, or reports that it was all.
    pub(super) fn poll(&mut self, now: Instant, session: &mut dyn Session) {
        if self.done {
            return;
        }
        let over = match self.limit {
            Limit::Nanos(_) => self.ends().is_some_and(|end| now >= end),
            // What is sent again counts as sent, up to the last that is new.
            Limit::Bytes(bytes) => {
                self.offered == bytes && (self.stamps.is_none() || session.unsent() == 0)
            }
        };
        if over {
            if matches!(self.limit, Limit::Nanos(_)) {
                let unsent = session.unsent();
                session.cancel_unsent();
                self.offered -= unsent.min(self.offered);
            }
            self.done = true;
            send(
                session,
                &Message::Done {
                    bytes: self.offered,
                    datagrams: self.stamps.as_ref().map(Stamps::count),
                },
            );
            return;
        }
        if session.unsent() < AHEAD / 2 {
            let n = match self.limit {
                Limit::Nanos(_) => AHEAD,
                Limit::Bytes(bytes) => AHEAD.min(bytes - self.offered),
            };
            session.send(OBJECT, self.offered, n);
            self.offered += n;
            // A byte limit may just have been reached: report it now, not in the next turn.
            if self.limit == Limit::Bytes(self.offered) && self.stamps.is_none() {
                self.poll(now, session);
            }
        }
    }

    /// Stops offering at the next turn, whatever the limit.
    pub(super) fn cut(&mut self, now: Instant) {
        self.limit = Limit::Nanos(nanos(now.since(self.started)));
    }

    fn ends(&self) -> Option<Instant> {
        match self.limit {
            Limit::Nanos(n) => Some(self.started + Duration::from_nanos(n)),
            Limit::Bytes(_) => None,
        }
    }

    pub(super) fn next_wake(&self) -> Option<Instant> {
        self.ends().filter(|_| !self.done)
    }
}

/// Most marks kept; of a longer run those of its beginning.
const MOST_MARKS: usize = 1 << 16;

/// Times at which the receiver reports.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// Time of the client's first act by this end's clock, as well as it is known.
    pub(super) started: Instant,
    /// Left out of the result.
    pub(super) omit: Duration,
    /// Between marks; zero for none.
    pub(super) interval: Duration,
}

/// The end that receives.
#[derive(Debug, Default)]
pub(super) struct Receiving {
    coverage: Coverage,
    times: Option<Times>,
    hello: Option<Instant>,
    counted: u64,
    last: Option<Instant>,
    next_mark: Option<Instant>,
    /// Marks kept for the end, if they are kept.
    kept: Option<Vec<Mark>>,
    omitted: Option<u64>,
    offered: Option<u64>,
    /// Counter of a test at a constant rate, in place of the coverage.
    counter: Option<Counter>,
}

impl Receiving {
    /// Keeps marks from now on.
    pub(super) fn begin(&mut self, hello: Instant, times: Times) {
        self.hello = Some(hello);
        self.times = Some(times);
        let interval = Some(times.interval).filter(|i| !i.is_zero());
        self.next_mark = interval.map(|i| times.started + i);
    }

    /// Counts datagrams, and does not wait for what is missing.
    pub(super) fn count_datagrams(&mut self) {
        self.counter = Some(Counter::new());
    }

    /// Marks are kept for [`Self::kept_marks`].
    pub(super) fn keep_marks(&mut self) {
        self.kept = Some(Vec::new());
    }

    /// Takes the marks that were kept, once.
    pub(super) fn kept_marks(&mut self) -> Vec<Mark> {
        self.kept.take().unwrap_or_default()
    }

    /// The sender has sent this many bytes, and this many datagrams.
    pub(super) fn all_is(&mut self, now: Instant, bytes: u64, datagrams: Option<u64>) {
        self.offered = Some(bytes);
        if let (Some(counter), Some(all)) = (&mut self.counter, datagrams) {
            counter.all_is(now, all);
        }
    }

    pub(super) fn place(&mut self, extents: &[Extent], batch: &[u8]) -> Result<(), StoreError> {
        if let Some(counter) = &mut self.counter {
            counter.place(clock::now(), extents, batch);
            return Ok(());
        }
        payload::check(extents, batch)?;
        for extent in extents {
            if extent.object != OBJECT {
                return Err(StoreError(format!("no object {}", extent.object)));
            }
            self.coverage.add(extent.offset, u64::from(extent.len))?;
        }
        Ok(())
    }

    /// Records the bytes received; returns the mark that is due, if one is.
    pub(super) fn poll(&mut self, now: Instant, session: &dyn Session) -> Option<Mark> {
        if let Some(counter) = &mut self.counter {
            counter.dropped(session.stats().dropped_duplicate);
        }
        let bytes = self.bytes();
        let times = self.times?;
        if self.omitted.is_none() && now >= times.started + times.omit {
            self.omitted = Some(if times.omit.is_zero() {
                0
            } else {
                self.counted
            });
        }
        if bytes != self.counted {
            self.counted = bytes;
            self.last = Some(now);
        }
        let due = self.next_mark.filter(|at| now >= *at)?;
        self.next_mark = Some(first_after(now, due, times.interval));
        let mark = Mark {
            at: nanos(now.since(times.started)),
            bytes,
            datagrams: self.counter.as_ref().map(Counter::datagrams),
        };
        let Some(kept) = &mut self.kept else {
            return Some(mark);
        };
        if kept.len() < MOST_MARKS {
            kept.push(mark);
        }
        None
    }

    /// Bytes that arrived, each counted once.
    pub(super) fn bytes(&self) -> u64 {
        let counted = self.counter.as_ref().map(Counter::bytes);
        counted.unwrap_or(self.coverage.unique())
    }

    /// True if everything offered has arrived, or is not waited for any longer.
    pub(super) fn is_complete(&self, now: Instant) -> bool {
        match &self.counter {
            Some(counter) => counter.is_complete(now),
            None => self.offered.is_some_and(|all| self.coverage.has_all(all)),
        }
    }

    /// Adds what only a receiver knows.
    pub(super) fn complete(&self, now: Instant, side: Side) -> Side {
        let hello = self.hello.unwrap_or(Instant::EPOCH);
        let last = self.last.unwrap_or(hello);
        Side {
            received: self.bytes(),
            omitted: self.omitted.unwrap_or(0),
            repeated: self.coverage.repeated(),
            last_after_hello: nanos(last.since(hello)),
            complete: self.is_complete(now),
            datagrams: self.counter.as_ref().map(Counter::datagrams),
            ..side
        }
    }

    pub(super) fn next_wake(&self) -> Option<Instant> {
        let omit = self.times.filter(|_| self.omitted.is_none());
        let omit = omit.map(|t| t.started + t.omit);
        let late = self.counter.as_ref().and_then(Counter::next_wake);
        [self.next_mark, omit, late].into_iter().flatten().min()
    }
}

/// The first of the times `due`, `due + interval`, ... that is later than `now`. Not by counting: where a
/// client's clock began is reported by the client.
pub(super) fn first_after(now: Instant, due: Instant, interval: Duration) -> Instant {
    let step = nanos(interval).max(1);
    let steps = nanos(now.since(due)) / step + 1;
    due + Duration::from_nanos(steps.saturating_mul(step))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn marks_are_due_as_if_counted(due in 0_u64..100, passed in 0_u64..1_000, interval in 1_u64..50) {
            let at = Instant::from_nanos;
            let now = at(due + passed);
            let mut next = at(due);
            while next <= now {
                next += Duration::from_nanos(interval);
            }
            prop_assert_eq!(first_after(now, at(due), Duration::from_nanos(interval)), next);
        }
    }

    #[test]
    fn marks_that_nobody_waits_for_are_kept_for_the_end() {
        let at = |millis| Instant::EPOCH + Duration::from_millis(millis);
        let mut receiving = Receiving::default();
        receiving.begin(
            at(0),
            Times {
                started: at(0),
                omit: Duration::ZERO,
                interval: Duration::from_millis(10),
            },
        );
        let session = farhaul_testkit::FakeSession::default();
        assert!(receiving.poll(at(10), &session).is_some());
        receiving.keep_marks();
        assert_eq!(
            [20, 25, 30].map(|millis| receiving.poll(at(millis), &session)),
            [None; 3]
        );
        let kept: Vec<_> = receiving.kept_marks().iter().map(|mark| mark.at).collect();
        assert_eq!(kept, [20_000_000, 30_000_000]);
        assert!(receiving.kept_marks().is_empty());
    }
}
