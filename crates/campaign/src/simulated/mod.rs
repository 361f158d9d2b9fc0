//! Copies in virtual time: two real applications on real encrypted sessions, each on a machine
//! whose disk a seed decides over. The files are real, and in memory where the machine has a file
//! system there.
//!
//! Invariant: the same seed gives the same trace.

pub(crate) mod copy;
pub(crate) mod disk;
pub(crate) mod tree;
pub(crate) mod world;

use std::{io, path::Path};

use farhaul_core::rng::Rng;

/// A folder for one part's files.
pub(crate) fn folder() -> io::Result<tempfile::TempDir> {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        tempfile::tempdir_in(memory)
    } else {
        tempfile::tempdir()
    }
}

/// One of `from`.
pub(crate) fn pick<'a, T>(rng: &mut Rng, from: &'a [T]) -> &'a T {
    let n = rng.below(from.len() as u64);
    &from[usize::try_from(n).unwrap_or_default()]
}
