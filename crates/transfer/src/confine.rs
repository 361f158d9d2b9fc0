//! How is a path opened so that it cannot leave its tree? Relative to a directory handle, by
//! `openat2` with `RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS`; where the kernel
//! lacks it, component by component without following links.
//!
//! - No path string is ever resolved twice: what is created, renamed or removed is named by one
//!   component relative to a directory handle.

use std::{
    collections::VecDeque,
    fs::File,
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::Arc,
};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};

use crate::path;

/// Directory handles kept open.
const DIRS: usize = 64;
const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);
const HANDLE: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A directory handle shared between threads.
pub(crate) type Dir = Arc<OwnedFd>;

/// Opens the directory at `path`, following links as its user meant.
pub(crate) fn open_root(path: &Path) -> io::Result<Dir> {
    Ok(Arc::new(rustix::fs::open(path, HANDLE, Mode::empty())?))
}

/// Opens `rel` beneath `dir`; an empty `rel` is `dir` itself.
pub(crate) fn open_beneath(
    dir: impl AsFd,
    rel: &[u8],
    flags: OFlags,
    mode: Mode,
) -> io::Result<OwnedFd> {
    let dir = dir.as_fd();
    let flags = flags | OFlags::CLOEXEC;
    let rel = if rel.is_empty() { b"." } else { rel };
    loop {
        match rustix::fs::openat2(dir, rel, flags, mode, BENEATH) {
            // A concurrent rename made the kernel unsure; the answer is to try again.
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::NOSYS) => return open_stepwise(dir.as_fd(), rel, flags, mode),
            other => return Ok(other?),
        }
    }
}

fn open_stepwise(dir: impl AsFd, rel: &[u8], flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    if rel != b"." && path::refusal(rel).is_some() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let (parents, name) = path::split(rel);
    let flags = flags | OFlags::NOFOLLOW;
    let mut at: Option<OwnedFd> = None;
    for step in parents.split(|b| *b == b'/').filter(|s| !s.is_empty()) {
        let from = at.as_ref().map_or(dir.as_fd(), AsFd::as_fd);
        at = Some(rustix::fs::openat(
            from,
            step,
            HANDLE | OFlags::NOFOLLOW,
            Mode::empty(),
        )?);
    }
    let from = at.as_ref().map_or(dir.as_fd(), AsFd::as_fd);
    Ok(rustix::fs::openat(from, name, flags, mode)?)
}

/// Opens a regular file for reading; never waits on a pipe or a device that took its name.
pub(crate) fn open_to_read(dir: impl AsFd, rel: &[u8]) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    open_beneath(dir, rel, flags, Mode::empty()).map(File::from)
}

/// Facts about `name` in `dir`, not following a link; `None` if there is nothing.
pub(crate) fn stat(dir: impl AsFd, name: &[u8]) -> io::Result<Option<Stat>> {
    match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// True if a path could not be followed because of a link in it.
pub(crate) fn met_a_link(e: &io::Error) -> bool {
    e.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}

/// What `stat` describes, if it is nothing that a file may take the place of: only its owner can say
/// whether a device or a pipe is still needed.
pub(crate) fn is_special(stat: &Stat) -> Option<&'static str> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile | FileType::Symlink | FileType::Directory => None,
        FileType::CharacterDevice | FileType::BlockDevice => {
            Some("a device has this name: it is not replaced")
        }
        FileType::Fifo => Some("a pipe has this name: it is not replaced"),
        _ => Some("a socket has this name: it is not replaced"),
    }
}

/// Makes the file `name` in `dir`, never one that somebody may have open: what was there is removed.
pub(crate) fn create_anew(dir: impl AsFd, name: &[u8]) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let make = || rustix::fs::openat(&dir, name, flags, Mode::from_raw_mode(0o600));
    let made = match make() {
        Err(rustix::io::Errno::EXIST) => {
            rustix::fs::unlinkat(&dir, name, AtFlags::empty())?;
            make()
        }
        other => other,
    };
    Ok(File::from(made?))
}

/// A directory tree that is written to.
#[derive(Debug)]
pub(crate) struct Tree {
    root: Dir,
    /// Most recently used last.
    open: VecDeque<(Vec<u8>, Dir)>,
}

impl Tree {
    pub(crate) const fn new(root: Dir) -> Self {
        Self {
            root,
            open: VecDeque::new(),
        }
    }

    pub(crate) fn root(&self) -> Dir {
        Arc::clone(&self.root)
    }

    /// A handle on the directory `rel`.
    pub(crate) fn dir(&mut self, rel: &[u8]) -> io::Result<Dir> {
        if rel.is_empty() {
            return Ok(self.root());
        }
        if let Some((_, dir)) = self.open.iter().rev().find(|(p, _)| p == rel) {
            return Ok(Arc::clone(dir));
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let dir = Arc::new(open_beneath(&self.root, rel, flags, Mode::empty())?);
        if self.open.len() == DIRS {
            self.open.pop_front();
        }
        self.open.push_back((rel.to_vec(), Arc::clone(&dir)));
        Ok(dir)
    }

    /// Makes the directory `rel` in its existing parent; true if it was not there.
    pub(crate) fn make_dir(&mut self, rel: &[u8]) -> io::Result<bool> {
        if rel.is_empty() {
            return Ok(false);
        }
        let (parent, name) = path::split(rel);
        let parent = self.dir(parent)?;
        // Private until its own mode is set at the end.
        match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o700)) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::EXIST) => {
                self.dir(rel)?;
                Ok(false)
            }
            Err(e) => Err(e.into()),
        }
    }
}

/// Makes `rel` and its parents beneath `root`; returns a handle on it.
pub(crate) fn make_path(root: &Dir, rel: &[u8]) -> io::Result<Dir> {
    let mut at = Arc::clone(root);
    for name in rel.split(|b| *b == b'/').filter(|n| !n.is_empty()) {
        match rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(e) => return Err(e.into()),
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        at = Arc::new(open_beneath(&at, name, flags, Mode::empty())?);
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn nothing_outside_the_tree_is_reached() {
        let tmp = tempfile::tempdir().unwrap();
        let base = tmp.path();
        fs::create_dir_all(base.join("tree/sub")).unwrap();
        fs::write(base.join("secret"), "s").unwrap();
        fs::write(base.join("tree/sub/file"), "f").unwrap();
        symlink("../secret", base.join("tree/out")).unwrap();
        symlink("..", base.join("tree/up")).unwrap();
        symlink("sub", base.join("tree/in")).unwrap();
        let root = open_root(&base.join("tree")).unwrap();
        assert!(open_to_read(&root, b"sub/file").is_ok());
        for escape in [
            &b"../secret"[..],
            b"out",
            b"up/secret",
            b"in/file",
            b"/etc/hostname",
            b"sub/../../secret",
        ] {
            assert!(
                open_to_read(&root, escape).is_err(),
                "{}",
                path::show(escape)
            );
            let flags = OFlags::RDONLY;
            assert!(
                open_stepwise(&root, escape, flags, Mode::empty()).is_err(),
                "{}",
                path::show(escape)
            );
        }
        assert!(open_stepwise(&root, b"sub/file", OFlags::RDONLY, Mode::empty()).is_ok());
        let mut tree = Tree::new(Arc::clone(&root));
        assert!(tree.make_dir(b"sub/new").unwrap());
        assert!(!tree.make_dir(b"sub/new").unwrap());
        assert!(tree.make_dir(b"up/new").is_err());
        assert!(tree.make_dir(b"in").is_err(), "a link is not a directory");
        assert!(make_path(&root, b"a/b/c").is_ok());
        assert!(make_path(&root, b"up/x").is_err());
        assert!(base.join("tree/a/b/c").is_dir());
    }
}
