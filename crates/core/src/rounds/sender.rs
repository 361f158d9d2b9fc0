//! What goes next? What is missing of the oldest block first. A block's round is over when each of its
//! packets has left; then its receiver is asked.

use std::collections::VecDeque;

use super::{MAX_BLOCKS, MAX_PACKETS, MAX_RUNS, Numbers};
use crate::{
    codec::DecodeError, layout::Layout, loss::Bitmap, send::Outbox, store::ObjectId, time::Instant,
};

/// Where a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The receiver is to be told of it.
    New,
    /// The receiver was told, and is not known to wait for it.
    Announced,
    /// The packets of a round leave; this one and those behind it have not.
    Sending(u64),
    /// The receiver is to be asked.
    Sent,
    /// The receiver was asked.
    Asked,
}

#[derive(Debug)]
struct Block {
    /// Number of its first packet.
    first: u32,
    layout: Layout,
    /// Packets of it that are to arrive: all, unless it was cut short.
    end: u64,
    /// What has arrived, as far as the receiver said.
    have: Bitmap,
    round: u32,
    /// Packets that left in this round.
    sent: u64,
    phase: Phase,
}

impl Block {
    /// The next packet of this round from `n` on.
    fn next_missing(&self, n: u64) -> Option<u64> {
        let there = n < self.end && self.have.contains(n);
        let skip = if there {
            self.have.run_up(n, self.end)
        } else {
            0
        };
        (n + skip < self.end).then_some(n + skip)
    }
}

/// What a sender counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Bytes sent for the first time.
    pub sent: u64,
    /// Bytes sent again.
    pub repaired: u64,
    /// Packets sent again.
    pub retransmits: u64,
    /// Bytes that have arrived.
    pub acked: u64,
    /// Packets that were sent and are missing.
    pub lost: u64,
    /// Rounds of which the receiver has told.
    pub rounds: u64,
    /// Bytes that left in rounds of which it has not.
    pub in_flight: u64,
}

/// The sender of blocks.
#[derive(Debug)]
pub struct RoundSender {
    waiting: Outbox,
    /// Bytes in a block at most.
    most: u64,
    /// Blocks on their way at most.
    window: usize,
    payload: u32,
    blocks: VecDeque<Block>,
    /// The number of the next block's first packet.
    next: u32,
    counts: Counts,
    /// Since when the receiver is asked and says of nothing that it has arrived.
    silent: Option<Instant>,
    /// Blocks that were cut short and are over.
    cut: VecDeque<u32>,
}

impl RoundSender {
    /// Blocks of up to `block` bytes, so many at once as `window` says.
    pub fn new(block: u64, window: usize) -> Self {
        Self {
            waiting: Outbox::default(),
            most: block.max(1),
            window: window.clamp(1, MAX_BLOCKS),
            payload: 1,
            blocks: VecDeque::new(),
            next: 0,
            counts: Counts::default(),
            silent: None,
            cut: VecDeque::new(),
        }
    }

    /// The first packet has number `first` from now on. Only before there is a block.
    #[cfg(test)]
    pub(super) const fn number_from(&mut self, first: u32) {
        self.next = first;
    }

    /// Packets of blocks to come hold `payload` bytes.
    pub const fn set_payload(&mut self, payload: u32) {
        self.payload = payload;
    }

    /// Queues bytes.
    pub fn push(&mut self, object: ObjectId, offset: u64, len: u64) {
        self.waiting.push(object, offset, len);
    }

    /// Bytes that have not left once.
    pub fn unsent(&self) -> u64 {
        let blocks = self.blocks.iter().filter(|block| block.round == 0);
        let left = blocks.map(|block| {
            let left = block.end.saturating_sub(block.sent);
            left.saturating_mul(block.layout.payload().into())
        });
        self.waiting.unsent().saturating_add(left.sum())
    }

    /// Forgets what has not left once: a block of which some has is cut short.
    pub fn cancel_unsent(&mut self) {
        self.waiting.cancel_unsent();
        self.blocks.retain_mut(|block| {
            match block.phase {
                Phase::New => block.end = 0,
                Phase::Announced | Phase::Sending(0) if block.round == 0 => {
                    block.end = 0;
                    self.cut.push_back(block.first);
                }
                Phase::Sending(at) if block.round == 0 => {
                    block.end = at;
                    block.phase = Phase::Sent;
                }
                _ => {}
            }
            block.end > 0
        });
    }

    /// A block that its receiver need not wait for any more: its first number.
    pub fn take_cut(&mut self) -> Option<u32> {
        self.cut.pop_front()
    }

    /// Everything has arrived.
    pub fn is_idle(&self) -> bool {
        self.blocks.is_empty() && self.waiting.is_empty()
    }

    /// What was counted.
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Since when the receiver is asked and says of nothing that it has arrived.
    pub const fn silent_since(&self) -> Option<Instant> {
        self.silent
    }

    /// Makes the next block, if there is to be one. The receiver is told of it while the one before is
    /// under way; but what is not a whole block yet waits until that has left.
    fn begin(&mut self) {
        let full = self.waiting.unsent() >= self.most;
        let leaving = |block: &Block| block.round == 0 && !matches!(block.phase, Phase::Asked);
        let waits = !full && self.blocks.iter().any(leaving);
        let held: u64 = self.blocks.iter().map(|b| b.layout.packets()).sum();
        let room = MAX_PACKETS.min(2 * MAX_PACKETS - held.min(2 * MAX_PACKETS));
        // As many as may be on their way may have been announced beside them.
        if self.blocks.len() >= 2 * self.window || self.waiting.is_empty() || waits || room == 0 {
            return;
        }
        let most = self.most.min(room * u64::from(self.payload.max(1)));
        let layout = Layout::gather(&mut self.waiting, self.payload, most, MAX_RUNS);
        let next = Numbers::wrap(u64::from(self.next) + layout.packets());
        self.blocks.push_back(Block {
            first: self.next,
            end: layout.packets(),
            layout,
            have: Bitmap::default(),
            round: 0,
            sent: 0,
            phase: Phase::New,
        });
        self.next = next;
    }

    /// A block of which the receiver must be told before its packets leave: its first number and layout.
    pub fn announce(&mut self) -> Option<(u32, &Layout)> {
        if self.blocks.iter().all(|block| block.phase != Phase::New) {
            self.begin();
        }
        let block = self.blocks.iter_mut().find(|b| b.phase == Phase::New)?;
        block.phase = Phase::Announced;
        Some((block.first, &block.layout))
    }

    /// The receiver waits for the block that begins at `first`, which may have been cut short meanwhile.
    pub fn on_ready(&mut self, first: u32) {
        let announced = |b: &&mut Block| b.first == first && b.phase == Phase::Announced;
        if let Some(block) = self.blocks.iter_mut().find(announced) {
            block.phase = Phase::Sending(0);
        }
    }

    /// Packets may leave.
    pub fn has_packets(&self) -> bool {
        let sending = |block: &Block| matches!(block.phase, Phase::Sending(_));
        self.blocks.iter().take(self.window).any(sending)
    }

    /// Something is on its way, or waits for the receiver.
    pub fn is_waiting(&self) -> bool {
        !self.blocks.is_empty()
    }

    /// Takes the next packet: its number, its block's layout, and its place in it.
    pub fn next_packet(&mut self) -> Option<(u32, &Layout, u64)> {
        let sending = |block: &&mut Block| matches!(block.phase, Phase::Sending(_));
        let mut sendable = self.blocks.iter_mut().take(self.window);
        let block = sendable.find(sending)?;
        let Phase::Sending(at) = block.phase else {
            return None;
        };
        let n = block.next_missing(at)?;
        block.phase = match block.next_missing(n + 1) {
            Some(next) => Phase::Sending(next),
            None => Phase::Sent,
        };
        block.sent += 1;
        let len = u64::from(block.layout.packet_len(n));
        self.counts.in_flight += len;
        if block.round == 0 {
            self.counts.sent += len;
        } else {
            self.counts.repaired += len;
            self.counts.retransmits += 1;
        }
        let number = Numbers::wrap(u64::from(block.first) + n);
        Some((number, &block.layout, n))
    }

    /// A round of which the receiver must be asked: the block's first number, the round, and how many
    /// packets left in it.
    pub fn ask(&mut self, now: Instant) -> Option<(u32, u32, u64)> {
        let block = self.blocks.iter_mut().find(|b| b.phase == Phase::Sent)?;
        block.phase = Phase::Asked;
        self.silent.get_or_insert(now);
        Some((block.first, block.round, block.sent))
    }

    /// Packets of the block that begins at `first`, if its receiver was asked.
    pub fn asked(&self, first: u32) -> Option<u64> {
        let block = self.blocks.iter().find(|block| block.first == first)?;
        (block.phase == Phase::Asked).then(|| block.layout.packets())
    }

    /// The receiver says what it has of the block that begins at `first`.
    pub fn on_report(&mut self, first: u32, have: Bitmap) -> Result<(), DecodeError> {
        let place = self.blocks.iter().position(|block| block.first == first);
        let found = place.and_then(|i| self.blocks.get_mut(i).map(|block| (i, block)));
        let Some((i, block)) = found.filter(|(_, block)| block.phase == Phase::Asked) else {
            return Err(DecodeError::Malformed("a report that nobody asked for"));
        };
        let (bytes, missing) = arrived(block, &have);
        let before = arrived(block, &block.have).0;
        let news = bytes.saturating_sub(before);
        self.counts.acked += news;
        self.counts.lost += missing;
        self.counts.rounds += 1;
        let left = block.sent.saturating_mul(block.layout.payload().into());
        self.counts.in_flight = self.counts.in_flight.saturating_sub(left);
        if news > 0 {
            self.silent = None;
        }
        // What has arrived does not go away.
        if bytes >= before {
            block.have = have;
        }
        if missing == 0 {
            if block.end < block.layout.packets() {
                self.cut.push_back(first);
            }
            self.blocks.remove(i);
        } else {
            block.round = block.round.saturating_add(1);
            block.sent = 0;
            block.phase = Phase::Sending(0);
        }
        if self.blocks.is_empty() {
            (self.counts.in_flight, self.silent) = (0, None);
        }
        Ok(())
    }
}

/// How many bytes of what is to arrive are in `have`, and how many packets are not.
fn arrived(block: &Block, have: &Bitmap) -> (u64, u64) {
    let (end, mut n, mut there, mut missing) = (block.end, 0, 0, 0);
    while n < end {
        let run = have.run_up(n, end);
        if have.contains(n) {
            there += run;
        } else {
            missing += run;
        }
        n += run;
    }
    let payload = u64::from(block.layout.payload());
    let short = payload - u64::from(block.layout.packet_len(end.saturating_sub(1)));
    let last = end > 0 && have.contains(end - 1);
    (there * payload - if last { short } else { 0 }, missing)
}
