//! Snapshots of the sender's state when packets were sent: one record per batch, by the batch
//! number that each packet keeps.

use std::collections::VecDeque;

use crate::congestion::TxSnapshot;

/// The most batches: 8 MiB of them. Batches are large where there are many packets in flight, unless the
/// peer makes it so.
const MOST: usize = 1 << 17;

/// Snapshots of the batches in flight.
#[derive(Clone, Debug, Default)]
pub struct Snapshots {
    /// First new packet number after the batch, and the state then; ascending.
    batches: VecDeque<(u64, TxSnapshot)>,
    /// Number of the first batch kept, which wraps.
    first: u32,
}

impl Snapshots {
    /// The number of the batch that [`Self::push`] will add.
    #[expect(clippy::cast_possible_truncation, reason = "fewer than MOST are kept")]
    pub fn next(&self) -> u32 {
        self.first.wrapping_add(self.batches.len() as u32)
    }

    /// A batch was sent, and the next new packet's number is `end`.
    pub fn push(&mut self, end: u64, snapshot: TxSnapshot) {
        if self.batches.len() == MOST {
            self.forget_first();
        }
        self.batches.push_back((end, snapshot));
    }

    /// Snapshot of `batch`; the oldest one kept, if that of `batch` was removed.
    pub fn get(&self, batch: u32) -> Option<TxSnapshot> {
        let at = batch.wrapping_sub(self.first);
        let at = if at > u32::MAX / 2 { 0 } else { at };
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        self.batches.get(at).map(|(_, snapshot)| *snapshot)
    }

    /// Removes batches that hold no packet from `first` on.
    pub fn trim(&mut self, first: u64) {
        while self.batches.front().is_some_and(|(end, _)| *end <= first) {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        self.batches.pop_front();
        self.first = self.first.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Size;

    #[test]
    fn a_packet_has_the_snapshot_of_its_batch() {
        let snapshot = |n| TxSnapshot {
            delivered: Size::from_bytes(n),
            ..TxSnapshot::default()
        };
        let mut log = Snapshots {
            first: u32::MAX,
            ..Snapshots::default()
        };
        let (a, b) = (log.next(), log.next().wrapping_add(1));
        log.push(10, snapshot(1));
        log.push(14, snapshot(2));
        assert_eq!(
            [a, b].map(|n| log.get(n)),
            [Some(snapshot(1)), Some(snapshot(2))]
        );
        assert_eq!(log.get(b.wrapping_add(1)), None);
        log.trim(10);
        assert_eq!([a, b].map(|n| log.get(n)), [Some(snapshot(2)); 2]);
        log.trim(14);
        assert_eq!(log.get(b), None);
    }
}
