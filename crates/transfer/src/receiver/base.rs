//! Where do arriving files go? The destination as it was typed, by rsync's rule, becomes a directory
//! handle and, for a single file that gets a new name, that name.

use std::{io, os::unix::ffi::OsStrExt, path::Path, sync::Arc};

use rustix::fs::{FileType, Mode, OFlags};

use crate::{
    confine::{self, Dir},
    error::{Code, TransferError},
    path,
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
        let wants_dir = rel.is_empty() || rel.ends_with(b"/");
        let rel = rel.strip_suffix(b"/").unwrap_or(rel);
        if let Some(why) = path::refusal(rel) {
            let text = format!("'{}' is not a path in a share: {why}", path::show(rel));
            return Err(TransferError::new(Code::DestError, text).fix("use a plain relative path"));
        }
        let error = |e: &io::Error| dest_error(rel, e);
        let there = match confine::open_beneath(root, rel, OFlags::PATH, Mode::empty()) {
            Ok(fd) => Some(fd),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(error(&e)),
        };
        let kind = match &there {
            Some(fd) => {
                let stat = rustix::fs::fstat(fd).map_err(|e| error(&e.into()))?;
                Some(FileType::from_raw_mode(stat.st_mode))
            }
            None => None,
        };
        match (there, kind) {
            (Some(fd), Some(FileType::Directory)) => Ok(Self {
                dir: Arc::new(fd),
                rename: None,
            }),
            (Some(_), _) if wants_dir || !one_file => Err(not_a_dir(rel)),
            (None, _) if wants_dir || !one_file => {
                let dir = confine::make_path(root, rel).map_err(|e| error(&e))?;
                Ok(Self { dir, rename: None })
            }
            _ => {
                let (parent, name) = path::split(rel);
                let dir = confine::make_path(root, parent).map_err(|e| error(&e))?;
                Ok(Self {
                    dir,
                    rename: Some(name.to_vec()),
                })
            }
        }
    }

    /// `to` on this machine.
    pub(crate) fn local(to: &Path, one_file: bool) -> Result<Self, TransferError> {
        let bytes = to.as_os_str().as_bytes();
        let error = |e: &io::Error| dest_error(bytes, e);
        let wants_dir = bytes.ends_with(b"/") || bytes.ends_with(b"/.") || to.file_name().is_none();
        let open = |dir: &Path| confine::open_root(dir).map_err(|e| error(&e));
        match to.metadata() {
            Ok(meta) if meta.is_dir() => Ok(Self {
                dir: open(to)?,
                rename: None,
            }),
            Ok(_) if wants_dir || !one_file => Err(not_a_dir(bytes)),
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(error(&e)),
            Err(_) if wants_dir || !one_file => {
                std::fs::create_dir_all(to).map_err(|e| error(&e))?;
                Ok(Self {
                    dir: open(to)?,
                    rename: None,
                })
            }
            _ => {
                let parent = to.parent().filter(|p| !p.as_os_str().is_empty());
                let parent = parent.unwrap_or(Path::new("."));
                std::fs::create_dir_all(parent).map_err(|e| error(&e))?;
                let name = to.file_name().map(|n| n.as_bytes().to_vec());
                Ok(Self {
                    dir: open(parent)?,
                    rename: name,
                })
            }
        }
    }
}

fn dest_error(rel: &[u8], e: &io::Error) -> TransferError {
    let text = format!("destination '{}': {e}", path::show(rel));
    TransferError::new(Code::of_write(e), text).fix("choose a destination that can be written")
}

fn not_a_dir(rel: &[u8]) -> TransferError {
    let text = format!(
        "destination '{}' is a file, not a directory",
        path::show(rel)
    );
    TransferError::new(Code::DestError, text).fix("name a directory, or copy a single file")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_slash_rule_holds_in_a_share_and_here() {
        let tmp = tempfile::tempdir().unwrap();
        fs::create_dir(tmp.path().join("dir")).unwrap();
        fs::write(tmp.path().join("file"), "").unwrap();
        std::os::unix::fs::symlink("..", tmp.path().join("dir/up")).unwrap();
        let root = confine::open_root(tmp.path()).unwrap();
        let far = |rel: &str, one| Base::beneath(&root, rel.as_bytes(), one).map(|b| b.rename);
        let here = |rel: &str, one| {
            let text = format!("{}/{rel}", tmp.path().display());
            Base::local(Path::new(&text), one).map(|b| b.rename)
        };
        for i in 0..2 {
            let base = |rel: &str, one| {
                if i == 0 {
                    far(rel, one)
                } else {
                    here(rel, one)
                }
            };
            assert_eq!(base("dir", true).unwrap(), None);
            assert_eq!(base("dir/", false).unwrap(), None);
            assert_eq!(base("file", true).unwrap().unwrap(), b"file");
            assert_eq!(
                base(&format!("new{i}/name"), true).unwrap().unwrap(),
                b"name"
            );
            assert_eq!(base(&format!("tree{i}"), false).unwrap(), None);
            assert_eq!(base(&format!("slash{i}/"), true).unwrap(), None);
            assert!(tmp.path().join(format!("tree{i}")).is_dir());
            assert!(tmp.path().join(format!("slash{i}")).is_dir());
            assert_eq!(base("file", false).unwrap_err().code, Code::DestError);
            assert_eq!(base("file/", true).unwrap_err().code, Code::DestError);
        }
        for escape in ["../x", "/etc", "dir/up/x", "dir/up"] {
            assert_eq!(
                far(escape, false).unwrap_err().code,
                Code::DestError,
                "{escape}"
            );
        }
    }
}
