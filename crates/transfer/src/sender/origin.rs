//! The origin of an entry's content: where it lies in the object, and how it is opened, by any
//! thread and as often as needed.

use std::{
    io,
    ops::Range,
    sync::{Arc, OnceLock},
};

use rustix::fs::{FileType, OFlags, Stat};

use super::job::changed;
use crate::{
    confine::{self, Dir},
    disk::File,
    wire::{Entry, path},
};

/// Source of the bytes of a listed entry.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(super) number: u64,
    /// Range within the object.
    pub(super) range: Range<u64>,
    pub(super) root: Dir,
    pub(super) rel: Vec<u8>,
    /// Offset in the file at which the entry begins.
    offset: u64,
    /// Device and inode of the file as it was opened first.
    inode: OnceLock<(u64, u64)>,
}

impl Origin {
    /// Origin of the entry `number` at `rel` in `root`, whose content begins at `start` of the
    /// object.
    pub(super) fn of(
        entry: &Entry,
        (root, rel): (Dir, Vec<u8>),
        number: u64,
        start: u64,
    ) -> Arc<Self> {
        Arc::new(Self {
            number,
            range: start..start + entry.size,
            root,
            rel,
            offset: entry.offset(),
            inode: OnceLock::new(),
        })
    }

    /// Bytes of the entry.
    pub(super) const fn size(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Opens what has the name now.
    pub(super) fn open(&self) -> io::Result<File> {
        let file = confine::open_to_read(&self.root, &self.rel)?;
        Ok(file.at_offset(self.offset))
    }

    /// Opens the file that was opened first: another may have been put in its place.
    pub(super) fn open_again(&self) -> io::Result<Arc<File>> {
        let file = self.open()?;
        let about = file.stat()?;
        let inode = (about.st_dev, about.st_ino);
        if *self.inode.get_or_init(|| inode) != inode {
            return Err(changed());
        }
        Ok(Arc::new(file))
    }

    /// Facts about the regular file that has the name now, if one has.
    pub(super) fn look(&self) -> io::Result<Option<Stat>> {
        let (parent, name) = path::split(&self.rel);
        let dir = confine::open_beneath(&self.root, parent, OFlags::PATH | OFlags::DIRECTORY)?;
        let stat = confine::stat(&dir, name)?;
        Ok(stat.filter(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile))
    }
}
