//! Folders and links, which have no content: the receiver makes each as soon as it is listed.

use std::{io, sync::Arc};

use rustix::fs::Mode;

use super::{
    destination::Destination,
    item::Incoming,
    names::SAME_NAME,
    target::{Folder, Meta, Target},
};
use crate::{
    confine::{self, Dir},
    decide::{Decision, Refusal, There, decide},
    lacks::LINK_TIMES,
    wire::{Entry, Tally, path},
};

/// A file or link whose place a folder takes.
struct Aside {
    dir: Dir,
    name: Vec<u8>,
    /// Name meanwhile, and for good if it `stays` as a backup.
    to: Vec<u8>,
    stays: bool,
}

impl Aside {
    /// Removes it if the folder was made; else gives it its name again, unless something has that name.
    fn settle(self, made: bool) -> io::Result<()> {
        match (made, self.stays) {
            (false, _) => confine::rename_new(&self.dir, &self.to, &self.name),
            (true, false) => confine::remove(&self.dir, &self.to),
            (true, true) => Ok(()),
        }
    }
}

impl Destination {
    /// Makes a folder, unless it is there; `next` is the number of the entry after it.
    pub(super) fn decide_dir(
        &mut self,
        tally: &mut Tally,
        entry: &Entry,
        meta: Meta,
        next: u64,
    ) -> Result<(), Refusal> {
        let dir = &entry.path[..];
        if dir.is_empty() {
            return Ok(());
        }
        let (parent, name) = path::split(dir);
        let around = self.folders.within(&mut self.tree, parent)?;
        if let Some(disks) = &self.disks {
            disks.hold(&around, parent)?;
        }
        let there = There::look(&around, name, entry)?;
        let decision = decide(entry, &there, &self.rules)?;
        let made = if decision.makes() {
            self.make_dir(tally, (dir, meta.permissions()), &around, decision)?
        } else {
            self.tree.dir(dir).map(|_| false)?
        };
        let owners = Mode::WUSR | Mode::XUSR;
        if self.rules.reach.is_all() && !meta.permissions().contains(owners) {
            self.folders.note_closed(dir);
        }
        if made {
            self.folders.note_made(dir);
        }
        if made || self.rules.reach.is_all() {
            let path = dir.to_vec();
            // The folder's content counts for a quota. Where copies change no existing file, a
            // later one could not add to it.
            let owners = match (self.rules.reach.is_all(), self.rules.strangers) {
                (false, _) => Mode::RWXU,
                (true, true) => Mode::RUSR | Mode::XUSR,
                (true, false) => Mode::empty(),
            };
            let folder = Folder {
                path,
                meta,
                made,
                owners,
            };
            self.folders.add(folder, next);
        }
        Ok(())
    }

    /// Makes the folder `path` in `dir`; false if it is there meanwhile.
    fn make_dir(
        &mut self,
        tally: &mut Tally,
        (path, mode): (&[u8], Mode),
        dir: &Dir,
        decision: Decision,
    ) -> io::Result<bool> {
        let replaces = decision == Decision::Replace;
        let aside = replaces.then(|| self.make_way(path, dir)).transpose()?;
        let closed = self.folders.is_closed(path::split(path).0);
        let tree = &mut self.tree;
        let make = || confine::inside(dir, closed, || tree.make_dir(path, mode));
        let made = self.space.for_inode(make);
        if let Some(aside) = aside {
            aside.settle(made.is_ok())?;
            tally.deleted += u64::from(made.is_ok());
        }
        made
    }

    /// Puts a file or link in `dir` aside in a mirror where the folder `path` is to be, unless this
    /// copy has it, too. With a suffix it becomes a backup.
    fn make_way(&mut self, path: &[u8], dir: &Dir) -> io::Result<Aside> {
        if self.mirror.listed.has_other(path) {
            return Err(io::Error::other(SAME_NAME));
        }
        self.mirror.backups.make(path)?;
        let (parent, name) = path::split(path);
        let backup = self.rules.mirror.backup;
        let to = match &backup {
            Some(suffix) => [name, suffix.bytes()].concat(),
            None => self.part_name(name, None),
        };
        confine::inside(dir, self.folders.is_closed(parent), || match &backup {
            Some(suffix) => confine::back_up(dir, name, suffix.bytes(), false),
            None => Ok(dir.rename(name, &to)?),
        })?;
        Ok(Aside {
            dir: Arc::clone(dir),
            name: name.to_vec(),
            to,
            stays: backup.is_some(),
        })
    }

    /// Makes a link, unless it is there.
    pub(super) fn decide_link(&mut self, item: &Incoming, entry: &Entry) -> Result<(), Refusal> {
        let target = self.target(item)?;
        let (dir, name) = (&target.dir, &target.name[..]);
        let (mut again, mut made) = (true, false);
        while !made {
            let there = There::look(dir, name, entry)?;
            let decision = decide(entry, &there, &self.rules)?;
            if !decision.makes() {
                break;
            }
            let make = || self.make_link(item, &target, entry, decision);
            match confine::inside(dir, target.closed, make) {
                Ok(true) => made = true,
                Ok(false) => return Ok(()),
                // Another copy took the name since.
                Err(e)
                    if e.kind() == io::ErrorKind::AlreadyExists
                        && decision == Decision::Make
                        && std::mem::take(&mut again) => {}
                Err(e) => return Err(e.into()),
            }
        }
        // Peers that may only add leave what was there as it is.
        if !made && !self.rules.reach.is_all() {
            return Ok(());
        }
        let waits = self.mirror.listed.waits(&entry.path);
        let name = if waits { &target.part[..] } else { name };
        if let Some(granted) = &target.meta.granted {
            granted.apply_to_link(dir, name)?;
        }
        let there = dir.statat(name)?;
        let id = target.meta.identity(there.st_size.cast_unsigned());
        if !id.is_of(&there) {
            dir.set_times_at(LINK_TIMES, name, &target.meta.times())?;
        }
        Ok(())
    }

    /// Makes the link; false if there can be none.
    fn make_link(
        &mut self,
        item: &Incoming,
        target: &Target,
        entry: &Entry,
        decision: Decision,
    ) -> io::Result<bool> {
        let name = self.make_room(item, target, entry, decision)?;
        let link = || Ok(target.dir.symlinkat(&entry.target, name)?);
        let made = match decision {
            Decision::Make => self.space.for_inode(link)?,
            _ => link()?,
        };
        if made && decision == Decision::Replace {
            target.take_name()?;
        }
        Ok(made)
    }

    /// Prepares to make a link; the name under which it is made, beside what is there.
    pub(super) fn make_room<'a>(
        &mut self,
        item: &Incoming,
        target: &'a Target,
        entry: &Entry,
        decision: Decision,
    ) -> io::Result<&'a [u8]> {
        match decision {
            Decision::Wait => self.wait_for_folder(item)?,
            Decision::Replace => self.mirror.backups.make(&entry.path)?,
            _ => return Ok(&target.name),
        }
        // Left by a run that was killed here.
        confine::remove(&target.dir, &target.part)?;
        Ok(&target.part)
    }
}
