//! What is there to send? A thread walks the sources and hands over manifest entries while earlier
//! ones are already on their way.
//!
//! - Every directory is opened beneath its source's root without following links, so a tree that is
//!   changed while it is walked cannot lead out of it.
//! - The files of a directory come together, in byte order; sub-directories follow.

use std::{
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
};

use rustix::fs::{FileType, Mode, OFlags, Stat};

use crate::{
    confine::{self, Dir},
    error::{Code, TransferError},
    message::{Entry, Kind},
    path,
    progress::Progress,
};

/// Batches in flight between the scanner and the sender.
const DEPTH: usize = 64;
/// Items per batch.
const BATCH: usize = 256;

/// One source: everything at or below `rel` in `root`, listed under `name`.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) root: Dir,
    /// Path within `root`; empty for `root` itself.
    pub(crate) rel: Vec<u8>,
    /// Path in the manifest; empty for the contents of a directory.
    pub(crate) name: Vec<u8>,
    /// It was a regular file when it was looked up.
    pub(crate) is_file: bool,
}

impl Source {
    /// The source that `path` names on this machine; a trailing slash means "the contents of".
    pub(crate) fn local(path: &Path) -> io::Result<Self> {
        let bytes = path.as_os_str().as_bytes();
        let real = path.canonicalize()?;
        let is_file = !real.is_dir();
        if is_file && bytes.ends_with(b"/") {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let (root, rel) = if is_file {
            let parent = real.parent().unwrap_or(Path::new("/"));
            let name = real.file_name().map(|n| n.as_bytes().to_vec());
            (confine::open_root(parent)?, name.unwrap_or_default())
        } else {
            (confine::open_root(&real)?, Vec::new())
        };
        let contents = bytes.ends_with(b"/") || bytes.ends_with(b"/.");
        let name = path.file_name().filter(|_| !contents);
        let name = name.map_or_else(Vec::new, |n| n.as_bytes().to_vec());
        Ok(Self {
            root,
            rel,
            name,
            is_file,
        })
    }

    /// The source at `rel` beneath `root`.
    pub(crate) fn beneath(root: Dir, rel: &[u8]) -> io::Result<Self> {
        let contents = rel.is_empty() || rel.ends_with(b"/");
        let rel = rel.strip_suffix(b"/").unwrap_or(rel);
        let fd = confine::open_beneath(&root, rel, OFlags::PATH, Mode::empty())?;
        let stat = rustix::fs::fstat(&fd)?;
        let is_file = FileType::from_raw_mode(stat.st_mode) != FileType::Directory;
        if is_file && contents {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let name = if contents {
            Vec::new()
        } else {
            path::split(rel).1.to_vec()
        };
        Ok(Self {
            root,
            rel: rel.to_vec(),
            name,
            is_file,
        })
    }
}

/// Looks up sources before anything is connected. Some may be missing as long as one is there.
pub(crate) fn resolve(paths: &[PathBuf]) -> Result<(Vec<Source>, Vec<Problem>), TransferError> {
    let mut sources = Vec::new();
    let mut problems = Vec::new();
    for path in paths {
        match Source::local(path) {
            Ok(source) => sources.push(source),
            Err(e) => problems.push(Problem {
                code: if e.kind() == io::ErrorKind::NotFound {
                    Code::SourceMissing
                } else {
                    Code::Partial
                },
                text: format!("{}: {e}", path::show(path.as_os_str().as_bytes())),
            }),
        }
    }
    if !sources.is_empty() {
        return Ok((sources, problems));
    }
    let names: Vec<_> = problems.iter().take(10).map(|p| p.text.as_str()).collect();
    let more = problems.len().saturating_sub(10);
    let more = if more > 0 {
        format!("\nand {more} more")
    } else {
        String::new()
    };
    let text = format!("no source can be read: {}{more}", names.join("\n"));
    Err(TransferError::new(Code::SourceMissing, text).fix("check the spelling and the permissions"))
}

/// Something that will not be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) code: Code,
    pub(crate) text: String,
}

/// An entry and where its content is.
#[derive(Clone, Debug)]
pub(crate) struct Scanned {
    pub(crate) entry: Entry,
    /// Index of the source.
    pub(crate) source: usize,
    /// Path within the source's root.
    pub(crate) rel: Vec<u8>,
}

/// From the scanner.
#[derive(Debug)]
pub(crate) enum Found {
    Entry(Box<Scanned>),
    Problem(Problem),
}

/// Starts the scanner; its channel ends when everything was listed.
pub(crate) fn start(
    sources: Vec<Source>,
    progress: Arc<Progress>,
) -> io::Result<mpsc::Receiver<Vec<Found>>> {
    let (to, from) = mpsc::sync_channel(DEPTH);
    std::thread::Builder::new()
        .name("farhaul-scan".into())
        .spawn(move || {
            let mut scanner = Scanner {
                to,
                batch: Vec::new(),
                progress,
            };
            for (i, source) in sources.iter().enumerate() {
                // An error means that nobody listens any more.
                if scanner.source(i, source).is_err() {
                    return;
                }
            }
            if scanner.flush().is_ok() {
                scanner.progress.scan_done();
            }
        })?;
    Ok(from)
}

/// The sender is gone.
struct Gone;

struct Scanner {
    to: mpsc::SyncSender<Vec<Found>>,
    batch: Vec<Found>,
    progress: Arc<Progress>,
}

impl Scanner {
    fn flush(&mut self) -> Result<(), Gone> {
        let batch = std::mem::take(&mut self.batch);
        if batch.is_empty() {
            Ok(())
        } else {
            self.to.send(batch).map_err(|_| Gone)
        }
    }

    fn push(&mut self, found: Found) -> Result<(), Gone> {
        if let Found::Entry(scanned) = &found
            && scanned.entry.kind == Kind::File
        {
            self.progress.found(scanned.entry.size);
        }
        self.batch.push(found);
        if self.batch.len() >= BATCH {
            self.flush()
        } else {
            Ok(())
        }
    }

    fn problem(&mut self, rel: &[u8], code: Code, why: &dyn std::fmt::Display) -> Result<(), Gone> {
        let text = format!("{}: {why}", path::show(rel));
        self.push(Found::Problem(Problem { code, text }))
    }

    fn source(&mut self, index: usize, source: &Source) -> Result<(), Gone> {
        if source.is_file {
            return match confine::stat(&source.root, &source.rel) {
                Ok(Some(stat)) => self.entry((index, source), &source.rel, &source.name, &stat),
                Ok(None) => self.problem(&source.rel, Code::SourceChanged, &"vanished"),
                Err(e) => self.problem(&source.rel, Code::Partial, &e),
            };
        }
        let mut stack = vec![(source.rel.clone(), source.name.clone())];
        while let Some((rel, name)) = stack.pop() {
            let mark = stack.len();
            match self.directory((index, source), &rel, &name, &mut stack)? {
                Ok(()) => stack[mark..].reverse(),
                Err(e) => self.problem(&rel, Code::of_read(&e), &e)?,
            }
        }
        Ok(())
    }

    /// Lists one directory; its sub-directories go onto the stack.
    fn directory(
        &mut self,
        source: (usize, &Source),
        rel: &[u8],
        name: &[u8],
        stack: &mut Vec<(Vec<u8>, Vec<u8>)>,
    ) -> Result<io::Result<()>, Gone> {
        let (fd, stat, names) = match list(&source.1.root, rel) {
            Ok(found) => found,
            Err(e) => return Ok(Err(e)),
        };
        self.entry(source, rel, name, &stat)?;
        for child in names {
            let child_rel = path::join(rel, &child);
            let child_name = path::join(name, &child);
            match confine::stat(&fd, &child) {
                Ok(Some(stat)) if is_dir(&stat) => stack.push((child_rel, child_name)),
                Ok(Some(stat)) => self.entry(source, &child_rel, &child_name, &stat)?,
                Ok(None) => {
                    self.problem(&child_rel, Code::SourceChanged, &"vanished after listing")?;
                }
                Err(e) => self.problem(&child_rel, Code::Partial, &e)?,
            }
        }
        Ok(Ok(()))
    }

    /// Hands over one entry.
    fn entry(
        &mut self,
        source: (usize, &Source),
        rel: &[u8],
        name: &[u8],
        stat: &Stat,
    ) -> Result<(), Gone> {
        if let Some(why) = path::refusal(name) {
            return self.problem(rel, Code::Partial, &why);
        }
        let (kind, target) = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => (Kind::File, Vec::new()),
            FileType::Directory => (Kind::Dir, Vec::new()),
            FileType::Symlink => match link_target(source.1, rel) {
                Ok(target) => (Kind::Symlink, target),
                Err(e) => return self.problem(rel, Code::Partial, &e),
            },
            _ => {
                let why = "not a file, directory or link: skipped";
                return self.problem(rel, Code::Partial, &why);
            }
        };
        if kind == Kind::Symlink
            && let Some(why) = path::link_refusal(name, &target)
        {
            let why = format!("{why} ({}): skipped", path::show(&target));
            return self.problem(rel, Code::Ok, &why);
        }
        let entry = entry_of(kind, name.to_vec(), target, stat);
        let (source, rel) = (source.0, rel.to_vec());
        self.push(Found::Entry(Box::new(Scanned { entry, source, rel })))
    }
}

fn is_dir(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

/// The manifest entry of what `stat` describes.
pub(crate) fn entry_of(kind: Kind, path: Vec<u8>, target: Vec<u8>, stat: &Stat) -> Entry {
    let size = if kind == Kind::File {
        stat.st_size.cast_unsigned()
    } else {
        0
    };
    Entry {
        kind,
        path,
        mode: u16::try_from(stat.st_mode & 0o7777).unwrap_or_default(),
        mtime: stat.st_mtime,
        mtime_nanos: u32::try_from(stat.st_mtime_nsec).unwrap_or_default(),
        size,
        allocated: stat.st_blocks.cast_unsigned().saturating_mul(512).min(size),
        target,
    }
}

/// Text of a link of at most [`path::PATH_MAX`] bytes.
fn link_target(source: &Source, rel: &[u8]) -> io::Result<Vec<u8>> {
    let (parent, name) = path::split(rel);
    let dir = confine::open_beneath(
        &source.root,
        parent,
        OFlags::PATH | OFlags::DIRECTORY,
        Mode::empty(),
    )?;
    Ok(rustix::fs::readlinkat(&dir, name, Vec::new())?.into_bytes())
}

/// The directory's handle, its facts and the names in it, sorted.
fn list(root: &Dir, rel: &[u8]) -> io::Result<(std::os::fd::OwnedFd, Stat, Vec<Vec<u8>>)> {
    let fd = confine::open_beneath(root, rel, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
    let stat = rustix::fs::fstat(&fd)?;
    let mut names = Vec::new();
    for item in rustix::fs::Dir::read_from(&fd)? {
        let item = item?;
        let name = item.file_name().to_bytes();
        if name != b"." && name != b".." && !path::is_own(name) {
            names.push(name.to_vec());
        }
    }
    names.sort_unstable();
    Ok((fd, stat, names))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    fn walk(sources: Vec<Source>) -> (Vec<(Kind, String, u64)>, Vec<Problem>) {
        let progress = Arc::new(Progress::default());
        let (mut entries, mut problems) = (Vec::new(), Vec::new());
        for found in start(sources, Arc::clone(&progress))
            .unwrap()
            .iter()
            .flatten()
        {
            match found {
                Found::Entry(s) => {
                    entries.push((s.entry.kind, path::show(&s.entry.path), s.entry.size));
                }
                Found::Problem(p) => problems.push(p),
            }
        }
        (entries, problems)
    }

    #[test]
    fn a_tree_is_listed_by_the_slash_rule() {
        let tmp = tempfile::tempdir().unwrap();
        let base = tmp.path().join("src");
        fs::create_dir_all(base.join("b/empty")).unwrap();
        fs::write(base.join("b/2"), "22").unwrap();
        fs::write(base.join("a"), "").unwrap();
        fs::write(base.join(".x.00000000.farhaul-part"), "own").unwrap();
        symlink("b/2", base.join("good")).unwrap();
        symlink("/etc", base.join("bad")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            base.join("fifo"),
            FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        let (entries, problems) = walk(vec![Source::local(&base).unwrap()]);
        let names: Vec<_> = entries.iter().map(|(_, n, s)| (n.as_str(), *s)).collect();
        assert_eq!(
            names,
            [
                ("src", 0),
                ("src/a", 0),
                ("src/good", 0),
                ("src/b", 0),
                ("src/b/2", 2),
                ("src/b/empty", 0)
            ]
        );
        assert_eq!(
            problems.iter().map(|p| p.code).collect::<Vec<_>>(),
            [Code::Ok, Code::Partial]
        );
        let slash = tmp.path().join("src/");
        let (contents, _) = walk(vec![Source::local(&slash).unwrap()]);
        assert_eq!(contents[0], (Kind::Dir, String::new(), 0));
        assert_eq!(contents[1].1, "a");
        let (one, _) = walk(vec![Source::local(&base.join("b/2")).unwrap()]);
        assert_eq!(one, [(Kind::File, "2".into(), 2)]);
        let root = confine::open_root(tmp.path()).unwrap();
        let (far, _) = walk(vec![Source::beneath(Arc::clone(&root), b"src/b").unwrap()]);
        assert_eq!(far.last().unwrap().1, "b/empty");
        assert!(Source::beneath(Arc::clone(&root), b"src/../../x").is_err());
        assert!(Source::beneath(root, b"src/bad/hostname").is_err());
    }

    #[test]
    fn missing_sources_are_named() {
        let e = resolve(&["/nonexistent/a".into(), "/nonexistent/b".into()]).unwrap_err();
        assert_eq!(e.code, Code::SourceMissing);
        assert!(e.text.contains("/nonexistent/a") && e.text.contains("/nonexistent/b"));
        let tmp = tempfile::tempdir().unwrap();
        let (sources, problems) = resolve(&[tmp.path().into(), "/nonexistent/b".into()]).unwrap();
        assert_eq!((sources.len(), problems.len()), (1, 1));
    }
}
