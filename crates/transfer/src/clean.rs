//! What have copies left that were interrupted and never continued? Journals, and the parts of files that belong to them.
//! Names alone prove nothing: a journal is known by its beginning, a part by a journal with its tag in a folder above it.
//!
//! - Nothing is removed unless the journal is locked by us, as a copy that runs or starts has it.
//! - Nothing is locked to be listed, and no lock is held during callbacks: whether a copy has a journal is read from the kernel's
//!   table of locks.
//! - Links below the folder are not followed.

use std::{collections::BTreeMap, fs, io, path::Path, sync::Arc};

use rustix::fs::{FileType, Stat, major, minor};

use crate::{
    confine::{self, Dir},
    path::{self, Own, Tag},
    receiver::{Lock, is_journal},
    scan,
};

/// Something that a copy keeps for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// Below the folder, as bytes.
    pub path: Vec<u8>,
    /// What it stores.
    pub bytes: u64,
    /// What became of it.
    pub state: LeftoverState,
}

/// What became of a leftover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeftoverState {
    /// No copy has it, and it is still there.
    Abandoned,
    /// No copy had it; it is removed.
    Removed,
    /// A copy runs that has it.
    InUse,
    /// It could not be removed, or looked at, for this reason.
    Failed(String),
}

/// One copy's.
#[derive(Debug)]
struct Copy {
    /// The folder of the journal.
    dir: Vec<u8>,
    tag: Tag,
    found: Vec<(Vec<u8>, u64)>,
}

/// Tells of all that is left in `folder` and below it, after removing it if `delete`.
///
/// # Errors
/// The folder itself cannot be read.
pub fn clean(folder: &Path, delete: bool, tell: &mut dyn FnMut(Leftover)) -> io::Result<()> {
    let root = confine::open_root(folder)?;
    let (copies, failed) = find(&root)?;
    failed.into_iter().for_each(&mut *tell);
    for copy in copies {
        let states = if delete {
            copy.remove(&root)
        } else {
            copy.look(&root)
        };
        // No lock is held during callbacks: they may take any time.
        for ((path, bytes), state) in copy.found.into_iter().zip(states) {
            tell(Leftover { path, bytes, state });
        }
    }
    Ok(())
}

/// The copies whose journals are here, with their parts; and what could not be read.
fn find(root: &Dir) -> io::Result<(Vec<Copy>, Vec<Leftover>)> {
    let (mut copies, mut failed) = (Vec::new(), Vec::new());
    let mut parts: BTreeMap<Tag, Vec<(Vec<u8>, u64)>> = BTreeMap::new();
    let mut stack = vec![Vec::new()];
    while let Some(dir) = stack.pop() {
        let (handle, _, names) = match scan::list(root, &dir) {
            Ok(found) => found,
            Err(e) if dir.is_empty() => return Err(e),
            Err(e) => {
                let state = LeftoverState::Failed(e.to_string());
                failed.push(Leftover {
                    path: dir,
                    bytes: 0,
                    state,
                });
                continue;
            }
        };
        for name in names.iter() {
            let path = path::join(&dir, name);
            // What is gone meanwhile is not left.
            let Ok(Some(stat)) = confine::stat(&handle, name) else {
                continue;
            };
            let stored = stat.st_blocks.cast_unsigned().saturating_mul(512);
            match (FileType::from_raw_mode(stat.st_mode), Own::of(name)) {
                (FileType::Directory, _) => stack.push(path),
                (FileType::RegularFile, Some(Own::Part(tag))) => {
                    parts.entry(tag).or_default().push((path, stored));
                }
                (FileType::RegularFile, Some(Own::Journal(tag))) if is_one(root, &path, &stat) => {
                    let (dir, found) = (dir.clone(), vec![(path, stored)]);
                    copies.push(Copy { dir, tag, found });
                }
                _ => {}
            }
        }
    }
    for copy in &mut copies {
        let below = |path: &[u8]| {
            copy.dir.is_empty()
                || path
                    .strip_prefix(&copy.dir[..])
                    .is_some_and(|rest| rest.starts_with(b"/"))
        };
        let of_tag = parts.get(&copy.tag).into_iter().flatten();
        let own: Vec<_> = of_tag.filter(|(path, _)| below(path)).cloned().collect();
        // The journal goes last: without it nothing would tell what the parts are.
        copy.found.splice(..0, own);
    }
    Ok((copies, failed))
}

/// Whether it is a journal; one that was made and not written to yet has nothing in it.
fn is_one(root: &Dir, path: &[u8], stat: &Stat) -> bool {
    stat.st_size == 0 || confine::open_to_read(root, path).is_ok_and(|file| is_journal(&file))
}

impl Copy {
    fn all(&self, state: &LeftoverState) -> Vec<LeftoverState> {
        vec![state.clone(); self.found.len()]
    }

    /// What is there, without a lock.
    fn look(&self, root: &Dir) -> Vec<LeftoverState> {
        let name = path::journal_name(self.tag);
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
        let mut states = Vec::new();
        let mut whole = true;
        for (i, (path, _)) in self.found.iter().enumerate() {
            let last = i + 1 == self.found.len();
            states.push(if last && !whole {
                LeftoverState::Abandoned
            } else {
                match remove(root, path) {
                    Ok(()) => LeftoverState::Removed,
                    Err(e) => {
                        whole = false;
                        LeftoverState::Failed(e.to_string())
                    }
                }
            });
        }
        drop(lock);
        states
    }
}

fn open_dir(root: &Dir, dir: &[u8]) -> io::Result<Dir> {
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY;
    confine::open_beneath(root, dir, flags).map(Arc::new)
}

fn remove(root: &Dir, path: &[u8]) -> io::Result<()> {
    let (parent, name) = path::split(path);
    confine::remove(&*open_dir(root, parent)?, name)
}

/// The kernel's table of locks, `proc_locks(5)`.
const LOCKS: &str = "/proc/locks";

/// Whether some process has a lock of this file.
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
mod tests {
    use std::{os::unix::ffi::OsStrExt as _, path::PathBuf};

    use super::*;
    use crate::receiver::open_journal;

    const TAG: Tag = [7; 8];

    fn name(bytes: &[u8]) -> PathBuf {
        PathBuf::from(std::ffi::OsStr::from_bytes(bytes))
    }

    fn said(dir: &Path, delete: bool) -> Vec<(String, LeftoverState)> {
        let mut all = Vec::new();
        clean(dir, delete, &mut |left| {
            all.push((String::from_utf8(left.path).unwrap(), left.state));
        })
        .unwrap();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    /// A journal, two parts of its copy, and files that only look so.
    fn left() -> tempfile::TempDir {
        let tmp = tempfile::tempdir().unwrap();
        let at = |dir: &str, bytes: Vec<u8>| tmp.path().join(dir).join(name(&bytes));
        fs::create_dir_all(tmp.path().join("to/sub")).unwrap();
        let dir = confine::open_root(&tmp.path().join("to")).unwrap();
        // As that of a copy that was killed: one that ends removes a journal without claims.
        let running = open_journal(&dir, TAG);
        let journal = fs::read(at("to", path::journal_name(TAG))).unwrap();
        drop(running);
        fs::write(at("to", path::journal_name(TAG)), journal).unwrap();
        fs::write(at("to", path::part_name(b"a", TAG)), [1; 5000]).unwrap();
        fs::write(at("to/sub", path::part_name(b"b", TAG)), "b").unwrap();
        fs::write(at("", path::part_name(b"above", TAG)), "no journal").unwrap();
        fs::write(at("to", path::part_name(b"other", [8; 8])), "no journal").unwrap();
        fs::write(at("to", path::journal_name([9; 8])), "a user's").unwrap();
        fs::write(tmp.path().join("to/kept"), "kept").unwrap();
        tmp
    }

    #[test]
    fn what_was_abandoned_is_listed_and_removed_and_nothing_else() {
        let tmp = left();
        let listed = said(tmp.path(), false);
        assert_eq!(listed.len(), 3, "{listed:?}");
        assert!(
            listed
                .iter()
                .all(|(_, state)| *state == LeftoverState::Abandoned)
        );
        // Listing locks nothing and changes nothing.
        assert_eq!(said(tmp.path(), false), listed);
        let link = tmp.path().join("link");
        std::os::unix::fs::symlink("to", &link).unwrap();
        let removed = said(&link, true);
        assert!(
            removed
                .iter()
                .all(|(_, state)| *state == LeftoverState::Removed)
        );
        assert_eq!(removed.len(), 3, "{removed:?}");
        assert_eq!(said(tmp.path(), true), []);
        assert_eq!(fs::read_dir(tmp.path().join("to")).unwrap().count(), 4);
        assert_eq!(fs::read_dir(tmp.path()).unwrap().count(), 3);
    }

    #[test]
    fn what_a_copy_has_stays() {
        let tmp = left();
        let dir = confine::open_root(&tmp.path().join("to")).unwrap();
        let running = open_journal(&dir, TAG);
        for delete in [false, true] {
            let all = said(tmp.path(), delete);
            assert_eq!(all.len(), 3);
            assert!(
                all.iter().all(|(_, state)| *state == LeftoverState::InUse),
                "{all:?}"
            );
        }
        drop(running);
        // A copy that begins while somebody is told finds its journal free.
        clean(tmp.path(), true, &mut |_| {
            drop(open_journal(&dir, TAG));
        })
        .unwrap();
        assert!(clean(&tmp.path().join("to/kept"), false, &mut |_| {}).is_err());
    }

    #[test]
    fn a_lock_is_found_in_the_kernels_table() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = confine::open_root(file.path().parent().unwrap()).unwrap();
        let stat = confine::stat(&open, file.path().file_name().unwrap().as_bytes());
        let stat = stat.unwrap().unwrap();
        let line = |inode| {
            let (major, minor) = (major(stat.st_dev), minor(stat.st_dev));
            format!("1: FLOCK  ADVISORY  WRITE 7 {major:02x}:{minor:02x}:{inode} 0 EOF\n")
        };
        assert!(is_locked(&stat, &line(stat.st_ino)));
        assert!(!is_locked(&stat, &line(stat.st_ino + 1)));
        assert!(!is_locked(&stat, ""));
    }
}
