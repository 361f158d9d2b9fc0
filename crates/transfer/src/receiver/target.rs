//! The place at which a file or folder arrives, with the permissions, time and facts that it gets.

use std::{io, sync::Arc};

use rustix::fs::{Mode, OFlags, Stat, Timespec, Timestamps};

use super::grant::Granted;
use crate::{
    confine::{self, Dir},
    disk::File,
    lacks,
    sender::Identity,
    wire::{Stripe, Suffix},
};

/// The time of the last access of what gets a time: file systems of older FUSE ignore one time without the other.
pub(super) const NOW: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: rustix::fs::UTIME_NOW,
};

/// Permissions and time of an entry, and what else is preserved.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meta {
    pub(crate) mode: u16,
    pub(crate) granted: Option<Arc<Granted>>,
    pub(crate) mtime: i64,
    pub(crate) mtime_nanos: u32,
}

impl Meta {
    /// Permission bits only: who owns the file here decides about set-uid.
    pub(super) const fn permissions(&self) -> Mode {
        Mode::from_raw_mode(self.mode as u32 & 0o777)
    }

    pub(super) const fn times(&self) -> Timestamps {
        let mtime = Timespec {
            tv_sec: self.mtime,
            tv_nsec: self.mtime_nanos as i64,
        };
        Timestamps {
            last_access: NOW,
            last_modification: mtime,
        }
    }

    /// Identity of a file of `size` bytes.
    pub(super) const fn identity(&self, size: u64) -> Identity {
        Identity {
            size,
            mtime: self.mtime,
            mtime_nanos: self.mtime_nanos,
        }
    }

    pub(super) fn apply(&self, file: &File) -> io::Result<()> {
        match &self.granted {
            None => drop(file.set_mode(self.permissions())?),
            Some(granted) => granted.apply(
                file,
                |mode| file.set_mode(mode).map(drop).map_err(Into::into),
                self.mode,
            )?,
        }
        file.set_times(&self.times())?;
        Ok(())
    }
}

/// A listed directory.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    pub(crate) path: Vec<u8>,
    pub(crate) meta: Meta,
    /// True if the folder did not exist before.
    pub(crate) made: bool,
    /// Permissions that its owner keeps, whatever the sender's permissions.
    pub(crate) owners: Mode,
}

impl Folder {
    /// True if the folder is, or is around, `other`, and its owner may not use it as it is at the
    /// source. Another copy may have closed it then.
    pub(super) fn is_closed_around(&self, other: &Self) -> bool {
        let rest = other.path.strip_prefix(&self.path[..]);
        rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
            && !self.meta.permissions().contains(Mode::RWXU)
    }

    /// Gives it its own permissions and time. One that was there is not opened to anybody: if it is
    /// narrower than the sender's it stays so. What it has is returned if it is not the sender's.
    pub(super) fn apply(&self, root: &Dir) -> io::Result<Option<Mode>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let dir = match confine::open_beneath(root, &self.path, flags) {
            // One that takes files and shows none.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied && !self.made => {
                let handle = confine::open_beneath(root, &self.path, OFlags::PATH)?;
                if !handle.is_anothers(b"") {
                    return Err(e);
                }
                root.lacks().note(lacks::ANOTHERS, e.to_string());
                return Ok(None);
            }
            opened => opened?,
        };
        let wanted = self.meta.permissions();
        let there = Mode::from_raw_mode(dir.stat()?.st_mode & 0o777);
        let owners = there & self.owners;
        let mode = owners | if self.made { wanted } else { wanted & there };
        match &self.meta.granted {
            None => confine::set_permissions(&dir, mode)?,
            Some(granted) => {
                let bits = self.meta.mode & !0o777 | u16::try_from(mode.as_raw_mode()).unwrap_or(0);
                granted.apply(&dir, |mode| confine::set_permissions(&dir, mode), bits)?;
                // An ACL has the owner's permissions too.
                let now = Mode::from_raw_mode(dir.stat()?.st_mode & 0o777);
                confine::set_permissions(&dir, now | owners)?;
            }
        }
        dir.set_times(&self.meta.times())?;
        Ok((mode != wanted).then_some(mode))
    }
}

/// Destination of a file.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent of each other")]
pub(crate) struct Target {
    pub(crate) dir: Dir,
    /// True if its owner may not write to `dir` at the source: another copy may have closed it.
    pub(crate) closed: bool,
    pub(crate) name: Vec<u8>,
    /// Name under which the content is collected, beside the file.
    pub(crate) part: Vec<u8>,
    pub(crate) meta: Meta,
    /// True if something has this name, which is to be replaced.
    pub(crate) replaces: bool,
    /// True if a folder has this name: the file stays where it is collected until the folder is
    /// deleted.
    pub(crate) waits: bool,
    /// Suffix of the backup of a replaced file.
    pub(crate) backup: Option<Suffix>,
    /// True if content that stayed wrong is kept beside it.
    pub(crate) set_aside: bool,
    /// Stripe of the file, if not all of it is meant.
    pub(crate) stripe: Option<Stripe>,
}

impl Target {
    /// Opens the file of that name, from where the part begins that is meant.
    pub(super) fn open_to_read(&self, name: &[u8]) -> io::Result<File> {
        let file = confine::open_to_read(&self.dir, name)?;
        Ok(file.at_offset(self.offset()))
    }

    /// Opens the collected file for writing, from where the part begins that is meant; `check`
    /// decides whether it is ours.
    pub(super) fn open_part(&self, check: impl Fn(&Stat) -> io::Result<()>) -> io::Result<File> {
        let file = confine::open_own_anyway(&self.dir, &self.part, &check)?;
        Ok(file.at_offset(self.offset()))
    }

    fn offset(&self) -> u64 {
        self.stripe.map_or(0, |stripe| stripe.offset)
    }

    /// Bytes of the whole file; `size` of them are meant.
    pub(super) fn file_size(&self, size: u64) -> u64 {
        self.stripe.map_or(size, |stripe| stripe.file_size)
    }

    /// Bytes of the collected file; `size` of them are meant.
    pub(super) fn collected(&self, size: u64) -> u64 {
        self.stripe.map_or(size, |stripe| stripe.collected())
    }

    /// Gives the link that was made beside it the name of what it replaces.
    pub(super) fn take_name(&self) -> io::Result<()> {
        let rename = |()| Ok(self.dir.rename(&self.part, &self.name)?);
        let named = self.back_up().and_then(rename);
        named.or_else(|e| {
            confine::remove(&self.dir, &self.part)?;
            Err(e)
        })
    }

    /// Keeps the existing file by another name, if that was requested.
    pub(super) fn back_up(&self) -> io::Result<()> {
        match &self.backup {
            Some(suffix) => confine::back_up(&self.dir, &self.name, suffix.bytes(), true),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
impl Target {
    /// The file `f` in the folder `root`.
    pub(crate) fn for_test(root: &std::path::Path) -> Self {
        Self {
            dir: confine::open_root(root).unwrap(),
            closed: false,
            name: b"f".to_vec(),
            part: b".f.part".to_vec(),
            meta: Meta {
                mode: 0o600,
                granted: None,
                mtime: 0,
                mtime_nanos: 0,
            },
            replaces: false,
            waits: false,
            backup: None,
            set_aside: true,
            stripe: None,
        }
    }
}
