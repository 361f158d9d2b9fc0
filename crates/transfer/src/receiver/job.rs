//! Jobs of the receiver's workers. They write small files whole, hash blocks that are complete,
//! check what an earlier run left, and put finished files in their place.

use std::{io, sync::Arc};

use super::{
    commit::{
        Ending, give_name, lost_blocks, put_together, ready, rename, sync_before_names,
        without_part,
    },
    compare::{Checked, check_there},
    delete::{self, Deleted, Waiting, Walk},
    disks::Disks,
    reread::{self, Reread},
    reuse::{self, Claims},
    staging::{Load, Written},
    target::{Folder, Target},
    twin,
};
use crate::{
    confine::{self, Dir},
    digest::{BlockTree, LEAF, Leaves, block_range, leaf_hash},
    disk::File,
    pages::Pages,
    pool::{Job, Stop, Task},
    sender::hash_block,
    wire::{BLOCK, Exit, Hash, path},
};

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

/// Work that is not done for each block.
type Work = Box<dyn FnOnce(&mut Pages, &Stop) -> WriteDone + Send>;

/// Jobs of the receiver's workers.
pub(crate) enum WriteJob {
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
    Other(Task, Work),
}

/// File systems to sync, if any.
type ToSync = Option<Arc<Disks>>;

impl WriteJob {
    fn other(
        doing: &'static str,
        file: Option<u64>,
        work: impl FnOnce(&mut Pages, &Stop) -> WriteDone + Send + 'static,
    ) -> Self {
        Self::Other(Task::new(doing, file), Box::new(work))
    }

    /// Writes small files, and gives them their names.
    pub(super) fn small(files: Vec<Small>, disks: ToSync, reread: Option<Reread>) -> Self {
        let first = files.first().map(|f| f.number);
        Self::other("writing small files from", first, move |scratch, stop| {
            let reread = reread.as_ref().map(|options| (options, scratch));
            WriteDone::Small(write_small(&files, disks.as_deref(), reread, stop))
        })
    }

    /// Checks whether these blocks of an earlier run hold what it claimed.
    pub(super) fn verify(
        number: u64,
        size: u64,
        file: Arc<File>,
        blocks: Vec<(u64, Hash)>,
    ) -> Self {
        Self::other(
            "checking what is left of",
            Some(number),
            move |scratch, stop| {
                let checked = check_claims(&file, size, blocks, (scratch, stop));
                WriteDone::Verified { number, checked }
            },
        )
    }

    /// Copies those of these blocks that the `old` file has.
    pub(super) fn reuse(
        number: u64,
        size: u64,
        (old, file): (Arc<File>, Arc<File>),
        blocks: Vec<(u64, Hash)>,
    ) -> Self {
        Self::other("comparing blocks of", Some(number), move |scratch, stop| {
            let done = reuse::copy_same((&old, &file), size, &blocks, (scratch, stop));
            WriteDone::Reused {
                number,
                count: blocks.len(),
                done,
            }
        })
    }

    /// Hashes the existing file to its root. Blocks of zeros count as holes if `zeros`.
    pub(super) fn check(
        number: u64,
        target: Target,
        size: u64,
        zeros: bool,
        reread: Option<Reread>,
    ) -> Self {
        Self::other("checking", Some(number), move |scratch, stop| {
            let root = check_there(&target, size, zeros, reread.as_ref(), (scratch, stop));
            WriteDone::Checked { number, root }
        })
    }

    /// Puts a complete part in place, or aside if it is `bad`. A `small` one is synced with all others, and not
    /// by itself. `reread` has the content that its disk must return, if that is verified.
    pub(super) fn commit(
        number: u64,
        (file, target): (Arc<File>, Target),
        disks: ToSync,
        small: bool,
        reread: Option<(Reread, Box<BlockTree>)>,
        bad: bool,
    ) -> Self {
        Self::other("naming", Some(number), move |scratch, stop| {
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
        })
    }

    /// Copies the file that this is a hard link to at the source, where there can be none.
    pub(super) fn twin(number: u64, (from, target): (File, Target), disks: ToSync) -> Self {
        Self::other("copying", Some(number), move |scratch, stop| {
            let done = twin::make(&from, &target, disks.as_deref(), (scratch, stop));
            WriteDone::Twin { number, done }
        })
    }

    /// Deletes what the source lacks, unless that is more than `most`; `waiting` entries get their names then.
    pub(super) fn delete(
        walk: io::Result<Walk>,
        waiting: Vec<Waiting>,
        most: Option<u64>,
        disks: ToSync,
    ) -> Self {
        Self::other("deleting", None, move |_, stop| {
            let disks = disks.as_deref();
            WriteDone::Deleted(delete::delete(walk, &waiting, most, disks, stop))
        })
    }

    /// Directories get their own permissions and times; everything reaches the disk.
    pub(super) fn finish(root: Dir, dirs: Vec<Folder>, disks: ToSync) -> Self {
        Self::other("finishing", None, move |_, stop| WriteDone::Finished {
            problems: finish_dirs(&root, &dirs, stop),
            synced: disks.map_or(Ok(()), |disks| stop.sync(|| disks.sync_all())),
        })
    }
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
            Self::Load(load) => Task::new("writing", load.first()),
            Self::Block { number, .. } => Task::new("hashing a block of", Some(*number)),
            Self::Other(task, _) => *task,
        }
    }

    fn run(self, scratch: &mut Pages, stop: &Stop) -> WriteDone {
        match self {
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
            Self::Other(_, work) => work(scratch, stop),
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
