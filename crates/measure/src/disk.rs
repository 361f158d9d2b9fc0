//! Opens files in a folder that may have come from elsewhere, as from an archive. It opens only
//! regular ones, never through a link, and without waiting for the other end of a pipe.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Read as _, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;
use tempfile::{Builder, TempPath};

/// The longest file that a user writes by hand: a study, a scenario, a table.
const WRITTEN: u64 = 16 << 20;

/// Opens a file of ours as `how` says.
pub fn open(path: &Path, how: &mut OpenOptions) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = i32::try_from(flags.bits()).map_err(io::Error::other)?;
    let refused = |e: io::Error| match fs::symlink_metadata(path) {
        Ok(is) if !is.is_file() => not_regular(path),
        _ => e,
    };
    let file = how.custom_flags(flags).open(path).map_err(refused)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(not_regular(path))
    }
}

fn not_regular(path: &Path) -> io::Error {
    let name = path.file_name().unwrap_or(path.as_os_str());
    let text = format!("{} is not a regular file: remove it", name.display());
    io::Error::new(ErrorKind::InvalidData, text)
}

/// A file of ours; none if it is not there.
pub fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match open(path, OpenOptions::new().read(true)) {
        Ok(file) => bounded(file).map(Some),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// The text of a file that the user names, following links.
pub fn text(path: &Path) -> io::Result<String> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    String::from_utf8(bounded(File::open(path)?)?)
        .map_err(|_| io::Error::new(ErrorKind::InvalidData, "it is not text in UTF-8"))
}

fn bounded(file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(WRITTEN + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > WRITTEN {
        let text = format!("it is longer than {WRITTEN} bytes");
        return Err(io::Error::other(text));
    }
    Ok(bytes)
}

/// Writes a file at once or not at all.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    prepare(path, bytes)?.persist(path).map_err(|e| e.error)
}

/// Everything but the name; removed again if it does not get it.
pub fn prepare(path: &Path, bytes: &[u8]) -> io::Result<TempPath> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let folder = path.parent().map_or_else(PathBuf::new, Path::to_path_buf);
    // The umask applies.
    let mut file = Builder::new()
        .prefix(&format!(".{name}."))
        .suffix(".tmp")
        .permissions(fs::Permissions::from_mode(0o666))
        .tempfile_in(folder)?;
    file.write_all(bytes)?;
    // Some file systems report only here that they are full; and after a power loss the name would be
    // that of an empty file.
    file.as_file().sync_all()?;
    Ok(file.into_temp_path())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn links_and_pipes_are_refused_at_once() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::write(at("victim"), "kept").unwrap();
        symlink("victim", at("link")).unwrap();
        mknodat(CWD, at("pipe"), FileType::Fifo, Mode::from(0o600), 0).unwrap();
        for name in ["link", "pipe"] {
            for how in [
                OpenOptions::new().read(true),
                OpenOptions::new().append(true).create(true),
            ] {
                let error = open(&at(name), how).unwrap_err().to_string();
                assert_eq!(error, format!("{name} is not a regular file: remove it"));
            }
        }
        replace(&at("link"), b"new").unwrap();
        assert_eq!(fs::read(at("victim")).unwrap(), b"kept");
        assert_eq!(read(&at("link")).unwrap().unwrap(), b"new");
        assert!(read(&at("none")).unwrap().is_none());
        for name in ["pipe", "/dev/zero"] {
            let error = text(&at(name)).unwrap_err().to_string();
            assert_eq!(error, "it is not a regular file");
        }
        let large = File::create(at("large")).unwrap();
        large.set_len(WRITTEN + 1).unwrap();
        assert!(
            text(&at("large"))
                .unwrap_err()
                .to_string()
                .contains("longer")
        );
    }
}
