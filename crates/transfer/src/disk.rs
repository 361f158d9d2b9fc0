//! Makes the file system calls of a transfer. Every call on its files is a method of [`File`], so
//! that a test can be put between the transfer and its disk. Such a test can refuse a call, shorten
//! a write, let a call take time, and record the order of calls.
//!
//! - A file opened beneath a handle has its handle's [`Interposer`]. In production there is none,
//!   and a call costs one branch more.
//! - The real file system stays underneath: a call that is not refused is made.

use std::{
    ffi::CString,
    fmt,
    io::{self, IoSliceMut},
    ops::Range,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
    path::Path,
    sync::Arc,
    time::Duration,
};

use nix::{
    fcntl::{FcntlArg, fcntl},
    libc,
};
use rustix::{
    fs::{
        Access, Advice, AtFlags, FallocateFlags, FlockOperation, Mode, OFlags, RawDir, RenameFlags,
        ResolveFlags, SeekFrom, Stat, StatVfs, Timestamps, XattrFlags,
    },
    io::{Errno, Result},
    process::{Gid, Resource, Uid, getrlimit},
};

use crate::{
    facts,
    lacks::{self, Lacks},
};

/// A call on a file or on a name in a directory.
#[derive(Clone, Debug)]
pub enum Call<'a> {
    /// Opens an existing file.
    Open(&'a [u8]),
    /// Makes a file where none is.
    Create(&'a [u8], Mode),
    /// Reads metadata: of the file, or of a name in it.
    Look,
    /// Reads the next name in a directory.
    List,
    /// Reads so many bytes from this offset.
    Read(u64, usize),
    /// Writes at this offset.
    Write(u64, &'a [u8]),
    /// Changes the length.
    Resize(u64),
    /// Makes a hole.
    Punch(Range<u64>),
    /// Changes permissions.
    SetMode(Mode),
    /// Changes whose it is, of a name in it or of itself.
    SetOwner(&'a [u8]),
    /// Sets or removes an extended attribute.
    SetAttribute(&'a [u8]),
    /// Changes the times, of a name in it or of itself.
    SetTimes(&'a [u8], Timestamps),
    /// Makes a directory.
    MakeDir(&'a [u8], Mode),
    /// Makes a symbolic link: name, text.
    Link(&'a [u8], &'a [u8]),
    /// Gives a file another name, here, beside the one it has.
    HardLink(&'a [u8]),
    /// Gives a name's file another name, in the same directory but for changes of a share.
    Rename(&'a [u8], &'a [u8]),
    /// Removes a name that is not a directory's.
    Remove(&'a [u8]),
    /// Removes an empty directory.
    RemoveDir(&'a [u8]),
    /// Waits until the content and the facts are on the disk.
    Sync,
    /// Waits until the content is.
    SyncData,
    /// Waits until everything in its file system is.
    SyncAll,
    /// Locks it, if it is not locked.
    Lock,
}

/// Answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The call is made.
    Go,
    /// The call is not made, and fails so.
    Fail(Errno),
    /// The call, a read or write, covers at most so many bytes.
    Short(usize),
}

/// Intercepts the calls of a transfer on its disk.
pub trait Interposer: Send + Sync {
    /// Decides on a call on `file` that is about to be made.
    fn before(&self, file: BorrowedFd<'_>, call: &Call<'_>) -> Answer;
    /// Notes that the call was made and succeeded; a write, of as many bytes as `call` then has.
    fn after(&self, file: BorrowedFd<'_>, call: &Call<'_>);
}

/// Times that every file system can have, in seconds: 1980 to 2038.
const EVERYWHERE: Range<i64> = 315_532_800..1 << 31;

/// The interceptor, if there is one.
#[derive(Clone, Default)]
pub struct Disk(pub Option<Arc<dyn Interposer>>);

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Watched" } else { "Disk" })
    }
}

/// Files that each holder keeps open when descriptors are scarce.
const FEW: usize = 1;
/// Longest wait of an open for a descriptor, and the interval of its tries.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(20);

/// Opens as `open` does, once a descriptor is free: others close what they hold when descriptors are scarce.
fn waited(mut open: impl FnMut() -> Result<OwnedFd>) -> Result<OwnedFd> {
    for _ in 0..PATIENCE.as_millis() / LOOK.as_millis() {
        match open() {
            Err(Errno::MFILE | Errno::NFILE) => std::thread::park_timeout(LOOK),
            other => return other,
        }
    }
    open()
}

/// Opens, as `open` does, a file that is kept for others to work in. Where descriptors are short, a
/// moment passes for them.
pub(crate) fn sparing(open: impl Fn() -> io::Result<File>) -> io::Result<File> {
    let file = open()?;
    if file.in_use() < 3 {
        return Ok(file);
    }
    drop(file);
    std::thread::park_timeout(LOOK);
    open()
}

/// An open file or directory.
#[derive(Debug)]
pub(crate) struct File {
    fd: OwnedFd,
    disk: Disk,
    /// Record of what the file system does not have, shared by all that is opened beneath this.
    lacks: Lacks,
    /// Offset in the file from which offsets of content count: of a stripe, where it begins.
    base: u64,
}

impl From<std::fs::File> for File {
    fn from(file: std::fs::File) -> Self {
        Self::new(file.into(), Disk::default(), Lacks::default())
    }
}

impl From<File> for std::fs::File {
    fn from(file: File) -> Self {
        file.fd.into()
    }
}

impl File {
    const fn new(fd: OwnedFd, disk: Disk, lacks: Lacks) -> Self {
        let base = 0;
        Self {
            fd,
            disk,
            lacks,
            base,
        }
    }

    /// Makes the same file count offsets of content from `base` on; its size is not affected.
    #[must_use]
    pub(crate) fn at_offset(self, base: u64) -> Self {
        Self { base, ..self }
    }

    /// Opens `path`, following links.
    pub(crate) fn open(path: &Path, flags: OFlags) -> Result<Self> {
        let fd = rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self::new(fd, Disk::default(), Lacks::default()))
    }

    /// Makes the same file on `disk`.
    pub(crate) fn on(&self, disk: &Disk) -> io::Result<Self> {
        let (fd, disk) = (self.fd.try_clone()?, disk.clone());
        Ok(Self::new(fd, disk, self.lacks.clone()).at_offset(self.base))
    }

    /// Duplicates the handle, with a record of its own of what the file system lacks.
    pub(crate) fn anew(&self) -> io::Result<Self> {
        let lacks = Lacks::default();
        Ok(Self {
            lacks,
            ..self.try_clone()?
        })
    }

    /// Record of what the file system does not have.
    pub(crate) const fn lacks(&self) -> &Lacks {
        &self.lacks
    }

    /// Makes a call that its file system may not have for `name` in it, or for itself; whether it was done. A refusal is
    /// noted.
    fn tried(
        &self,
        what: &'static str,
        name: &[u8],
        call: &Call<'_>,
        make: impl FnMut() -> Result<()>,
    ) -> Result<bool> {
        let anothers = || self.is_anothers(name);
        self.lacks.tried(what, anothers, self.call(call, make))
    }

    /// True if what has this name in the folder, or the file itself, belongs to another user and this process is not
    /// privileged.
    pub(crate) fn is_anothers(&self, name: &[u8]) -> bool {
        let stat = if name.is_empty() {
            self.stat()
        } else {
            self.statat(name)
        };
        let user = rustix::process::geteuid().as_raw();
        !facts::is_privileged() && stat.is_ok_and(|stat| stat.st_uid != user)
    }

    /// Most files like this one that may be kept open: `most`, or few where descriptors are scarce.
    pub(crate) fn kept(&self, most: usize) -> usize {
        if self.in_use() == 0 { most } else { FEW }
    }

    /// Quarters of all descriptors that are in use, by the number of the latest one: the kernel gives out the lowest that
    /// is free.
    fn in_use(&self) -> u64 {
        let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        u64::from(self.fd.as_raw_fd().unsigned_abs()) / (most / 4).max(1)
    }

    /// Descriptor for code that measures the disk, and is not to be interposed.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        self.on(&self.disk)
    }

    fn call<T>(&self, call: &Call<'_>, mut make: impl FnMut() -> Result<T>) -> Result<T> {
        let Some(interposer) = &self.disk.0 else {
            return repeated(make);
        };
        repeated(|| {
            if let Answer::Fail(e) = interposer.before(self.fd.as_fd(), call) {
                return Err(e);
            }
            let done = make()?;
            interposer.after(self.fd.as_fd(), call);
            Ok(done)
        })
    }

    /// Makes a read or write of `len` bytes; `make` does as many of them as it is given.
    fn transfer(
        &self,
        len: usize,
        call: &Call<'_>,
        mut make: impl FnMut(usize) -> Result<usize>,
    ) -> Result<usize> {
        let Some(interposer) = &self.disk.0 else {
            return repeated(|| make(len));
        };
        let n = repeated(|| {
            let most = match interposer.before(self.fd.as_fd(), call) {
                Answer::Go => len,
                Answer::Short(most) => most.min(len),
                Answer::Fail(e) => return Err(e),
            };
            make(most)
        })?;
        match call {
            Call::Write(at, bytes) => {
                let done = Call::Write(*at, bytes.get(..n).unwrap_or(bytes));
                interposer.after(self.fd.as_fd(), &done);
            }
            call => interposer.after(self.fd.as_fd(), call),
        }
        Ok(n)
    }

    fn child(&self, fd: OwnedFd) -> Self {
        Self::new(fd, self.disk.clone(), self.lacks.clone())
    }

    /// Opens `path` with the flags of `resolve`.
    pub(crate) fn openat2(
        &self,
        path: &[u8],
        flags: OFlags,
        mode: Mode,
        resolve: ResolveFlags,
    ) -> Result<Self> {
        let flags = flags | OFlags::CLOEXEC;
        let open = || waited(|| rustix::fs::openat2(&self.fd, path, flags, mode, resolve));
        Ok(self.child(self.call(&Call::Open(path), open)?))
    }

    /// Opens `name`.
    pub(crate) fn openat(&self, name: &[u8], flags: OFlags) -> Result<Self> {
        let flags = flags | OFlags::CLOEXEC;
        let open = || waited(|| rustix::fs::openat(&self.fd, name, flags, Mode::empty()));
        Ok(self.child(self.call(&Call::Open(name), open)?))
    }

    /// Makes the file `name`, where nothing may have this name.
    pub(crate) fn create(&self, name: &[u8], mode: Mode) -> Result<Self> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let flags = flags | OFlags::CLOEXEC;
        let make = || waited(|| rustix::fs::openat(&self.fd, name, flags, mode));
        Ok(self.child(self.call(&Call::Create(name, mode), make)?))
    }

    /// Path of the file on this machine, as the kernel has it.
    pub(crate) fn path(&self) -> Result<Vec<u8>> {
        let path = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        let read = || rustix::fs::readlink(&path, Vec::new());
        self.call(&Call::Look, read).map(CString::into_bytes)
    }

    /// Facts about it.
    pub(crate) fn stat(&self) -> Result<Stat> {
        self.call(&Call::Look, || rustix::fs::fstat(&self.fd))
    }

    /// Facts about `name`, not following a link.
    pub(crate) fn statat(&self, name: &[u8]) -> Result<Stat> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        self.call(&Call::Look, || rustix::fs::statat(&self.fd, name, flags))
    }

    /// Facts about its file system.
    pub(crate) fn statvfs(&self) -> Result<StatVfs> {
        self.call(&Call::Look, || rustix::fs::fstatvfs(&self.fd))
    }

    /// Fails if nothing may be made in it.
    pub(crate) fn may_be_written(&self) -> Result<()> {
        self.may_be(Access::WRITE_OK)
    }

    /// Fails if nothing in it may be used.
    pub(crate) fn may_be_entered(&self) -> Result<()> {
        self.may_be(Access::EXEC_OK)
    }

    /// Fails if its names may not be read.
    pub(crate) fn may_be_listed(&self) -> Result<()> {
        self.may_be(Access::READ_OK)
    }

    fn may_be(&self, access: Access) -> Result<()> {
        let ask = || rustix::fs::accessat(&self.fd, ".", access, AtFlags::empty());
        self.call(&Call::Look, ask)
    }

    /// Calls `take` with each name in it, in any order; twice with none that stays meanwhile.
    pub(crate) fn each_name(&self, mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        // Of its own: reading moves a handle.
        let folder = self.openat(b".", OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut space = Vec::with_capacity(LISTING);
        let mut entries = RawDir::new(&folder.fd, space.spare_capacity_mut());
        let mut ends = 0;
        // Some file systems answer that nothing follows and mean that nothing is there yet: the end says so twice.
        while ends < 2 {
            let name = self.call(&Call::List, || {
                let next = entries.next().transpose()?;
                Ok(next.map(|entry| entry.file_name().to_bytes().to_vec()))
            })?;
            match name {
                None => ends += 1,
                Some(name) => {
                    ends = 0;
                    if name != b"." && name != b".." {
                        take(&name)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The target of the link `name`.
    pub(crate) fn readlinkat(&self, name: &[u8]) -> Result<Vec<u8>> {
        let read = || rustix::fs::readlinkat(&self.fd, name, Vec::new());
        self.call(&Call::Look, read).map(CString::into_bytes)
    }

    /// Offset at which data begins, at `at` or later.
    pub(crate) fn seek_data(&self, at: u64) -> Result<u64> {
        self.seek(SeekFrom::Data(self.base + at))
    }

    /// Offset at which a hole begins, at `at` or later.
    pub(crate) fn seek_hole(&self, at: u64) -> Result<u64> {
        self.seek(SeekFrom::Hole(self.base + at))
    }

    fn seek(&self, from: SeekFrom) -> Result<u64> {
        let found = self.call(&Call::Look, || rustix::fs::seek(&self.fd, from))?;
        Ok(found.saturating_sub(self.base))
    }

    /// Reads some bytes; none at the end.
    pub(crate) fn read_at(&self, into: &mut [u8], at: u64) -> Result<usize> {
        let at = self.base.saturating_add(at);
        self.transfer(into.len(), &Call::Read(at, into.len()), |most| {
            rustix::io::pread(&self.fd, &mut into[..most], at)
        })
    }

    /// Reads some bytes into one buffer after the other.
    pub(crate) fn read_vectored_at(&self, into: &mut [IoSliceMut<'_>], at: u64) -> Result<usize> {
        let at = self.base.saturating_add(at);
        let len = into.iter().map(|part| part.len()).sum();
        self.transfer(len, &Call::Read(at, len), |most| {
            if most == len {
                return rustix::io::preadv(&self.fd, into, at);
            }
            let first = into.iter_mut().find(|part| !part.is_empty());
            first.map_or(Ok(0), |part| {
                let most = most.min(part.len());
                rustix::io::pread(&self.fd, &mut part[..most], at)
            })
        })
    }

    /// Fills `into`.
    pub(crate) fn read_exact_at(&self, mut into: &mut [u8], mut at: u64) -> io::Result<()> {
        while !into.is_empty() {
            match self.read_at(into, at) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    into = &mut into[n..];
                    at += n as u64;
                }
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// Reader of the content from the beginning.
    pub(crate) const fn reader(&self) -> Reader<'_> {
        Reader { file: self, at: 0 }
    }

    /// Writes all of `bytes`.
    pub(crate) fn write_all_at(&self, mut bytes: &[u8], at: u64) -> io::Result<()> {
        let mut at = self.base.saturating_add(at);
        while !bytes.is_empty() {
            let write = |most: usize| rustix::io::pwrite(&self.fd, &bytes[..most], at);
            match self.transfer(bytes.len(), &Call::Write(at, bytes), write) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    bytes = &bytes[n..];
                    at += n as u64;
                }
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// Makes it so long.
    pub(crate) fn set_len(&self, len: u64) -> Result<()> {
        self.call(&Call::Resize(len), || rustix::fs::ftruncate(&self.fd, len))
    }

    /// Makes a hole of `range`, whatever it held, within its length.
    pub(crate) fn punch(&self, range: &Range<u64>) -> Result<()> {
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let start = self.base.saturating_add(range.start);
        let len = range.end - range.start;
        self.call(&Call::Punch(start..start.saturating_add(len)), || {
            rustix::fs::fallocate(&self.fd, mode, start, len)
        })
    }

    /// Changes its permissions, if it can have others.
    pub(crate) fn set_mode(&self, mode: Mode) -> Result<bool> {
        let set = || rustix::fs::fchmod(&self.fd, mode);
        let done = self.tried(lacks::MODES, b"", &Call::SetMode(mode), set)?;
        // Some take it and do nothing.
        if done && (self.stat()?.st_mode ^ mode.as_raw_mode()) & 0o777 != 0 {
            self.lacks.note(lacks::MODES, String::new());
        }
        Ok(done)
    }

    /// Changes the permissions of a file that is open as a mere handle, also if it may be neither
    /// read nor entered.
    pub(crate) fn set_mode_by_handle(&self, mode: Mode) -> Result<()> {
        let path = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        self.call(&Call::SetMode(mode), || rustix::fs::chmod(&path, mode))
    }

    /// Changes whose it is, if it can be another's.
    pub(crate) fn set_owner(&self, (uid, gid): (u32, u32)) -> Result<bool> {
        let ids = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        self.tried(lacks::OWNER, b"", &Call::SetOwner(b""), || {
            rustix::fs::fchown(&self.fd, ids.0, ids.1)
        })
    }

    /// Changes whose `name` is, not following a link.
    pub(crate) fn set_owner_at(&self, name: &[u8], (uid, gid): (u32, u32)) -> Result<bool> {
        let ids = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        self.tried(lacks::OWNER, name, &Call::SetOwner(name), || {
            rustix::fs::chownat(&self.fd, name, ids.0, ids.1, flags)
        })
    }

    /// The names of its extended attributes, each with a NUL.
    pub(crate) fn attribute_names(&self) -> Result<Vec<u8>> {
        self.call(&Call::Look, || {
            // The kernel's own limit of a list.
            let mut list = vec![0; rustix::fs::flistxattr_query(&self.fd)?.min(64 << 10)];
            let len = if list.is_empty() {
                0
            } else {
                rustix::fs::flistxattr(&self.fd, &mut list[..])?
            };
            list.truncate(len);
            Ok(list)
        })
    }

    /// The value of an extended attribute.
    pub(crate) fn attribute(&self, name: &[u8]) -> Result<Vec<u8>> {
        self.call(&Call::Look, || {
            let mut value = vec![0; rustix::fs::fgetxattr_query(&self.fd, name)?];
            let len = if value.is_empty() {
                0
            } else {
                rustix::fs::fgetxattr(&self.fd, name, &mut value[..])?
            };
            value.truncate(len);
            Ok(value)
        })
    }

    /// Sets an extended attribute, if it can have it.
    pub(crate) fn set_attribute(&self, name: &[u8], value: &[u8]) -> Result<bool> {
        let set = || rustix::fs::fsetxattr(&self.fd, name, value, XattrFlags::empty());
        self.tried(lacks::ATTRIBUTES, b"", &Call::SetAttribute(name), set)
    }

    /// Removes an extended attribute, if it may; it may be gone already.
    pub(crate) fn remove_attribute(&self, name: &[u8]) -> Result<bool> {
        let remove = || match rustix::fs::fremovexattr(&self.fd, name) {
            Err(e) if facts::is_absent(e) => Ok(()),
            done => done,
        };
        self.tried(lacks::ATTRIBUTES, b"", &Call::SetAttribute(name), remove)
    }

    /// Changes its times, if it can have others.
    pub(crate) fn set_times(&self, times: &Timestamps) -> Result<bool> {
        let call = Call::SetTimes(b"", times.clone());
        let set = || rustix::fs::futimens(&self.fd, times);
        let done = self.tried(lacks::TIMES, b"", &call, set)?;
        let wanted = times.last_modification.tv_sec;
        if done && !EVERYWHERE.contains(&wanted) && (self.stat()?.st_mtime - wanted).abs() > 2 {
            self.lacks.note(lacks::CLAMPED, String::new());
        }
        Ok(done)
    }

    /// Changes the times of `name`, not following a link, if it can have others; else `what` is noted.
    pub(crate) fn set_times_at(
        &self,
        what: &'static str,
        name: &[u8],
        times: &Timestamps,
    ) -> Result<bool> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let call = Call::SetTimes(name, times.clone());
        self.tried(what, name, &call, || {
            rustix::fs::utimensat(&self.fd, name, times, flags)
        })
    }

    /// Makes the directory `name`.
    pub(crate) fn mkdirat(&self, name: &[u8], mode: Mode) -> Result<()> {
        let make = || rustix::fs::mkdirat(&self.fd, name, mode);
        self.call(&Call::MakeDir(name, mode), make)
    }

    /// Makes `name` a link to `text`, if there can be links.
    pub(crate) fn symlinkat(&self, text: &[u8], name: &[u8]) -> Result<bool> {
        let make = || rustix::fs::symlinkat(text, &self.fd, name);
        match self.call(&Call::Link(name, text), make) {
            // It may not be made here, by this user.
            Err(Errno::ACCESS) => Err(Errno::ACCESS),
            // Nothing may be made in a folder that is immutable.
            Err(Errno::PERM) if self.may_be_written().is_err() => Err(Errno::PERM),
            made => self.lacks.tried(lacks::LINKS, || false, made),
        }
    }

    /// Gives the file called `from` in `dir` the name `to` here too, not following a link.
    pub(crate) fn hard_link(&self, dir: &Self, from: &[u8], to: &[u8]) -> Result<()> {
        let link = || rustix::fs::linkat(&dir.fd, from, &self.fd, to, AtFlags::empty());
        self.call(&Call::HardLink(to), link)
    }

    /// Gives the file called `from` the name `to`, which another file may lose by it.
    pub(crate) fn rename(&self, from: &[u8], to: &[u8]) -> Result<()> {
        self.rename_to(from, self, to)
    }

    /// Gives the entry called `from` the name `to` in `dir`, which another file may lose by it.
    pub(crate) fn rename_to(&self, from: &[u8], dir: &Self, to: &[u8]) -> Result<()> {
        let rename = || rustix::fs::renameat(&self.fd, from, &dir.fd, to);
        self.call(&Call::Rename(from, to), rename)
    }

    /// Renames as [`Self::rename_to`] does, if nothing has the name.
    pub(crate) fn rename_new(&self, from: &[u8], dir: &Self, to: &[u8]) -> Result<()> {
        let flags = RenameFlags::NOREPLACE;
        let rename = || rustix::fs::renameat_with(&self.fd, from, &dir.fd, to, flags);
        self.call(&Call::Rename(from, to), rename)
    }

    /// Copies some bytes to the same place of another file; none at the end.
    pub(crate) fn copy_to(&self, into: &Self, at: u64, most: usize) -> Result<usize> {
        self.transfer(most, &Call::Read(at, most), |most| {
            let (mut from, mut to) = (at, at);
            let (from, to) = (Some(&mut from), Some(&mut to));
            rustix::fs::copy_file_range(&self.fd, from, &into.fd, to, most)
        })
    }

    /// Removes `name`, which is not a directory's.
    pub(crate) fn unlinkat(&self, name: &[u8]) -> Result<()> {
        let remove = || rustix::fs::unlinkat(&self.fd, name, AtFlags::empty());
        self.call(&Call::Remove(name), remove)
    }

    /// Removes the empty directory `name`.
    pub(crate) fn rmdirat(&self, name: &[u8]) -> Result<()> {
        let remove = || rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR);
        self.call(&Call::RemoveDir(name), remove)
    }

    /// Waits until its content and facts are on the disk.
    pub(crate) fn sync(&self) -> Result<()> {
        self.call(&Call::Sync, || rustix::fs::fsync(&self.fd))
    }

    /// Waits until its content is on the disk.
    pub(crate) fn sync_data(&self) -> Result<()> {
        self.call(&Call::SyncData, || rustix::fs::fdatasync(&self.fd))
    }

    /// Waits until everything in its file system is on the disk.
    pub(crate) fn sync_all(&self) -> Result<()> {
        self.call(&Call::SyncAll, || rustix::fs::syncfs(&self.fd))
    }

    /// Waits until everything in every file system is on the disk. Errors of that are not known.
    pub(crate) fn sync_everywhere(&self) -> Result<()> {
        self.call(&Call::Sync, || {
            rustix::fs::sync();
            Ok(())
        })
    }

    /// Advises how it will be read, or that the cache may drop it.
    pub(crate) fn advise(&self, advice: Advice) -> Result<()> {
        self.call(&Call::Look, || {
            rustix::fs::fadvise(&self.fd, 0, None, advice)
        })
    }

    /// Reads past the cache, or no longer.
    pub(crate) fn set_direct(&self, direct: bool) -> Result<()> {
        let flags = if direct {
            OFlags::DIRECT
        } else {
            OFlags::empty()
        };
        self.call(&Call::Look, || rustix::fs::fcntl_setfl(&self.fd, flags))
    }

    /// Locks these bytes, counted from its beginning, as long as it is open. False if another open
    /// file has a lock there, unless `wait`. Such locks also hold between hosts, where the file
    /// system knows any.
    pub(crate) fn lock_range(&self, range: &Range<u64>, wait: bool) -> Result<bool> {
        let locked = self.lock_bytes(range, libc::F_WRLCK, wait);
        match locked {
            Ok(()) => Ok(true),
            Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Gives that lock up.
    pub(crate) fn unlock_range(&self, range: &Range<u64>) -> Result<()> {
        self.lock_bytes(range, libc::F_UNLCK, false)
    }

    fn lock_bytes(&self, range: &Range<u64>, kind: libc::c_int, wait: bool) -> Result<()> {
        let number = |n: u64| libc::off_t::try_from(n).map_err(|_| Errno::OVERFLOW);
        let lock = libc::flock {
            l_type: libc::c_short::try_from(kind).map_err(|_| Errno::INVAL)?,
            l_whence: 0,
            l_start: number(range.start)?,
            l_len: number(range.end - range.start)?,
            l_pid: 0,
        };
        let how = || {
            if wait {
                FcntlArg::F_OFD_SETLKW(&lock)
            } else {
                FcntlArg::F_OFD_SETLK(&lock)
            }
        };
        let failed = |e: nix::errno::Errno| Errno::from_raw_os_error(e as i32);
        self.call(&Call::Lock, || {
            fcntl(&self.fd, how()).map(drop).map_err(failed)
        })
    }

    /// Locks it, by the kind of lock that its file system has; false if another holds it.
    pub(crate) fn try_lock(&self) -> Result<bool> {
        match self.try_flock() {
            // All of its bytes.
            Err(e) if lacks::is_refusal(e) => self.lock_range(&(0..0), false),
            locked => locked,
        }
    }

    fn try_flock(&self) -> Result<bool> {
        let lock = || match rustix::fs::flock(&self.fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(e) => Err(e),
        };
        self.call(&Call::Lock, lock)
    }
}

/// Bytes of names that are read at a time.
const LISTING: usize = 32 << 10;
/// Tries of a call that signals interrupt: on network file systems they do, and no call is to go on for ever.
const TRIES: u32 = 1000;

/// Makes a call, again if a signal interrupts it.
fn repeated<T>(mut make: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 1..TRIES {
        match make() {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
    make()
}

/// Reads a file from its beginning.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    file: &'a File,
    at: u64,
}

impl io::Read for Reader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read_at(into, self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}
