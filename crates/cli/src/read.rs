//! Reads files that a user keeps or names: whole, up to a size, and never waiting for a pipe that
//! nobody writes to.

use std::{
    fs,
    io::{self, Read as _},
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use farhaul_transfer::read_whole;
use rustix::fs::{FileType, fstat, makedev};

/// The longest file of settings, keys or known servers.
pub(crate) const SETTINGS: u64 = 16 << 20;
/// The longest trace of losses; one that repeats says no more when it is longer.
#[cfg(feature = "lab")]
const TRACE: u64 = 64 << 20;
/// The longest list of paths or patterns.
const LIST: u64 = 4 << 30;

/// The longest report of a copy.
const REPORT: u64 = 64 << 20;

/// A report of a copy: a file, or what the shell passes on as an open pipe.
pub(crate) fn report(path: &Path) -> io::Result<String> {
    up_to(path, REPORT)
}

fn up_to(path: &Path, most: u64) -> io::Result<String> {
    if !is_passed(path) {
        return text(read_whole(path, most)?);
    }
    let mut bytes = Vec::new();
    let file = fs::File::open(path)?;
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    text(bytes)
}

/// True if the path is an open pipe that the shell passes on and no file: it can be read once.
pub(crate) fn is_read_once(path: &Path) -> bool {
    is_passed(path) && fs::metadata(path).is_ok_and(|meta| !meta.is_file())
}

/// True if the path is an open pipe that the shell passes on, as in `<(find ...)`.
fn is_passed(path: &Path) -> bool {
    let passed = ["/dev/fd/", "/proc/self/fd/", "/dev/stdin"].map(PathBuf::from);
    passed.iter().any(|p| path.starts_with(p))
}

/// A file that the program or its user keeps, or what the shell passes on in its place.
pub(crate) fn settings(path: &Path) -> io::Result<String> {
    up_to(path, SETTINGS)
}

/// A trace of losses.
#[cfg(feature = "lab")]
pub(crate) fn trace(path: &Path) -> io::Result<String> {
    text(read_whole(path, TRACE)?)
}

/// A list that was named on the command line: a file, or what the shell passes on.
pub(crate) fn list(path: &Path) -> io::Result<Vec<u8>> {
    if is_passed(path) {
        return fs::read(path);
    }
    read_whole(path, LIST)
}

/// Reads a list as text.
pub(crate) fn list_of_lines(path: &Path) -> io::Result<String> {
    text(list(path)?)
}

/// True if nothing can be read here: /dev/null, which also takes the place of a descriptor that was
/// closed at the start.
pub(crate) fn is_closed(file: impl AsFd) -> bool {
    let (null, kind) = (makedev(1, 3), FileType::CharacterDevice);
    fstat(file)
        .is_ok_and(|stat| stat.st_rdev == null && FileType::from_raw_mode(stat.st_mode) == kind)
}

/// Error with which the file or folder at `path` cannot be read by this user, following links. None
/// if it is not there, is neither of the two, or fails for another reason: the reader will report
/// that.
pub(crate) fn forbidden(path: &Path) -> Option<io::Error> {
    let opened = match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => fs::read_dir(path).map(drop),
        Ok(meta) if meta.is_file() => fs::File::open(path).map(drop),
        Ok(_) => Ok(()),
        Err(e) => Err(e),
    };
    opened
        .err()
        .filter(|e| e.kind() == io::ErrorKind::PermissionDenied)
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not text in UTF-8"))
}
