//! Sends on a further parallel session the pieces that it is handed. Bytes that were lost on the
//! way are read from the file again.

use std::{collections::BTreeMap, collections::VecDeque, io, ops::Range, sync::Arc};

use farhaul_core::{
    protocol::Session,
    store::{Extent, StoreError},
};

use super::{Ahead, Body, Item, Origin, Sender, Step, UNSENT, ahead::Loaded};
use crate::{
    bounds,
    disk::File,
    error::TransferError,
    lanes::{Handed, LaneEvent, Lanes, Link, lost},
    ranges::RangeSet,
    role::fill_each,
    table::CONTENT,
    wire::Exit,
};

/// Files that a further session keeps open to read again from.
const OPEN: usize = 4;

/// The sending end.
#[derive(Debug, Default)]
pub(crate) struct Sends {
    loaded: Loaded,
    /// Files of what it was handed that are not over, by their first byte.
    files: BTreeMap<u64, Arc<Origin>>,
    open: VecDeque<(u64, Arc<File>)>,
    unconfirmed: RangeSet,
    /// Bytes handed to the session.
    given: u64,
    /// Bytes handed to the session when it last reported room to the first session.
    asked: u64,
}

impl Sends {
    /// Queues what it was handed, and asks for more in time.
    pub(crate) fn poll(&mut self, link: &Link, lanes: &Lanes, session: &mut dyn Session) {
        // Confirmed ranges go, too: confirmations overtake acknowledgements. Bytes that are not
        // acknowledged are sent again, to a receiver that may miss them by then because they
        // differed. They are no more than are under way.
        let over = lanes.over_below();
        while let Some(first) = self.files.first_entry()
            && first.get().range.end <= over
        {
            first.remove();
        }
        for piece in link.take_pieces(self.loaded.spares()) {
            let Handed {
                range,
                bytes,
                origin,
            } = piece;
            let len = range.end - range.start;
            self.given += len;
            self.files.insert(origin.range.start, origin);
            self.expect(range.clone());
            self.loaded.insert(range.start, bytes, len);
            session.send(CONTENT, range.start, len);
        }
        let unsent = session.unsent();
        link.set_left(self.given.saturating_sub(unsent));
        if unsent < UNSENT / 2 && self.asked != self.given {
            self.asked = self.given;
            lanes.wake_first();
        }
    }

    /// Notes bytes that the receiver is to confirm.
    pub(crate) fn expect(&mut self, range: Range<u64>) {
        self.unconfirmed.insert(range);
    }

    /// Notes bytes that the receiver has.
    pub(crate) fn confirm(&mut self, ranges: &[Range<u64>]) -> Result<(), TransferError> {
        for range in ranges {
            self.unconfirmed.remove(range.clone());
        }
        if self.unconfirmed.len() > bounds::GAPS {
            return Err(TransferError::protocol(
                "the peer confirms pieces of more than it completes",
            ));
        }
        Ok(())
    }

    /// Takes the ranges that have not been confirmed.
    pub(crate) fn take_unconfirmed(&mut self) -> RangeSet {
        std::mem::take(&mut self.unconfirmed)
    }

    /// Fills a batch.
    pub(crate) fn fill(
        &mut self,
        extents: &[Extent],
        batch: &mut [u8],
        lanes: &Lanes,
    ) -> Result<(), StoreError> {
        fill_each(extents, batch, |object, at, own| {
            let n = (object == CONTENT).then(|| self.loaded.copy(at, own))?;
            Some(if n > 0 {
                n
            } else {
                self.read_again(at, own, lanes)
            })
        })
    }

    /// Reads the front of `own` from its file; bytes that cannot be read are zeros, and it is reported.
    fn read_again(&mut self, offset: u64, own: &mut [u8], lanes: &Lanes) -> usize {
        let found = self.files.range(..=offset).next_back();
        let Some((_, origin)) = found.filter(|(_, origin)| offset < origin.range.end) else {
            // Over already; the receiver has what it needs.
            own.fill(0);
            return own.len();
        };
        let origin = Arc::clone(origin);
        let left = usize::try_from(origin.range.end - offset).unwrap_or(usize::MAX);
        let n = left.min(own.len());
        let at = offset - origin.range.start;
        let read = self
            .file(&origin)
            .and_then(|file| file.read_exact_at(&mut own[..n], at));
        if let Err(e) = read {
            own[..n].fill(0);
            lanes.tell(LaneEvent::Unreadable(origin.number, e));
        }
        n
    }

    fn file(&mut self, origin: &Origin) -> io::Result<Arc<File>> {
        let start = origin.range.start;
        if let Some((_, file)) = self.open.iter().find(|(s, _)| *s == start) {
            return Ok(Arc::clone(file));
        }
        let file = origin.open_again()?;
        if self.open.len() == OPEN {
            self.open.pop_front();
        }
        self.open.push_back((start, Arc::clone(&file)));
        Ok(file)
    }
}

impl Sender {
    /// Provides workers for so many parallel sessions.
    fn work_for(&mut self, lanes: u32) {
        self.pool.grow(lanes);
        self.loaded.work_for(self.pool.threads());
    }

    /// Acts on the events of further parallel sessions.
    pub(super) fn read_lanes(&mut self) {
        let Some(lanes) = self.core.lanes().cloned() else {
            return;
        };
        for event in lanes.take_events() {
            match event {
                LaneEvent::Joined(link) => {
                    self.work_for(lanes.up());
                    self.links.push(link);
                }
                LaneEvent::Unreadable(number, e) => self.fail_read(number, &e),
                LaneEvent::Left {
                    number,
                    unconfirmed,
                    why,
                } => {
                    self.links.retain(|link| link.number() != number);
                    self.send_again(&unconfirmed);
                    if let Some(why) = why {
                        self.core.log.add(Exit::Ok, lost(number, &why));
                    }
                }
                LaneEvent::Load(_) => {}
            }
        }
    }

    /// Hands the next piece that is in memory to the further session that has least to send. False
    /// if there is none, or if this session, which has `own` to send, is next.
    pub(super) fn hand_over(&mut self, own: u64) -> bool {
        let least = self.links.iter().min_by_key(|link| link.backlog());
        let Some(link) = least.cloned() else {
            return false;
        };
        if link.backlog() >= own.min(UNSENT) {
            return false;
        }
        let ready = |s: &Step| s.ready && matches!(s.what, Ahead::Piece { .. });
        let Some(at) = self.steps.iter().position(ready) else {
            return false;
        };
        let Some(Ahead::Piece { number, range }) = self.steps.get(at).map(|s| &s.what) else {
            return false;
        };
        let (number, range) = (*number, range.clone());
        let slot = self.table.get(number).map(|slot| &slot.item);
        let Some(item) = slot.filter(|item| !item.disposition.is_given_up()) else {
            return false;
        };
        let origin = Arc::clone(&item.origin);
        let Some(bytes) = self.loaded.take(range.start) else {
            // The piece was not read, or it is sent from the file: it is this session's part.
            return false;
        };
        let piece = Handed {
            range,
            bytes,
            origin,
        };
        match link.hand(piece, self.loaded.spares()) {
            Ok(()) => drop(self.steps.remove(at)),
            // It has just ended.
            Err(piece) => {
                let unsent = piece.bytes.len() as u64;
                self.loaded.insert(piece.range.start, piece.bytes, unsent);
                self.links.retain(|l| l.number() != link.number());
            }
        }
        true
    }

    /// Queues bytes of large files once more that a further session has left, as far as the files
    /// are not over.
    fn send_again(&mut self, ranges: &RangeSet) {
        for range in ranges.iter() {
            let first = self.table.get(self.table.first());
            let mut at = range.start.max(first.map_or(range.end, |s| s.range.start));
            while at < range.end
                && let Some(number) = self.table.find(at)
                && let Some(slot) = self.table.get_mut(number)
            {
                let piece = at..range.end.min(slot.range.end);
                at = piece.end;
                let start = slot.range.start;
                if slot.item.disposition.is_given_up() {
                    continue;
                }
                if let Body::Large(large) = &mut slot.item.body {
                    large.queue(start, piece);
                    if !std::mem::replace(&mut large.queued, true) {
                        self.queue.push_front(Item::Large(number));
                    }
                }
            }
        }
    }
}
