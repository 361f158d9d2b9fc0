//! Folders and links, which have no content: the receiver makes each as soon as it is listed.

use std::io;

use rustix::fs::Mode;

use super::{
    Folder, Meta, Receiver, Target,
    decide::{SAME_NAME, is_dir},
    reach::TAKEN,
};
use crate::{
    confine::{self, Dir},
    lacks::LINK_TIMES,
    sender::Identity,
    wire::{Entry, Symlinks, path},
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

impl Receiver {
    pub(super) fn decide_dir(&mut self, dir: &[u8], meta: Meta) -> io::Result<()> {
        if dir.is_empty() {
            return Ok(());
        }
        if let Some(disks) = &self.disks {
            let parent = path::split(dir).0;
            disks.hold(&self.folders.within(&mut self.tree, parent)?, parent)?;
        }
        let parent = path::split(dir).0;
        let aside = self.make_way(dir)?;
        let (tree, folders) = (&mut self.tree, &mut self.folders);
        let made = self.space.for_inode(|may| {
            if !may {
                return tree.dir(dir).map(|_| false);
            }
            if !folders.is_closed(parent) {
                return tree.make_dir(dir, meta.permissions());
            }
            let around = folders.within(tree, parent)?;
            confine::inside(&around, true, || tree.make_dir(dir, meta.permissions()))
        });
        if let Some(aside) = aside {
            aside.settle(made.is_ok())?;
            self.core.tally.deleted += u64::from(made.is_ok());
        }
        let made = made?;
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
            self.folders.add(folder, self.table.next());
        }
        Ok(())
    }

    /// Puts a file or link aside in a mirror where a folder is to be, unless this copy has it, too.
    /// With a suffix it becomes a backup.
    fn make_way(&mut self, path: &[u8]) -> io::Result<Option<Aside>> {
        let mirror = self.rules.mirror;
        if mirror.delete.is_none() || !self.rules.reach.is_all() {
            return Ok(None);
        }
        let (parent, name) = path::split(path);
        let dir = self.folders.within(&mut self.tree, parent)?;
        match confine::stat(&dir, name)? {
            Some(there) if !is_dir(&there) && confine::is_special(&there).is_none() => {}
            _ => return Ok(None),
        }
        if self.listed.has_other(path) {
            return Err(io::Error::other(SAME_NAME));
        }
        self.note_backup(path)?;
        let to = match &mirror.backup {
            Some(suffix) => [name, suffix.bytes()].concat(),
            None => self.part_name(name, None),
        };
        confine::inside(&dir, self.folders.is_closed(parent), || {
            match &mirror.backup {
                Some(suffix) => confine::back_up(&dir, name, suffix.bytes(), false),
                None => Ok(dir.rename(name, &to)?),
            }
        })?;
        Ok(Some(Aside {
            dir,
            name: name.to_vec(),
            to,
            stays: mirror.backup.is_some(),
        }))
    }

    pub(super) fn decide_link(&mut self, number: u64, entry: &Entry) -> io::Result<()> {
        if let Some(refusal) = path::link_refusal(&entry.path, &entry.target)
            && !(refusal.leads_out && self.rules.mirror.symlinks != Symlinks::Within)
        {
            self.fail(number, path::LinkRefusal::CODE, &refusal.of(&entry.target));
            return Ok(());
        }
        let target = self.target(number)?;
        let (dir, name) = (&target.dir, &target.name[..]);
        let is_there = confine::inside(dir, target.closed, || {
            self.make_link(number, &target, entry)
        })?;
        if !is_there {
            return Ok(());
        }
        let waits = self.listed.waits(&entry.path);
        let name = if waits { &target.part[..] } else { name };
        if let Some(granted) = &target.meta.granted {
            granted.apply_to_link(dir, name)?;
        }
        let there = dir.statat(name)?;
        let size = there.st_size.cast_unsigned();
        let same = |id: Identity| Identity { size, ..id }.is_of(&there);
        if !self.identity(number).is_some_and(same) {
            dir.set_times_at(LINK_TIMES, name, &target.meta.times())?;
        }
        Ok(())
    }

    /// False if there can be no links.
    fn make_link(&mut self, number: u64, target: &Target, entry: &Entry) -> io::Result<bool> {
        let (dir, name) = (&target.dir, target.name.as_slice());
        let mut exists = false;
        let made = self.space.for_inode(|may| {
            // Without room for one more, the existing folder may be the same.
            let made = if may {
                dir.symlinkat(&entry.target, name)
            } else {
                Err(rustix::io::Errno::EXIST)
            };
            match made {
                Err(rustix::io::Errno::EXIST) => {
                    exists = confine::stat(dir, name)?.is_some();
                    if exists {
                        Ok(false)
                    } else {
                        Err(io::ErrorKind::NotFound.into())
                    }
                }
                made => Ok(made?),
            }
        })?;
        if !exists {
            return Ok(made);
        }
        let there = confine::stat(dir, name)?;
        if let Some(why) = there.as_ref().and_then(confine::is_special) {
            return Err(io::Error::other(why));
        }
        let same = |there| there == entry.target;
        if dir.readlinkat(name).is_ok_and(same) {
            return Ok(true);
        }
        if !self.rules.reach.is_all() {
            return Err(io::Error::other(TAKEN));
        }
        let part = &target.part;
        if there.is_some_and(|there| is_dir(&there)) {
            self.wait_for_folder(number)?;
            confine::remove(dir, part)?;
            return Ok(dir.symlinkat(&entry.target, part)?);
        }
        self.note_backup(&entry.path)?;
        // Left by a run that was killed here.
        confine::remove(dir, part)?;
        if !dir.symlinkat(&entry.target, part)? {
            return Ok(false);
        }
        target.back_up()?;
        let renamed = dir.rename(part, name).map(|()| true);
        renamed.or_else(|e| {
            confine::remove(dir, part)?;
            Err(e.into())
        })
    }
}
