//! A folder where nothing waits for a disk, for tests to which the file system does not matter.

use std::io;

use tempfile::TempDir;

/// Space that is enough for several tests at a time, bytes.
const SPACE: u64 = 4 << 30;

/// One in memory, if there is enough of it; or else where folders of tests are.
pub(crate) fn folder() -> io::Result<TempDir> {
    let space = rustix::fs::statvfs("/dev/shm").map_or(0, |fs| fs.f_bavail * fs.f_frsize);
    if space < SPACE {
        return tempfile::tempdir();
    }
    tempfile::tempdir_in("/dev/shm")
}
