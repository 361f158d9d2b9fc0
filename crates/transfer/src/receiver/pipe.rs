//! Receives content that comes through a pipe. Its file grows while it arrives, and the receiver
//! reports what the sender may forget. An incomplete file is of no use to a later run.

use super::{Receiver, Stage, State};
use crate::{
    error::TransferError,
    wire::{BLOCK, Exit},
};

/// The only file.
const FILE: u64 = 0;

impl Receiver {
    /// Grows the file to `size`, and requests the added bytes.
    pub(super) fn grown(&mut self, file: u64, size: u64) -> Result<(), TransferError> {
        if file == FILE && self.table.first() > FILE && self.stage == Stage::Listing {
            // It is over here, and the sender may not know yet.
            return Ok(());
        }
        let listed = file == FILE && self.stage == Stage::Listing;
        let slot = self.table.get(file).filter(|_| listed);
        let Some(slot) = slot.filter(|slot| slot.item.root.is_none()) else {
            return Err(TransferError::protocol("a file grew that is not open"));
        };
        let (start, before) = (slot.range.start, slot.range.end - slot.range.start);
        // Blocks complete by then stay as they are.
        let whole = before > BLOCK && before.is_multiple_of(BLOCK);
        let end = slot.range.end;
        let collects = matches!(slot.item.state, State::Part(_));
        if !whole || size <= before || !self.table.grow_last(size) {
            return Err(TransferError::protocol("a file grew as none can"));
        }
        if !collects {
            // It failed here; what was under way is not missed.
            return Ok(());
        }
        self.check_space();
        if let Err(why) = self.dest.space.reserve(size - before) {
            self.fail(file, Exit::NoSpace, &why);
            return Ok(());
        }
        if let Some(State::Part(part)) = self.table.get_mut(file).map(|s| &mut s.item.state) {
            part.tree.grow(size);
        }
        self.request(end..start + size);
        self.send_wants();
        Ok(())
    }

    /// Reports to the sender the blocks that will not be requested again.
    pub(super) fn tell_taken(&mut self) {
        let slot = self.table.get(FILE).filter(|_| self.dest.rules.pipe);
        if slot.is_none_or(|slot| matches!(slot.item.state, State::Over)) {
            return;
        }
        // There is one file, at the beginning of the object.
        let first = self.missing.first().map_or(self.table.end(), |r| r.start);
        let upto = first / BLOCK * BLOCK;
        self.reports.take(&mut self.core, FILE, upto);
    }
}

impl Drop for Receiver {
    /// Removes an incomplete file that came through a pipe: no later run can continue it.
    fn drop(&mut self) {
        if self.dest.rules.pipe && !self.core.is_finished() {
            self.abandon(FILE, Exit::INTERRUPTED);
        }
    }
}
