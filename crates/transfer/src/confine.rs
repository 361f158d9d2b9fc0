//! Opens paths so that they cannot leave their tree: relative to a directory handle, by `openat2`
//! with `RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS`. Where the kernel lacks
//! `openat2`, paths are opened component by component without following links.
//!
//! - No path string is ever resolved twice: an entry to create, rename or remove is named by one
//!   component relative to a directory handle.

use std::{
    collections::VecDeque,
    io::{self, Read as _},
    ops::Range,
    path::Path,
    sync::Arc,
};

use rustix::{
    fs::{FileType, Mode, OFlags, ResolveFlags, Stat},
    io::Errno,
};

use crate::{
    disk::{self, File},
    wire::path,
};

/// Tries to open something beneath folders that are renamed all the time.
const TRIES: u32 = 1000;
/// Directory handles kept open.
const DIRS: usize = 64;
const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);
const HANDLE: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);

/// A directory handle shared between threads.
pub(crate) type Dir = Arc<File>;

/// Opens the directory at `path`, following links, as the path is the user's.
pub(crate) fn open_root(path: &Path) -> io::Result<Dir> {
    Ok(Arc::new(File::open(path, HANDLE)?))
}

/// Opens `rel` beneath `dir`; an empty `rel` is `dir` itself.
pub(crate) fn open_beneath(dir: &File, rel: &[u8], flags: OFlags) -> io::Result<File> {
    let rel = if rel.is_empty() { b"." } else { rel };
    match retried(|| dir.openat2(rel, flags, Mode::empty(), BENEATH)) {
        Err(e) if may_be_forbidden(e) => open_stepwise(dir, rel, flags),
        other => Ok(other?),
    }
}

/// Target of the link at `rel` beneath `root`: its path without links, and facts. A link that leads out of the root is
/// an error, unless that is the root of the machine.
pub(crate) fn follow(root: &File, rel: &[u8]) -> io::Result<(Vec<u8>, Stat)> {
    let top = root.path()?;
    let inside = if top == b"/" {
        ResolveFlags::IN_ROOT
    } else {
        ResolveFlags::BENEATH
    };
    let resolve = inside.union(ResolveFlags::NO_MAGICLINKS);
    let found = retried(|| root.openat2(rel, OFlags::PATH, Mode::empty(), resolve))?;
    let (path, stat) = (found.path()?, found.stat()?);
    let below = path.strip_prefix(&top[..]).ok_or_else(swapped)?;
    Ok((below.strip_prefix(b"/").unwrap_or(below).to_vec(), stat))
}

/// Opens, again if a concurrent rename made the kernel unsure.
fn retried(mut open: impl FnMut() -> rustix::io::Result<File>) -> rustix::io::Result<File> {
    for _ in 1..TRIES {
        match open() {
            Err(Errno::AGAIN) => {}
            other => return other,
        }
    }
    open()
}

/// True if it may be the system call that is refused, not the file: containers' filters answer one
/// they do not know in several ways. Which one it was is found step by step.
const fn may_be_forbidden(e: Errno) -> bool {
    matches!(e, Errno::NOSYS | Errno::PERM | Errno::ACCESS)
}

fn open_stepwise(dir: &File, rel: &[u8], flags: OFlags) -> io::Result<File> {
    if rel != b"." && path::refusal(rel).is_some() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let (parents, name) = path::split(rel);
    let flags = flags | OFlags::NOFOLLOW;
    let mut at: Option<File> = None;
    for step in parents.split(|b| *b == b'/').filter(|s| !s.is_empty()) {
        let from = at.as_ref().unwrap_or(dir);
        at = Some(from.openat(step, HANDLE | OFlags::NOFOLLOW)?);
    }
    let file = at.as_ref().unwrap_or(dir).openat(name, flags)?;
    // A handle on a link is given out without following it; `openat2` gives none.
    if flags.contains(OFlags::PATH)
        && FileType::from_raw_mode(file.stat()?.st_mode) == FileType::Symlink
    {
        return Err(Errno::LOOP.into());
    }
    Ok(file)
}

/// Opens a regular file for reading; never waits on a pipe or a device that took its name.
pub(crate) fn open_to_read(dir: &File, rel: &[u8]) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = open_beneath(dir, rel, flags)?;
    regular(&file.stat()?)?;
    Ok(file)
}

/// Reads all of the regular file at `path`, of at most `most` bytes, following links, as the path
/// is the user's.
pub fn read_whole(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::open(path, flags)?;
    regular(&file.stat()?)?;
    let mut bytes = Vec::new();
    let file = file.reader();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other(format!("it is longer than {most} bytes")));
    }
    Ok(bytes)
}

fn regular(stat: &Stat) -> io::Result<()> {
    if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
        return Ok(());
    }
    Err(io::Error::other("it is not a regular file"))
}

/// Opens a file that a run of ours made, to read and write. The file has to be regular, with no
/// other name, and `check` must find nothing wrong with it. Never waits on a file that took its
/// place, and does not open a device at all.
pub(crate) fn open_own(
    dir: &File,
    name: &[u8],
    check: impl FnOnce(&Stat) -> io::Result<()>,
) -> io::Result<File> {
    let there = stat(dir, name)?.ok_or(io::ErrorKind::NotFound)?;
    regular(&there)?;
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = dir.openat(name, flags)?;
    let stat = file.stat()?;
    regular(&stat)?;
    if stat.st_nlink > 1 {
        return Err(io::Error::other("it has another name too (a hard link)"));
    }
    check(&stat)?;
    Ok(file)
}

/// Opens a file of ours as [`open_own`] does, also if its permissions keep its owner from writing:
/// it was about to get its name.
pub(crate) fn open_own_anyway(
    dir: &File,
    name: &[u8],
    check: &dyn Fn(&Stat) -> io::Result<()>,
) -> io::Result<File> {
    match open_own(dir, name, check) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {}
        opened => return opened,
    }
    let handle = dir.openat(name, OFlags::PATH | OFlags::NOFOLLOW)?;
    let stat = handle.stat()?;
    regular(&stat)?;
    check(&stat)?;
    handle.set_mode_by_handle(Mode::RUSR | Mode::WUSR)?;
    open_own(dir, name, check)
}

/// Owner of a file that we make in `dir`, for which `name` is free: some file systems do not keep
/// the owner, or map it.
pub(crate) fn owner_of_new(dir: &File, name: &[u8]) -> io::Result<u32> {
    let made = create_anew(dir, name)?;
    let stat = made.stat()?;
    remove(dir, name)?;
    Ok(stat.st_uid)
}

/// True if `name` in `dir` is the file that is open.
pub(crate) fn is_called(file: &File, dir: &File, name: &[u8]) -> io::Result<bool> {
    let open = file.stat()?;
    let there = stat(dir, name)?;
    Ok(there.is_some_and(|s| (s.st_dev, s.st_ino) == (open.st_dev, open.st_ino)))
}

/// Removes the name of something that is no directory; it may be gone already.
pub(crate) fn remove(dir: &File, name: &[u8]) -> io::Result<()> {
    match dir.unlinkat(name) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// Facts about `name` in `dir`, not following a link; `None` if there is nothing.
pub(crate) fn stat(dir: &File, name: &[u8]) -> io::Result<Option<Stat>> {
    match dir.statat(name) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// True if a regular file is at `rel` beneath `dir`, following links within it.
pub(crate) fn is_file(dir: &File, rel: &[u8]) -> bool {
    let found = open_beneath(dir, rel, OFlags::PATH);
    let found = found.and_then(|file| Ok(file.stat()?));
    found.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
}

/// True if a path could not be followed because of a link in it.
pub(crate) fn met_a_link(e: &io::Error) -> bool {
    e.raw_os_error() == Some(Errno::LOOP.raw_os_error())
}

/// True for a folder.
pub(crate) fn is_dir(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

/// Kind of file that `stat` describes, if it may not be replaced by a file. Only its owner can know
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

/// Makes the file `name` in `dir`, where nothing may have this name.
pub(crate) fn create(dir: &File, name: &[u8]) -> io::Result<File> {
    Ok(dir.create(name, Mode::RUSR | Mode::WUSR)?)
}

/// Makes the file `name` in `dir`, never one that may be open elsewhere: an existing one is removed.
pub(crate) fn create_anew(dir: &File, name: &[u8]) -> io::Result<File> {
    match create(dir, name) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            remove(dir, name)?;
            create(dir, name)
        }
        made => made,
    }
}

/// Makes a hole of `range` of a file, whatever it held; false where the file system has no such thing.
pub(crate) fn punch(file: &File, range: &Range<u64>) -> io::Result<bool> {
    match file.punch(range) {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Makes `range` of a file a hole, or zeros where the file system has none.
pub(crate) fn make_hole(file: &File, range: &Range<u64>) -> io::Result<()> {
    if punch(file, range)? {
        return Ok(());
    }
    let zeros = [0; 16 << 10];
    let mut at = range.start;
    while at < range.end {
        let n = usize::try_from(range.end - at).map_or(zeros.len(), |n| n.min(zeros.len()));
        file.write_all_at(&zeros[..n], at)?;
        at += n as u64;
    }
    Ok(())
}

/// Gives the file that is open as `file`, and was made as `part` in `dir`, the name `name` there. What
/// has that name is replaced if `replace`; else nothing is, including what was created meanwhile.
///
/// Gives the verified file its name. A name may lead to another file than the verified one: another
/// program may have put it there, or a directory may ignore case. So the inode is checked before
/// and after.
pub(crate) fn give_name(
    file: &File,
    dir: &Dir,
    part: &[u8],
    name: &[u8],
    replace: bool,
) -> io::Result<()> {
    if !is_sole_name(file, dir, part)? {
        return Err(swapped());
    }
    if replace {
        dir.rename(part, name)?;
    } else {
        rename_new(dir, part, name)?;
    }
    if !is_sole_name(file, dir, name)? {
        return Err(swapped());
    }
    Ok(())
}

/// Fails if nothing can be made or removed in `dir`. A directory that is `closed` would be opened to its
/// owner.
pub(crate) fn may_change(dir: &File, closed: bool) -> io::Result<()> {
    match dir.may_be_written() {
        Err(_) if closed && !dir.is_anothers(b"") => Ok(()),
        may => Ok(may?),
    }
}

/// The name with `suffix` of the file called `name` in `dir`, if a backup may have it.
pub(crate) fn backup_name(dir: &File, name: &[u8], suffix: &[u8]) -> io::Result<Vec<u8>> {
    let to = [name, suffix].concat();
    if to.len() > path::NAME_MAX {
        let text = "its name is too long for that of a backup: give a shorter --backup=SUFFIX";
        return Err(io::Error::other(text));
    }
    if path::reserved(&to, true).is_some() {
        let text = "the name of its backup is reserved for the state of copies: give another --backup=SUFFIX";
        return Err(io::Error::other(text));
    }
    if let Some(there) = stat(dir, &to)? {
        if FileType::from_raw_mode(there.st_mode) == FileType::Directory {
            return Err(io::Error::other("a folder has the name of its backup"));
        }
        if let Some(why) = is_special(&there) {
            return Err(io::Error::other(format!("its backup: {why}")));
        }
    }
    Ok(to)
}

/// Gives the file called `name` in `dir` that name with `suffix` too. If `keep`, `name` itself
/// stays where it will be replaced, so that there is no moment without it.
pub(crate) fn back_up(dir: &File, name: &[u8], suffix: &[u8], keep: bool) -> io::Result<()> {
    if stat(dir, name)?.is_none() {
        return Ok(());
    }
    let to = backup_name(dir, name, suffix)?;
    if keep {
        remove(dir, &to)?;
        match dir.hard_link(dir, name, &to) {
            // Where there are no hard links, or none to the files of others.
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK) => {}
            done => return Ok(done?),
        }
    }
    Ok(dir.rename(name, &to)?)
}

/// Removes `part` from `dir` if it still is the open `file`.
pub(crate) fn remove_part(file: &File, dir: &Dir, part: &[u8]) -> io::Result<()> {
    if is_called(file, dir, part)? {
        remove(dir, part)?;
    }
    Ok(())
}

/// Error for a name that led to another file than the one that was received.
pub(crate) fn swapped() -> io::Error {
    io::Error::other(
        "what was received was replaced or linked by another program, or by another file whose name differs only in case",
    )
}

/// True if `name` in `dir` is the open `file`, which has no other name.
fn is_sole_name(file: &File, dir: &Dir, name: &[u8]) -> io::Result<bool> {
    Ok(file.stat()?.st_nlink <= 1 && is_called(file, dir, name)?)
}

/// Renames unless something has the new name.
pub(crate) fn rename_new(dir: &Dir, part: &[u8], name: &[u8]) -> io::Result<()> {
    move_new(dir, part, dir, (name, false)).map_err(|e| match e.kind() {
        io::ErrorKind::AlreadyExists => {
            let text = "something has this name since the copy began, or a name that differs only in case: it is not replaced";
            io::Error::new(io::ErrorKind::AlreadyExists, text)
        }
        _ => e,
    })
}

/// Gives the entry `from` of `dir`, a folder or not, a name in `into` that nothing has.
pub(crate) fn move_new(
    dir: &Dir,
    from: &[u8],
    into: &Dir,
    (name, is_folder): (&[u8], bool),
) -> io::Result<()> {
    match dir.rename_new(from, into, name) {
        // The file system, or a filter of system calls, does not know it: the name is taken first.
        Err(Errno::INVAL | Errno::NOSYS | Errno::PERM | Errno::OPNOTSUPP) => {
            Ok(move_taking(dir, from, into, (name, is_folder))?)
        }
        moved => Ok(moved?),
    }
}

/// Renames in two steps: an empty file or folder takes the name, then the rename replaces that.
fn move_taking(
    dir: &Dir,
    from: &[u8],
    into: &Dir,
    (name, is_folder): (&[u8], bool),
) -> rustix::io::Result<()> {
    if is_folder {
        into.mkdirat(name, Mode::RWXU)?;
    } else {
        drop(into.create(name, Mode::RUSR | Mode::WUSR)?);
    }
    let renamed = dir.rename_to(from, into, name);
    if renamed.is_err() {
        if is_folder {
            into.rmdirat(name)?;
        } else {
            into.unlinkat(name)?;
        }
    }
    renamed
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
        let dir = Arc::new(disk::sparing(|| open_beneath(&self.root, rel, flags))?);
        self.open.push_back((rel.to_vec(), Arc::clone(&dir)));
        let more = self.open.len().saturating_sub(dir.kept(DIRS));
        self.open.drain(..more);
        Ok(dir)
    }

    /// Makes the directory `rel` in its existing parent; true if it was not there. The directory
    /// has `mode` and what its owner needs to fill it. So a run that ends here leaves the directory
    /// as the next one expects it.
    pub(crate) fn make_dir(&mut self, rel: &[u8], mode: Mode) -> io::Result<bool> {
        if rel.is_empty() {
            return Ok(false);
        }
        let (parent, name) = path::split(rel);
        let parent = self.dir(parent)?;
        match parent.mkdirat(name, mode | Mode::RWXU) {
            Ok(()) => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY;
                let made = open_beneath(&parent, name, flags)?;
                // Independent of the umask.
                set_permissions(&made, mode | Mode::RWXU)?;
                Ok(true)
            }
            Err(Errno::EXIST) => {
                self.dir(rel)?;
                Ok(false)
            }
            Err(e) => Err(e.into()),
        }
    }
}

/// Gives the directory `dir` these permissions; its other bits stay, as the group that is handed on
/// to new entries.
pub(crate) fn set_permissions(dir: &File, mode: Mode) -> io::Result<()> {
    let there = dir.stat()?.st_mode;
    let wanted = Mode::from_raw_mode(there & 0o7000) | mode;
    if wanted.as_raw_mode() != there & 0o7777 {
        dir.set_mode(wanted)?;
    }
    Ok(())
}

/// Number of times that a folder is opened again for one act.
const OPENED: u32 = 3;

/// Acts in the directory `dir`. If it is `closed` to its owner at the source, another copy that
/// ended may have closed it here. Then it is opened to its owner, who closes it again at the end.
pub(crate) fn inside<T>(
    dir: &File,
    closed: bool,
    mut act: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    for _ in 0..OPENED {
        match act() {
            Err(e) if closed && e.kind() == io::ErrorKind::PermissionDenied => {
                // A process that does not own the directory cannot; if it is open by now, another
                // worker has opened it.
                if open_to_owner(dir).is_err() {
                    return Err(e);
                }
            }
            done => return done,
        }
    }
    act()
}

/// Lets the owner of the directory read and fill it.
fn open_to_owner(dir: &File) -> io::Result<()> {
    let there = Mode::from_raw_mode(dir.stat()?.st_mode & 0o7777);
    if there.contains(Mode::RWXU) {
        return Ok(());
    }
    Ok(dir.set_mode_by_handle(there | Mode::RWXU)?)
}

/// Acts on `rel` beneath `root`, on the way to which are `closed` directories, the outermost first.
/// They are opened to their owner if the act fails without.
pub(crate) fn through<'a, T>(
    root: &File,
    closed: &(impl Iterator<Item = &'a [u8]> + Clone),
    mut act: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    for _ in 0..OPENED {
        match act() {
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                let open = |dir: &[u8]| open_to_owner(&open_beneath(root, dir, HANDLE)?);
                if closed.clone().count() == 0 || closed.clone().try_for_each(open).is_err() {
                    return Err(e);
                }
            }
            done => return done,
        }
    }
    act()
}

/// Makes `rel` and its parents beneath `root`; returns a handle on it.
pub(crate) fn make_path(root: &Dir, rel: &[u8]) -> io::Result<Dir> {
    let mut at = Arc::clone(root);
    for name in rel.split(|b| *b == b'/').filter(|n| !n.is_empty()) {
        match at.mkdirat(name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(e.into()),
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        at = Arc::new(open_beneath(&at, name, flags)?);
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
                open_stepwise(&root, escape, flags).is_err(),
                "{}",
                path::show(escape)
            );
        }
        assert!(open_stepwise(&root, b"sub/file", OFlags::RDONLY).is_ok());
        let mut tree = Tree::new(Arc::clone(&root));
        assert!(tree.make_dir(b"sub/new", Mode::RWXU).unwrap());
        assert!(!tree.make_dir(b"sub/new", Mode::RWXU).unwrap());
        assert!(tree.make_dir(b"up/new", Mode::RWXU).is_err());
        assert!(
            tree.make_dir(b"in", Mode::RWXU).is_err(),
            "a link is not a directory"
        );
        assert!(make_path(&root, b"a/b/c").is_ok());
        assert!(make_path(&root, b"up/x").is_err());
        assert!(base.join("tree/a/b/c").is_dir());
    }

    #[test]
    fn a_refused_system_call_is_not_a_refused_file() {
        let tmp = tempfile::tempdir().unwrap();
        fs::write(tmp.path().join("f"), "f").unwrap();
        symlink("f", tmp.path().join("l")).unwrap();
        let root = open_root(tmp.path()).unwrap();
        for e in [Errno::NOSYS, Errno::PERM, Errno::ACCESS] {
            assert!(may_be_forbidden(e));
        }
        assert!(!may_be_forbidden(Errno::LOOP) && !may_be_forbidden(Errno::NOENT));
        // Both ways answer alike.
        for flags in [OFlags::RDONLY, OFlags::PATH] {
            for name in [&b"f"[..], b"l", b"none", b"f/x"] {
                let kernel = open_beneath(&root, name, flags);
                let steps = open_stepwise(&root, name, flags);
                let of = |file: io::Result<File>| {
                    file.map(|file| file.stat().unwrap().st_ino)
                        .map_err(|e| e.raw_os_error())
                };
                assert_eq!(of(kernel), of(steps), "{}", path::show(name));
            }
        }
        let mut answers = [Err(Errno::AGAIN), Err(Errno::AGAIN), Err(Errno::PERM)].into_iter();
        assert_eq!(
            retried(|| answers.next().unwrap()).unwrap_err(),
            Errno::PERM
        );
    }

    #[test]
    fn only_the_verified_file_gets_the_name() {
        let tmp = tempfile::tempdir().unwrap();
        let at = |name: &str| tmp.path().join(name);
        let dir = open_root(tmp.path()).unwrap();
        let made = || create_anew(&dir, b"part").unwrap();
        let name = |file: &File, replace| give_name(file, &dir, b"part", b"name", replace);
        // Another file under the part's name, as a casefolded directory would give `A` and `a` one part.
        let (first, second) = (made(), made());
        assert!(name(&first, true).is_err());
        assert!(!at("name").exists(), "nothing was renamed");
        name(&second, false).unwrap();
        // Something was created meanwhile.
        let third = made();
        let e = name(&third, false).unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::AlreadyExists);
        name(&third, true).unwrap();
        let taking = || move_taking(&dir, b"part", &dir, (b"name", false));
        create_anew(&dir, b"part").unwrap();
        assert_eq!(taking(), Err(Errno::EXIST));
        fs::remove_file(at("name")).unwrap();
        taking().unwrap();
        assert!(at("name").exists() && !at("part").exists());
        // A second name, by which it could still be written.
        let fourth = made();
        fs::hard_link(at("part"), at("other")).unwrap();
        assert!(name(&fourth, true).is_err());
        assert!(at("part").exists());
        // A link in its place.
        fs::remove_file(at("part")).unwrap();
        symlink("other", at("part")).unwrap();
        fs::remove_file(at("other")).unwrap();
        assert!(name(&fourth, true).is_err());
        assert!(at("name").symlink_metadata().unwrap().is_file());
    }
}
