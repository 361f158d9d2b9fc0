//! Chooses the next packet: what is missing of the oldest block first. A block's round is over when
//! each of its packets has left, or as many as a round may have. Packets reported missing go first
//! in a later round.

use std::collections::VecDeque;

use super::{
    MAX_BLOCKS, MAX_PACKETS, Numbers,
    block::{Block, Phase},
};
use crate::{
    codec::DecodeError,
    layout::{Layout, MAX_RUNS},
    loss::Bitmap,
    send::Outbox,
    stats::Stats,
    store::ObjectId,
    time::Instant,
};

/// Grouping of packets into rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounds {
    /// Packets reported missing, then new ones, at most this many. The receiver is asked
    /// for a report; the next round begins as soon as there is something for it.
    Reported(u64),
    /// All packets not known to have arrived, repeatedly. Reports are unsolicited.
    Unreported,
}

/// Packets of a round that does not come to nothing by chance.
const MANY: u64 = 100;

/// Loss of the rounds that a report covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// The last of its rounds, counted from the first of all blocks.
    pub serial: u64,
    /// Packets that left in these rounds.
    pub sent: u64,
    /// Packets sent that have not arrived.
    pub missing: u64,
}

/// A packet to send.
#[derive(Clone, Copy, Debug)]
pub struct Leaving<'a> {
    /// Number of the packet.
    pub number: u32,
    /// Layout of the packet's block.
    pub layout: &'a Layout,
    /// Index of the packet within the block.
    pub n: u64,
    /// The block's round.
    pub round: u32,
    /// Rounds of all blocks that began before this one.
    pub serial: u64,
    /// True if the packet is the last of its round.
    pub ends: bool,
}

/// Sender counters.
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
    /// Rounds that the receiver has reported on.
    pub rounds: u64,
    /// Bytes sent in rounds not yet reported on.
    pub in_flight: u64,
}

impl Counts {
    /// Writes the counters into `stats`.
    pub const fn fill_stats(&self, stats: &mut Stats) {
        stats.data_sent = self.sent;
        stats.repaired = self.repaired;
        stats.retransmits = self.retransmits;
        stats.data_acked = self.acked;
        stats.packets_lost = self.lost;
        stats.in_flight = self.in_flight;
    }
}

/// The sender of blocks.
#[derive(Debug)]
pub struct RoundSender {
    waiting: Outbox,
    rounds: Rounds,
    /// Bytes in a block at most.
    most: u64,
    /// Blocks on their way at most.
    window: usize,
    payload: u32,
    blocks: VecDeque<Block>,
    /// The number of the next block's first packet.
    next: u32,
    /// Rounds begun.
    serial: u64,
    counts: Counts,
    /// Time since which the receiver is asked and reports no arrivals.
    silent: Option<Instant>,
    /// Rounds in a row of many packets none of which arrived.
    fruitless: u32,
    /// Blocks that were cut short and are over.
    cut: VecDeque<u32>,
}

impl RoundSender {
    /// Blocks of up to `block` bytes, at most `window` of them in flight.
    pub fn new(block: u64, window: usize) -> Self {
        Self {
            waiting: Outbox::default(),
            rounds: Rounds::Reported(u64::MAX),
            most: block.max(1),
            window: window.clamp(1, MAX_BLOCKS),
            payload: 1,
            blocks: VecDeque::new(),
            next: 0,
            serial: 0,
            counts: Counts::default(),
            silent: None,
            fruitless: 0,
            cut: VecDeque::new(),
        }
    }

    /// Sets how packets are grouped into rounds.
    #[must_use]
    pub const fn with_rounds(mut self, rounds: Rounds) -> Self {
        self.rounds = rounds;
        self
    }

    /// The first packet has number `first` from now on. Only before there is a block.
    #[cfg(test)]
    pub(super) const fn number_from(&mut self, first: u32) {
        self.next = first;
    }

    /// Sets the payload of packets of future blocks.
    pub const fn set_payload(&mut self, payload: u32) {
        self.payload = payload;
    }

    /// Queues bytes.
    pub fn push(&mut self, object: ObjectId, offset: u64, len: u64) {
        self.waiting.push(object, offset, len);
    }

    /// Bytes queued and never sent.
    pub fn unsent(&self) -> u64 {
        let left = self.blocks.iter().map(|block| {
            let left = block.end.saturating_sub(block.fresh);
            left.saturating_mul(block.layout.payload().into())
        });
        self.waiting.unsent().saturating_add(left.sum())
    }

    /// Discards data never sent; a partly sent block is truncated.
    pub fn cancel_unsent(&mut self) {
        self.waiting.cancel_unsent();
        let (cut, rounds) = (&mut self.cut, self.rounds);
        self.blocks.retain_mut(|block| {
            let whole = !block.is_cut();
            if block.fresh >= block.end {
                return true;
            }
            block.end = block.fresh;
            block.end_round(rounds);
            let over = block.is_complete();
            if over && whole && block.phase != Phase::New {
                cut.push_back(block.first);
            }
            !over
        });
        self.rest();
    }

    /// Rests: without blocks nothing is on its way.
    fn rest(&mut self) {
        if self.blocks.is_empty() {
            (self.counts.in_flight, self.silent) = (0, None);
        }
    }

    /// Takes the first number of a truncated block, which the receiver has to be sent.
    pub fn take_cut(&mut self) -> Option<u32> {
        self.cut.pop_front()
    }

    /// True if everything has arrived.
    pub fn is_idle(&self) -> bool {
        self.blocks.is_empty() && self.waiting.is_empty()
    }

    /// Counters so far.
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Consecutive large rounds none of whose packets arrived.
    pub const fn fruitless(&self) -> u32 {
        self.fruitless
    }

    /// Rounds begun, of all blocks.
    pub const fn rounds_begun(&self) -> u64 {
        self.serial
    }

    /// Time since which the receiver is asked and reports no arrivals.
    pub const fn silent_since(&self) -> Option<Instant> {
        self.silent
    }

    /// Makes the next block, if there is to be one. The receiver learns of it while the one before
    /// is under way; but an incomplete block waits until that one has left.
    fn begin(&mut self) {
        let full = self.waiting.unsent() >= self.most;
        let leaving = |block: &Block| block.fresh < block.end;
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
        self.blocks.push_back(Block::new(self.next, layout));
        self.next = next;
    }

    /// The next block to announce before its packets are sent: its first number and layout.
    pub fn announce(&mut self) -> Option<(u32, &Layout)> {
        if self.blocks.iter().all(|block| block.phase != Phase::New) {
            self.begin();
        }
        let block = self.blocks.iter_mut().find(|b| b.phase == Phase::New)?;
        block.phase = Phase::Announced;
        Some((block.first, &block.layout))
    }

    /// The receiver is ready for the block at `first`, which may have been truncated meanwhile.
    pub fn on_ready(&mut self, first: u32) {
        let announced = |b: &&mut Block| b.first == first && b.phase == Phase::Announced;
        if let Some(block) = self.blocks.iter_mut().find(announced) {
            block.phase = Phase::Ready;
        }
    }

    /// True if there are packets to send.
    pub fn has_packets(&self) -> bool {
        let mut sendable = self.blocks.iter().take(self.window);
        sendable.any(|block| block.has_packets(self.rounds))
    }

    /// True if blocks are in flight or wait for the receiver.
    pub fn is_waiting(&self) -> bool {
        !self.blocks.is_empty()
    }

    /// Takes the next packet.
    pub fn next_packet(&mut self) -> Option<Leaving<'_>> {
        let rounds = self.rounds;
        let mut sendable = self.blocks.iter_mut().take(self.window);
        let block = sendable.find(|block| block.has_packets(rounds))?;
        block.begin_round(rounds, self.serial);
        let n = block.next(rounds)?;
        let len = u64::from(block.layout.packet_len(n));
        self.serial += u64::from(block.round.sent == 0);
        let (round, serial) = (block.round.number, block.round.serial);
        let again = n < block.fresh;
        if !again || rounds != Rounds::Unreported {
            self.counts.in_flight += len;
        }
        if again {
            self.counts.repaired += len;
            self.counts.retransmits += 1;
        } else {
            self.counts.sent += len;
        }
        block.take(n, len);
        block.end_round(rounds);
        Some(Leaving {
            number: Numbers::wrap(u64::from(block.first) + n),
            layout: &block.layout,
            n,
            round,
            serial,
            ends: block.round.sent == 0,
        })
    }

    /// The next finished round to request a report of: the block's first number, the round, and how many
    /// packets were sent in it.
    pub fn ask(&mut self, now: Instant) -> Option<(u32, u32, u64)> {
        for block in &mut self.blocks {
            if std::mem::take(&mut block.unasked) {
                self.silent.get_or_insert(now);
            }
            // They are asked of in their order.
            let asked = block.over.partition_point(|round| round.asked);
            if let Some(round) = block.over.get_mut(asked) {
                round.asked = true;
                self.silent.get_or_insert(now);
                return Some((block.first, round.number, round.sent));
            }
        }
        None
    }

    /// Packets of the block at `first`, if a report on it was requested.
    pub fn asked(&self, first: u32) -> Option<u64> {
        let block = self.blocks.iter().find(|block| block.first == first)?;
        let asked = block.over.front().is_some_and(|round| round.asked);
        asked.then(|| block.layout.packets())
    }

    /// Packets of the block that begins at `first`, if it is not over.
    pub fn packets(&self, first: u32) -> Option<u64> {
        let block = self.blocks.iter().find(|block| block.first == first)?;
        Some(block.layout.packets())
    }

    /// Unsolicited report that the block at `first` is complete; it may be finished already.
    pub fn on_completed(&mut self, first: u32) -> Result<(), DecodeError> {
        let Some(packets) = self.packets(first) else {
            return Ok(());
        };
        let mut all = Bitmap::default();
        all.advance(packets);
        self.on_report(first, None, all).map(|_| ())
    }

    /// Handles a report on rounds up to `through`, or an unsolicited one (`None`), for the block that
    /// begins at `first`.
    pub fn on_report(
        &mut self,
        first: u32,
        through: Option<u32>,
        have: Bitmap,
    ) -> Result<Judged, DecodeError> {
        const UNASKED: DecodeError = DecodeError::Malformed("a report that nobody asked for");
        let place = self.blocks.iter().position(|block| block.first == first);
        let found = place.and_then(|i| self.blocks.get_mut(i).map(|block| (i, block)));
        let (i, block) = found.ok_or(UNASKED)?;
        let next = block.over.front();
        let may = next.is_some_and(|round| round.asked && Some(round.number) <= through);
        if through.is_some() && !may {
            return Err(UNASKED);
        }
        if have.end() > block.fresh {
            return Err(DecodeError::Malformed("a report of packets never sent"));
        }
        let news = block.on_have(have);
        if news > 0 {
            self.silent = None;
            // What the round had still to send may have arrived.
            block.end_round(self.rounds);
        }
        let counts = &mut self.counts;
        counts.acked += news;
        if self.rounds == Rounds::Unreported {
            counts.in_flight = counts.in_flight.saturating_sub(news);
        }
        let (judged, rounds, bytes) = block.judge(through);
        counts.rounds += rounds;
        counts.in_flight = counts.in_flight.saturating_sub(bytes);
        counts.lost += judged.missing;
        if news > 0 {
            self.fruitless = 0;
        } else if judged.sent >= MANY && judged.missing == judged.sent {
            self.fruitless = self.fruitless.saturating_add(1);
        }
        if block.is_complete() {
            if block.is_cut() {
                self.cut.push_back(first);
            }
            let open = block.over.iter().map(|round| round.bytes).sum::<u64>();
            counts.in_flight = counts.in_flight.saturating_sub(open);
            self.blocks.remove(i);
        }
        self.rest();
        Ok(judged)
    }
}
