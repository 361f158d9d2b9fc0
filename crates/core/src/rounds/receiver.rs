//! Tracks what has arrived of announced blocks. A block is known before its packets count; a packet
//! of no known block is late, or early, and is left.

use std::{collections::VecDeque, time::Duration};

use super::{MAX_BLOCKS, MAX_PACKETS, NUMBERS, Numbers};
use crate::{
    codec::DecodeError,
    layout::Layout,
    loss::{Bitmap, Insert},
    shell::Incoming,
    store::Extent,
    time::Instant,
};

#[derive(Debug)]
struct Block {
    first: u32,
    layout: Layout,
    have: Bitmap,
    /// Packets in `have`.
    count: u64,
    /// Packets that arrived since the last report, again ones too.
    in_round: u64,
    /// New ones since then.
    news: u64,
    /// New packets after which a report is sent unasked; another is sent when all are there.
    every: Option<u64>,
    /// The sender asks of no round before this one.
    round: u32,
    /// Question of the sender that was not answered: its round, packets that left in the round, and
    /// when the round is judged.
    asked: Option<(u32, u64, Instant)>,
}

/// Classification of a received packet.
#[derive(Debug)]
pub enum Arrived<'a> {
    /// New: of this layout, at this place.
    New(&'a Layout, u64),
    /// Duplicate.
    Again,
    /// A packet of no current block, as a late one of a finished block, or an overtaken one.
    Stale,
}

/// Received packets of a block.
#[derive(Debug)]
pub struct Report {
    /// The block's first number.
    pub first: u32,
    /// The last round that the sender requested a report on; none if the report is unsolicited.
    pub through: Option<u32>,
    /// The block's packets.
    pub packets: u64,
    /// Packets received.
    pub count: u64,
    /// Numbers of the received packets within the block.
    pub have: Bitmap,
}

/// The receiver of blocks.
#[derive(Debug, Default)]
pub struct RoundReceiver {
    blocks: VecDeque<Block>,
    /// Time after the question in which packets of the round may still come.
    grace: Duration,
    /// Last packets of a block that are not read before the first question is.
    overtaken: u64,
    /// Packets that were there before, of no block, or overtaken.
    dropped: u64,
}

impl RoundReceiver {
    /// Sets how long to wait for late packets after the end of a round.
    pub const fn set_grace(&mut self, grace: Duration) {
        self.grace = grace;
    }

    /// Sets how many packets at the end of a block's first round the question overtakes: they wait
    /// unread in another socket, and are reported missing.
    pub const fn set_overtaken(&mut self, packets: u64) {
        self.overtaken = packets;
    }

    /// A block is on its way, whose packets count from `first` on. It is reported when the sender asks, or
    /// unasked, too, after `every` new packets and when all are there.
    pub fn on_block(
        &mut self,
        first: u32,
        layout: Layout,
        every: Option<u64>,
    ) -> Result<(), DecodeError> {
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
            news: 0,
            every: every.map(|every| every.max(1)),
            round: 0,
            asked: None,
        });
        Ok(())
    }

    /// The sender truncated the block: it is no longer received.
    pub fn on_cut(&mut self, first: u32) {
        self.blocks.retain(|block| block.first != first);
    }

    /// Handles a packet with this number and `len` bytes of data.
    pub fn on_packet(&mut self, number: u32, len: u32) -> Result<Arrived<'_>, DecodeError> {
        let mut blocks = self.blocks.iter_mut();
        let Some((block, n)) = blocks.find_map(|b| b.place(number).map(|n| (b, n))) else {
            return Ok(Arrived::Stale);
        };
        if len != block.layout.packet_len(n) {
            return Err(DecodeError::Malformed("length of a packet"));
        }
        block.in_round += 1;
        if block.round == 0 && block.layout.packets() - n <= self.overtaken {
            return Ok(Arrived::Stale);
        }
        if block.have.insert(n) != Insert::New {
            return Ok(Arrived::Again);
        }
        block.count += 1;
        block.news += 1;
        Ok(Arrived::New(&block.layout, n))
    }

    /// Takes the packet with this number, its data behind the first `header` bytes of `datagram`;
    /// adds what is to be placed.
    pub fn on_datagram(
        &mut self,
        number: u32,
        datagram: &Incoming<'_>,
        header: usize,
        place: &mut Vec<Extent>,
    ) -> Result<(), DecodeError> {
        let data = datagram.extent(header, 0, 0)?;
        match self.on_packet(number, data.len)? {
            Arrived::New(layout, n) => layout.place(n, data.at, place),
            Arrived::Again | Arrived::Stale => self.dropped += 1,
        }
        Ok(())
    }

    /// Datagrams that were there before, of no block, or overtaken.
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// True if the block at `first` is being received.
    pub fn awaits(&self, first: u32) -> bool {
        self.blocks.iter().any(|block| block.first == first)
    }

    /// Handles a request to report on the block at `first`, after the `sent` packets of `round`.
    /// A request not yet answered is superseded by that of the next round.
    pub fn on_question(
        &mut self,
        now: Instant,
        first: u32,
        round: u32,
        sent: u64,
    ) -> Result<(), DecodeError> {
        let mut blocks = self.blocks.iter_mut();
        match blocks.find(|block| block.first == first && block.round <= round) {
            Some(block) => {
                block.asked = Some((round, sent, now + self.grace));
                block.round = round.saturating_add(1);
                Ok(())
            }
            None => Err(DecodeError::Malformed("a question out of turn")),
        }
    }

    /// Number of blocks being received.
    pub fn blocks_kept(&self) -> usize {
        self.blocks.len()
    }

    /// Time at which the next report is due.
    pub fn due(&self) -> Option<Instant> {
        self.blocks.iter().filter_map(Block::due).min()
    }

    /// Takes a report that is due. A complete block is finished with its report.
    pub fn report(&mut self, now: Instant) -> Option<Report> {
        let is_due = |block: &Block| block.due().is_some_and(|at| at <= now);
        let i = self.blocks.iter().position(is_due)?;
        let block = self.blocks.get_mut(i)?;
        // One that is made unasked before its round is judged says nothing of the round.
        let judged = block.judged().is_some_and(|at| at <= now);
        let through = block.asked.take_if(|_| judged).map(|(round, ..)| round);
        block.news = 0;
        if judged {
            block.in_round = 0;
        }
        let (first, packets, count) = (block.first, block.layout.packets(), block.count);
        let have = if count == packets {
            self.blocks.remove(i)?.have
        } else {
            block.have.clone()
        };
        Some(Report {
            first,
            through,
            packets,
            count,
            have,
        })
    }
}

impl Block {
    /// The place of the packet with this number.
    fn place(&self, number: u32) -> Option<u64> {
        let n = u64::try_from(Numbers::distance(self.first, number)).ok()?;
        (n < self.layout.packets() && number < NUMBERS).then_some(n)
    }

    /// Time at which the round of the sender's question is judged: after the grace, unless all its
    /// packets are here.
    fn judged(&self) -> Option<Instant> {
        let (_, sent, at) = self.asked?;
        let all = self.in_round >= sent || self.count == self.layout.packets();
        Some(if all { Instant::EPOCH } else { at })
    }

    /// Time at which a report is due.
    fn due(&self) -> Option<Instant> {
        let all = self.count == self.layout.packets();
        if self.every.is_some_and(|every| all || self.news >= every) {
            return Some(Instant::EPOCH);
        }
        self.judged()
    }
}
