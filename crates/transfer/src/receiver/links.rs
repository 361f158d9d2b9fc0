//! Makes hard links. A link is made when everything listed before it is over, and only to a file
//! that this transfer has put or found in place. Nothing else beneath the destination is ever
//! linked to.

use std::{collections::HashSet, io};

use rustix::{fs::Stat, io::Errno};

use super::{destination::Destination, item::Incoming, target::Target};
use crate::{
    bounds::LINKED,
    confine,
    decide::{Decision, Refusal, There, decide},
    disk::File,
    lacks,
    wire::{Entry, path},
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

/// Outcome for an entry that is a hard link.
pub(super) enum HardLink {
    Made,
    /// The entry is that file already, or stays.
    WasThere,
    /// There can be no link: the content is to be copied from this file.
    Impossible(Box<(File, Target)>),
}

impl Destination {
    /// Makes the entry a link to the file that is its target.
    pub(super) fn make_hard_link(
        &mut self,
        item: &Incoming,
        entry: &Entry,
    ) -> Result<HardLink, Refusal> {
        let to = &entry.target;
        if !self.mirror.links.has(to) {
            return Err(Refusal::of_link_to(to));
        }
        let target = self.target(item)?;
        let (parent, file) = path::split(to);
        let from = self.folders.within(&mut self.tree, parent)?;
        let file = if self.mirror.listed.waits(to) {
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
                return Ok(HardLink::WasThere);
            }
            let name = self.make_room(item, &target, entry, decision)?;
            match target.dir.hard_link(&from, &file, name) {
                Err(e) if is_impossible(e) => {
                    let from = confine::open_to_read(&from, &file)?;
                    return Ok(self.copy_instead(item, from, &source, e)?);
                }
                // Another copy took the name since.
                Err(Errno::EXIST) if decision == Decision::Make && std::mem::take(&mut again) => {}
                done => {
                    done?;
                    if decision == Decision::Replace {
                        target.take_name()?;
                    }
                    return Ok(HardLink::Made);
                }
            }
        }
    }

    /// Prepares to copy `from`, which is described by `source`, since the entry can be no link to it because
    /// of `e`.
    fn copy_instead(
        &mut self,
        item: &Incoming,
        from: File,
        source: &Stat,
        e: Errno,
    ) -> io::Result<HardLink> {
        let target = self.target(item)?;
        let bytes = source.st_blocks.cast_unsigned().saturating_mul(512);
        self.space.reserve(bytes).map_err(io::Error::other)?;
        let why = io::Error::from(e).to_string();
        target.dir.lacks().note(lacks::HARD_LINKS, why);
        let replaces = confine::stat(&target.dir, &target.name)?.is_some();
        Ok(HardLink::Impossible(Box::new((
            from,
            Target { replaces, ..target },
        ))))
    }
}
