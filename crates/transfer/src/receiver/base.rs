//! Finds where arriving files go. The destination as it was typed, by rsync's rule, becomes a
//! directory handle and, for a single file that gets a new name, that name.

use std::{
    ffi::OsStr,
    io,
    os::{fd::AsRawFd as _, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::fs::{FileType, OFlags, Stat};

use crate::{
    confine::{self, Dir},
    disk::File,
    error::TransferError,
    wire::{Exit, path},
};

/// A destination.
#[derive(Clone, Debug)]
pub(crate) struct Base {
    pub(crate) dir: Dir,
    /// The single file is called this.
    pub(crate) rename: Option<Vec<u8>>,
}

impl Base {
    /// `rel` beneath the share `root`.
    pub(crate) fn beneath(root: &Dir, rel: &[u8], one_file: bool) -> Result<Self, TransferError> {
        let make = |rel: &[u8]| confine::make_path(root, rel);
        Site::beneath(root, rel, one_file)?.make(rel, make)
    }

    /// `to` on this machine.
    pub(crate) fn local(to: &Path, one_file: bool) -> Result<Self, TransferError> {
        let make = |dir: &[u8]| {
            let dir = here(dir);
            std::fs::create_dir_all(&dir).and_then(|()| confine::open_root(&dir))
        };
        Site::local(to, one_file)?.make(to.as_os_str().as_bytes(), make)
    }
}

/// A destination that nothing was done to.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    /// The directory, if it is there.
    pub(crate) dir: Option<Dir>,
    /// The single file would be called this.
    pub(crate) rename: Option<Vec<u8>>,
    /// The directory, or the nearest one above that is there.
    pub(crate) near: Dir,
}

impl Look {
    /// `rel` beneath the share `root`.
    pub(crate) fn beneath(root: &Dir, rel: &[u8], one_file: bool) -> Result<Self, TransferError> {
        let open = |rel: &[u8]| {
            let flags = OFlags::PATH | OFlags::DIRECTORY;
            confine::open_beneath(root, rel, flags).map(Arc::new)
        };
        let site = Site::beneath(root, rel, one_file)?;
        Self::at(site, open).map_err(|e| dest_error(rel, &e))
    }

    /// `to` on this machine.
    pub(crate) fn local(to: &Path, one_file: bool) -> Result<Self, TransferError> {
        let open = |dir: &[u8]| confine::open_root(&here(dir));
        let site = Site::local(to, one_file)?;
        Self::at(site, open).map_err(|e| dest_error(to.as_os_str().as_bytes(), &e))
    }

    fn at(site: Site, open: impl Fn(&[u8]) -> io::Result<Dir>) -> io::Result<Self> {
        let Site(dir, rename) = site;
        let wanted = match dir {
            Err(wanted) => wanted,
            Ok(near) => {
                let dir = Some(Arc::clone(&near));
                return Ok(Self { dir, rename, near });
            }
        };
        let mut near = wanted.clone();
        loop {
            match open(&near) {
                Ok(dir) => {
                    let there = near == wanted;
                    return Ok(Self {
                        dir: there.then(|| Arc::clone(&dir)),
                        rename,
                        near: dir,
                    });
                }
                Err(e) if e.kind() == io::ErrorKind::NotFound && !near.is_empty() => {
                    let cut = near.len() - path::split(&near).1.len();
                    near.truncate(cut);
                    // "/" stays.
                    while near.len() > 1 && near.ends_with(b"/") {
                        near.pop();
                    }
                }
                Err(e) => return Err(e),
            }
        }
    }
}

/// A path on this machine as bytes; nothing means the current directory.
fn here(dir: &[u8]) -> PathBuf {
    if dir.is_empty() {
        PathBuf::from(".")
    } else {
        PathBuf::from(OsStr::from_bytes(dir))
    }
}

/// Meaning of a destination, by rsync's rule: its directory, or the path of one that is to be made, and the
/// name for a single file.
struct Site(Result<Dir, Vec<u8>>, Option<Vec<u8>>);

impl Site {
    fn make(
        self,
        typed: &[u8],
        make: impl Fn(&[u8]) -> io::Result<Dir>,
    ) -> Result<Base, TransferError> {
        let Self(dir, rename) = self;
        let dir = dir.or_else(|dir| make(&dir));
        let dir = dir.map_err(|e| dest_error(typed, &e))?;
        Ok(Base { dir, rename })
    }

    fn beneath(root: &Dir, rel: &[u8], one_file: bool) -> Result<Self, TransferError> {
        let wants_dir = rel.is_empty() || rel.ends_with(b"/");
        let rel = rel.strip_suffix(b"/").unwrap_or(rel);
        if let Some(why) = path::refusal(rel) {
            let text = format!("'{}' is not a path in a share: {why}", path::show(rel));
            return Err(TransferError::new(Exit::DestError, text).fix("use a plain relative path"));
        }
        let error = |e: &io::Error| dest_error(rel, e);
        let there = match confine::open_beneath(root, rel, OFlags::PATH) {
            Ok(fd) => Some(fd),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(error(&e)),
        };
        let kind = match &there {
            Some(fd) => {
                let stat = fd.stat().map_err(|e| error(&e.into()))?;
                Some(FileType::from_raw_mode(stat.st_mode))
            }
            None => None,
        };
        match (there, kind) {
            (Some(fd), Some(FileType::Directory)) => Ok(Self(Ok(Arc::new(fd)), None)),
            (Some(_), _) if wants_dir || !one_file => Err(not_a_dir(rel)),
            (None, _) if wants_dir || !one_file => Ok(Self(Err(rel.to_vec()), None)),
            _ => {
                let (parent, name) = path::split(rel);
                Ok(Self(Err(parent.to_vec()), Some(name.to_vec())))
            }
        }
    }

    fn local(to: &Path, one_file: bool) -> Result<Self, TransferError> {
        let bytes = to.as_os_str().as_bytes();
        let error = |e: &io::Error| dest_error(bytes, e);
        let wants_dir = bytes.ends_with(b"/") || bytes.ends_with(b"/.") || to.file_name().is_none();
        // Looked up once: what the name leads to may change.
        let there = File::open(to, OFlags::PATH).and_then(|file| Ok((file.stat()?, file)));
        let kind = |stat: &Stat| FileType::from_raw_mode(stat.st_mode);
        match there.map_err(io::Error::from) {
            Ok((stat, dir)) if kind(&stat) == FileType::Directory => {
                Ok(Self(Ok(Arc::new(dir)), None))
            }
            Ok((stat, _)) if kind(&stat) != FileType::RegularFile => Err(special(bytes)),
            Ok(_) if wants_dir || !one_file => Err(not_a_dir(bytes)),
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(error(&e)),
            // Where it leads cannot be made by a rename there, and the link is not ours to replace.
            Err(_) if to.is_symlink() => Err(broken_link(bytes)),
            Err(_) if wants_dir || !one_file => Ok(Self(Err(bytes.to_vec()), None)),
            // The file is replaced, not the links that lead to it.
            Ok((stat, file)) if to.is_symlink() => {
                Self::found(&file, &stat, to).map_err(|e| error(&e))
            }
            Ok(_) | Err(_) => Ok(Self::named(to)),
        }
    }

    /// The open `file`, to which links led, under its own name.
    fn found(file: &File, stat: &Stat, to: &Path) -> io::Result<Self> {
        let number = file.descriptor().as_raw_fd();
        let path = std::fs::read_link(format!("/proc/self/fd/{number}"));
        // Without /proc it is resolved again.
        let path = path.or_else(|_| to.canonicalize())?;
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let dir = confine::open_root(parent)?;
        let there = confine::stat(&dir, name.as_bytes())?;
        if there.is_none_or(|s| (s.st_dev, s.st_ino) != (stat.st_dev, stat.st_ino)) {
            let text = "what the link leads to was moved or replaced meanwhile";
            return Err(io::Error::other(text));
        }
        Ok(Self(Ok(dir), Some(name.as_bytes().to_vec())))
    }

    fn named(file: &Path) -> Self {
        let parent = file.parent().map_or(&b""[..], |p| p.as_os_str().as_bytes());
        let name = file.file_name().unwrap_or_default();
        Self(Err(parent.to_vec()), Some(name.as_bytes().to_vec()))
    }
}

pub(super) fn dest_error(rel: &[u8], e: &io::Error) -> TransferError {
    if confine::met_a_link(e) {
        let name = path::show(rel);
        let text = format!("destination '{name}': a component is a link, which is not followed");
        return TransferError::new(Exit::DestError, text)
            .fix("name the folder that the link leads to");
    }
    let text = format!("destination '{}': {e}", path::show(rel));
    TransferError::new(Exit::of_write(e), text).fix("choose a writable destination")
}

fn special(to: &[u8]) -> TransferError {
    let text = format!(
        "destination '{}' is a device, a pipe or a socket, which is not replaced",
        path::show(to)
    );
    TransferError::new(Exit::DestError, text)
        .fix("write - for the standard output, as in `farhaul cp SRC - > FILE`")
}

fn broken_link(to: &[u8]) -> TransferError {
    let text = format!(
        "destination '{}' is a link to nothing that exists",
        path::show(to)
    );
    TransferError::new(Exit::DestError, text).fix("name what it should lead to, or remove it")
}

fn not_a_dir(rel: &[u8]) -> TransferError {
    let text = format!(
        "destination '{}' is a file, not a directory",
        path::show(rel)
    );
    TransferError::new(Exit::DestError, text).fix("name a directory, or copy a single file")
}

#[cfg(test)]
mod tests;
