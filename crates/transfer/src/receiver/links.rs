//! Makes hard links. A link is made when everything listed before it is over, and only to a file
//! that this transfer has put or found in place. Nothing else beneath the destination is ever
//! linked to.

use std::{collections::HashSet, io};

use rustix::{fs::FileType, io::Errno};

use super::{Incoming, Receiver, State, reach::TAKEN};
use crate::{
    bounds::LINKED,
    confine, lacks,
    progress::FileOver,
    sender::Identity,
    wire::{Code, Entry, path},
};

/// Files that others may be links to.
#[derive(Debug, Default)]
pub(super) struct Links(HashSet<[u8; 8]>);

impl Links {
    pub(super) fn add(&mut self, path: &[u8]) {
        // A sender keeps the same bound.
        if self.0.len() < LINKED {
            self.0.insert(path::digest(path));
        }
    }

    fn has(&self, path: &[u8]) -> bool {
        self.0.contains(&path::digest(path))
    }
}

/// True if there are no hard links here, no more of this file, or none between these file systems.
fn is_impossible(e: Errno) -> bool {
    matches!(e, Errno::MLINK | Errno::XDEV) || e != Errno::ACCESS && lacks::is_refusal(e)
}

impl Receiver {
    pub(super) fn decide_hard_link(&mut self, number: u64, entry: &Entry) -> io::Result<()> {
        if !self.rules.mirror.preserve.links {
            return Err(io::Error::other(
                "a hard link was listed, and none was asked for",
            ));
        }
        if let Some(slot) = self.table.get_mut(number) {
            slot.item.state = State::Link(entry.target.clone());
        }
        Ok(())
    }

    /// Makes the entry a link to `to`.
    pub(super) fn link(&mut self, number: u64, to: &[u8]) {
        if !self.links.has(to) {
            let why = format!(
                "is the same file as {}, which did not arrive",
                path::show(to)
            );
            return self.fail(number, Code::SourceChanged, &why);
        }
        match self.make_hard_link(number, to) {
            Ok(Some(made)) => self.linked(number, made),
            Ok(None) => {}
            Err(e) => self.fail(number, Code::of_write(&e), &e),
        }
    }

    /// Notes that the link is in place: `made`, or already there.
    pub(super) fn linked(&mut self, number: u64, made: bool) {
        if made {
            self.core.tally.files_ok += 1;
        } else {
            self.was_there(number);
        }
        self.abandon(number, Code::Ok);
        self.is_in_place(number);
    }

    /// False if it is that file already; nothing if there can be no link, and a worker makes it another file.
    fn make_hard_link(&mut self, number: u64, to: &[u8]) -> io::Result<Option<bool>> {
        let target = self.target(number)?;
        let (parent, file) = path::split(to);
        let from = self.folders.within(&mut self.tree, parent)?;
        let source = confine::stat(&from, file)?.ok_or(io::ErrorKind::NotFound)?;
        if FileType::from_raw_mode(source.st_mode) != FileType::RegularFile {
            return Err(confine::swapped());
        }
        match target.dir.hard_link(&from, file, &target.name) {
            Err(Errno::EXIST) => {}
            Err(e) if is_impossible(e) => {
                if confine::stat(&target.dir, &target.name)?.is_none() {
                    return self.make_twin(number, to, &source, e);
                }
            }
            done => return Ok(done.map(|()| Some(true))?),
        }
        let there = confine::stat(&target.dir, &target.name)?.ok_or(io::ErrorKind::NotFound)?;
        if (there.st_dev, there.st_ino) == (source.st_dev, source.st_ino) {
            return Ok(Some(false));
        }
        let stays = |id: Identity| id.stays(self.rules.existing, &there);
        if self.identity(number).is_some_and(stays) {
            return Ok(Some(false));
        }
        if let Some(why) = confine::is_special(&there) {
            return Err(io::Error::other(why));
        }
        if FileType::from_raw_mode(there.st_mode) == FileType::Directory {
            self.wait_for_folder(number)?;
            confine::remove(&target.dir, &target.part)?;
            target.dir.hard_link(&from, file, &target.part)?;
            return Ok(Some(true));
        }
        if !self.rules.reach.is_all() {
            return Err(io::Error::other(TAKEN));
        }
        let path = self.table.get(number).map(|slot| slot.item.path.clone());
        self.note_backup(&path.unwrap_or_default())?;
        let part = &target.part;
        // Left by a run that was killed here.
        confine::remove(&target.dir, part)?;
        match target.dir.hard_link(&from, file, part) {
            Err(e) if is_impossible(e) => return self.make_twin(number, to, &source, e),
            done => done?,
        }
        target.back_up()?;
        let renamed = target.dir.rename(part, &target.name);
        renamed.or_else(|e| {
            confine::remove(&target.dir, part)?;
            Err(io::Error::from(e))
        })?;
        Ok(Some(true))
    }

    /// Removes entries that are over from the front of the table; a link that gets there is made.
    pub(super) fn pop_over(&mut self) {
        loop {
            let number = self.table.first();
            if let Some(Incoming {
                state: State::Link(to),
                ..
            }) = self.table.get_mut(number).map(|slot| &mut slot.item)
            {
                let to = std::mem::take(to);
                self.link(number, &to);
            }
            let is_over = |e: &Incoming| e.state.is_over();
            let slot = self.table.get(number);
            let bytes = slot.map_or(0, |slot| slot.range.end - slot.range.start);
            let Some(over) = self.table.pop_if(is_over) else {
                let next = self.table.get(number);
                self.core
                    .progress
                    .set_current(next.map(|slot| (number, &slot.item.path[..])));
                return;
            };
            if over.linked && matches!(over.state, State::InPlace) {
                self.links.add(&over.path);
            }
            self.names.release(&over.path, number);
            if over.is_file && !self.names.is_to_come(&over.path) {
                let ok = matches!(over.state, State::InPlace);
                self.core.progress.file_over(FileOver {
                    path: over.path,
                    bytes,
                    ok,
                    sent: ok && !over.stayed,
                });
            }
        }
    }
}
