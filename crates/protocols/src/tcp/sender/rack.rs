//! Finds segments that were overtaken in time. RACK (RFC 8985 §6): a segment is lost once one sent
//! sufficiently later has been delivered. Transmissions are kept in the order in which they left,
//! so that each is looked at until it is decided and never again.

use std::{collections::VecDeque, time::Duration};

use farhaul_core::time::Instant;

use crate::tcp::scoreboard::{Fate, Scoreboard, Segment};

/// Duplicate acknowledgements that mean a loss (RFC 5681).
pub(super) const DUPLICATE_THRESHOLD: u32 = 3;
/// Recoveries without a duplicate after which the window for reordering is narrow again (§6.2.4).
const FORGET_AFTER: u32 = 16;

/// Newest delivered transmission, and what reordering was learnt.
#[derive(Debug, Default)]
pub(super) struct Rack {
    /// Index of the segment of each transmission, from number `first` on.
    order: VecDeque<u64>,
    first: u64,
    newest: Option<(u64, Instant)>,
    rtt: Duration,
    /// One past the highest sequence number delivered.
    highest: u64,
    reordering: bool,
    /// Quarters of the rtt to wait beyond the first.
    quarters: u32,
    recoveries: u32,
}

impl Rack {
    /// Number of the next transmission.
    pub(super) fn next_serial(&self) -> u64 {
        self.first + self.order.len() as u64
    }

    /// The segment `index` left.
    pub(super) fn sent(&mut self, index: u64) {
        self.order.push_back(index);
    }

    /// All records were cut anew, or all are given up as lost.
    pub(super) fn forget(&mut self) {
        self.first = self.next_serial();
        self.order.clear();
    }

    /// A segment was delivered (§6.2 steps 1 to 3).
    pub(super) fn delivered(&mut self, now: Instant, segment: &Segment, min_rtt: Duration) {
        if segment.end() >= self.highest {
            self.highest = segment.end();
        } else if segment.sends == 1 {
            self.reordering = true;
        }
        let rtt = now.since(segment.facts.sent_at);
        if segment.sends > 1 && rtt < min_rtt {
            // It is the original that was acknowledged.
            return;
        }
        if self
            .newest
            .is_none_or(|(serial, _)| segment.serial > serial)
        {
            self.newest = Some((segment.serial, segment.facts.sent_at));
            self.rtt = rtt;
        }
    }

    /// Notes that the peer received something twice: the repaired packet had only been late
    /// (§6.2.4).
    pub(super) const fn duplicate(&mut self) {
        self.quarters = self.quarters.saturating_add(1);
        self.recoveries = 0;
    }

    /// A recovery ended.
    pub(super) const fn recovered(&mut self) {
        self.recoveries += 1;
        if self.recoveries >= FORGET_AFTER {
            self.quarters = 0;
        }
    }

    fn window(&self, recovering: bool, sacked: u32, min_rtt: Duration, srtt: Duration) -> Duration {
        if !self.reordering && (recovering || sacked >= DUPLICATE_THRESHOLD) {
            Duration::ZERO
        } else {
            (min_rtt / 4 * self.quarters.saturating_add(1)).min(srtt)
        }
    }

    /// Calls `lost` with each segment that is lost at `now`; returns the time to look again, if any
    /// may be.
    pub(super) fn detect(
        &mut self,
        now: Instant,
        board: &mut Scoreboard,
        recovering: bool,
        (min_rtt, srtt): (Duration, Duration),
        mut lost: impl FnMut(&mut Scoreboard, u64),
    ) -> Option<Instant> {
        let (newest, _) = self.newest?;
        let window = self.window(recovering, board.sacked_segments(), min_rtt, srtt);
        while let Some(index) = self.order.front().copied() {
            let live = board
                .get(index)
                .filter(|s| s.serial == self.first && s.fate == Fate::InFlight);
            if let Some(segment) = live {
                if self.first >= newest {
                    return None;
                }
                let due = segment.facts.sent_at + self.rtt + window;
                if due > now {
                    return Some(due);
                }
                lost(board, index);
            }
            self.order.pop_front();
            self.first += 1;
        }
        None
    }
}
