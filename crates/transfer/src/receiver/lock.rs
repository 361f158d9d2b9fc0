//! Locks a destination for the one process that may write to it: the holder of the lock on the
//! journal there. The journal is a regular file owned by us, with one name, the journal's.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use rustix::fs::Stat;

use super::{disks::Disks, journal};
use crate::{
    confine::{self, Dir},
    disk::File,
    error::{Advice, TransferError},
    lacks::LOCKS,
    state_names,
    wire::{
        Exit,
        path::{self, Tag},
    },
};

/// The file of a journal, locked for as long as the value lives. A worker of its run keeps the
/// value alive, so that no other run touches the same parts meanwhile.
#[derive(Debug)]
pub(crate) struct Lock {
    dir: Dir,
    name: Vec<u8>,
    file: File,
    /// True if the journal has no content.
    idle: AtomicBool,
}

impl Lock {
    /// Opens or makes the journal of transfer `tag` in `dir`, and locks it. The loser of a race for
    /// a file that was removed meanwhile tries again.
    pub(crate) fn take(dir: &Dir, tag: Tag) -> Result<Self, TransferError> {
        let name = state_names::journal_name(tag);
        loop {
            let opened = confine::open_own(dir, &name, |stat| is_ours(stat, dir, tag));
            let file = match opened {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    match confine::create(dir, &name) {
                        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
                        made => made.map_err(|e| cannot("write the journal", &e))?,
                    }
                }
                Err(e) => return Err(not_ours(&name, &e)),
                Ok(file) => file,
            };
            match file.try_lock() {
                Ok(false) => return Err(locked(&file)),
                locked => {
                    let tried = file.lacks().tried(LOCKS, || false, locked.map(drop));
                    tried.map_err(|e| cannot("lock the journal", &e.into()))?;
                }
            }
            let there = confine::is_called(&file, dir, &name);
            if there.map_err(|e| cannot("read the journal", &e))? {
                return Ok(Self {
                    dir: Arc::clone(dir),
                    name,
                    file,
                    idle: AtomicBool::new(false),
                });
            }
        }
    }

    /// Locks the journal of transfer `tag` that is in `dir`, unless a run has it, or is about to.
    pub(crate) fn try_lock_existing(dir: &Dir, tag: Tag) -> io::Result<Option<Self>> {
        let name = state_names::journal_name(tag);
        let user = rustix::process::geteuid();
        let ours = |stat: &Stat| {
            if user.is_root() || stat.st_uid == user.as_raw() {
                Ok(())
            } else {
                Err(io::Error::other("it belongs to another user"))
            }
        };
        let file = confine::open_own(dir, &name, ours)?;
        let taken = file.try_lock()? && confine::is_called(&file, dir, &name)?;
        Ok(taken.then(|| Self {
            dir: Arc::clone(dir),
            name,
            file,
            idle: AtomicBool::new(false),
        }))
    }

    /// The file systems to sync; the journal is in one of them.
    pub(super) fn disks(&self) -> Result<Disks, TransferError> {
        Disks::new(&self.file, &self.dir).map_err(|e| cannot("hold the file system", &e))
    }

    pub(super) const fn file(&self) -> &File {
        &self.file
    }

    /// Owner of the file; files made beside it have the same.
    pub(crate) fn owner(&self) -> Option<u32> {
        self.file.stat().ok().map(|stat| stat.st_uid)
    }

    /// True if its directory ignores case: its own name then has another spelling.
    pub(super) fn folds_case(&self) -> bool {
        let upper = self.name.to_ascii_uppercase();
        confine::is_called(&self.file, &self.dir, &upper).unwrap_or(false)
    }

    /// Sets whether the file may be removed with this value.
    pub(crate) fn set_idle(&self, idle: bool) {
        self.idle.store(idle, Relaxed);
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if self.idle.load(Relaxed) {
            // It is not needed; if it cannot be removed, the next run reads that it is empty.
            let _cluttered = confine::remove(&self.dir, &self.name);
        }
    }
}

/// Fails for a file whose owner is neither this user nor the owner of files created there.
fn is_ours(stat: &Stat, dir: &Dir, tag: Tag) -> io::Result<()> {
    if stat.st_uid == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    // Nothing is collected under this name: no file is received by that of the journal.
    let probe = state_names::part_name(&state_names::journal_name(tag), tag);
    if stat.st_uid == confine::owner_of_new(dir, &probe)? {
        return Ok(());
    }
    Err(io::Error::other("it belongs to another user"))
}

pub(super) fn cannot(what: &str, e: &io::Error) -> TransferError {
    let text = format!("cannot {what} at the destination: {e}");
    match Exit::of_write(e) {
        Exit::NoSpace => TransferError::new(Exit::NoSpace, format!("the disk is full: {text}"))
            .fix(Advice::again(
                "free some space there, then run the same command again",
            )),
        code => TransferError::new(code, text).fix("choose a writable destination"),
    }
}

fn not_ours(name: &[u8], e: &io::Error) -> TransferError {
    let name = path::show(name);
    let text = format!("cannot use the journal '{name}' at the destination: {e}");
    TransferError::new(Exit::of_write(e), text)
        .fix("check what it is and remove it there, or choose a writable destination")
}

fn locked(file: &File) -> TransferError {
    let mut holder = String::from("another run");
    // Without a name it is as true.
    let _unnamed = journal::records(file.reader(), |body| {
        if let Some(name) = journal::holder(body) {
            holder = path::show(name);
        }
        true
    });
    TransferError::new(
        Exit::Locked,
        format!("the destination is being written by {holder}"),
    )
    .fix("wait for it to end, or stop it; the files it completed will not be sent again")
}
