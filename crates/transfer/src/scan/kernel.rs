//! Recognises file systems whose kernel makes a file when it is read, so that its size is not that
//! of its content.

use std::io::{self, Read as _};

use rustix::fs::Stat;

use crate::confine::{self, Dir};

/// True if a file of no length has something to read all the same; false if it cannot be read.
pub(super) fn has_content(root: &Dir, rel: &[u8]) -> bool {
    confine::open_to_read(root, rel)
        .and_then(|file| Ok(file.read_at(&mut [0], 0)?))
        .is_ok_and(|n| n > 0)
}

/// True for a file a page long with nothing stored: a hole, or a file that the kernel makes when it
/// is read.
pub(super) fn is_page_of_nothing(stat: &Stat) -> bool {
    stat.st_blocks == 0
        && usize::try_from(stat.st_size).is_ok_and(|size| size == rustix::param::page_size())
}

/// True if reading ends before the size does.
pub(super) fn is_shorter(root: &Dir, rel: &[u8], stat: &Stat) -> bool {
    let most = stat.st_size.cast_unsigned();
    confine::open_to_read(root, rel)
        .and_then(|file| io::copy(&mut file.reader().take(most), &mut io::sink()))
        .is_ok_and(|n| n < most)
}
