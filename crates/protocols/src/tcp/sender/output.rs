//! Chooses what leaves, and whether it may: repairs first, then new data, then what may be lost.
//! All is within the window of the law, of the episode and of the peer; at the law's rate if it is
//! paced.

use farhaul_core::{send::Permit, stats::Why, time::Instant, units::Size};

use super::{INITIAL_SEGMENTS, Probe, Sender, episode::Phase};
use crate::tcp::{
    Recovery,
    scoreboard::{Fate, Segment},
};

/// Segment to send again that is not believed lost, by its index.
#[derive(Clone, Copy, Debug)]
enum Guess {
    /// More was acknowledged above the segment, though not enough.
    Doubtful(u64),
    /// The last that did not arrive, once per episode.
    Rescue(u64),
}

impl Sender {
    /// The next segment to send again.
    fn repair(&mut self) -> Option<u64> {
        while let Some(index) = self.repairs.front() {
            let lost = self.board.get(*index).is_some_and(|s| s.fate == Fate::Lost);
            if lost {
                return Some(*index);
            }
            self.repairs.pop_front();
        }
        None
    }

    /// Segment to send again when there is nothing better to send: RFC 6675 §4, `NextSeg`, rules 3
    /// and 4.
    fn guess(&mut self) -> Option<Guess> {
        if self.config.recovery != Recovery::Sack || self.episode.phase != Phase::Recovery {
            return None;
        }
        self.guessed = self.guessed.max(self.judged).max(self.board.base());
        let highest = self.board.highest_sacked().unwrap_or(0);
        while let Some(segment) = self.board.get(self.guessed)
            && segment.end() <= highest
        {
            if segment.fate == Fate::InFlight && segment.sends == 1 {
                return Some(Guess::Doubtful(self.guessed));
            }
            self.guessed += 1;
        }
        let last = self.board.highest_unsacked();
        last.filter(|_| !self.episode.rescued).map(Guess::Rescue)
    }

    /// Time at which the pacer lets the next segments go, if it is what holds them.
    pub(super) fn wake(&self) -> Option<Instant> {
        self.paced.then(|| self.governor.wake())?
    }

    /// Permit of what may leave at `now`.
    pub(crate) fn permit(&mut self, now: Instant) -> Permit {
        self.paced = false;
        let datagram = u64::from(self.path.datagram);
        if self.probe_due {
            return Permit::Send { bytes: datagram };
        }
        let repair = self.repair().is_some();
        if !repair {
            if self.outbox.peek().is_none() {
                let next = self.rack.next_serial();
                self.path.delivery.app_limited(next);
                if self.guess().is_none() {
                    return Permit::Hold(Why::Application);
                }
            }
            self.restart(now);
        }
        let (flight, window) = (self.in_flight(), self.window());
        // Windows are counted in whole segments, to the nearest.
        let fit = (window.saturating_add(datagram / 2).saturating_sub(flight) / datagram)
            .max(u64::from(flight == 0))
            .min(self.config.burst as u64);
        if fit == 0 {
            return Permit::Hold(Why::Window);
        }
        if !repair && !self.peer_takes() && self.guess().is_none() {
            return Permit::Hold(Why::Peer);
        }
        if !repair && self.defers(now, fit, window) {
            return Permit::Hold(Why::Window);
        }
        match self.governor.pace(now) {
            Permit::Send { bytes } => Permit::Send {
                bytes: fit.min((bytes / datagram).max(1)) * datagram,
            },
            hold @ Permit::Hold(_) => {
                self.paced = true;
                hold
            }
        }
    }

    /// True if room for `fit` segments is not worth a burst while an acknowledgement that makes more
    /// is due within half a round trip. What the peer takes limits the room, too (Linux 2.6.25).
    fn defers(&self, now: Instant, fit: u64, window: u64) -> bool {
        if !self.config.defer || self.episode.phase != Phase::Open {
            return false;
        }
        let payload = u64::from(self.payload());
        let granted = |since: u64| self.peer.edge.saturating_sub(since) / payload;
        let fit = fit.min(granted(self.board.nxt()));
        let whole = window / u64::from(self.path.datagram);
        let third = whole.min(granted(self.board.una())) / 3;
        let burst = third.min(self.config.burst as u64);
        let soon = |first: &Segment| now.since(first.facts.sent_at) * 2 >= self.path.rtt.smoothed();
        fit < burst
            && self.outbox.unsent() > burst * payload
            && self.board.first().is_some_and(soon)
    }

    /// True if the peer takes a segment that is worth sending (RFC 9293 §3.8.6.2.1).
    fn peer_takes(&self) -> bool {
        let room = self.peer.edge.saturating_sub(self.board.nxt());
        room >= u64::from(self.payload()) || room > 0 && self.board.outstanding() == 0
    }

    /// Restarts the window after idle time (RFC 5681 §4.1).
    fn restart(&mut self, now: Instant) {
        let Some(last) = self
            .timers
            .last_sent
            .filter(|_| self.board.outstanding() == 0)
        else {
            return;
        };
        let idle = now.since(last);
        if self.config.idle_restart && idle > self.rto() {
            self.timers.last_sent = Some(now);
            let cap = INITIAL_SEGMENTS * u64::from(self.path.datagram);
            if cap < self.window() {
                self.episode.restart(cap);
            }
            self.governor
                .notify(now, |law| law.on_idle_restart(now, idle));
        }
    }

    /// The next segment, with at most `room` bytes; it counts as sent.
    pub(crate) fn next(&mut self, now: Instant, room: u32, stamp: u32) -> Option<Segment> {
        if std::mem::take(&mut self.probe_due) {
            return self.next_probe(now, room, stamp);
        }
        if let Some(index) = self.repair() {
            return self.resend(now, index, room, stamp);
        }
        self.next_new(now, room)
            .or_else(|| self.next_guess(now, room, stamp))
    }

    fn next_new(&mut self, now: Instant, room: u32) -> Option<Segment> {
        if !self.peer_takes() {
            return None;
        }
        let grant = self.peer.edge.saturating_sub(self.board.nxt());
        let room = room.min(u32::try_from(grant).unwrap_or(u32::MAX));
        let piece = self.outbox.next(room)?;
        let mut segment = Segment {
            seq: self.board.nxt(),
            len: piece.len,
            object: piece.object,
            offset: piece.offset,
            serial: self.rack.next_serial(),
            sent_bytes: 0,
            facts: self.facts(now),
            sends: 1,
            fate: Fate::InFlight,
            doubled: false,
        };
        let wire = segment.wire();
        segment.sent_bytes = self.count.sent_bytes + wire;
        segment.facts.in_flight += Size::from_bytes(wire);
        let index = self.board.push(segment);
        self.count.data_sent += u64::from(segment.len);
        self.left(index, wire);
        Some(segment)
    }

    fn next_guess(&mut self, now: Instant, room: u32, stamp: u32) -> Option<Segment> {
        let (Guess::Doubtful(index) | Guess::Rescue(index)) = self.guess()?;
        if self.board.get(index).is_some_and(|s| s.len > room) {
            self.cut(room);
        }
        let guess = self.guess()?;
        let (Guess::Doubtful(index) | Guess::Rescue(index)) = guess;
        let segment = *self.board.get(index)?;
        self.send_again(now, index, &segment, stamp);
        match guess {
            Guess::Doubtful(index) => self.board.double(index),
            Guess::Rescue(_) => self.episode.rescued = true,
        }
        Some(segment)
    }

    fn resend(&mut self, now: Instant, index: u64, room: u32, stamp: u32) -> Option<Segment> {
        let mut index = index;
        if self.board.get(index).is_some_and(|s| s.len > room) {
            self.cut(room);
            index = self.repair()?;
        }
        let segment = *self.board.get(index)?;
        self.repairs.pop_front();
        self.send_again(now, index, &segment, stamp);
        Some(segment)
    }

    /// Cuts outstanding segments to fit, as headers or paths left less room than there was.
    pub(super) fn cut(&mut self, room: u32) {
        self.board.split(room);
        self.rack.forget();
        self.repairs.clear();
        self.repaired.clear();
        let all = self.board.base()..self.board.end();
        let lost = |i: &u64| self.board.get(*i).is_some_and(|s| s.fate == Fate::Lost);
        self.repairs.extend(all.filter(lost));
        self.judged = 0;
        self.guessed = 0;
    }

    fn send_again(&mut self, now: Instant, index: u64, segment: &Segment, stamp: u32) {
        let mut facts = self.facts(now);
        let wire = segment.wire();
        facts.in_flight += Size::from_bytes(wire);
        let serial = self.rack.next_serial();
        self.board
            .resent(index, serial, self.count.sent_bytes + wire, facts);
        self.count.repaired += u64::from(segment.len);
        self.count.retransmits += 1;
        if self.episode.phase != Phase::Open {
            self.episode.repaired(stamp, segment.end());
        }
        if self.episode.phase == Phase::Recovery && self.config.recovery == Recovery::Fack {
            self.repaired.push_back((index, serial, self.board.nxt()));
        }
        if index == self.board.base() {
            self.timers.rto = Some(now + self.rto());
        }
        self.left(index, wire);
    }

    /// One segment past the window, to learn whether the tail arrived (RFC 8985 §7.3).
    fn next_probe(&mut self, now: Instant, room: u32, stamp: u32) -> Option<Segment> {
        let new = self.outbox.peek().is_some() && self.peer_takes();
        let sent = if new {
            self.next_new(now, room)
        } else {
            let index = self.board.end().checked_sub(1)?;
            let segment = *self.board.get(index).filter(|s| s.len <= room)?;
            self.send_again(now, index, &segment, stamp);
            Some(segment)
        }?;
        self.probe = Some(Probe {
            end: sent.end(),
            again: !new,
        });
        Some(sent)
    }

    /// Segment `index` left.
    fn left(&mut self, index: u64, wire: u64) {
        self.rack.sent(index);
        self.count.sent_bytes += wire;
        if self.episode.phase == Phase::Recovery {
            self.episode.sent(wire);
        }
    }

    /// A batch of `bytes` left: pacer, law and timers follow.
    pub(crate) fn batch_sent(&mut self, now: Instant, bytes: u64) {
        self.governor.charge(now, bytes);
        self.timers.last_sent = Some(now);
        if self.timers.rto.is_none() {
            self.timers.rto = Some(now + self.rto());
        }
        if self.timers.pto.is_none() {
            self.arm_probe(now);
        }
        let view = self.view();
        self.governor.on_sent(now, Size::from_bytes(bytes), &view);
    }
}
