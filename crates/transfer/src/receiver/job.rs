//! Jobs of the receiver's workers. They write small files whole, hash blocks that are complete,
//! check what an earlier run left, and put finished files in their place.

use std::{collections::BTreeSet, io, sync::Arc};

use rustix::fs::{Mode, OFlags, Stat, Timespec, Timestamps};

use super::{
    commit::{give_name, lost_blocks, put_together, ready, rename, without_part},
    compare::{Checked, check_there},
    delete::{self, Deleted, Waiting, Walk},
    disks::Disks,
    grant::Granted,
    reread::{self, Reread},
    reuse,
    staging::{Load, Written},
    twin,
};
use crate::{
    confine::{self, Dir},
    digest::{BlockTree, LEAF, Leaves, block_range, leaf_hash},
    disk::File,
    lacks,
    pages::Pages,
    pool::{Job, Stop, Task},
    sender::hash_block,
    wire::{BLOCK, Exit, Generation, Hash, Stripe, Suffix, path},
};

/// The time of the last access of what gets a time: file systems of older FUSE ignore one time without the other.
pub(super) const NOW: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: rustix::fs::UTIME_NOW,
};

/// Permissions and time of an entry, and what else is preserved.
#[derive(Clone, Debug)]
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
    fn is_closed_around(&self, other: &Self) -> bool {
        let rest = other.path.strip_prefix(&self.path[..]);
        rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
            && !self.meta.permissions().contains(Mode::RWXU)
    }

    /// Gives it its own permissions and time. One that was there is not opened to anybody: if it is
    /// narrower than the sender's it stays so. What it has is returned if it is not the sender's.
    fn apply(&self, root: &Dir) -> io::Result<Option<Mode>> {
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

/// A small file in memory.
#[derive(Debug)]
pub(crate) struct Small {
    pub(crate) number: u64,
    pub(crate) target: Target,
    pub(crate) bytes: Vec<u8>,
    pub(crate) root: Hash,
    /// True if the file was sent twice: it is kept as it is if it is wrong again.
    pub(crate) last: bool,
}

/// Jobs of the receiver's workers.
#[derive(Debug)]
pub(crate) enum WriteJob {
    Small {
        files: Vec<Small>,
        /// File systems to sync, if any.
        disks: Option<Arc<Disks>>,
        reread: Option<Reread>,
    },
    /// Writes what arrived.
    Load(Load),
    /// Hashes the leaves of a block that are not known.
    Block {
        number: u64,
        index: u64,
        size: u64,
        file: Arc<File>,
        leaves: Box<Leaves>,
    },
    /// Checks whether these blocks of an earlier run hold what it claimed.
    Verify {
        number: u64,
        size: u64,
        file: Arc<File>,
        blocks: Vec<(u64, Hash)>,
    },
    /// Copies those of these blocks that the old file has.
    Reuse {
        number: u64,
        size: u64,
        old: Arc<File>,
        file: Arc<File>,
        blocks: Vec<(u64, Hash)>,
    },
    /// Hashes the existing file to its root. Blocks of zeros count as holes if `zeros`.
    Check {
        number: u64,
        target: Target,
        size: u64,
        zeros: bool,
        reread: Option<Reread>,
    },
    /// Puts a complete part in place, or aside if it is `bad`.
    Commit {
        number: u64,
        file: Arc<File>,
        target: Target,
        disks: Option<Arc<Disks>>,
        /// True if the file is synced with all others, and not by itself.
        small: bool,
        /// Content that its disk must return, if that is verified.
        reread: Option<(Reread, Box<BlockTree>)>,
        bad: bool,
    },
    /// Copies the file that this is a hard link to at the source, where there can be none.
    Twin {
        number: u64,
        from: File,
        target: Target,
        disks: Option<Arc<Disks>>,
    },
    /// Deletes what the source lacks, unless that is more than `most`.
    Delete {
        walk: io::Result<Box<Walk>>,
        /// Entries that get their names then.
        waiting: Vec<Waiting>,
        most: Option<u64>,
        disks: Option<Arc<Disks>>,
    },
    /// Directories get their own permissions and times; everything reaches the disk.
    Finish {
        root: Dir,
        dirs: Vec<Folder>,
        disks: Option<Arc<Disks>>,
    },
}

/// Blocks that an earlier run left and their values, and those that do not hold what it claimed.
pub(crate) type Claims = (Vec<(u64, Hash)>, Vec<u64>);

/// Blocks that a large file should hold, and those that the disk does not give back.
pub(crate) type Lost = (Box<BlockTree>, Vec<u64>);

/// Ending of a file.
#[derive(Debug)]
pub(crate) enum Ending {
    InPlace,
    /// A stripe is complete; if all are, the file is in place.
    Collected {
        generation: Generation,
        whole: bool,
    },
    /// Content is not what the sender has.
    Mismatch,
    Failed(io::Error),
    /// The disk gives back something else than was written.
    Lost(Option<Lost>),
    /// The file was written, but did not reach the disk.
    NotOnDisk(io::Error),
}

/// Results of the jobs.
#[derive(Debug)]
pub(crate) enum WriteDone {
    Small(Vec<(u64, Ending)>),
    Load {
        load: Load,
        written: Vec<Written>,
    },
    Block {
        number: u64,
        index: u64,
        value: io::Result<Hash>,
    },
    Verified {
        number: u64,
        /// Blocks that hold; the others read as zeros now.
        checked: io::Result<Claims>,
    },
    /// Blocks of the old file, `count` in all: those that were copied, and those that differ.
    Reused {
        number: u64,
        count: usize,
        done: io::Result<Claims>,
    },
    Checked {
        number: u64,
        root: io::Result<Checked>,
    },
    Committed {
        number: u64,
        striped: bool,
        ending: Ending,
    },
    Twin {
        number: u64,
        /// False if it was there.
        done: io::Result<bool>,
    },
    Deleted(Deleted),
    Finished {
        problems: Vec<(Exit, String)>,
        synced: io::Result<()>,
    },
}

impl Job for WriteJob {
    type Done = WriteDone;

    fn task(&self) -> Task {
        match self {
            Self::Small { files, .. } => {
                Task::new("writing small files from", files.first().map(|f| f.number))
            }
            Self::Load(load) => Task::new("writing", load.first()),
            Self::Block { number, .. } => Task::new("hashing a block of", Some(*number)),
            Self::Verify { number, .. } => Task::new("checking what is left of", Some(*number)),
            Self::Reuse { number, .. } => Task::new("comparing blocks of", Some(*number)),
            Self::Check { number, .. } => Task::new("checking", Some(*number)),
            Self::Commit { number, .. } => Task::new("naming", Some(*number)),
            Self::Twin { number, .. } => Task::new("copying", Some(*number)),
            Self::Delete { .. } => Task::new("deleting", None),
            Self::Finish { .. } => Task::new("finishing", None),
        }
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each kind of job")]
    fn run(self, scratch: &mut Pages, stop: &Stop) -> WriteDone {
        match self {
            Self::Small {
                files,
                disks,
                reread,
            } => {
                let disks = disks.as_deref();
                let reread = reread.as_ref().map(|options| (options, scratch));
                WriteDone::Small(write_small(&files, disks, reread, stop))
            }
            Self::Load(load) => {
                let written = load.write();
                WriteDone::Load { load, written }
            }
            Self::Block {
                number,
                index,
                size,
                file,
                leaves,
            } => WriteDone::Block {
                number,
                index,
                value: hash_rest(&file, index, size, *leaves, scratch),
            },
            Self::Verify {
                number,
                size,
                file,
                blocks,
            } => {
                let checked = check_claims(&file, size, blocks, (scratch, stop));
                WriteDone::Verified { number, checked }
            }
            Self::Reuse {
                number,
                size,
                old,
                file,
                blocks,
            } => {
                let files = (&*old, &*file);
                let done = reuse::copy_same(files, size, &blocks, (scratch, stop));
                let count = blocks.len();
                WriteDone::Reused {
                    number,
                    count,
                    done,
                }
            }
            Self::Check {
                number,
                target,
                size,
                zeros,
                reread,
            } => {
                let with = (scratch, stop);
                let root = check_there(&target, size, zeros, reread.as_ref(), with);
                WriteDone::Checked { number, root }
            }
            Self::Commit {
                number,
                file,
                target,
                disks,
                small,
                reread,
                bad,
            } => {
                let disks = disks.as_deref();
                let ready = ready(&file, &target, disks, small, stop);
                let check = || lost_blocks(&target, reread, (scratch, stop));
                let ending = match (ready.and_then(|()| check()), target.stripe) {
                    (Err(ending), _) => ending,
                    (Ok(()), None) => give_name(&file, &target, bad),
                    (Ok(()), Some(stripe)) => put_together(&file, &target, stripe, (disks, stop)),
                };
                WriteDone::Committed {
                    number,
                    striped: target.stripe.is_some(),
                    ending,
                }
            }
            Self::Twin {
                number,
                from,
                target,
                disks,
            } => {
                let done = twin::make(&from, &target, disks.as_deref(), (scratch, stop));
                WriteDone::Twin { number, done }
            }
            Self::Delete {
                walk,
                waiting,
                most,
                disks,
            } => {
                let walk = walk.map(|walk| *walk);
                WriteDone::Deleted(delete::delete(walk, &waiting, most, disks.as_deref(), stop))
            }
            Self::Finish { root, dirs, disks } => WriteDone::Finished {
                problems: finish_dirs(&root, &dirs, stop),
                synced: disks.map_or(Ok(()), |disks| stop.sync(|| disks.sync_all())),
            },
        }
    }
}

/// Writes beside the targets, makes what replaces something reach the disk, renames.
fn write_small(
    files: &[Small],
    disks: Option<&Disks>,
    mut reread: Option<(&Reread, &mut Pages)>,
    stop: &Stop,
) -> Vec<(u64, Ending)> {
    let mut endings = Vec::with_capacity(files.len());
    let mut written = Vec::with_capacity(files.len());
    for file in files {
        stop.step();
        let good = blake3::hash(&file.bytes) == file.root;
        if !good && !file.last {
            endings.push((file.number, Ending::Mismatch));
            continue;
        }
        match write_part(file) {
            Ok(out) => written.push((file, out, good)),
            Err(e) => endings.push((file.number, Ending::Failed(e))),
        }
    }
    let synced = sync_before_names(written.iter().map(|w| &w.0.target), disks, stop);
    for (file, out, good) in written {
        let ending = match &synced {
            Err(e) => {
                let e = io::Error::new(e.kind(), e.to_string());
                Ending::NotOnDisk(without_part(&out, &file.target, e))
            }
            Ok(()) => match lost(file, &mut reread, stop) {
                Ok(true) => try_again(file, &out),
                Err(e) => Ending::NotOnDisk(without_part(&out, &file.target, e)),
                Ok(false) => give_name(&out, &file.target, !good),
            },
        };
        endings.push((file.number, ending));
    }
    endings
}

/// True if the disk returns something else than the file, if that is verified.
fn lost(file: &Small, reread: &mut Option<(&Reread, &mut Pages)>, stop: &Stop) -> io::Result<bool> {
    let Some((options, scratch)) = reread else {
        return Ok(false);
    };
    Ok(!reread::holds(
        &file.target,
        &file.bytes,
        options,
        (scratch, stop),
    )?)
}

/// Makes way for another attempt, or keeps what stayed wrong.
fn try_again(file: &Small, out: &File) -> Ending {
    let done = if file.last {
        rename(out, &file.target, true)
    } else {
        confine::remove_part(out, &file.target.dir, &file.target.part)
    };
    done.map_or_else(Ending::Failed, |()| Ending::Lost(None))
}

fn write_part(file: &Small) -> io::Result<File> {
    let Target {
        dir, closed, part, ..
    } = &file.target;
    let out = confine::inside(dir, *closed, || confine::create_anew(dir, part))?;
    let written = out.write_all_at(&file.bytes, 0);
    match written.and_then(|()| file.target.meta.apply(&out)) {
        Ok(()) => Ok(out),
        Err(e) => Err(without_part(&out, &file.target, e)),
    }
}

/// Waits until the names that are to be given are noted on the disk, and the content of those that replace something.
pub(super) fn sync_before_names<'a>(
    targets: impl Iterator<Item = &'a Target>,
    disks: Option<&Disks>,
    stop: &Stop,
) -> io::Result<()> {
    let Some(disks) = disks else { return Ok(()) };
    stop.sync(|| disks.await_names())?;
    let mut synced = BTreeSet::new();
    for Target { dir, .. } in targets.filter(|target| target.replaces) {
        if synced.insert(dir.stat()?.st_dev) {
            stop.sync(|| disks.sync_of(dir))?;
        }
    }
    Ok(())
}

/// The claims that hold, and the blocks of those that do not, which may become holes.
fn check_claims(
    file: &File,
    size: u64,
    claims: Vec<(u64, Hash)>,
    (scratch, stop): (&mut Pages, &Stop),
) -> io::Result<Claims> {
    let holds = |(index, value): &(u64, Hash)| {
        stop.step();
        hash_block(file, *index, size, scratch).is_ok_and(|v| v == *value)
    };
    let (good, bad): (Vec<_>, Vec<_>) = claims.into_iter().partition(holds);
    let bad: Vec<u64> = bad.into_iter().map(|(index, _)| index).collect();
    for index in &bad {
        confine::make_hole(file, &block_range(*index, size))?;
    }
    Ok((good, bad))
}

/// The value of a block with some known leaves.
fn hash_rest(
    file: &File,
    index: u64,
    size: u64,
    mut leaves: Leaves,
    scratch: &mut Pages,
) -> io::Result<Hash> {
    if size <= BLOCK {
        return hash_block(file, index, size, scratch);
    }
    let block = block_range(index, size);
    let unknown: Vec<usize> = leaves.unknown().collect();
    for leaf in unknown {
        let at = block.start + leaf as u64 * LEAF;
        let len = LEAF.min(block.end - at);
        scratch.fit(usize::try_from(len).unwrap_or_default());
        file.read_exact_at(scratch, at)?;
        leaves.set(leaf, leaf_hash(at, scratch));
    }
    leaves
        .value()
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Directories get their own permissions and times; returns where that failed.
fn finish_dirs(root: &Dir, dirs: &[Folder], stop: &Stop) -> Vec<(Exit, String)> {
    let mut problems = Vec::new();
    let mut others = 0u64;
    // Children first: a parent may become read-only.
    for dir in dirs.iter().rev() {
        if stop.check().is_err() {
            break;
        }
        let name = path::show(&dir.path);
        let closed = dirs.iter().filter(|around| around.is_closed_around(dir));
        let closed = closed.map(|around| &around.path[..]);
        match confine::through(root, &closed, || dir.apply(root)) {
            Ok(None) => {}
            Ok(Some(mode)) => {
                others += 1;
                if others == 1 {
                    let wanted = dir.meta.permissions();
                    let why = if mode.contains(wanted) {
                        "the owner of a share can read what is delivered to it, and later copies can add to it"
                    } else {
                        "a copy does not widen those of an existing folder"
                    };
                    let (theirs, ours) = (wanted.bits(), mode.bits());
                    let why = format!(
                        "{name}: has the permissions {ours:04o}, the source's are {theirs:04o}: {why}"
                    );
                    problems.push((Exit::Ok, why));
                }
            }
            Err(e) => {
                let why = format!("{name}: its permissions or time cannot be set: {e}");
                problems.push((Exit::of_write(&e), why));
            }
        }
    }
    if others > 1 {
        let why = format!("so do {} more folders", others - 1);
        problems.push((Exit::Ok, why));
    }
    problems
}
