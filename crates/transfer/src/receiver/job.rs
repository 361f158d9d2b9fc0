//! What do the receiver's workers do? Write small files whole, hash blocks that are complete, check
//! what an earlier run left, put finished files in their place.

use std::{
    fs::File,
    io::{self, Write},
    os::{fd::AsFd, unix::fs::FileExt},
    sync::Arc,
};

use rustix::fs::{AtFlags, Mode, OFlags, Timespec, Timestamps};

use super::staging::{Load, Written};
use crate::{
    confine::{self, Dir},
    digest::{BLOCK, BlockTree, Hash, LEAF, Leaves, block_count, block_range, leaf_hash},
    pages::Pages,
    path::{self, Tag},
    pool::Job,
    ranges::RangeSet,
    sender::{extents, hash_block, hash_content},
};

/// Permissions and time of an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meta {
    pub(crate) mode: u16,
    pub(crate) mtime: i64,
    pub(crate) mtime_nanos: u32,
}

impl Meta {
    /// Permission bits only: who owns the file here decides about set-uid.
    const fn permissions(&self) -> Mode {
        Mode::from_raw_mode(self.mode as u32 & 0o777)
    }

    const fn times(&self) -> Timestamps {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: rustix::fs::UTIME_OMIT,
        };
        let mtime = Timespec {
            tv_sec: self.mtime,
            tv_nsec: self.mtime_nanos as i64,
        };
        Timestamps {
            last_access: now,
            last_modification: mtime,
        }
    }

    fn apply(&self, file: impl AsFd) -> io::Result<()> {
        let file = file.as_fd();
        rustix::fs::fchmod(file, self.permissions())?;
        Ok(rustix::fs::futimens(file, &self.times())?)
    }
}

/// Where a file goes.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) dir: Dir,
    pub(crate) name: Vec<u8>,
    pub(crate) meta: Meta,
}

/// A small file in memory.
#[derive(Debug)]
pub(crate) struct Small {
    pub(crate) number: u64,
    pub(crate) target: Target,
    pub(crate) bytes: Vec<u8>,
    pub(crate) root: Hash,
    /// Something has this name.
    pub(crate) replaces: bool,
    /// Was sent twice: keep it as it is if it is wrong again.
    pub(crate) last: bool,
}

/// Work.
#[derive(Debug)]
pub(crate) enum WriteJob {
    Small {
        files: Vec<Small>,
        tag: Tag,
        sync: bool,
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
    /// Do these blocks of an earlier run hold what it claimed?
    Verify {
        number: u64,
        size: u64,
        file: Arc<File>,
        blocks: Vec<(u64, Hash)>,
    },
    /// What is the root of the file that is there already? Blocks of zeros count as holes if `zeros`.
    Check {
        number: u64,
        target: Target,
        size: u64,
        zeros: bool,
    },
    /// Puts a complete part in place, or aside if it is `bad`.
    Commit {
        number: u64,
        file: Arc<File>,
        target: Target,
        part: Vec<u8>,
        sync: bool,
        bad: bool,
    },
    /// Directories get their own permissions and times; everything reaches the disk.
    Finish {
        root: Dir,
        dirs: Vec<(Vec<u8>, Meta)>,
        sync: bool,
    },
}

/// How a file ended.
#[derive(Debug)]
pub(crate) enum Ending {
    InPlace,
    /// Content is not what the sender has.
    Mismatch,
    Failed(io::Error),
}

/// Results.
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
        good: Vec<(u64, Hash)>,
        bad: Vec<u64>,
    },
    Checked {
        number: u64,
        root: io::Result<Checked>,
    },
    Committed {
        number: u64,
        ending: Ending,
    },
    Finished {
        problems: Vec<String>,
    },
}

impl Job for WriteJob {
    type Done = WriteDone;

    fn run(self, scratch: &mut Pages) -> WriteDone {
        match self {
            Self::Small { files, tag, sync } => WriteDone::Small(write_small(&files, tag, sync)),
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
                let holds = |(index, value): &(u64, Hash)| {
                    hash_block(&file, *index, size, scratch).is_ok_and(|v| v == *value)
                };
                let (good, bad): (Vec<_>, Vec<_>) = blocks.into_iter().partition(holds);
                let bad = bad.into_iter().map(|(index, _)| index).collect();
                WriteDone::Verified { number, good, bad }
            }
            Self::Check {
                number,
                target,
                size,
                zeros,
            } => {
                let root = if zeros && size > BLOCK {
                    check_sparse(&target, size, scratch)
                } else {
                    check(&target, size, scratch).map(|root| (root, false))
                };
                WriteDone::Checked { number, root }
            }
            Self::Commit {
                number,
                file,
                target,
                part,
                sync,
                bad,
            } => {
                let ending = match commit(&file, &target, &part, sync, bad) {
                    Ok(()) if bad => Ending::Mismatch,
                    Ok(()) => Ending::InPlace,
                    Err(e) => Ending::Failed(e),
                };
                WriteDone::Committed { number, ending }
            }
            Self::Finish { root, dirs, sync } => WriteDone::Finished {
                problems: finish(&root, &dirs, sync),
            },
        }
    }
}

/// Writes beside the targets, makes what replaces something reach the disk, renames.
fn write_small(files: &[Small], tag: Tag, sync: bool) -> Vec<(u64, Ending)> {
    let mut endings = Vec::with_capacity(files.len());
    let mut written = Vec::with_capacity(files.len());
    for file in files {
        let good = blake3::hash(&file.bytes) == file.root;
        if !good && !file.last {
            endings.push((file.number, Ending::Mismatch));
            continue;
        }
        let part = path::part_name(&file.target.name, tag);
        match write_part(file, &part) {
            Ok(()) => written.push((file, part, good)),
            Err(e) => {
                // Gone or never there: either way it is not in the way.
                let _gone =
                    rustix::fs::unlinkat(&file.target.dir, part.as_slice(), AtFlags::empty());
                endings.push((file.number, Ending::Failed(e)));
            }
        }
    }
    let replacing = written.iter().find(|(f, _, _)| f.replaces && sync);
    let synced = replacing.map_or(Ok(()), |(f, _, _)| sync_all(&f.target.dir));
    for (file, part, good) in written {
        let ending = match &synced {
            Err(e) => Ending::Failed(io::Error::new(e.kind(), e.to_string())),
            Ok(()) => match rename(&file.target, &part, !good) {
                Ok(()) if good => Ending::InPlace,
                Ok(()) => Ending::Mismatch,
                Err(e) => Ending::Failed(e),
            },
        };
        endings.push((file.number, ending));
    }
    endings
}

fn write_part(file: &Small, part: &[u8]) -> io::Result<()> {
    let mut out = confine::create_anew(&file.target.dir, part)?;
    out.write_all(&file.bytes)?;
    file.target.meta.apply(&out)
}

/// `syncfs` of the file system that holds `dir`.
fn sync_all(dir: &Dir) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    match confine::open_beneath(dir, b"", flags, Mode::empty()) {
        Ok(fd) => Ok(rustix::fs::syncfs(&fd)?),
        // A directory that may be written but not read.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            rustix::fs::sync();
            Ok(())
        }
        Err(e) => Err(e),
    }
}

fn rename(target: &Target, part: &[u8], bad: bool) -> io::Result<()> {
    let dir = &target.dir;
    if bad {
        return Ok(rustix::fs::renameat(
            dir,
            part,
            dir,
            path::bad_name(&target.name).as_slice(),
        )?);
    }
    let renamed = rustix::fs::renameat(dir, part, dir, target.name.as_slice());
    if renamed.is_err() {
        // The content is good, but a directory is in its place: nothing to continue later.
        let _gone = rustix::fs::unlinkat(dir, part, AtFlags::empty());
    }
    Ok(renamed?)
}

fn commit(file: &File, target: &Target, part: &[u8], sync: bool, bad: bool) -> io::Result<()> {
    target.meta.apply(file)?;
    if sync {
        file.sync_all()?;
    }
    rename(target, part, bad)
}

/// The value of a block of which some leaves are known.
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

/// The root of what is there, and whether blocks went into it as holes.
pub(super) type Checked = (Hash, bool);

fn check_sparse(target: &Target, size: u64, scratch: &mut Pages) -> io::Result<Checked> {
    let file = confine::open_to_read(&target.dir, &target.name)?;
    // Where the file system does not tell, the blocks themselves do.
    let data: RangeSet = extents(&file, size)
        .unwrap_or_else(|_| std::iter::once(0..size).collect())
        .into_iter()
        .collect();
    let mut tree = BlockTree::new(size);
    for index in 0..block_count(size) {
        let range = block_range(index, size);
        if data.overlaps(range.clone()) {
            tree.learn(index, hash_content(&file, index, size, scratch)?);
        } else {
            tree.set_hole(&range);
        }
    }
    let root = tree.root().ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok((root, tree.has_holes()))
}

fn check(target: &Target, size: u64, scratch: &mut Pages) -> io::Result<Hash> {
    let file = confine::open_to_read(&target.dir, &target.name)?;
    if block_count(size) == 1 {
        return hash_block(&file, 0, size, scratch);
    }
    let mut hasher = blake3::Hasher::new();
    scratch.fit(1 << 20);
    let mut at = 0;
    while at < size {
        let n = usize::try_from(size - at)
            .unwrap_or(usize::MAX)
            .min(scratch.len());
        file.read_exact_at(&mut scratch[..n], at)?;
        hasher.update(&scratch[..n]);
        at += n as u64;
    }
    Ok(hasher.finalize().into())
}

fn finish(root: &Dir, dirs: &[(Vec<u8>, Meta)], sync: bool) -> Vec<String> {
    let mut problems = Vec::new();
    // Children first: a parent may become read-only.
    for (dir, meta) in dirs.iter().rev() {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let applied =
            confine::open_beneath(root, dir, flags, Mode::empty()).and_then(|fd| meta.apply(fd));
        if let Err(e) = applied {
            problems.push(format!("{}: permissions or time: {e}", path::show(dir)));
        }
    }
    if sync && let Err(e) = sync_all(root) {
        problems.push(format!("sync: {e}"));
    }
    problems
}
