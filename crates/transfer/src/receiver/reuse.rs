//! Reuses blocks of a file that changed and is already here. The sender reports the values of its
//! blocks before it sends any. Blocks that the old file has are copied from it, and only the others
//! are requested.
//!
//! - The bytes copied are those that were hashed; the whole is verified by its root like any other
//!   file.
//! - Reuse happens only where peers may read existing files: the requests disclose which blocks are
//!   there.

use std::io;

use crate::{
    digest::{BlockDigest, block_range},
    disk::File,
    pages::Pages,
    pool::Stop,
    wire::Hash,
};

/// Blocks that an earlier run left and their values, and those that do not hold what it claimed.
pub(crate) type Claims = (Vec<(u64, Hash)>, Vec<u64>);

/// Copies those of the blocks that the old file has. The bytes written are those that were hashed,
/// whatever another program does to the old file meanwhile.
pub(super) fn copy_same(
    (old, file): (&File, &File),
    size: u64,
    blocks: &[(u64, Hash)],
    (scratch, stop): (&mut Pages, &Stop),
) -> io::Result<Claims> {
    let (mut same, mut differ) = (Vec::new(), Vec::new());
    for (index, value) in blocks {
        stop.check()?;
        stop.step();
        let range = block_range(*index, size);
        scratch.fit(usize::try_from(range.end - range.start).unwrap_or_default());
        // What cannot be read is requested like what differs.
        let read = old.read_exact_at(scratch, range.start).is_ok();
        if read && hash_of(*index, size, scratch) == *value {
            file.write_all_at(scratch, range.start)?;
            same.push((*index, *value));
        } else {
            differ.push(*index);
        }
    }
    Ok((same, differ))
}

fn hash_of(index: u64, size: u64, bytes: &[u8]) -> Hash {
    let mut digest = BlockDigest::new(index, size);
    digest.update(bytes);
    digest.value()
}
