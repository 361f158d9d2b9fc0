//! Rounds of a block: the one under way, and those that are over and not reported.

use std::{collections::VecDeque, ops::Range};

use super::{Judged, Rounds};
use crate::{
    layout::Layout,
    loss::{Bitmap, Ranges},
};

/// Phase of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The block is not yet announced.
    New,
    /// Announced; the receiver is not known to be ready.
    Announced,
    /// The receiver is ready: packets may be sent.
    Ready,
}

/// Packets that left together.
#[derive(Debug, Default)]
pub(super) struct Round {
    pub(super) number: u32,
    /// Rounds of all blocks that began before it.
    pub(super) serial: u64,
    /// Sent before; those from `at` on have not left in this round.
    pub(super) again: Ranges,
    pub(super) at: u64,
    /// Sent for the first time.
    pub(super) fresh: Range<u64>,
    /// Packets that left.
    pub(super) sent: u64,
    /// Bytes of these packets.
    pub(super) bytes: u64,
    /// True if the receiver was asked.
    pub(super) asked: bool,
}

#[derive(Debug)]
pub(super) struct Block {
    /// Number of its first packet.
    pub(super) first: u32,
    pub(super) layout: Layout,
    /// Packets of the block that are to arrive: all, unless the block was cut short.
    pub(super) end: u64,
    /// Packets that have arrived, as far as the receiver reported, and `there`, their bytes.
    pub(super) have: Bitmap,
    pub(super) there: u64,
    /// First packet of those that have not left.
    pub(super) fresh: u64,
    /// Reported missing, for the next round.
    pub(super) missing: Ranges,
    /// The round under way.
    pub(super) round: Round,
    /// Rounds that are over and not reported.
    pub(super) over: VecDeque<Round>,
    pub(super) phase: Phase,
    /// True if a round was over that the receiver is not asked about.
    pub(super) unasked: bool,
}

impl Block {
    pub(super) fn new(first: u32, layout: Layout) -> Self {
        Self {
            first,
            end: layout.packets(),
            layout,
            have: Bitmap::default(),
            there: 0,
            fresh: 0,
            missing: Ranges::default(),
            round: Round::default(),
            over: VecDeque::new(),
            phase: Phase::New,
            unasked: false,
        }
    }

    /// True if the block was cut short.
    pub(super) fn is_cut(&self) -> bool {
        self.end < self.layout.packets()
    }

    /// Takes the receiver's report of what has arrived, and returns how many bytes of it are news.
    pub(super) fn on_have(&mut self, have: Bitmap) -> u64 {
        // Behind its end nothing has to be looked for.
        let reach = self.end.min(have.end());
        let missing = have
            .missing(0..reach)
            .map(|range| range.end - range.start)
            .chain([self.end - reach]);
        let last = have.contains(self.end.saturating_sub(1));
        let payload = u64::from(self.layout.payload());
        let there = (self.end - missing.sum::<u64>()) * payload;
        let short = payload - u64::from(self.layout.packet_len(self.end.saturating_sub(1)));
        let there = there - if last { short } else { 0 };
        let news = there.saturating_sub(self.there);
        // What has arrived does not go away.
        if news > 0 {
            (self.have, self.there) = (have, there);
        }
        news
    }

    /// Takes the end of the rounds up to `through` that the receiver was asked about. Returns their
    /// last one's serial, the packets that left in them, and those of these that have not arrived;
    /// and the bytes that left.
    pub(super) fn judge(&mut self, through: Option<u32>) -> (Judged, u64, u64) {
        let (mut judged, mut rounds, mut bytes) = (Judged::default(), 0, 0);
        let is_judged = |round: &mut Round| round.asked && Some(round.number) <= through;
        while let Some(round) = self.over.pop_front_if(is_judged) {
            let left = round.again.iter().chain([round.fresh]);
            let missing = unreceived(left, &self.have);
            judged.serial = round.serial;
            judged.sent += round.sent;
            judged.missing += missing.total();
            missing.iter().for_each(|range| {
                self.missing.insert(range);
            });
            rounds += 1;
            bytes += round.bytes;
        }
        (judged, rounds, bytes)
    }

    /// Begins a round if none is under way.
    pub(super) fn begin_round(&mut self, rounds: Rounds, serial: u64) {
        if self.round.sent > 0 {
            return;
        }
        let most = match rounds {
            Rounds::Reported(most) => most,
            Rounds::Unreported => {
                self.missing = unreceived(std::iter::once(0..self.fresh), &self.have);
                u64::MAX
            }
        };
        (self.round.again, self.round.at) = (self.missing.take(most), 0);
        (self.round.serial, self.round.fresh) = (serial, self.fresh..self.fresh);
    }

    /// The next packet of the round.
    pub(super) fn next(&self, rounds: Rounds) -> Option<u64> {
        let mut at = self.round.at;
        while let Some(n) = self.round.again.next_from(at) {
            if !self.have.contains(n) {
                return Some(n);
            }
            at = n + self.have.run_up(n, self.end.max(n + 1));
        }
        let room = !matches!(rounds, Rounds::Reported(most) if self.round.sent >= most);
        (room && self.fresh < self.end).then_some(self.fresh)
    }

    /// True if there is a packet for the round under way, or for the next.
    pub(super) fn has_packets(&self, rounds: Rounds) -> bool {
        self.phase == Phase::Ready
            && (rounds == Rounds::Unreported
                || self.fresh < self.end
                || !self.missing.is_empty()
                || self.next(rounds).is_some())
    }

    /// Ends the round if there are no more packets of it.
    pub(super) fn end_round(&mut self, rounds: Rounds) {
        if self.round.sent == 0 || self.next(rounds).is_some() {
            return;
        }
        let number = self.round.number.saturating_add(1);
        let next = Round {
            number,
            ..Round::default()
        };
        let round = std::mem::replace(&mut self.round, next);
        match rounds {
            Rounds::Reported(_) => self.over.push_back(round),
            Rounds::Unreported => {
                self.unasked = true;
                // The receiver does not know where a block ends that was cut short.
                if self.is_cut() && self.over.is_empty() {
                    self.over.push_back(round);
                }
            }
        }
    }

    /// Takes a packet of the round under way, which has `len` bytes.
    pub(super) fn take(&mut self, n: u64, len: u64) {
        if n < self.fresh {
            self.round.at = n + 1;
        } else {
            self.fresh = n + 1;
            self.round.fresh.end = n + 1;
        }
        self.round.sent += 1;
        self.round.bytes += len;
    }

    /// True if everything that is to arrive has.
    pub(super) fn is_complete(&self) -> bool {
        self.fresh >= self.end && self.have.missing(0..self.end).next().is_none()
    }
}

/// Numbers of `within` that are not in `have`.
fn unreceived(within: impl IntoIterator<Item = Range<u64>>, have: &Bitmap) -> Ranges {
    let mut missing = Ranges::default();
    for range in within.into_iter().flat_map(|range| have.missing(range)) {
        missing.insert(range);
    }
    missing
}
