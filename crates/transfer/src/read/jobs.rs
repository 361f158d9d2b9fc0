//! Jobs of workers for a session that reads. They look at names, list folders page by page, open
//! files, read blocks of ranges, each with its digest, and change entries.

use std::{io, sync::Arc};

use rustix::{
    fs::{FileType, OFlags, Stat},
    io::Errno,
};

use super::changes::{Act, Copying, Order};
use crate::{
    confine::{self, Dir},
    digest::{block_hash, block_range},
    disk::File,
    error::TransferError,
    names::Cursor,
    pages::Pages,
    pool::{self, Stop, Task},
    scan,
    wire::{
        Entry, FileVersion, Hash, Kind,
        limits::TARGET_FRAME,
        path::{self, Own},
    },
};

/// Bytes of names of a folder that are held for a reader, who may take any time.
const HELD: usize = 1 << 20;

/// Entry of a share, by name.
#[derive(Clone)]
pub(super) struct Named {
    pub(super) root: Dir,
    pub(super) path: Vec<u8>,
}

/// Identity of the file that was opened: device and inode tell it from one that takes its place.
pub(super) type Inode = (u64, u64);

pub(super) enum Work {
    Stat(Named),
    /// A folder that is yet to be opened.
    Open(Named),
    /// The next page of one.
    List(Box<Listing>),
    /// The first block of a range of a file: so many bytes from an offset.
    First {
        named: Named,
        offset: u64,
        len: u64,
        buffer: Pages,
    },
    /// A further block.
    Block {
        file: Arc<File>,
        offset: u64,
        /// Length of the range, bytes.
        len: u64,
        index: u64,
        buffer: Pages,
    },
    /// A change, or the next piece of its copy.
    Change(Box<Order>, Option<Box<Copying>>),
    /// A copy that nobody waits for: it is removed.
    Abandon(Box<Copying>),
}

/// A folder that is partly listed.
pub(super) struct Listing {
    dir: File,
    names: Cursor,
}

/// Work for the request `id`.
pub(super) struct Job {
    pub(super) id: u32,
    /// Bytes that it was allowed to load.
    pub(super) lent: u64,
    pub(super) work: Work,
}

pub(super) struct Done {
    pub(super) id: u32,
    pub(super) lent: u64,
    pub(super) answer: io::Result<Answer>,
}

pub(super) enum Answer {
    Stat(Entry),
    /// Page of entries, with the rest of the folder, if there is some.
    Page(Vec<Entry>, Option<Box<Listing>>),
    First(Opened, Block),
    Block(Block),
    /// The change was carried out, as far as it says.
    Changed(Box<Order>, Result<Act, TransferError>),
    Abandoned,
}

/// A file that was opened for a range.
pub(super) struct Opened {
    pub(super) file: Arc<File>,
    pub(super) inode: Inode,
    pub(super) version: FileVersion,
    /// Bytes of the range that the file has.
    pub(super) len: u64,
}

/// A block of a range.
pub(super) struct Block {
    pub(super) index: u64,
    pub(super) bytes: Pages,
    pub(super) value: Hash,
}

impl pool::Job for Job {
    type Done = Done;

    fn task(&self) -> Task {
        Task::new("reading or changing files for a peer", None)
    }

    fn run(self, scratch: &mut Pages, stop: &Stop) -> Done {
        let answer = match self.work {
            Work::Stat(named) => named.stat().map(Answer::Stat),
            Work::Open(named) => Listing::of(&named).and_then(Listing::page),
            Work::List(listing) => listing.page(),
            Work::First {
                named,
                offset,
                len,
                buffer,
            } => first(&named, (offset, len), buffer),
            Work::Block {
                file,
                offset,
                len,
                index,
                buffer,
            } => block(&file, (offset, len), index, buffer).map(Answer::Block),
            Work::Change(order, copying) => {
                let act = order.act(copying, scratch, stop);
                Ok(Answer::Changed(order, act))
            }
            Work::Abandon(copying) => {
                drop(copying);
                Ok(Answer::Abandoned)
            }
        };
        Done {
            id: self.id,
            lent: self.lent,
            answer,
        }
    }
}

impl Named {
    /// The folder that has it, and its name there.
    fn place(&self) -> io::Result<(File, &[u8])> {
        let (parent, name) = path::split(&self.path);
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        Ok((confine::open_beneath(&self.root, parent, flags)?, name))
    }

    fn stat(&self) -> io::Result<Entry> {
        if self.path.is_empty() {
            let stat = self.root.stat()?;
            return Ok(scan::entry_of(Kind::Dir, Vec::new(), Vec::new(), &stat));
        }
        let (dir, name) = self.place()?;
        let found = entry(&dir, name)?;
        found.ok_or_else(|| Errno::NOENT.into())
    }

    /// Opens the file, which must be the same as before if it was opened before.
    pub(super) fn open(&self, before: Option<Inode>) -> io::Result<(File, Stat)> {
        let file = confine::open_to_read(&self.root, &self.path)?;
        let stat = file.stat()?;
        if before.is_some_and(|before| before != inode(&stat)) {
            return Err(changed());
        }
        Ok((file, stat))
    }
}

const fn inode(stat: &Stat) -> Inode {
    (stat.st_dev, stat.st_ino)
}

/// Identifies a state of a file: it differs from one that takes the file's place, and from the file
/// before it was written to.
fn version(stat: &Stat) -> FileVersion {
    let (dev, ino) = inode(stat);
    let numbers = [
        dev,
        ino,
        stat.st_size.cast_unsigned(),
        stat.st_mtime.cast_unsigned(),
        stat.st_mtime_nsec,
    ];
    path::digest(&numbers.map(u64::to_be_bytes).concat())
}

/// Error for a file whose name another has, or that has become shorter.
pub(super) fn changed() -> io::Error {
    io::Error::new(
        io::ErrorKind::StaleNetworkFileHandle,
        "it was changed or replaced while it was read",
    )
}

/// Entry `name` in `dir`; none if it is neither file, folder nor link, or is gone.
fn entry(dir: &File, name: &[u8]) -> io::Result<Option<Entry>> {
    let Some(stat) = confine::stat(dir, name)? else {
        return Ok(None);
    };
    let mut target = Vec::new();
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Dir,
        FileType::Symlink => {
            target = dir.readlinkat(name)?;
            Kind::Symlink
        }
        _ => return Ok(None),
    };
    Ok(Some(scan::entry_of(kind, name.to_vec(), target, &stat)))
}

impl Listing {
    fn of(named: &Named) -> io::Result<Box<Self>> {
        let (dir, _) = scan::open(&named.root, &named.path)?;
        let names = Cursor::behind(&dir, b"", HELD, None)?;
        Ok(Box::new(Self { dir, names }))
    }

    /// Lists as many entries as one message takes.
    fn page(mut self: Box<Self>) -> io::Result<Answer> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut bytes = 0;
        while bytes < TARGET_FRAME
            && let Some(name) = self.names.next(&self.dir)?
        {
            if Own::of(name).is_some() {
                // Of a delivery that is under way, or was.
                continue;
            }
            match entry(&self.dir, name) {
                Ok(Some(entry)) => {
                    bytes += entry.len();
                    entries.push(entry);
                }
                Ok(None) => {}
                Err(e) if e.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => {}
                Err(e) => return Err(e),
            }
        }
        let rest = (!self.names.is_over()).then_some(self);
        Ok(Answer::Page(entries, rest))
    }
}

fn first(named: &Named, (offset, len): (u64, u64), buffer: Pages) -> io::Result<Answer> {
    let (file, stat) = named.open(None)?;
    let size = stat.st_size.cast_unsigned();
    let len = len.min(size.saturating_sub(offset));
    let block = block(&file, (offset, len), 0, buffer)?;
    let opened = Opened {
        file: Arc::new(file),
        inode: inode(&stat),
        version: version(&stat),
        len,
    };
    Ok(Answer::First(opened, block))
}

fn block(
    file: &File,
    (offset, len): (u64, u64),
    index: u64,
    mut bytes: Pages,
) -> io::Result<Block> {
    let range = block_range(index, len);
    bytes.fit(usize::try_from(range.end - range.start).map_err(io::Error::other)?);
    read_exact(file, &mut bytes, offset + range.start)?;
    let value = block_hash(index, len, &bytes);
    Ok(Block {
        index,
        bytes,
        value,
    })
}

/// Fills `into`; a file that ends before has become shorter.
pub(super) fn read_exact(file: &File, into: &mut [u8], at: u64) -> io::Result<()> {
    file.read_exact_at(into, at).map_err(|e| match e.kind() {
        io::ErrorKind::UnexpectedEof => changed(),
        _ => e,
    })
}
