//! The workers, what they are to do next, and the journal, in which they can rely on what they are to name.

use std::{io, sync::Arc};

use super::{
    disks::Disks,
    item::{COMMITTED, Incoming},
    job::{Small, WriteJob},
    journal::Journal,
    reread::Reread,
    target::{Folder, Target},
};
use crate::{
    confine::Dir,
    decide::Rules,
    digest::BlockTree,
    disk::File,
    pool::{Keep, Pool},
    role::RoleCore,
    table::{Slot, Table},
    wire::{BLOCK, Entry},
};

/// Workers, and what they are to have on the disk.
pub(super) struct Workers {
    pub(super) journal: Journal,
    /// File systems to sync, if any.
    pub(super) disks: Option<Arc<Disks>>,
    /// Set if what was written is read again.
    pub(super) reread: Option<Reread>,
    pub(super) pool: Pool<WriteJob>,
    pub(super) small: Vec<Small>,
    /// Bytes of small files that workers have, or will have next.
    pub(super) writing: usize,
    /// Bytes that workers have written, or could not.
    pub(super) drained: u64,
    /// Files before this one were looked at when names were noted in the journal.
    noted: u64,
    /// True if it was reported that the journal cannot be written.
    unnoted: bool,
    /// Stripes that workers note to be complete.
    pub(super) completing: usize,
}

impl Workers {
    pub(super) fn new(
        mut pool: Pool<WriteJob>,
        journal: Journal,
        disks: Option<Arc<Disks>>,
        rules: &Rules,
    ) -> Self {
        // The next run of the same command must not touch what a worker of this one still writes to.
        pool.keep(Arc::clone(journal.lock()) as Keep);
        Self {
            journal,
            disks,
            reread: rules.verify_disk.then(Reread::default),
            pool,
            small: Vec::new(),
            writing: 0,
            drained: 0,
            noted: 0,
            unnoted: false,
            completing: 0,
        }
    }

    /// Starts a job that hashes the existing file.
    pub(super) fn check_there(&mut self, number: u64, target: Target, entry: &Entry, unsure: bool) {
        let (size, zeros) = (entry.size, entry.allocated < entry.size);
        let reread = self.reread.clone();
        let reread = reread.or(unsure.then(Reread::of_unsynced));
        let job = WriteJob::check(number, target, size, zeros, reread);
        self.pool.push(job);
    }

    /// Reports once that the journal cannot be written.
    pub(super) fn note(&mut self, core: &mut RoleCore, noted: io::Result<()>) {
        if let Err(e) = noted
            && !std::mem::replace(&mut self.unnoted, true)
        {
            let text = "the journal cannot be written, so this transfer cannot be continued";
            core.warn(format!("{text}: {e}"));
        }
    }

    /// Starts the job for the small files that are ready; an error for those that cannot be noted.
    pub(super) fn write_small(
        &mut self,
        table: &mut Table<Incoming>,
    ) -> Result<(), (Vec<Small>, io::Error)> {
        if self.small.is_empty() {
            return Ok(());
        }
        let files = std::mem::take(&mut self.small);
        if let Err(e) = self.note_named(table, files.iter().map(|f| f.number)) {
            return Err((files, e));
        }
        let job = WriteJob::small(files, self.disks.clone(), self.reread.clone());
        self.pool.push(job);
        Ok(())
    }

    /// Notes in the journal files that get their names before they are synced, unless they replace
    /// something. The journal has them on the disk before, and with them the names of all that are
    /// listed by now. Waiting for each would take longer than the copy.
    pub(super) fn note_named(
        &mut self,
        table: &mut Table<Incoming>,
        files: impl Iterator<Item = u64>,
    ) -> io::Result<()> {
        let Some(disks) = &self.disks else {
            let slots = files.filter_map(|number| table.get(number));
            self.journal.named_for_now(slots.map(|s| &s.item.path[..]));
            return Ok(());
        };
        let disks = Arc::clone(disks);
        let is_new = |table: &Table<Incoming>, number: u64| {
            let slot = table.get(number);
            slot.is_some_and(|s| !s.item.noted && !s.item.replaces)
        };
        let mut new: Vec<u64> = files.filter(|n| is_new(table, *n)).collect();
        if new.is_empty() {
            return Ok(());
        }
        let (listed, now) = (self.noted..table.next(), new.clone());
        let small = |s: &Slot<Incoming>| s.item.is_wanted() && s.size() <= BLOCK;
        new.extend(listed.clone().filter(|n| {
            let wanted = table.get(*n).is_some_and(small);
            wanted && is_new(table, *n) && !now.contains(n)
        }));
        let slots = new.iter().filter_map(|number| table.get(*number));
        let noted = self.journal.named(slots.map(|s| &s.item.path[..]));
        noted
            .map_err(|e| io::Error::new(e.kind(), format!("the journal cannot be written: {e}")))?;
        for number in new {
            if let Some(slot) = table.get_mut(number) {
                slot.item.noted = true;
            }
        }
        self.noted = listed.end;
        disks.names_noted();
        Ok(())
    }

    /// Starts the job that gives a complete part its name, or keeps it as NAME.bad.
    pub(super) fn commit(
        &mut self,
        (number, slot): (u64, &mut Slot<Incoming>),
        part: (Arc<File>, Target),
        bad: bool,
    ) {
        let small = slot.size() <= BLOCK;
        let mut tree = None;
        if let Some(part) = slot.item.part() {
            part.compared = Some(COMMITTED);
            if self.reread.is_some() && !bad {
                let size = part.tree.size();
                let values = std::mem::replace(&mut part.tree, BlockTree::new(size));
                tree = Some(Box::new(values));
            }
        }
        self.completing += usize::from(part.1.stripe.is_some());
        let reread = self.reread.clone().zip(tree);
        let job = WriteJob::commit(number, part, self.disks.clone(), small, reread, bad);
        self.pool.push(job);
    }

    /// Starts the job that gives folders their permissions and times; `last` if everything is to reach the disk.
    pub(super) fn finish(&mut self, root: Dir, dirs: Vec<Folder>, last: bool) {
        let disks = self.disks.clone().filter(|_| last);
        self.pool.push(WriteJob::finish(root, dirs, disks));
    }
}
