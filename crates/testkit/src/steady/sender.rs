//! Chooses what is sent next: repairs first, then queued data, at the fixed rate. When all is sent
//! and the end is not acknowledged, the end goes again.

use std::{collections::VecDeque, ops::Range, time::Duration};

use farhaul_core::{stats::Why, store::ObjectId, time::Instant};

use super::{Steady, wire::Data};

/// A sender that fell behind catches up by no more than this.
const MAX_BEHIND: Duration = Duration::from_millis(1);

/// A queued run of an object and where it lies on the line.
#[derive(Clone, Copy, Debug)]
struct Piece {
    position: u64,
    object: ObjectId,
    offset: u64,
    len: u64,
}

#[derive(Debug)]
pub(super) struct Sender {
    config: Steady,
    pieces: VecDeque<Piece>,
    /// End of the line.
    end: u64,
    /// Sent once up to here.
    sent: u64,
    /// Acknowledged without gaps up to here.
    pub(super) acked: u64,
    repairs: VecDeque<Range<u64>>,
    /// Spans requested recently, and when.
    asked: VecDeque<(Range<u64>, Instant)>,
    next_at: Instant,
    /// Time of the last sign of life from the receiver, or of the last probe.
    stirred: Instant,
    pub(super) rtt: Duration,
    pub(super) data_sent: u64,
    pub(super) repaired: u64,
}

impl Sender {
    pub(super) const fn new(config: Steady) -> Self {
        Self {
            config,
            pieces: VecDeque::new(),
            end: 0,
            sent: 0,
            acked: 0,
            repairs: VecDeque::new(),
            asked: VecDeque::new(),
            next_at: Instant::EPOCH,
            stirred: Instant::EPOCH,
            rtt: Duration::from_millis(200),
            data_sent: 0,
            repaired: 0,
        }
    }

    /// The session opened.
    pub(super) fn start(&mut self, now: Instant) {
        self.next_at = now;
        self.stirred = now;
    }

    pub(super) fn queue(&mut self, object: ObjectId, offset: u64, len: u64) {
        if len > 0 {
            self.pieces.push_back(Piece {
                position: self.end,
                object,
                offset,
                len,
            });
            self.end += len;
        }
    }

    pub(super) const fn unsent(&self) -> u64 {
        self.end - self.sent
    }

    pub(super) fn cancel_unsent(&mut self) {
        self.end = self.sent;
        while let Some(last) = self.pieces.back_mut() {
            last.len = last.len.min(self.end.saturating_sub(last.position));
            if last.len > 0 {
                break;
            }
            self.pieces.pop_back();
        }
    }

    pub(super) const fn is_idle(&self) -> bool {
        self.acked == self.end
    }

    fn wants_to_send(&self) -> bool {
        self.sent < self.end || !self.repairs.is_empty()
    }

    fn probe_at(&self) -> Instant {
        self.stirred + (self.rtt * 2).max(Duration::from_millis(50))
    }

    /// Time at which there is something to do.
    pub(super) fn deadline(&self) -> Option<Instant> {
        if self.wants_to_send() {
            Some(self.next_at)
        } else if self.is_idle() || !self.config.repair {
            None
        } else {
            Some(self.probe_at())
        }
    }

    /// Sends the end again, as nothing was received for long, so that the receiver sees what it
    /// lacks.
    pub(super) fn on_timer(&mut self, now: Instant) {
        if self.config.repair && !self.wants_to_send() && !self.is_idle() && now >= self.probe_at()
        {
            let payload = u64::from(self.config.datagram) - 30;
            let from = self.end.saturating_sub(payload).max(self.acked);
            self.repairs.push_back(from..self.end);
            self.stirred = now;
        }
    }

    /// The receiver has all before `prefix` and lacks `gaps`.
    pub(super) fn on_report(&mut self, now: Instant, prefix: u64, gaps: &[Range<u64>]) {
        if prefix > self.end {
            return;
        }
        self.stirred = now;
        self.acked = self.acked.max(prefix);
        while let Some(piece) = self.pieces.front()
            && piece.position + piece.len <= self.acked
        {
            self.pieces.pop_front();
        }
        // What was asked for a round trip and a report ago is lost again.
        let timeout = self.rtt + Duration::from_millis(15);
        while self
            .asked
            .front()
            .is_some_and(|(_, at)| *at + timeout < now)
        {
            self.asked.pop_front();
        }
        for gap in gaps.iter().filter(|_| self.config.repair) {
            let gap = gap.start.max(self.acked)..gap.end.min(self.sent);
            let asked = |(r, _): &(Range<u64>, Instant)| r.start < gap.end && gap.start < r.end;
            if !gap.is_empty() && !self.asked.iter().any(asked) {
                self.asked.push_back((gap.clone(), now));
                self.repairs.push_back(gap);
            }
        }
    }

    /// Reason why nothing may leave now.
    pub(super) fn held(&self, now: Instant) -> Option<Why> {
        if !self.wants_to_send() {
            Some(Why::Application)
        } else if now < self.next_at {
            Some(Why::Pacing)
        } else {
            None
        }
    }

    /// A batch left.
    pub(super) fn batch_sent(&mut self, now: Instant, bytes: u64) {
        let from = self.next_at.max(now.earlier_by(MAX_BEHIND));
        self.next_at = from + self.config.rate.time_for(bytes);
        if !self.wants_to_send() {
            self.stirred = now;
        }
    }

    /// The next packet and its payload length, at most `room`.
    pub(super) fn next(&mut self, room: u32) -> Option<(Data, u32)> {
        let (position, most) = if let Some(repair) = self.repairs.front() {
            (repair.start, repair.end - repair.start)
        } else if self.sent < self.end {
            (self.sent, self.end - self.sent)
        } else {
            return None;
        };
        let piece = *self.piece(position)?;
        let within = position - piece.position;
        let len = most.min(room.into()).min(piece.len - within);
        if let Some(repair) = self.repairs.front_mut() {
            repair.start += len;
            self.repaired += len;
            if repair.is_empty() {
                self.repairs.pop_front();
            }
        } else {
            self.sent += len;
            self.data_sent += len;
        }
        let data = Data {
            position,
            object: piece.object,
            offset: piece.offset + within,
        };
        Some((data, u32::try_from(len).unwrap_or(u32::MAX)))
    }

    fn piece(&self, position: u64) -> Option<&Piece> {
        let after = self.pieces.partition_point(|p| p.position <= position);
        self.pieces.get(after.checked_sub(1)?)
    }
}
