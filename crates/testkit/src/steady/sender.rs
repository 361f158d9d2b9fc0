//! What is sent next? Repairs first, then what was queued, at the fixed rate; when all is sent and the
//! end is not acknowledged, the end again.

use std::{collections::VecDeque, ops::Range, time::Duration};

use farhaul_core::{
    datagram::TxBuf,
    store::{Extent, ObjectId},
    time::Instant,
};

use super::{
    Steady,
    wire::{DATA_HEADER, Data},
};

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
    /// Spans asked for lately, and when.
    asked: VecDeque<(Range<u64>, Instant)>,
    next_at: Instant,
    /// The last sign of life from the receiver, or the last probe.
    stirred: Instant,
    pub(super) rtt: Duration,
    pub(super) data_sent: u64,
    pub(super) repaired: u64,
}

impl Sender {
    pub(super) fn new(config: Steady, now: Instant) -> Self {
        Self {
            config,
            pieces: VecDeque::new(),
            end: 0,
            sent: 0,
            acked: 0,
            repairs: VecDeque::new(),
            asked: VecDeque::new(),
            next_at: now,
            stirred: now,
            rtt: Duration::from_millis(200),
            data_sent: 0,
            repaired: 0,
        }
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

    /// When there is something to do.
    pub(super) fn deadline(&self) -> Option<Instant> {
        if self.wants_to_send() {
            Some(self.next_at)
        } else if self.is_idle() || !self.config.repair {
            None
        } else {
            Some(self.probe_at())
        }
    }

    /// Nothing heard for long: send the end again, so that the receiver sees what it lacks.
    pub(super) fn on_timer(&mut self, now: Instant) {
        if self.config.repair && !self.wants_to_send() && !self.is_idle() && now >= self.probe_at()
        {
            let from = self.end.saturating_sub(self.payload()).max(self.acked);
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
        let patience = self.rtt + Duration::from_millis(15);
        while self
            .asked
            .front()
            .is_some_and(|(_, at)| *at + patience < now)
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

    const fn payload(&self) -> u64 {
        self.config.datagram as u64 - DATA_HEADER as u64
    }

    /// Writes a batch; its payload is described by `extents`. True if there is one.
    pub(super) fn write(
        &mut self,
        now: Instant,
        id: u64,
        out: &mut TxBuf,
        extents: &mut Vec<Extent>,
    ) -> bool {
        extents.clear();
        if !self.wants_to_send() || now < self.next_at {
            return false;
        }
        let full = usize::from(self.config.datagram);
        let mut room = out.begin(full);
        let mut bytes = 0;
        while room > 0
            && let Some((data, len)) = self.next()
        {
            let len_here = DATA_HEADER + usize::try_from(len).unwrap_or(full);
            let at = out.next_at() + DATA_HEADER;
            let segment = out.next_segment();
            if data.put(id, segment).is_err() {
                break;
            }
            out.commit(len_here, DATA_HEADER);
            extents.push(Extent {
                object: data.object,
                offset: data.offset,
                len,
                at: u32::try_from(at).unwrap_or(u32::MAX),
            });
            bytes += len_here as u64;
            room -= 1;
            if len_here < full {
                break;
            }
        }
        let from = self.next_at.max(now.earlier_by(MAX_BEHIND));
        self.next_at = from + self.config.rate.time_for(bytes);
        if !self.wants_to_send() {
            self.stirred = now;
        }
        bytes > 0
    }

    /// The next packet and its payload length.
    fn next(&mut self) -> Option<(Data, u32)> {
        let (position, most) = if let Some(repair) = self.repairs.front() {
            (repair.start, repair.end - repair.start)
        } else if self.sent < self.end {
            (self.sent, self.end - self.sent)
        } else {
            return None;
        };
        let piece = *self.piece(position)?;
        let within = position - piece.position;
        let len = most.min(self.payload()).min(piece.len - within);
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
