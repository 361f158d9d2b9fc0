//! Reads files again past the page cache, to see what the disk has. The cache would otherwise
//! answer with what was written, whatever became of it.
//!
//! - Reads are direct (`O_DIRECT`), after the file was synced and dropped from the cache. Where the
//!   file system has no direct reads, the last two have to suffice, with a warning.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use rustix::{fs::Advice, io::Errno};

use super::{
    compare::{Checked, root_of},
    target::Target,
};
use crate::{
    digest::{BlockDigest, BlockTree, HOLE, block_range},
    disk::File,
    pages::Pages,
    pool::Stop,
    sender::extents,
    wire::{BLOCK, Hash},
};

/// Alignment of a direct read, bytes.
const ALIGNED: usize = 4096;

/// Order to read everything again; notes whether something could not be read past the cache.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reread {
    cached: Arc<AtomicBool>,
    /// True if dirty pages are left in the cache: a later sync reports errors.
    unsynced: bool,
}

impl Reread {
    /// Makes the order for files that an earlier run may have lost: they are in the cache as if
    /// they were on the disk.
    pub(super) fn of_unsynced() -> Self {
        Self {
            unsynced: true,
            ..Self::default()
        }
    }

    /// True if some file system has no direct reads.
    pub(crate) fn was_cached(&self) -> bool {
        self.cached.load(Relaxed)
    }
}

/// A file that is read from its disk.
struct OnDisk<'a> {
    file: File,
    direct: bool,
    options: &'a Reread,
}

impl<'a> OnDisk<'a> {
    /// `name` beneath `dir`, of `size` bytes.
    fn open(
        target: &Target,
        name: &[u8],
        size: u64,
        options: &'a Reread,
        stop: &Stop,
    ) -> io::Result<Self> {
        let file = target.open_to_read(name)?;
        let there = file.stat()?.st_size.cast_unsigned();
        if there != target.file_size(size) && there != target.collected(size) {
            return Err(io::Error::other("its size is another"));
        }
        if !options.unsynced {
            stop.sync(|| file.sync_data())?;
        }
        // Also for file systems that take direct reads and serve them from their cache.
        file.advise(Advice::DontNeed)?;
        let direct = file.set_direct(true).is_ok();
        if !direct {
            options.cached.store(true, Relaxed);
        }
        Ok(Self {
            file,
            direct,
            options,
        })
    }

    /// Fills `into` with block `index` of a file of `size` bytes.
    fn read(&mut self, index: u64, size: u64, into: &mut Pages) -> io::Result<usize> {
        let block = block_range(index, size);
        let len = usize::try_from(block.end - block.start).unwrap_or_default();
        into.fit(len.next_multiple_of(ALIGNED));
        let mut at = 0;
        while at < len {
            match self.file.read_at(&mut into[at..], block.start + at as u64) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                // The rest of a page is read again: only the end of the file may be crooked.
                Ok(n) if at + n < len && self.direct => {
                    let whole = (at + n) / ALIGNED * ALIGNED;
                    if whole == at {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    at = whole;
                }
                Ok(n) => at += n,
                Err(Errno::INVAL) if self.direct => {
                    // Its disk wants other borders than pages have.
                    self.file.set_direct(false)?;
                    self.direct = false;
                    self.options.cached.store(true, Relaxed);
                }
                Err(e) => return Err(e.into()),
            }
        }
        Ok(len)
    }

    /// The value of a block; [`HOLE`] if it is nothing but zeros and `zeros`.
    fn value(
        &mut self,
        index: u64,
        size: u64,
        zeros: bool,
        scratch: &mut Pages,
    ) -> io::Result<Hash> {
        let len = self.read(index, size, scratch)?;
        if zeros && scratch[..len].iter().all(|b| *b == 0) {
            return Ok(HOLE);
        }
        let mut digest = BlockDigest::new(index, size);
        digest.update(&scratch[..len]);
        Ok(digest.value())
    }

    /// The blocks in which something is stored.
    fn stored(&self, size: u64, stop: &Stop) -> Vec<std::ops::Range<u64>> {
        let whole = |_| std::iter::once(0..size).collect();
        extents(&self.file, size, stop).unwrap_or_else(whole)
    }
}

/// The root of the existing file, as its disk has it; blocks of zeros count as holes if `zeros`.
pub(super) fn root(
    target: &Target,
    size: u64,
    zeros: bool,
    options: &Reread,
    (scratch, stop): (&mut Pages, &Stop),
) -> io::Result<Checked> {
    let mut disk = OnDisk::open(target, &target.name, size, options, stop)?;
    let tree = if zeros {
        BlockTree::stored_in(size, disk.stored(size, stop))
    } else {
        BlockTree::new(size)
    };
    root_of(tree, stop, |index| disk.value(index, size, zeros, scratch))
}

/// The blocks of what was collected that differ on its disk from `tree`.
pub(super) fn wrong_blocks(
    target: &Target,
    tree: &BlockTree,
    options: &Reread,
    (scratch, stop): (&mut Pages, &Stop),
) -> io::Result<Vec<u64>> {
    let size = tree.size();
    let mut disk = OnDisk::open(target, &target.part, size, options, stop)?;
    let mut wrong = Vec::new();
    for (index, value) in tree.values() {
        stop.check()?;
        if disk.value(index, size, false, scratch)? != value {
            wrong.push(index);
        }
    }
    if tree.has_holes() {
        let mut seen = None;
        for range in disk.stored(size, stop) {
            for index in range.start / BLOCK..range.end.div_ceil(BLOCK) {
                stop.check()?;
                if tree.is_hole(index) && seen.replace(index) != Some(index) {
                    let value = disk.value(index, size, true, scratch)?;
                    wrong.extend((value != HOLE).then_some(index));
                }
            }
        }
        wrong.sort_unstable();
    }
    Ok(wrong)
}

/// True if the disk has `bytes` as what was collected.
pub(super) fn holds(
    target: &Target,
    bytes: &[u8],
    options: &Reread,
    (scratch, stop): (&mut Pages, &Stop),
) -> io::Result<bool> {
    let size = bytes.len() as u64;
    let mut disk = OnDisk::open(target, &target.part, size, options, stop)?;
    let len = disk.read(0, size, scratch)?;
    Ok(scratch[..len] == *bytes)
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::unix::fs::FileExt as _};

    use super::*;
    use crate::digest::block_hash;

    #[test]
    fn what_was_changed_on_the_disk_is_found_block_by_block() {
        let tmp = tempfile::tempdir().unwrap();
        let size = 5 * BLOCK + 12_345;
        let file = File::create(tmp.path().join("f")).unwrap();
        file.set_len(size).unwrap();
        let bytes = |index| {
            let block = block_range(index, size);
            vec![
                u8::try_from(index + 1).unwrap();
                usize::try_from(block.end - block.start).unwrap()
            ]
        };
        let mut tree = BlockTree::new(size);
        for index in [0, 1, 4, 5] {
            file.write_all_at(&bytes(index), index * BLOCK).unwrap();
            tree.set(index, block_hash(index, size, &bytes(index)));
        }
        tree.set_hole(&(2 * BLOCK..4 * BLOCK));
        let target = Target::for_test(tmp.path());
        let target = Target {
            part: target.name.clone(),
            ..target
        };
        let (options, stop, mut scratch) = (Reread::default(), Stop::default(), Pages::default());
        let mut wrong = || wrong_blocks(&target, &tree, &options, (&mut scratch, &stop));
        assert_eq!(wrong().unwrap(), Vec::<u64>::new());
        file.write_all_at(b"x", BLOCK + 7).unwrap();
        file.write_all_at(b"x", 3 * BLOCK).unwrap();
        file.write_all_at(b"x", size - 1).unwrap();
        assert_eq!(wrong().unwrap(), [1, 3, 5]);
        file.set_len(size - 1).unwrap();
        assert!(wrong().is_err());
        let whole = std::fs::read(tmp.path().join("f")).unwrap();
        let found = root(&target, size - 1, false, &options, (&mut scratch, &stop)).unwrap();
        assert_eq!(found, (blake3::hash(&whole).into(), false));
        let small: &[u8] = b"12345";
        std::fs::write(tmp.path().join("g"), small).unwrap();
        let small_target = Target {
            part: b"g".to_vec(),
            ..target
        };
        let mut holds = |bytes| holds(&small_target, bytes, &options, (&mut scratch, &stop));
        assert!(holds(small).unwrap());
        assert!(!holds(b"12346").unwrap());
        assert!(holds(b"1234").is_err());
    }
}
