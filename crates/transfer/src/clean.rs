//! Finds what interrupted copies left and nobody continued: journals, and the parts of files that
//! belong to them. Names alone prove nothing: a journal is known by its beginning, a part by a
//! journal with its tag in a folder above it. Of several such journals the nearest counts.
//!
//! - No part is removed unless its journal is locked by us, as a copy that runs or starts has it.
//! - Listing locks nothing, and callbacks run without a lock. Whether a copy has a journal is read
//!   from the kernel's table of locks.
//! - A journal is removed when the disk has it that its parts are.
//! - Files in which stripes of several copies are collected have no journal. They may be needed
//!   while no copy runs: shards may wait for a node. They are known by their end, and count as in
//!   use for a week after anything was written to them.
//! - Only the file that was found is removed, and only if it belongs to the owner of its journal.
//! - Links below the folder are not followed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::Path,
    sync::Arc,
    time::Duration,
};

use farhaul_io::clock::since_1970;
use rustix::{
    fs::{FileType, OFlags, Stat, major, minor},
    io::Errno,
};

use crate::{
    confine::{self, Dir},
    names::Cursor,
    receiver::{Lock, is_journal},
    scan, state_names, stripe,
    wire::path::{self, Own, Tag},
};

/// Time for which stripes may wait for others.
const NEEDED: Duration = Duration::from_hours(7 * 24);

/// A file that a copy keeps for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// Path below the folder, as bytes.
    pub path: Vec<u8>,
    /// Bytes that it stores.
    pub bytes: u64,
    /// State of the leftover after the call.
    pub state: LeftoverState,
}

impl Leftover {
    /// A folder that could not be read.
    fn failed(path: Vec<u8>, e: &io::Error) -> Self {
        Self {
            path,
            bytes: 0,
            state: LeftoverState::Failed(e.to_string()),
        }
    }
}

/// State of a leftover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeftoverState {
    /// No copy has the file, and the file is still there.
    Abandoned,
    /// No copy had the file, and the file is removed.
    Removed,
    /// A copy runs that has it.
    InUse,
    /// The file could not be removed, or looked at, for this reason.
    Failed(String),
}

/// Files of one copy.
#[derive(Debug)]
struct Copy {
    /// The folder of the journal.
    dir: Vec<u8>,
    tag: Tag,
    found: Vec<Found>,
}

/// Journals, parts and stripes that were found in a folder.
#[derive(Debug, Default)]
struct Leftovers {
    copies: Vec<Copy>,
    stripes: Vec<Found>,
    /// Entries that could not be read.
    failed: Vec<Leftover>,
}

/// A file that a copy keeps for itself.
#[derive(Debug)]
struct Found {
    path: Vec<u8>,
    stored: u64,
    is: Which,
}

/// Identity of a file: its device, inode and owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Which {
    device: u64,
    inode: u64,
    owner: u32,
}

impl Which {
    const fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            owner: stat.st_uid,
        }
    }
}

/// Reports every leftover in `folder` and below it, after removing it if `delete`.
///
/// # Errors
/// The folder itself cannot be read.
pub fn clean(folder: &Path, delete: bool, tell: &mut dyn FnMut(Leftover)) -> io::Result<()> {
    let root = confine::open_root(folder)?;
    let all = find(&root)?;
    all.failed.into_iter().for_each(&mut *tell);
    for found in all.stripes {
        let state = found.stripes(&root, delete);
        let (path, bytes) = (found.path, found.stored);
        tell(Leftover { path, bytes, state });
    }
    for copy in all.copies {
        let states = if delete {
            copy.remove(&root)
        } else {
            copy.look(&root)
        };
        // No lock is held during callbacks: they may take any time.
        for (found, state) in copy.found.into_iter().zip(states) {
            let (path, bytes) = (found.path, found.stored);
            tell(Leftover { path, bytes, state });
        }
    }
    Ok(())
}

/// The copies whose journals are here, with their parts.
fn find(root: &Dir) -> io::Result<Leftovers> {
    let (mut all, mut parts) = (Leftovers::default(), Vec::new());
    let mut stack = vec![Vec::new()];
    while let Some(dir) = stack.pop() {
        let listed = scan::open(root, &dir)
            .and_then(|(handle, _)| Ok((Cursor::within(&handle, 0)?, handle)));
        let (mut names, handle) = match listed {
            Ok(found) => found,
            Err(e) if dir.is_empty() => return Err(e),
            Err(e) => {
                all.failed.push(Leftover::failed(dir, &e));
                continue;
            }
        };
        loop {
            let name = match names.next(&handle) {
                Ok(Some(name)) => name,
                Ok(None) => break,
                Err(e) => {
                    all.failed.push(Leftover::failed(dir.clone(), &e.into()));
                    break;
                }
            };
            let path = path::join(&dir, name);
            // An entry that is gone meanwhile is not left.
            let Ok(Some(stat)) = confine::stat(&handle, name) else {
                continue;
            };
            let stored = stat.st_blocks.cast_unsigned().saturating_mul(512);
            let is = Which::of(&stat);
            match (FileType::from_raw_mode(stat.st_mode), Own::of(name)) {
                (FileType::Directory, _) => stack.push(path),
                (FileType::RegularFile, Some(Own::Part(tag))) => {
                    parts.push((tag, Found { path, stored, is }));
                }
                (FileType::RegularFile, Some(Own::Stripes(_))) if has_stripes(root, &path) => {
                    all.stripes.push(Found { path, stored, is });
                }
                (FileType::RegularFile, Some(Own::Journal(tag))) if is_one(root, &path, &stat) => {
                    let (dir, found) = (dir.clone(), vec![Found { path, stored, is }]);
                    all.copies.push(Copy { dir, tag, found });
                }
                _ => {}
            }
        }
    }
    give_out(parts, &mut all.copies);
    Ok(all)
}

/// Gives each part to the nearest copy with its tag that is above it.
fn give_out(parts: Vec<(Tag, Found)>, copies: &mut [Copy]) {
    let place = |(i, copy): (usize, &Copy)| ((copy.tag, copy.dir.clone()), i);
    let places: BTreeMap<_, _> = copies.iter().enumerate().map(place).collect();
    let mut own: Vec<Vec<Found>> = copies.iter().map(|_| Vec::new()).collect();
    for (tag, part) in parts {
        let mut dir = path::split(&part.path).0.to_vec();
        let copy = loop {
            match places.get(&(tag, dir.clone())) {
                None if dir.is_empty() => break None,
                None => dir = path::split(&dir).0.to_vec(),
                copy => break copy,
            }
        };
        if let Some(copy) = copy {
            own[*copy].push(part);
        }
    }
    for (copy, own) in copies.iter_mut().zip(own) {
        // The journal goes last: without it nothing would say to whom the parts belong.
        copy.found.splice(..0, own);
    }
}

/// True if the file is a journal; one that was made and not written to yet has nothing in it.
fn is_one(root: &Dir, path: &[u8], stat: &Stat) -> bool {
    stat.st_size == 0 || confine::open_to_read(root, path).is_ok_and(|file| is_journal(&file))
}

/// True if stripes are collected in the file.
fn has_stripes(root: &Dir, path: &[u8]) -> bool {
    confine::open_to_read(root, path).is_ok_and(|file| stripe::is_collected(&file))
}

impl Copy {
    fn all(&self, state: &LeftoverState) -> Vec<LeftoverState> {
        vec![state.clone(); self.found.len()]
    }

    /// Looks at the files that are there, without a lock.
    fn look(&self, root: &Dir) -> Vec<LeftoverState> {
        let name = state_names::journal_name(self.tag);
        let open = confine::open_to_read(root, &path::join(&self.dir, &name));
        let held = open.and_then(|file| Ok(is_locked(&file.stat()?, &fs::read_to_string(LOCKS)?)));
        match held {
            Ok(true) => self.all(&LeftoverState::InUse),
            Ok(false) => self.all(&LeftoverState::Abandoned),
            Err(e) => self.all(&LeftoverState::Failed(e.to_string())),
        }
    }

    /// Removes it, if no copy has it.
    fn remove(&self, root: &Dir) -> Vec<LeftoverState> {
        let taken =
            open_dir(root, &self.dir).and_then(|dir| Lock::try_lock_existing(&dir, self.tag));
        let lock = match taken {
            Ok(Some(lock)) => lock,
            Ok(None) => return self.all(&LeftoverState::InUse),
            Err(e) => return self.all(&LeftoverState::Failed(e.to_string())),
        };
        let owner = lock.owner();
        let Some((journal, parts)) = self.found.split_last() else {
            return Vec::new();
        };
        let mut states: Vec<LeftoverState> = parts
            .iter()
            .map(|p| p.remove(root, owner))
            .map(state)
            .collect();
        let left = states.iter().any(|state| *state != LeftoverState::Removed);
        states.push(if left {
            LeftoverState::Abandoned
        } else {
            let synced = sync_folders(root, parts);
            state(synced.and_then(|()| journal.remove(root, owner)))
        });
        drop(lock);
        states
    }
}

fn state(removed: io::Result<()>) -> LeftoverState {
    match removed {
        Ok(()) => LeftoverState::Removed,
        Err(e) => LeftoverState::Failed(e.to_string()),
    }
}

/// Waits until the disk has what became of the folders of these.
fn sync_folders(root: &Dir, parts: &[Found]) -> io::Result<()> {
    let folders: BTreeSet<&[u8]> = parts.iter().map(|p| path::split(&p.path).0).collect();
    for folder in folders {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        match confine::open_beneath(root, folder, flags)?.sync() {
            // Where folders cannot be synced nothing is known of their order.
            Ok(()) | Err(Errno::INVAL) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

fn open_dir(root: &Dir, dir: &[u8]) -> io::Result<Dir> {
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    confine::open_beneath(root, dir, flags).map(Arc::new)
}

impl Found {
    /// State of a file in which stripes are collected, after removing it if `delete`.
    fn stripes(&self, root: &Dir, delete: bool) -> LeftoverState {
        let there = confine::open_to_read(root, &self.path).and_then(|file| Ok(file.stat()?));
        let stat = match there {
            Ok(stat) => stat,
            Err(e) => return LeftoverState::Failed(e.to_string()),
        };
        let written = u64::try_from(stat.st_mtime).unwrap_or(0);
        let user = rustix::process::geteuid();
        let since = since_1970().saturating_sub(Duration::from_secs(written));
        let locked = fs::read_to_string(LOCKS).map(|table| is_locked(&stat, &table));
        if since < NEEDED || locked.unwrap_or(true) {
            LeftoverState::InUse
        } else if !delete {
            LeftoverState::Abandoned
        } else if user.is_root() || user.as_raw() == self.is.owner {
            state(self.remove(root, Some(self.is.owner)))
        } else {
            LeftoverState::Failed("it belongs to another user".into())
        }
    }

    /// Removes the file if it still is the one that was found, and belongs to `owner` as its
    /// journal does. Others may give their files its name.
    fn remove(&self, root: &Dir, owner: Option<u32>) -> io::Result<()> {
        let (parent, name) = path::split(&self.path);
        let dir = open_dir(root, parent)?;
        let Some(there) = confine::stat(&dir, name)? else {
            return Ok(());
        };
        let regular = FileType::from_raw_mode(there.st_mode) == FileType::RegularFile;
        if !regular || Which::of(&there) != self.is {
            return Err(io::Error::other("another file has this name now"));
        }
        if owner != Some(self.is.owner) {
            let text = "it belongs to another user than its journal";
            return Err(io::Error::other(text));
        }
        confine::remove(&dir, name)
    }
}

/// The kernel's table of locks, `proc_locks(5)`.
const LOCKS: &str = "/proc/locks";

/// True if some process has a lock of this file.
fn is_locked(stat: &Stat, table: &str) -> bool {
    let (major, minor) = (major(stat.st_dev), minor(stat.st_dev));
    let device = format!("{major:02x}:{minor:02x}");
    let inode = stat.st_ino.to_string();
    // Where files have devices of their own, as in subvolumes of Btrfs, the table has another one.
    let is_it = |word: &str| {
        let (on, of) = word.rsplit_once(':').unwrap_or_default();
        of == inode && (major == 0 && on.contains(':') || on == device)
    };
    table.lines().any(|line| line.split_whitespace().any(is_it))
}

#[cfg(test)]
mod tests;
