//! Chooses the next bytes to send. The ordered stream goes first (it is small and others wait for
//! it), then repairs, then new data in the order given; or new data before repairs, if that is the
//! policy.

use std::collections::VecDeque;

use super::STREAM;
use crate::{congestion::RepairOrder, store::ObjectId};

/// A run of bytes of one object, small enough for one packet once it has been cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// The object that the bytes belong to.
    pub object: ObjectId,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
    /// True if the bytes were sent before.
    pub repair: bool,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    object: ObjectId,
    offset: u64,
    len: u64,
}

/// Data waiting to be sent.
#[derive(Clone, Debug, Default)]
pub struct Outbox {
    stream: VecDeque<Run>,
    repairs: VecDeque<Piece>,
    fresh: VecDeque<Run>,
    unsent: u64,
    order: RepairOrder,
}

impl Outbox {
    /// An empty queue that sends repairs in this order.
    pub fn new(order: RepairOrder) -> Self {
        Self {
            order,
            ..Self::default()
        }
    }

    /// True if repairs wait for new data.
    fn repairs_wait(&self) -> bool {
        self.order == RepairOrder::Last && !self.fresh.is_empty()
    }

    /// Queues new data.
    pub fn push(&mut self, object: ObjectId, offset: u64, len: u64) {
        if len == 0 {
            return;
        }
        let queue = if object == STREAM {
            &mut self.stream
        } else {
            self.unsent = self.unsent.saturating_add(len);
            &mut self.fresh
        };
        if let Some(last) = queue.back_mut()
            && last.object == object
            && last.offset + last.len == offset
        {
            last.len += len;
        } else {
            queue.push_back(Run {
                object,
                offset,
                len,
            });
        }
    }

    /// Queues a lost piece.
    pub fn repair(&mut self, piece: Piece) {
        self.repairs.push_back(Piece {
            repair: true,
            ..piece
        });
    }

    /// Object and offset of what goes next.
    pub fn peek(&self) -> Option<(ObjectId, u64)> {
        if let Some(run) = self.stream.front() {
            return Some((run.object, run.offset));
        }
        if let Some(piece) = self.repairs.front().filter(|_| !self.repairs_wait()) {
            return Some((piece.object, piece.offset));
        }
        self.fresh.front().map(|run| (run.object, run.offset))
    }

    /// Takes up to `max` bytes of what goes next.
    pub fn next(&mut self, max: u32) -> Option<Piece> {
        if max == 0 {
            return None;
        }
        if let Some(piece) = Self::cut(&mut self.stream, max) {
            return Some(piece);
        }
        if !self.repairs_wait()
            && let Some(piece) = self.repairs.front_mut()
        {
            if piece.len <= max {
                return self.repairs.pop_front();
            }
            let head = Piece { len: max, ..*piece };
            piece.offset += u64::from(max);
            piece.len -= max;
            return Some(head);
        }
        let piece = Self::cut(&mut self.fresh, max)?;
        self.unsent -= u64::from(piece.len);
        Some(piece)
    }

    fn cut(queue: &mut VecDeque<Run>, max: u32) -> Option<Piece> {
        let run = queue.front_mut()?;
        let len = u32::try_from(run.len).map_or(max, |len| len.min(max));
        let piece = Piece {
            object: run.object,
            offset: run.offset,
            len,
            repair: false,
        };
        run.offset += u64::from(len);
        run.len -= u64::from(len);
        if run.len == 0 {
            queue.pop_front();
        }
        Some(piece)
    }

    /// New object bytes not taken yet.
    pub const fn unsent(&self) -> u64 {
        self.unsent
    }

    /// True if the ordered stream goes next.
    pub fn has_stream(&self) -> bool {
        !self.stream.is_empty()
    }

    /// True if object data is queued.
    pub fn has_objects(&self) -> bool {
        !self.repairs.is_empty() || !self.fresh.is_empty()
    }

    /// True if something waits that was never sent.
    pub fn has_new(&self) -> bool {
        !self.stream.is_empty() || !self.fresh.is_empty()
    }

    /// True when nothing waits.
    pub fn is_empty(&self) -> bool {
        self.stream.is_empty() && self.repairs.is_empty() && self.fresh.is_empty()
    }

    /// Forgets new object data that has not been taken.
    pub fn cancel_unsent(&mut self) {
        self.fresh.clear();
        self.unsent = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_ends_before_its_repairs() {
        let mut out = Outbox::new(RepairOrder::Last);
        out.push(1, 10, 5);
        out.repair(Piece {
            object: 1,
            offset: 0,
            len: 5,
            repair: false,
        });
        assert_eq!(out.peek(), Some((1, 10)));
        let order = [(); 2].map(|()| out.next(100).map(|p| (p.offset, p.repair)));
        assert_eq!(order, [Some((10, false)), Some((0, true))]);
        assert!(out.is_empty());
    }

    #[test]
    fn stream_then_repairs_then_new_data() {
        let mut out = Outbox::default();
        out.push(1, 0, 1_000);
        out.push(1, 1_000, 500);
        out.push(STREAM, 0, 30);
        out.repair(Piece {
            object: 1,
            offset: 7_000,
            len: 900,
            repair: false,
        });
        assert_eq!(out.unsent(), 1_500);
        let mut taken = Vec::new();
        while let Some(p) = out.next(800) {
            taken.push((p.object, p.offset, p.len, p.repair));
        }
        assert_eq!(
            taken,
            [
                (STREAM, 0, 30, false),
                (1, 7_000, 800, true),
                (1, 7_800, 100, true),
                (1, 0, 800, false),
                (1, 800, 700, false)
            ]
        );
        assert!(out.is_empty() && out.unsent() == 0);
    }
}
