//! Abandons files that cannot be read, or are not requested. The other side gets a report, and a
//! file that has changed is listed once more.

use std::{io, sync::Arc};

use super::{Body, Disposition, Sender};
use crate::{
    ranges::RangeSet,
    scan::{self, Scanned},
    sender::Stamp,
    wire::{Exit, Kind, Message, path, short},
};

impl Sender {
    /// Abandons this file, which cannot be read.
    pub(crate) fn fail_read(&mut self, file: u64, e: &io::Error) {
        let Some(slot) = self
            .table
            .get(file)
            .filter(|s| !s.item.disposition.is_given_up())
        else {
            return;
        };
        let code = Exit::of_read(e);
        let why = if e.kind() == io::ErrorKind::NotFound {
            "vanished".to_string()
        } else {
            e.to_string()
        };
        let text = format!("{}: {why}", path::show(&slot.item.entry.path));
        let again =
            code == Exit::SourceChanged && !slot.item.again && !self.ended && self.list_again(file);
        self.core.out.push(&Message::Failed {
            file,
            code,
            again,
            text: short(&text),
        });
        if again {
            self.core.progress.retry();
            self.give_up(file, Disposition::Relisted);
        } else {
            self.core.log.add(code, text);
            self.give_up(file, Disposition::Failed);
        }
    }

    /// Puts a changed file back into the manifest as it is now.
    fn list_again(&mut self, file: u64) -> bool {
        let Some(slot) = self.table.get(file) else {
            return false;
        };
        let item = &slot.item;
        if item.entry.stripe.is_some() {
            // Other nodes send stripes of what it was.
            return false;
        }
        let origin = &item.origin;
        let Ok(Some(stat)) = origin.look() else {
            return false;
        };
        let mut entry = scan::entry_of(Kind::File, item.entry.path.clone(), Vec::new(), &stat);
        entry.facts.clone_from(&item.entry.facts);
        self.relist.push_back(Box::new(Scanned {
            entry,
            root: Arc::clone(&origin.root),
            rel: origin.rel.clone(),
            stamp: Stamp::of(&stat),
        }));
        true
    }

    /// Gives this file up: nothing more of it is sent.
    pub(super) fn give_up(&mut self, file: u64, disposition: Disposition) {
        if let Some(slot) = self.table.get_mut(file) {
            slot.item.disposition = disposition;
            self.unsettled -= u64::from(!slot.item.settled);
            slot.item.settled = true;
            if let Body::Large(large) = &mut slot.item.body {
                large.to_send = RangeSet::default();
                large.mapped = true;
            }
        }
    }
}
