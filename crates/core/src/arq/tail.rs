//! What to send when there is nothing left to send? The last packets once more: a lost one then costs
//! nothing instead of another round trip. Only when little is outstanding, each packet at most twice,
//! and never more than a small share of what was sent.

use super::{Content, Packet};
use crate::send::{Piece, SentLog, State};

/// The most packets outstanding for which it is worth it.
const FEW: u64 = 256;
/// Copies per packet.
const COPIES: u8 = 2;
/// Bytes that copies may always take, and the share of what was sent.
const BUDGET: (u64, u64) = (64 << 10, 64);

/// Chooses what is sent once more.
#[derive(Debug)]
pub(super) struct Tail {
    cursor: u64,
    /// The longest piece that fits a datagram, which may have become smaller since it was sent.
    room: u32,
    spent: u64,
    /// The packet whose piece was handed out last, until it is logged.
    copying: Option<u64>,
}

impl Default for Tail {
    fn default() -> Self {
        Self {
            cursor: 0,
            room: u32::MAX,
            spent: 0,
            copying: None,
        }
    }
}

impl Tail {
    /// From here on pieces of `room` fit, and no longer ones.
    pub(super) const fn fits(&mut self, room: u32) {
        self.room = room;
    }

    /// The next packet worth a copy.
    pub(super) fn next(
        &self,
        log: &SentLog<Packet>,
        outstanding: u64,
        sent: u64,
    ) -> Option<(u64, Piece)> {
        if outstanding == 0 || outstanding > FEW || self.spent > BUDGET.0.max(sent / BUDGET.1) {
            return None;
        }
        let from = self.cursor.clamp(log.first(), log.next());
        (from..log.next())
            .chain(log.first()..from)
            .find_map(|number| {
                let sent = log.get(number)?;
                let packet = sent.content;
                let wanted =
                    sent.state == State::Outstanding && !packet.covered && packet.copies < COPIES;
                match packet.content {
                    Content::Piece(piece) if wanted && piece.len <= self.room => {
                        Some((number, piece))
                    }
                    _ => None,
                }
            })
    }

    /// The piece of packet `number` is handed out.
    pub(super) fn begin(&mut self, number: u64, piece: &Piece) {
        self.cursor = number + 1;
        self.spent += u64::from(piece.len);
        self.copying = Some(number);
    }

    /// The packet of which the piece now logged is a copy.
    pub(super) fn take(&mut self) -> Option<u64> {
        self.copying.take()
    }
}
