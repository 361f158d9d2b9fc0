//! What has arrived? A block is known before its packets count; a packet of no known block is late, or
//! early, and is left.

use std::{collections::VecDeque, time::Duration};

use super::{MAX_BLOCKS, MAX_PACKETS, NUMBERS, Numbers};
use crate::{
    codec::DecodeError,
    layout::Layout,
    loss::{Bitmap, Insert},
    time::Instant,
};

#[derive(Debug)]
struct Block {
    first: u32,
    layout: Layout,
    have: Bitmap,
    /// Packets in `have`.
    count: u64,
    /// Packets that arrived in this round, again ones too.
    in_round: u64,
    /// The sender asked and was not answered: packets that left in the round, and when it is judged.
    asked: Option<(u64, Instant)>,
}

/// What a packet was.
#[derive(Debug)]
pub enum Arrived<'a> {
    /// New: of this layout, at this place.
    New(&'a Layout, u64),
    /// Here before.
    Again,
    /// Of no block that is on its way: late, of one that is over.
    Stale,
}

/// The receiver of blocks.
#[derive(Debug, Default)]
pub struct RoundReceiver {
    blocks: VecDeque<Block>,
    /// How long after the question packets of the round may still come.
    grace: Duration,
}

impl RoundReceiver {
    /// Packets may come so long after their round was over.
    pub const fn set_grace(&mut self, grace: Duration) {
        self.grace = grace;
    }

    /// A block is on its way, whose packets count from `first` on.
    pub fn on_block(&mut self, first: u32, layout: Layout) -> Result<(), DecodeError> {
        let packets = layout.packets();
        let held: u64 = self.blocks.iter().map(|b| b.layout.packets()).sum();
        let fits = (1..=MAX_PACKETS).contains(&packets) && held + packets <= 2 * MAX_PACKETS;
        if !fits || first >= NUMBERS || self.blocks.len() >= 2 * MAX_BLOCKS {
            return Err(DecodeError::Malformed("block"));
        }
        let last = i64::try_from(packets - 1).unwrap_or(i64::MAX);
        let overlaps = |block: &Block| {
            block.place(first).is_some()
                || (0..=last).contains(&Numbers::distance(first, block.first))
        };
        if self.blocks.iter().any(overlaps) {
            return Err(DecodeError::Malformed("numbers of a block"));
        }
        self.blocks.push_back(Block {
            first,
            layout,
            have: Bitmap::default(),
            count: 0,
            in_round: 0,
            asked: None,
        });
        Ok(())
    }

    /// A block is not to be waited for.
    pub fn on_cut(&mut self, first: u32) {
        self.blocks.retain(|block| block.first != first);
    }

    /// The packet with this number and so many bytes of data arrived.
    pub fn on_packet(&mut self, number: u32, len: u32) -> Result<Arrived<'_>, DecodeError> {
        let mut blocks = self.blocks.iter_mut();
        let Some((block, n)) = blocks.find_map(|b| b.place(number).map(|n| (b, n))) else {
            return Ok(Arrived::Stale);
        };
        if len != block.layout.packet_len(n) {
            return Err(DecodeError::Malformed("length of a packet"));
        }
        block.in_round += 1;
        if block.have.insert(n) != Insert::New {
            return Ok(Arrived::Again);
        }
        block.count += 1;
        Ok(Arrived::New(&block.layout, n))
    }

    /// The sender asks for a report of the block that begins at `first`, after `sent` packets.
    pub fn on_question(&mut self, now: Instant, first: u32, sent: u64) -> Result<(), DecodeError> {
        let mut blocks = self.blocks.iter_mut();
        match blocks.find(|block| block.first == first && block.asked.is_none()) {
            Some(block) => {
                block.asked = Some((sent, now + self.grace));
                Ok(())
            }
            None => Err(DecodeError::Malformed("a question out of turn")),
        }
    }

    /// Blocks on their way.
    pub fn blocks_kept(&self) -> usize {
        self.blocks.len()
    }

    /// When the next report is due.
    pub fn due(&self) -> Option<Instant> {
        let due = |block: &Block| block.asked.map(|(sent, at)| block.due(sent, at));
        self.blocks.iter().filter_map(due).min()
    }

    /// A report that is due: the block's first number, its packets, how many are there, and which. With
    /// the report of all of them the block is over.
    pub fn report(&mut self, now: Instant) -> Option<(u32, u64, u64, Bitmap)> {
        let is_due = |b: &Block| b.asked.is_some_and(|(sent, at)| b.due(sent, at) <= now);
        let i = self.blocks.iter().position(is_due)?;
        let block = self.blocks.get_mut(i)?;
        (block.asked, block.in_round) = (None, 0);
        let (first, packets, count) = (block.first, block.layout.packets(), block.count);
        let have = if count == packets {
            self.blocks.remove(i)?.have
        } else {
            block.have.clone()
        };
        Some((first, packets, count, have))
    }
}

impl Block {
    /// The place of the packet with this number.
    fn place(&self, number: u32) -> Option<u64> {
        let n = u64::try_from(Numbers::distance(self.first, number)).ok()?;
        (n < self.layout.packets() && number < NUMBERS).then_some(n)
    }

    /// When the report is due that is to be made at `at` unless all `sent` packets of the round are here.
    fn due(&self, sent: u64, at: Instant) -> Instant {
        let all = self.in_round >= sent || self.count == self.layout.packets();
        if all { Instant::EPOCH } else { at }
    }
}
