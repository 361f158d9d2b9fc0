//! Trees of files that demonstrations and measurements copy. Folders are made, measured and
//! compared here, with no help from the code that is being shown.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use farhaul_transfer::is_state;

/// Contents of a folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Content {
    /// Regular files.
    pub(crate) files: u64,
    /// Bytes of the files.
    pub(crate) bytes: u64,
}

/// Regular files below `folder` with their sizes, in order. Links are left out, and so is what interrupted copies left, which
/// `cp` does not send.
fn walk(folder: &Path) -> io::Result<Vec<(PathBuf, u64)>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() && !is_state(entry.file_name().as_bytes()) {
                found.push((entry.path(), entry.metadata()?.len()));
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Counts `path`, a file or a folder.
pub(crate) fn content(path: &Path) -> io::Result<Content> {
    let meta = fs::metadata(path)?;
    if meta.is_file() {
        return Ok(Content {
            files: 1,
            bytes: meta.len(),
        });
    }
    Ok(walk(path)?
        .iter()
        .fold(Content::default(), |sum, (_, n)| Content {
            files: sum.files + 1,
            bytes: sum.bytes + n,
        }))
}

/// Copies files of `from` into `into`, with their relative paths, until `most` bytes are copied.
pub(crate) fn stage(from: &Path, into: &Path, most: u64) -> io::Result<Content> {
    let mut staged = Content::default();
    for (path, size) in walk(from)? {
        if staged.bytes + size > most {
            continue;
        }
        let target = into.join(path.strip_prefix(from).unwrap_or(&path));
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        // A build that goes on meanwhile may take files away.
        if fs::copy(&path, &target).is_ok() {
            staged.files += 1;
            staged.bytes += size;
        }
    }
    Ok(staged)
}

/// The first file of `from` that is not the same in `to`; none if all are.
pub(crate) fn first_difference(from: &Path, to: &Path) -> io::Result<Option<PathBuf>> {
    if fs::metadata(from)?.is_file() {
        return Ok((!same(from, to)?).then(|| from.to_path_buf()));
    }
    for (path, _) in walk(from)? {
        let twin = to.join(path.strip_prefix(from).unwrap_or(&path));
        if !twin.is_file() || !same(&path, &twin)? {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

fn same(one: &Path, other: &Path) -> io::Result<bool> {
    let (mut one, mut other) = (File::open(one)?, File::open(other)?);
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let (mut x, mut y) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    loop {
        let n = one.read(&mut x)?;
        if n == 0 {
            return Ok(true);
        }
        other.read_exact(&mut y[..n])?;
        if x[..n] != y[..n] {
            return Ok(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_are_staged_and_compared() {
        let below = tempfile::tempdir().unwrap();
        let (a, b) = (below.path().join("a"), below.path().join("b"));
        fs::create_dir_all(a.join("deep")).unwrap();
        fs::create_dir(&b).unwrap();
        for (name, byte, size) in [
            ("000000", 1, 3_000_000),
            ("000001", 2, 3_000_000),
            ("deep/000000", 3, 10),
            (".x.0707070707070707.farhaul-part", 4, 10),
        ] {
            fs::write(a.join(name), vec![byte; size]).unwrap();
        }
        let all = Content {
            files: 3,
            bytes: 6_000_010,
        };
        assert_eq!(content(&a).unwrap(), all);
        assert_eq!(stage(&a, &b, 3_500_000).unwrap().files, 2);
        assert_eq!(
            first_difference(&a, &b).unwrap(),
            Some(a.join("000001")),
            "the second large one did not fit"
        );
        assert_eq!(stage(&a, &b, u64::MAX).unwrap(), all);
        assert_eq!(first_difference(&a, &b).unwrap(), None);
        fs::write(b.join("deep/000000"), [0; 10]).unwrap();
        assert_eq!(
            first_difference(&a, &b).unwrap(),
            Some(a.join("deep/000000"))
        );
    }
}
