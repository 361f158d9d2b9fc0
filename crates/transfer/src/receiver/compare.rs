//! Hashes a file that is there already, at the cost of what is stored; the hashing can be stopped.

use std::io;

use super::{
    reread::{self, Reread},
    target::Target,
};
use crate::{
    digest::{BlockTree, block_count},
    pages::Pages,
    pool::Stop,
    sender::{extents, hash_block, hash_content},
    wire::{BLOCK, Hash},
};

/// Bytes of holes that are hashed as zeros, and as many as are stored beside them.
const ZEROS: u64 = 256 << 20;

/// The root of the existing file, and whether blocks went into it as holes.
pub(super) type Checked = (Hash, bool);

/// The root of the existing file, read from the disk if that is requested.
pub(super) fn check_there(
    target: &Target,
    size: u64,
    zeros: bool,
    reread: Option<&Reread>,
    (scratch, stop): (&mut Pages, &Stop),
) -> io::Result<Checked> {
    let zeros = zeros && size > BLOCK;
    if !zeros {
        is_worth_reading(target, size, stop)?;
    }
    match reread {
        Some(options) => reread::root(target, size, zeros, options, (scratch, stop)),
        None if zeros => check_sparse(target, size, scratch, stop),
        None => check(target, size, scratch, stop).map(|root| (root, false)),
    }
}

/// Fails for a file of holes that is to be hashed as zeros. Listing it as stored costs the sender
/// nothing, and reading it would cost its length.
fn is_worth_reading(target: &Target, size: u64, stop: &Stop) -> io::Result<()> {
    let file = target.open_to_read(&target.name)?;
    let there = file.stat()?.st_blocks.cast_unsigned().saturating_mul(512);
    if target.file_size(size).saturating_sub(there) <= ZEROS {
        return Ok(());
    }
    // One that is compressed stores little, but has no holes.
    let Ok(data) = extents(&file, size, stop) else {
        return Ok(());
    };
    let stored: u64 = data.iter().map(|r| r.end - r.start).sum();
    if size - stored <= stored.max(ZEROS) {
        return Ok(());
    }
    Err(io::Error::other("it has holes, the source has none"))
}

/// Hashes a sparse file at the cost of what is stored, however long the file is.
fn check_sparse(
    target: &Target,
    size: u64,
    scratch: &mut Pages,
    stop: &Stop,
) -> io::Result<Checked> {
    let file = target.open_to_read(&target.name)?;
    // Where the file system does not report it, the blocks are examined.
    let data = extents(&file, size, stop).unwrap_or_else(|_| std::iter::once(0..size).collect());
    let value = |index| hash_content(&file, index, size, scratch);
    root_of(BlockTree::stored_in(size, data), stop, value)
}

/// The root of a file whose blocks have these values, but for the holes of `tree`.
pub(super) fn root_of(
    mut tree: BlockTree,
    stop: &Stop,
    mut value: impl FnMut(u64) -> io::Result<Hash>,
) -> io::Result<Checked> {
    let blocks = block_count(tree.size());
    let mut index = tree.next_unknown(0);
    while index < blocks {
        stop.check()?;
        tree.learn(index, value(index)?);
        index = tree.next_unknown(index);
    }
    let root = tree.root().ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok((root, tree.has_holes()))
}

fn check(target: &Target, size: u64, scratch: &mut Pages, stop: &Stop) -> io::Result<Hash> {
    let file = target.open_to_read(&target.name)?;
    if block_count(size) == 1 {
        return hash_block(&file, 0, size, scratch);
    }
    let mut hasher = blake3::Hasher::new();
    scratch.fit(1 << 20);
    let mut at = 0;
    while at < size {
        stop.check()?;
        let n = usize::try_from(size - at)
            .unwrap_or(usize::MAX)
            .min(scratch.len());
        file.read_exact_at(&mut scratch[..n], at)?;
        hasher.update(&scratch[..n]);
        at += n as u64;
    }
    Ok(hasher.finalize().into())
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::unix::fs::FileExt as _, path::Path};

    use super::*;
    use crate::confine;

    /// Longest size of a file: in a file system of memory files may be longest.
    fn longest(file: &File) -> u64 {
        let fits = |size: &u64| file.set_len(*size).is_ok();
        [1 << 60, 1 << 43].into_iter().find(fits).unwrap()
    }

    #[test]
    fn a_file_of_holes_is_not_hashed_as_zeros_by_the_peers_word() {
        let tmp = tempfile::tempdir().unwrap();
        let target = Target::for_test(tmp.path());
        let file = File::create(tmp.path().join("f")).unwrap();
        let (stop, mut scratch) = (Stop::default(), Pages::default());
        // It would take long.
        file.set_len(1 << 40).unwrap();
        for options in [None, Some(Reread::default())] {
            let with = (&mut scratch, &stop);
            assert!(check_there(&target, 1 << 40, false, options.as_ref(), with).is_err());
        }
        let with = (&mut scratch, &stop);
        assert!(check_there(&target, 1 << 40, true, None, with).is_ok());
        // Some holes are.
        file.set_len(3 << 20).unwrap();
        file.write_all_at(b"stored", 1 << 20).unwrap();
        let whole = std::fs::read(tmp.path().join("f")).unwrap();
        let root = check_there(&target, 3 << 20, false, None, (&mut scratch, &stop));
        assert_eq!(root.unwrap(), (blake3::hash(&whole).into(), false));
    }

    #[test]
    fn a_file_of_holes_costs_what_is_stored_and_can_be_stopped() {
        let shm = Path::new("/dev/shm");
        let tmp = tempfile::tempdir_in(if shm.is_dir() { shm } else { Path::new(".") }).unwrap();
        let file = File::create(tmp.path().join("f")).unwrap();
        let size = longest(&file);
        file.write_all_at(&[1; 7], 5 * BLOCK + 1).unwrap();
        let target = Target::for_test(tmp.path());
        let (stop, mut scratch) = (Stop::default(), Pages::default());
        let (root, sparse) = check_sparse(&target, size, &mut scratch, &stop).unwrap();
        let mut expected = BlockTree::new(size);
        expected.set_hole(&(0..size));
        assert!(sparse);
        let file = confine::open_to_read(&target.dir, b"f").unwrap();
        expected.set(5, hash_block(&file, 5, size, &mut scratch).unwrap());
        assert_eq!(Some(root), expected.root());
        stop.set();
        assert!(check(&target, size, &mut scratch, &stop).is_err());
        assert!(check_sparse(&target, size, &mut scratch, &stop).is_err());
    }
}
