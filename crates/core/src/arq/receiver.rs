//! The receiving half: packet numbers in, reports out. `REPEATS` consecutive reports cover each
//! number, so that a lost report costs nothing and a hole a bounded number of bytes. The sender
//! requests a report on numbers that no report has covered.

use std::{ops::Range, time::Duration};

use super::Report;
use crate::{
    congestion::{Arrival, Mail, ReceiverLaw},
    datagram::Ecn,
    recv::{Arrivals, Budget, Schedule},
    time::Instant,
};

/// Consecutive reports that cover the same packet.
const REPEATS: usize = 3;
/// Least time between reports that many holes hurry (or an interval, if shorter): reordering alone
/// makes holes, too.
const LEAST_APART: Duration = Duration::from_millis(3);
/// The most run values in a report.
const MAX_RUNS: usize = 1_200;
/// Reports are requested this often, or less, where no trains are measured.
const TRAINS: Duration = Duration::from_millis(5);

/// Space that the store has, bytes; endless unless reported.
#[derive(Clone, Copy, Debug, Default)]
struct Room {
    now: Option<u64>,
    told: Option<u64>,
    most: u64,
}

/// Receiving half of the ARQ.
#[derive(Default)]
pub struct Receiver {
    law: Option<Box<dyn ReceiverLaw>>,
    mail: Mail,
    faults: u64,
    /// Packets and bytes that came since the law was last called.
    arrival: Arrival,
    arrivals: Arrivals,
    /// Highest number refused plus one.
    refused: u64,
    schedule: Schedule,
    budget: Budget,
    newest_at: Option<Instant>,
    /// Time at which the last ack-eliciting packet arrived.
    eliciting_at: Option<Instant>,
    bytes: u64,
    ce: u64,
    eliciting: u64,
    /// `end` at the last reports an interval apart, newest last.
    told: [u64; REPEATS],
    /// True if many holes have opened since then.
    many_holes: bool,
    /// Time at which `told` last moved.
    told_at: Option<Instant>,
    /// Packets before the last intervals that are to be reported again.
    backlog: Option<Range<u64>>,
    /// Room in the store: now, in the last report, and the most there was.
    room: Room,
    /// True if the last report was of the backlog.
    caught_up: bool,
    report: Report,
}

impl Receiver {
    /// The peer's packet numbers begin here, not at 0; nothing has arrived.
    pub fn begin_at(&mut self, number: u64) {
        self.arrivals.begin_at(number);
    }

    /// Notes an authenticated packet that reached the host at `arrived`; false if it must be dropped as
    /// seen, settled or too far ahead.
    pub fn on_packet(
        &mut self,
        arrived: Instant,
        number: u64,
        wire: u32,
        eliciting: bool,
        ecn: Ecn,
    ) -> bool {
        let end = self.arrivals.end();
        if !self.arrivals.insert(number) {
            return false;
        }
        if number >= end {
            // A clock that was set may say otherwise, but time does not go back.
            self.newest_at = self.newest_at.max(Some(arrived));
        } else if number < self.told[0] {
            // Too late for the reports on the last intervals.
            self.add_to_backlog(number..number + 1);
        }
        self.bytes += u64::from(wire);
        self.budget.earn(wire);
        self.ce += u64::from(ecn == Ecn::Ce);
        self.arrival.received += 1;
        self.arrival.ce += u32::from(ecn == Ecn::Ce);
        if eliciting {
            self.arrival.packets += 1;
            self.arrival.bytes += u64::from(wire);
            let first = self.eliciting < 4;
            self.eliciting += 1;
            let holes = u32::from(number > end || number + 1 < end);
            // A sender that asks for this many reports measures trains: a report on the first
            // packet after a pause shows where a train begins.
            let interval = self.schedule.interval();
            let resumes = interval < TRAINS
                && self
                    .eliciting_at
                    .is_none_or(|at| arrived.since(at) > interval);
            self.eliciting_at = Some(arrived);
            let at_once = first || resumes || ecn == Ecn::Ce;
            self.schedule.on_packet(arrived, holes, at_once);
        }
        true
    }

    /// Installs the receiving half of the congestion law.
    pub fn set_law(&mut self, now: Instant, rtt: Duration, mut law: Box<dyn ReceiverLaw>) {
        law.on_start(now, rtt);
        self.law = Some(law);
        self.notify(now, |_| {});
    }

    /// Ends a batch whose datagrams have all been recorded; `granted` is what routers wrote into them.
    pub fn batch_received(&mut self, now: Instant, granted: Option<f64>) {
        if self.law.is_some() && self.arrival.packets > 0 {
            let arrival = Arrival {
                now,
                end: self.arrivals.end(),
                granted,
                ..self.arrival
            };
            self.notify(now, |law| law.on_arrival(&arrival));
        }
        self.arrival.packets = 0;
        self.arrival.bytes = 0;
        self.arrival.ce = 0;
    }

    /// Any other event of the law, if there is one.
    pub fn notify(&mut self, now: Instant, event: impl FnOnce(&mut dyn ReceiverLaw)) {
        if let Some(law) = &mut self.law {
            event(&mut **law);
            let fits = self.mail.ask(|into| law.message(now, into));
            self.faults += u64::from(!fits);
        }
    }

    /// The law's timer, if it is due.
    pub fn on_timeout(&mut self, now: Instant) {
        if self.next_tick().is_some_and(|at| at <= now) {
            self.notify(now, |law| law.on_tick(now));
        }
    }

    /// Time at which the law's timer expires.
    pub fn next_tick(&self) -> Option<Instant> {
        self.law.as_ref().and_then(|law| law.next_tick())
    }

    /// Outgoing messages to the law's sending half.
    pub const fn mail(&mut self) -> &mut Mail {
        &mut self.mail
    }

    /// True if messages of the law wait to be sent.
    pub fn has_mail(&self) -> bool {
        !self.mail.is_empty()
    }

    /// Messages of the law that were too long and dropped.
    pub const fn faults(&self) -> u64 {
        self.faults
    }

    /// The sender requests feedback after this many packets, too.
    pub fn on_ack_frequency(&mut self, packets: Option<u32>) {
        self.schedule.set_packets(packets);
    }

    /// Time at which a report is due; a report that is due at once waits while the budget is spent.
    pub fn feedback_due(&self) -> Option<Instant> {
        let due = self.schedule.due()?;
        Some(due.max(self.budget.ready_at()))
    }

    /// True if the advertised credit is at most half, so that the sender waits for an update.
    pub fn is_room_awaited(&self) -> bool {
        self.room
            .told
            .is_some_and(|told| told <= self.room.most / 2)
    }

    /// Sets the free space of the store. If it is much more than advertised, a report is due even if
    /// nothing is being received.
    pub fn on_room(&mut self, now: Instant, bytes: u64) {
        let room = &mut self.room;
        room.now = (bytes < u64::MAX).then_some(bytes);
        room.most = room.most.max(room.now.unwrap_or(0));
        let awaited = room.told.filter(|told| *told <= room.most / 2);
        if awaited.is_some_and(|told| bytes > told && bytes - told >= room.most / 4) {
            self.schedule.on_packet(now, 0, false);
        }
    }

    /// Drops an authenticated packet of `wire` bytes, for whose data the store has no room.
    /// A report advertises the credit and does not acknowledge the packet. False, without effect, if it was
    /// seen, settled, too far ahead, or not above all that were refused: it may be a
    /// replay.
    pub fn refuse(&mut self, now: Instant, number: u64, wire: u32) -> bool {
        if number < self.refused || !self.arrivals.is_new(number) {
            return false;
        }
        self.refused = number + 1;
        self.budget.earn(wire);
        self.schedule.on_packet(now, 0, false);
        true
    }

    /// A report was sent in a datagram of `bytes`.
    pub fn feedback_sent(&mut self, now: Instant, bytes: usize) {
        self.budget.spend(now, bytes);
    }

    /// Highest packet number seen plus one.
    pub fn end(&self) -> u64 {
        self.arrivals.end()
    }

    /// Makes the report that is due and starts the next interval. What does not fit goes into the reports that
    /// follow, alternating with those on the last intervals.
    pub fn report(&mut self, now: Instant) -> Option<&Report> {
        self.many_holes |= self.schedule.has_many_holes();
        self.schedule.reset(now);
        let newest_at = self.newest_at?;
        self.report.arrived_us = newest_at.as_nanos() / 1_000;
        self.report.bytes = self.bytes;
        self.report.ce = self.ce;
        self.caught_up = !self.caught_up && self.catch_up();
        if !self.caught_up {
            self.tell_recent(now, newest_at);
        }
        if self.backlog.is_some() || self.report.largest + 1 < self.arrivals.end() {
            self.schedule.on_packet(now, 0, true);
        }
        Some(&self.report)
    }

    /// Tells of the last intervals, from the top down; what does not fit joins the backlog.
    fn tell_recent(&mut self, now: Instant, newest_at: Instant) {
        self.room.told = self.room.now;
        let report = &mut self.report;
        report.room = self.room.now;
        let end = self.arrivals.end();
        report.largest = end - 1;
        report.delay_us = u64::try_from(now.since(newest_at).as_micros()).unwrap_or(u64::MAX);
        let from = self.told[0].max(self.arrivals.floor()).min(report.largest);
        report.from = self
            .arrivals
            .runs(from, report.largest, MAX_RUNS, &mut report.runs);
        let told = report.from;
        let passed = |at| now.since(at) * 10 >= self.apart() * 9;
        if told > from || self.told_at.is_none_or(passed) {
            self.many_holes = false;
            self.told_at = Some(now);
            self.told.rotate_left(1);
            self.told[REPEATS - 1] = end;
        }
        if told > from {
            self.add_to_backlog(from..told);
        }
    }

    /// Least time between reports. Hurried reports do not shorten the time for which a hole is
    /// reported, unless those of three intervals might not fit.
    fn apart(&self) -> Duration {
        let interval = self.schedule.interval();
        if self.many_holes {
            interval.min(LEAST_APART)
        } else {
            interval
        }
    }

    /// Reports the backlog, from its bottom up; false if there is none, or nothing of it arrived.
    fn catch_up(&mut self) -> bool {
        let Some(backlog) = self.backlog.take() else {
            return false;
        };
        let from = backlog.start.max(self.arrivals.floor());
        if from >= backlog.end {
            return false;
        }
        let Some(largest) = self.arrivals.reach(from, MAX_RUNS) else {
            return false;
        };
        let report = &mut self.report;
        report.largest = largest;
        report.delay_us = Report::NO_DELAY;
        report.from = self
            .arrivals
            .runs(from, largest, MAX_RUNS + 1, &mut report.runs);
        if largest + 1 < backlog.end {
            self.backlog = Some(largest + 1..backlog.end);
        }
        true
    }

    fn add_to_backlog(&mut self, range: Range<u64>) {
        self.backlog = Some(match &self.backlog {
            Some(old) => old.start.min(range.start)..old.end.max(range.end),
            None => range,
        });
    }

    /// All below `settled` is acknowledged or declared lost; the sender requests feedback every `interval`.
    pub fn on_state(&mut self, settled: u64, interval: Duration) {
        self.arrivals.settle(settled);
        self.schedule.set_interval(interval);
    }

    /// The sender requests a report on the packets from `from` on.
    pub fn on_want(&mut self, now: Instant, from: u64) {
        // Reports cover the last intervals in any case.
        let recent = self.told[0];
        if from < recent {
            self.add_to_backlog(from..recent);
        }
        self.schedule.on_packet(now, 0, true);
    }
}
