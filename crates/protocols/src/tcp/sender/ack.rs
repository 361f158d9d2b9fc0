//! Applies an acknowledgement: arrivals retire, losses come to light, the law learns of both
//! together, and the episode moves on.

use std::{ops::Range, time::Duration};

use farhaul_core::{
    codec::DecodeError,
    congestion::AckEvent,
    rate::Progress,
    send::STREAM,
    time::{Instant, nanos},
    units::Size,
};

use super::{Losses, Sender, episode::Phase, lose, rack::DUPLICATE_THRESHOLD};
use crate::tcp::{
    Recovery,
    clock::since_stamp,
    scoreboard::{Fate, Segment},
    wire::{MAX_SACKS, Stamps, Wrapped},
};

/// An acknowledgement, in numbers that do not wrap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Acknowledgement {
    /// Everything below arrived.
    pub(crate) ack: u64,
    /// One past the highest sequence number the peer takes.
    pub(crate) edge: u64,
    /// Ranges that arrived besides.
    pub(crate) sacks: [Range<u64>; MAX_SACKS],
    /// True if the peer received something twice (RFC 2883).
    pub(crate) duplicate: bool,
    pub(crate) stamps: Option<Stamps>,
    /// True if a mark is echoed.
    pub(crate) marked: bool,
    /// True if the acknowledgement carries data, so that it is no duplicate.
    pub(crate) data: bool,
}

/// Changes made by one acknowledgement.
#[derive(Debug, Default)]
struct Change {
    advanced: bool,
    bytes: u64,
    packets: u32,
    spurious: u32,
    data: u64,
    stream: u64,
    longest: u32,
    /// The transmission that left last among what arrived.
    newest: Option<Segment>,
    /// Send times of the first and the last segment sent only once.
    clean: Option<(Instant, Instant)>,
}

impl Change {
    fn deliver(&mut self, segment: &Segment) {
        if segment.fate == Fate::Sacked {
            return;
        }
        self.bytes += segment.wire();
        self.packets += 1;
        self.data += u64::from(segment.len);
        self.longest = self.longest.max(segment.len);
        if segment.fate == Fate::Lost {
            self.spurious += 1;
        }
        if self.newest.is_none_or(|n| segment.serial > n.serial) {
            self.newest = Some(*segment);
        }
        if segment.sends == 1 && segment.fate == Fate::InFlight {
            let at = segment.facts.sent_at;
            let (first, last) = self.clean.unwrap_or((at, at));
            self.clean = Some((first.min(at), last.max(at)));
        }
    }
}

impl Sender {
    /// An acknowledgement arrived at the host.
    pub(crate) fn on_ack(
        &mut self,
        now: Instant,
        ack: &Acknowledgement,
    ) -> Result<(), DecodeError> {
        if ack.ack > self.board.nxt() {
            return Err(DecodeError::Malformed(
                "acknowledgement of what was not sent",
            ));
        }
        if self.backlog.is_slow() {
            self.queue(now, ack);
        } else {
            self.apply(now, ack);
        }
        Ok(())
    }

    /// Lets `ack` wait for those before it, and for its own scan.
    fn queue(&mut self, now: Instant, ack: &Acknowledgement) {
        let idle = self.backlog.next().is_none();
        self.backlog.push(ack);
        if idle {
            self.begin(now);
            // What takes no scan is done at once.
            self.work(now);
        }
    }

    /// Applies the acknowledgements with which the host is done.
    pub(super) fn work(&mut self, now: Instant) {
        while let Some((at, ack)) = self.backlog.done(now) {
            self.apply(now, &ack);
            self.begin(at);
        }
    }

    /// Begins with the next acknowledgement.
    fn begin(&mut self, at: Instant) {
        if let Some(next) = self.backlog.next() {
            let segments = self.board.scanned(&next.sacks);
            self.backlog.begin(at, segments);
        }
    }

    #[inline]
    fn apply(&mut self, now: Instant, ack: &Acknowledgement) {
        let before = self.in_flight();
        let stuck = self.peer.edge;
        self.peer.edge = stuck.max(ack.edge);
        let mut change = Change::default();
        self.retire(now, ack, &mut change);
        let repeated = !change.advanced
            && !ack.data
            && ack.ack == self.board.una()
            && self.board.outstanding() > 0;
        self.duplicate_acks += u64::from(repeated);
        // One that moves the window is counted, as web100 may do, but is no duplicate (RFC 5681 §2).
        let repeated = repeated && self.peer.edge == stuck;
        self.count.data_acked += change.data;
        self.count.delivered += change.bytes;
        self.count.spurious += u64::from(change.spurious);
        self.path.proven = self.path.proven.max(change.longest);
        if change.advanced {
            self.stream_acked = self.stream_acked.max(change.stream);
            self.timers.backoff = 0;
            self.peer.probes = 0;
        }
        if ack.duplicate {
            self.rack.duplicate();
            self.count.spurious += 1;
        }
        let rtt = self.sample(now, ack, &change);
        self.undo(now, ack, &change);
        let mut losses = Losses::default();
        if !self.sack {
            self.count_duplicates(repeated, &change, &mut losses);
        }
        self.detect(now, &mut losses);
        self.count_losses(&losses);
        self.conclude(now, ack, (before, rtt), &change, &losses);
        let progress = self.progressed(&change);
        self.rearm(now, progress);
    }

    /// True if an acknowledgement puts the timeout off: when it advances (RFC 6298 §5.3). With RACK
    /// an acknowledgement also does so when the arrived segment had left before the first
    /// outstanding segment last did (Linux). Otherwise a lost repair would never time out while
    /// later segments keep arriving.
    fn progressed(&self, change: &Change) -> bool {
        let earlier = || {
            let first = self.board.first().map(|s| s.serial);
            change.newest.map(|s| s.serial) < first
        };
        change.advanced || change.packets > 0 && self.config.recovery == Recovery::Rack && earlier()
    }

    /// Takes what arrived off the scoreboard.
    fn retire(&mut self, now: Instant, ack: &Acknowledgement, change: &mut Change) {
        let (rack, min_rtt) = (&mut self.rack, self.path.rtt.min());
        let mut arrived = |segment: &Segment, change: &mut Change| {
            if segment.fate != Fate::Sacked {
                rack.delivered(now, segment, min_rtt);
            }
            change.deliver(segment);
        };
        change.advanced = ack.ack > self.board.una();
        if change.advanced {
            self.board.acknowledge(ack.ack, |segment| {
                if segment.object == STREAM {
                    change.stream = segment.offset + u64::from(segment.len);
                }
                arrived(segment, change);
            });
        }
        if self.sack {
            let (una, nxt) = (self.board.una(), self.board.nxt());
            for block in &ack.sacks {
                let block = block.start.max(una)..block.end.min(nxt);
                if !block.is_empty() {
                    self.board.sack(block, |segment| arrived(segment, change));
                }
            }
        }
    }

    /// Samples the rtt, the queue and the delivery rate; the rtt of the newest segment.
    fn sample(&mut self, now: Instant, ack: &Acknowledgement, change: &Change) -> Option<Duration> {
        let latest = match change.clean {
            Some((first, last)) => {
                self.path.rtt.update(now, now.since(first));
                Some(now.since(last))
            }
            None if change.advanced => {
                let echo = ack.stamps.map(|s| s.echo).filter(|e| *e != 0);
                let sample = echo.map(|e| since_stamp(now, e));
                if let Some(sample) = sample {
                    self.path.rtt.update(now, sample);
                }
                sample
            }
            None => None,
        };
        if let Some(newest) = &change.newest {
            self.measure(now, ack, newest);
        }
        latest
    }

    fn measure(&mut self, now: Instant, ack: &Acknowledgement, newest: &Segment) {
        let arrived_us = match ack.stamps {
            Some(stamps) => {
                let clock = Wrapped::expand(stamps.value, self.path.clock);
                self.path.clock = self.path.clock.max(clock);
                self.path.clock
            }
            None => nanos(now.since(Instant::EPOCH)) / 1_000,
        };
        let srtt = self.path.rtt.smoothed();
        if self.path.rate_at.is_some_and(|at| now < at) {
            return;
        }
        // A few tens of samples per rtt are plenty.
        self.path.rate_at = Some(now + srtt / 32);
        let progress = Progress {
            arrived_us,
            bytes: self.count.delivered,
            sent: newest.facts.sent_at,
            sent_bytes: newest.sent_bytes,
            packet: newest.serial,
            lost: self.count.lost,
        };
        let window = self.governor.law().sample_window().unwrap_or(srtt);
        self.path.rate = self.path.delivery.update(progress, window);
    }

    /// The last episode may prove to have been for nothing.
    fn undo(&mut self, now: Instant, ack: &Acknowledgement, change: &Change) {
        let by_stamp = change.advanced && self.episode.is_spurious(self.board.una(), ack.stamps);
        let by_duplicate = ack.duplicate && self.episode.duplicate();
        if !self.config.undo || !(by_stamp || by_duplicate) {
            return;
        }
        for index in std::mem::take(&mut self.repairs) {
            self.board.find(index);
        }
        self.episode.undone();
        self.duplicates = 0;
        self.governor.notify(now, |law| law.on_undo(now));
    }

    /// Counts duplicates without SACK (RFC 6582): the third one, or a partial acknowledgement,
    /// means that the first segment is lost.
    fn count_duplicates(&mut self, repeated: bool, change: &Change, losses: &mut Losses) {
        if change.advanced {
            let partial =
                self.episode.phase == Phase::Recovery && self.board.una() < self.episode.point;
            if partial {
                let beyond = change.packets.saturating_sub(1);
                self.duplicates = self.duplicates.saturating_sub(beyond);
                self.lose(self.board.base(), losses);
            } else {
                self.duplicates = 0;
            }
        } else if repeated {
            self.duplicates += 1;
            let fresh = self.board.una() >= self.episode.point;
            if self.duplicates == DUPLICATE_THRESHOLD && self.episode.phase == Phase::Open && fresh
            {
                self.lose(self.board.base(), losses);
            }
        }
    }

    /// Finds losses by the chosen rule.
    pub(super) fn detect(&mut self, now: Instant, losses: &mut Losses) {
        if !self.sack {
            return;
        }
        match self.config.recovery {
            Recovery::Rack => {
                let recovering = self.episode.phase != Phase::Open;
                let rtts = (self.path.rtt.min(), self.path.rtt.smoothed());
                let repairs = &mut self.repairs;
                let board = &mut self.board;
                self.timers.reorder =
                    self.rack
                        .detect(now, board, recovering, rtts, |board, index| {
                            lose(board, repairs, index, losses);
                        });
            }
            Recovery::Sack => {
                let threshold = u64::from(self.payload()) * 2;
                if let Some(below) = self.board.overtaken_by(threshold) {
                    self.lose_below(below, losses);
                }
            }
            Recovery::Fack => {
                let behind = u64::from(self.payload()) * 3;
                if let Some(highest) = self.board.highest_sacked() {
                    self.lose_below(highest.saturating_sub(behind), losses);
                    self.lose_repairs(highest, losses);
                }
            }
            Recovery::NewReno => {}
        }
    }

    /// Repairs after which something new left that arrived, below `highest`, are lost themselves (Mathis
    /// and Mahdavi 1996, as Linux did until 4.x).
    fn lose_repairs(&mut self, highest: u64, losses: &mut Losses) {
        while let Some((index, serial, nxt)) = self.repaired.front().copied()
            && nxt < highest
        {
            self.repaired.pop_front();
            if self.board.get(index).is_some_and(|s| s.serial == serial) {
                self.lose(index, losses);
            }
        }
    }

    /// Whatever was sent once, is below `seq` and did not arrive is lost.
    fn lose_below(&mut self, seq: u64, losses: &mut Losses) {
        self.judged = self.judged.max(self.board.base());
        while let Some(segment) = self.board.get(self.judged)
            && segment.end() <= seq
        {
            if segment.sends == 1 {
                self.lose(self.judged, losses);
            } else {
                self.board.settle(self.judged);
            }
            self.judged += 1;
        }
    }

    /// Tells the law, and moves the episode on.
    fn conclude(
        &mut self,
        now: Instant,
        ack: &Acknowledgement,
        (before, rtt): (u64, Option<Duration>),
        change: &Change,
        losses: &Losses,
    ) {
        let probe_lost = self.on_probe_answer(ack, change);
        let was_open = self.episode.phase == Phase::Open;
        self.tell_losses(now, losses, before);
        if probe_lost && was_open && losses.packets == 0 {
            self.tell_probe_loss(now, change, before);
        }
        self.tell_arrivals(now, ack, (before, rtt), change);
        let law = self.governor.allowance().window.bytes();
        let over = self.board.una() >= self.episode.point;
        match self.episode.phase {
            Phase::Open => self.episode.grow(change.bytes, law),
            _ if over => {
                if self.episode.phase == Phase::Recovery {
                    self.rack.recovered();
                }
                self.duplicates = 0;
                self.episode.leave(law);
            }
            Phase::Recovery => {
                let safe = change.advanced && losses.packets == 0;
                self.step(self.delivered(change), safe, was_open);
            }
            Phase::Loss => {}
        }
    }

    /// Wire bytes that left the network; where there is no SACK, a duplicate stands for a datagram.
    fn delivered(&self, change: &Change) -> u64 {
        if self.sack || change.packets > 0 {
            change.bytes
        } else {
            u64::from(self.path.datagram)
        }
    }

    /// Takes an answer to a tail loss probe; true if it repaired a loss (RFC 8985 §7.4).
    fn on_probe_answer(&mut self, ack: &Acknowledgement, change: &Change) -> bool {
        let Some(probe) = self
            .probe
            .filter(|p| change.advanced && self.board.una() >= p.end)
        else {
            return false;
        };
        self.probe = None;
        probe.again && !ack.duplicate
    }

    /// The probe repaired a loss that nothing else showed: one reaction is due.
    fn tell_probe_loss(&mut self, now: Instant, change: &Change, before: u64) {
        let fact = change.newest.map(|s| (s.facts, s.serial));
        let losses = Losses {
            bytes: u64::from(self.path.datagram),
            packets: 1,
            oldest: fact,
            newest: fact,
        };
        self.tell_losses(now, &losses, before);
        self.episode.leave(u64::MAX);
    }

    fn tell_arrivals(
        &mut self,
        now: Instant,
        ack: &Acknowledgement,
        (before, rtt): (u64, Option<Duration>),
        change: &Change,
    ) {
        let Some(newest) = &change.newest else {
            return;
        };
        let round_start = newest.serial >= self.round_end;
        if round_start {
            self.rounds += 1;
            self.round_end = self.rack.next_serial();
        }
        let marked = ack.marked && self.board.una() >= self.marks.point;
        if marked {
            self.marks.point = self.board.nxt();
            self.marks.reduced = true;
        }
        let queue_delay = ack.stamps.map(|_| {
            self.path
                .queue
                .update(now, newest.facts.sent_at, self.path.clock)
        });
        let event = AckEvent {
            now,
            acked: Size::from_bytes(change.bytes),
            packets: change.packets,
            round: self.rounds,
            round_start,
            in_flight_before: Size::from_bytes(before),
            rtt,
            queue_delay,
            rate: self.path.rate.take(),
            delivered: Size::from_bytes(self.count.delivered),
            lost: Size::from_bytes(self.count.lost_bytes),
            newest: Some(newest.facts),
            receiver: None,
            ce: u64::from(marked),
            app_limited: self.outbox.is_empty(),
            path: self.view(),
        };
        self.governor.on_ack(&event);
    }
}
