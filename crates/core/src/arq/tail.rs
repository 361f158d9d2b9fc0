//! Chooses what to send when nothing new is left: once more the packets that the receiver most
//! likely waits for. A lost packet then costs nothing instead of another round trip. Repairs go
//! first, since a lost one costs a second round trip. Then go the last packets, from the oldest
//! whose copy arrives before its repair could, so that the copies of one packet are apart. Each
//! packet goes a few times; all copies together are a bounded share of the bytes sent
//! ([`Spending`]).

use std::{collections::VecDeque, time::Duration};

use super::{Content, Packet};
use crate::{
    send::{Piece, SentLog, State},
    time::Instant,
};

/// Copies of a first transmission.
const COPIES: u8 = 2;
/// Copies of a repair, and of a lost packet whose copies have not arrived either.
const REPAIR_COPIES: u8 = 3;
const MOST_COPIES: u8 = COPIES + REPAIR_COPIES;
/// Between transmissions of one piece, as a part of a round trip: bursts of losses are shorter.
const SPACING: u32 = 32;

/// The most repairs that wait to be copied.
const MOST_WAITING: usize = 1 << 14;

/// Bytes of the end that are copied even if that does not save a round trip. The copies show losses
/// at the end without a timeout.
const END: u64 = 64 << 10;

/// Fullness of the path, as far as known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Fullness {
    /// Marks or heavy loss, the user's limit, or nothing known yet.
    #[default]
    Full,
    /// A queue.
    Queued,
    /// Neither full nor queued.
    Calm,
}

/// Bytes that copies may take. Those of repairs are a small part of what may be sent at that time; those of
/// first transmissions fill the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spending {
    /// Bytes while the last packets are copied, if that suffices for all that are worth it.
    first: u64,
    /// Bytes while the end is copied, otherwise.
    end: u64,
    /// Bytes while repairs are copied.
    repairs: u64,
}

impl Spending {
    /// Always: 64 KiB, and one byte of this many.
    const LEAN: u64 = 128;
    /// Limit on copies of repairs, unless the path is full: one byte of this many sent, and at most
    /// this many bytes.
    const REPAIRS: (u64, u64) = (8, 32 << 20);
    /// Limit on copies of first transmissions, on a calm path that loses packets: as
    /// [`Self::REPAIRS`].
    const FIRST: (u64, u64) = (16, 4 << 20);

    /// Limits after `sent` bytes of data; `lossy`: packets were lost.
    pub(super) fn new(sent: u64, path: Fullness, lossy: bool) -> Self {
        let end = END.max(sent / Self::LEAN);
        let ample = |allowed, (share, most): (u64, u64)| {
            if allowed {
                end.max((sent / share).min(most))
            } else {
                end
            }
        };
        Self {
            first: ample(lossy && path == Fullness::Calm, Self::FIRST),
            end,
            repairs: ample(path != Fullness::Full, Self::REPAIRS),
        }
    }
}

/// State of a sender that has nothing else to send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Idle {
    pub(super) now: Instant,
    pub(super) srtt: Duration,
    pub(super) spending: Spending,
}

/// Chooses the packets that are sent once more.
#[derive(Debug)]
pub(super) struct Tail {
    /// Repairs sent since nothing new was left, and when each may be sent again, in this order.
    repairs: VecDeque<(Instant, u64)>,
    /// The last packets: where the copies begin, the next one, and where they end.
    last: [u64; 3],
    /// Passes over the last packets, counting this one.
    pass: u8,
    /// Longer pieces are not tried: one did not fit, for datagrams may have become smaller since it was sent.
    room: u32,
    spent: u64,
    /// The last packets are copied while less is spent.
    limit: u64,
    /// Packet and piece to send now.
    ready: Option<(u64, Piece)>,
    /// Time at which there will be something, if there is nothing now.
    due: Option<Instant>,
    /// The packet whose piece was handed out last, until it is logged.
    copying: Option<u64>,
}

impl Default for Tail {
    fn default() -> Self {
        Self {
            repairs: VecDeque::new(),
            last: [0; 3],
            pass: 1,
            room: u32::MAX,
            spent: 0,
            limit: 0,
            ready: None,
            due: None,
            copying: None,
        }
    }
}

impl Tail {
    /// Packet `number` was sent, and nothing new is left.
    pub(super) fn sent(&mut self, number: u64, repair: bool, log: &SentLog<Packet>, idle: &Idle) {
        if repair {
            self.await_copy(number, idle);
            return;
        }
        // Earlier ones are repaired before their copies would arrive.
        let half = idle.now.earlier_by(idle.srtt / 2);
        let spending = idle.spending;
        let left = |limit: u64| limit.saturating_sub(self.spent);
        let all = first_within(log, half, left(spending.first));
        let from = if all == first_within(log, half, u64::MAX) {
            self.limit = spending.first;
            all
        } else {
            self.limit = spending.end;
            first_within(log, half, END.min(left(spending.end)))
        };
        let [_, next, end] = self.last;
        // Those before have been copied.
        let next = if self.pass == 1 { next } else { end };
        self.last = [from, next.max(from), number + 1];
        self.pass = 1;
    }

    fn await_copy(&mut self, number: u64, idle: &Idle) {
        if self.repairs.len() == MOST_WAITING {
            self.repairs.pop_front();
        }
        let due = idle.now + idle.srtt / SPACING;
        self.repairs.push_back((due, number));
    }

    /// Packet `number` is lost, its copies are on their way: another one follows at once.
    pub(super) fn lost(&mut self, number: u64) {
        if self.repairs.len() < MOST_WAITING {
            self.repairs.push_front((Instant::EPOCH, number));
        }
    }

    /// A piece of `room` fits with the header of the one that is ready, which is given up if it is longer. Headers differ by
    /// some bytes: what fits with this one says little of others.
    pub(super) fn fits(&mut self, room: u32) {
        if self.ready.is_some_and(|(_, piece)| piece.len > room) {
            // The next one is chosen at once.
            (self.ready, self.room, self.due) = (None, room, Some(Instant::EPOCH));
        } else {
            self.room = self.room.max(room);
        }
    }

    /// The next packet worth a copy.
    pub(super) const fn ready(&self) -> Option<(u64, Piece)> {
        self.ready
    }

    /// Time of the next copy, if there is one.
    pub(super) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Bytes of copies handed out.
    #[cfg(test)]
    pub(super) const fn spent(&self) -> u64 {
        self.spent
    }

    /// Waits, as something else is sent.
    pub(super) const fn wait(&mut self) {
        (self.ready, self.due) = (None, None);
    }

    /// Looks for the next packet worth a copy.
    pub(super) fn choose(&mut self, log: &SentLog<Packet>, idle: &Idle) {
        self.wait();
        while let Some(&(due, number)) = self.repairs.front() {
            let Some(piece) = self.wanted(log, number, MOST_COPIES) else {
                self.repairs.pop_front();
                continue;
            };
            if self.spent < idle.spending.repairs && self.offer(idle.now, due, (number, piece)) {
                return;
            }
            break;
        }
        while self.spent < self.limit.min(idle.spending.first) && self.pass <= COPIES {
            let [from, next, end] = &mut self.last;
            *next = (*next).max(log.first());
            if *next >= *end {
                *next = *from;
                self.pass += 1;
                if *end <= log.first() {
                    self.pass = COPIES + 1;
                }
                continue;
            }
            let number = *next;
            let Some(piece) = self.wanted(log, number, self.pass) else {
                self.last[1] += 1;
                continue;
            };
            let at = log.get(number).map_or(idle.now, |sent| sent.at);
            let due = at + idle.srtt / SPACING * u32::from(self.pass);
            self.offer(idle.now, due, (number, piece));
            return;
        }
    }

    /// True if that is ready now.
    fn offer(&mut self, now: Instant, due: Instant, what: (u64, Piece)) -> bool {
        if due <= now {
            (self.ready, self.due) = (Some(what), None);
            return true;
        }
        self.due = Some(self.due.map_or(due, |before| before.min(due)));
        false
    }

    /// The piece of packet `number`, if it is neither there nor has `copies` copies.
    fn wanted(&self, log: &SentLog<Packet>, number: u64, copies: u8) -> Option<Piece> {
        let sent = log.get(number)?;
        let packet = sent.content;
        let open = matches!(sent.state, State::Outstanding | State::Copied);
        match packet.content {
            Content::Piece(piece)
                if open && !packet.covered && packet.copies < copies && piece.len <= self.room =>
            {
                Some(piece)
            }
            _ => None,
        }
    }

    /// The piece that is ready is handed out.
    pub(super) fn begin(&mut self) -> Option<Piece> {
        let (number, piece) = self.ready.take()?;
        self.spent += u64::from(piece.len);
        self.copying = Some(number);
        Some(piece)
    }

    /// Takes the number of the packet whose copy is now logged as a piece.
    pub(super) fn take(&mut self) -> Option<u64> {
        self.copying.take()
    }

    /// Notes that a copy of packet `number` was sent; there are `copies` now.
    pub(super) fn copied(&mut self, number: u64, copies: u8, idle: &Idle) {
        if self.repairs.front().is_some_and(|(_, n)| *n == number) {
            self.repairs.pop_front();
            if copies < REPAIR_COPIES {
                self.await_copy(number, idle);
            }
        } else {
            self.last[1] = number + 1;
        }
    }
}

/// The first packet sent at `since` or later, with no more than `bytes` sent after it.
fn first_within(log: &SentLog<Packet>, since: Instant, bytes: u64) -> u64 {
    let newest = log.get(log.next() - 1).map_or(0, |s| s.sent_bytes_low);
    let (mut low, mut high) = (log.first(), log.next());
    while low < high {
        let middle = low + (high - low) / 2;
        // A number that was skipped has no time.
        let mut probe = middle;
        let sent = loop {
            match log.get(probe) {
                Some(sent) if sent.state == State::Skipped => probe += 1,
                sent => break sent,
            }
        };
        let fits = sent.is_none_or(|sent| {
            let after = newest.wrapping_sub(sent.sent_bytes_low);
            sent.at >= since && u64::from(after) <= bytes
        });
        if fits {
            high = middle;
        } else {
            low = probe + 1;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn copies_are_a_bounded_share_of_what_is_sent() {
        for fullness in [Fullness::Full, Fullness::Queued, Fullness::Calm] {
            for lossy in [false, true] {
                for sent in [MIB, 100 * MIB, 1_000 * MIB, 100_000 * MIB] {
                    let s = Spending::new(sent, fullness, lossy);
                    assert!(s.end <= s.first && s.first <= s.repairs.max(s.end), "{s:?}");
                    assert!(s.repairs <= sent / 8, "{s:?} of {sent}");
                    if sent > 4_000 * MIB || fullness == Fullness::Full && sent > 8 * MIB {
                        assert!(s.repairs <= sent / 100, "{s:?} of {sent}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_full_path_is_not_filled_with_copies() {
        let full = Spending::new(100 * MIB, Fullness::Full, true);
        assert_eq!((full.first, full.repairs), (full.end, full.end));
        let queued = Spending::new(100 * MIB, Fullness::Queued, true);
        assert_eq!(queued.first, queued.end);
        assert!(queued.repairs > queued.end);
    }

    #[test]
    fn only_a_piece_that_did_not_fit_shows_that_datagrams_became_smaller() {
        let piece = |len| Piece {
            object: 0,
            offset: 0,
            len,
            repair: true,
        };
        let mut tail = Tail::default();
        let mut fits = |len, room| {
            tail.ready = Some((7, piece(len)));
            tail.fits(room);
            (tail.ready.is_some(), tail.room)
        };
        // The header of this one is longer than that of others.
        assert_eq!(fits(1_441, 1_441), (true, u32::MAX));
        assert_eq!(fits(1_442, 1_241), (false, 1_241));
        assert_eq!(fits(1_241, 1_241), (true, 1_241));
        assert_eq!(fits(1_241, 8_900), (true, 8_900), "larger again");
    }
}
