//! Makes hard links. A link is made when everything listed before it is over, and only to a file
//! that this transfer has put or found in place. Nothing else beneath the destination is ever
//! linked to.

use std::collections::HashSet;

use rustix::io::Errno;

use super::{Incoming, Receiver, State};
use crate::{
    bounds::LINKED,
    confine,
    decide::{Decision, Refusal, There, decide},
    lacks,
    progress::FileOver,
    wire::{Entry, Exit, path},
};

/// Paths, of which a limited number is remembered: those of files that others may be links to.
#[derive(Debug, Default)]
pub(crate) struct Paths(HashSet<[u8; 8]>);

impl Paths {
    pub(crate) fn add(&mut self, path: &[u8]) {
        // A sender keeps the same bound.
        if self.0.len() < LINKED {
            self.0.insert(path::digest(path));
        }
    }

    pub(crate) fn has(&self, path: &[u8]) -> bool {
        self.0.contains(&path::digest(path))
    }
}

/// True if there are no hard links here, no more of this file, or none between these file systems.
fn is_impossible(e: Errno) -> bool {
    matches!(e, Errno::MLINK | Errno::XDEV) || e != Errno::ACCESS && lacks::is_refusal(e)
}

impl Receiver {
    /// Lets the entry wait until it can be a link.
    pub(super) fn link_later(&mut self, number: u64, entry: &Entry) {
        if let Some(slot) = self.table.get_mut(number) {
            slot.item.state = State::Link(Box::new(entry.clone()));
        }
    }

    /// Makes the entry a link to the file that is its target.
    fn link(&mut self, number: u64, entry: &Entry) {
        match self.make_hard_link(number, entry) {
            Ok(Some(made)) => self.linked(number, made),
            Ok(None) => {}
            Err(refusal) => self.refuse(number, &refusal),
        }
    }

    /// Notes that the link is in place: `made`, or already there.
    pub(super) fn linked(&mut self, number: u64, made: bool) {
        if made {
            self.core.tally.files_ok += 1;
        } else {
            self.was_there(number);
        }
        self.abandon(number, Exit::Ok);
        self.is_in_place(number);
    }

    /// False if it is that file already, or stays; nothing if there can be no link, and a worker makes it another file.
    fn make_hard_link(&mut self, number: u64, entry: &Entry) -> Result<Option<bool>, Refusal> {
        let to = &entry.target;
        if !self.links.has(to) {
            return Err(Refusal::of_link_to(to));
        }
        let target = self.target(number)?;
        let (parent, file) = path::split(to);
        let from = self.folders.within(&mut self.tree, parent)?;
        let file = if self.listed.waits(to) {
            self.part_name(file, None)
        } else {
            file.to_vec()
        };
        let source = confine::stat(&from, &file)?.ok_or(Errno::NOENT)?;
        let mut again = true;
        loop {
            let mut there = There::look(&target.dir, &target.name, entry)?;
            there.compare_inode(&source)?;
            let decision = decide(entry, &there, &self.rules)?;
            if !decision.makes() {
                return Ok(Some(false));
            }
            let name = self.make_room(number, &target, entry, decision)?;
            match target.dir.hard_link(&from, &file, name) {
                Err(e) if is_impossible(e) => {
                    let from = confine::open_to_read(&from, &file)?;
                    return Ok(self.make_twin(number, from, &source, e).map(|()| None)?);
                }
                // Another copy took the name since.
                Err(Errno::EXIST) if decision == Decision::Make && std::mem::take(&mut again) => {}
                done => {
                    done?;
                    if decision == Decision::Replace {
                        target.take_name()?;
                    }
                    return Ok(Some(true));
                }
            }
        }
    }

    /// Removes entries that are over from the front of the table; a link that gets there is made.
    pub(super) fn pop_over(&mut self) {
        loop {
            let number = self.table.first();
            let state = self.table.get_mut(number).map(|slot| &mut slot.item.state);
            if let Some(state) = state.filter(|state| matches!(state, State::Link(_)))
                && let State::Link(entry) = std::mem::replace(state, State::Over)
            {
                self.link(number, &entry);
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
