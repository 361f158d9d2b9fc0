//! Jobs of the sender's workers. They read small files whole (and hash them in passing). They hash
//! blocks of large files after they were sent, and find the holes of sparse ones.

use std::{io, ops::Range, sync::Arc};

use rustix::fs::Stat;

use super::Origin;
use crate::{
    digest::{self, BlockDigest},
    disk::File,
    pages::Pages,
    pool::{Job, Stop, Task},
    wire::{BLOCK, Existing, Hash},
};

/// Attempts to read a block or file before an I/O error counts.
const TRIES: u32 = 3;

/// Bytes read and hashed at a time: they are still in the cache when they are hashed.
const STEP: usize = 32 << 10;

/// A file as it was listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) size: u64,
    pub(crate) mtime: i64,
    pub(crate) mtime_nanos: u32,
}

impl Identity {
    /// Identity of a file as it was listed.
    pub(crate) fn of(entry: &crate::wire::Entry) -> Self {
        Self {
            size: entry.file_size(),
            mtime: entry.mtime,
            mtime_nanos: entry.mtime_nanos,
        }
    }

    /// True if the existing file is kept, as requested by the client.
    pub(crate) fn stays(&self, existing: Existing, there: &Stat) -> bool {
        let mtime = (
            there.st_mtime,
            u32::try_from(there.st_mtime_nsec).unwrap_or(0),
        );
        match existing {
            Existing::Replace => false,
            Existing::Keep => true,
            // The same time is left to the comparison.
            Existing::KeepNewer => mtime > (self.mtime, self.mtime_nanos),
        }
    }

    /// True if the content of the existing file is worth comparing.
    pub(crate) fn may_be(&self, checksum: bool, there: &Stat) -> bool {
        let same = if checksum {
            there.st_size.cast_unsigned() == self.size
        } else {
            self.is_of(there)
        };
        same && self.size > 0
    }

    /// True if `stat` describes a file of this size and time, to the nanosecond.
    pub(crate) fn is_exactly(&self, stat: &Stat) -> bool {
        let nanos = u32::try_from(stat.st_mtime_nsec).ok();
        stat.st_size.cast_unsigned() == self.size
            && stat.st_mtime == self.mtime
            && nanos == Some(self.mtime_nanos)
    }

    /// True if `stat` describes a file of this size and time, as far as its file system can store the time.
    pub(crate) fn is_of(&self, stat: &Stat) -> bool {
        stat.st_size.cast_unsigned() == self.size && self.has_time_of(stat)
    }

    /// True if the modification time is ours. The kernel sets the change time of a file with the
    /// resolution of its file system. A modification time that is ours in this resolution is all of
    /// ours that was stored.
    pub(crate) fn has_time_of(&self, stat: &Stat) -> bool {
        let nanos = |secs: i64, nanos: i128| i128::from(secs) * SECOND + nanos;
        let ours = nanos(self.mtime, self.mtime_nanos.into());
        let there = nanos(stat.st_mtime, stat.st_mtime_nsec.into());
        let changed = nanos(stat.st_ctime, stat.st_ctime_nsec.into());
        let stored =
            |unit: &i128| changed.rem_euclid(*unit) == 0 && ours - ours.rem_euclid(*unit) == there;
        let clamped = |last: &i64| stat.st_mtime == *last && self.mtime > *last;
        ours == there || RESOLUTIONS.iter().any(stored) || LAST.iter().any(clamped)
    }
}

const SECOND: i128 = 1_000_000_000;
/// Resolutions of stored times: NTFS and CIFS, NFS 2, object stores, exFAT, ext3 and sshfs, FAT.
const RESOLUTIONS: [i128; 6] = [100, 1_000, 1_000_000, 10_000_000, SECOND, 2 * SECOND];
/// The last times that can be stored in 32 and 34 bits, with a sign and without.
const LAST: [i64; 3] = [i32::MAX as i64, u32::MAX as i64, 0x3_7fff_ffff];

/// A source file as it was listed. A program that writes to a file in place can restore its size
/// and time, but not its change time, which only the kernel sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    identity: Identity,
    changed: (i64, u64),
}

/// Change of a file since then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    Same,
    /// The file has the same size and time, but something was done to it: to its permissions or
    /// names, or to its content. In the last case someone put the time back.
    Touched,
    Changed,
}

impl Stamp {
    pub(crate) fn of(stat: &Stat) -> Self {
        Self {
            identity: Identity {
                size: stat.st_size.cast_unsigned(),
                mtime: stat.st_mtime,
                mtime_nanos: u32::try_from(stat.st_mtime_nsec).unwrap_or_default(),
            },
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// Stamp of the open file as it is now.
    pub(crate) fn now(file: &File) -> io::Result<Self> {
        Ok(Self::of(&file.stat()?))
    }

    /// Change of the file until it was `later`.
    pub(crate) fn since(&self, later: &Self) -> Since {
        if self.identity != later.identity {
            Since::Changed
        } else if self.changed != later.changed {
            Since::Touched
        } else {
            Since::Same
        }
    }

    pub(crate) const fn size(&self) -> u64 {
        self.identity.size
    }
}

/// One file of a pack.
#[derive(Debug)]
pub(crate) struct PackFile {
    pub(crate) origin: Arc<Origin>,
    /// Stamp of the file when it was listed.
    pub(crate) stamp: Stamp,
}

/// Bytes of one block of a large file.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) number: u64,
    pub(crate) size: u64,
    /// Range within the file.
    pub(crate) range: Range<u64>,
    pub(crate) bytes: Pages,
    /// The block's value, if the piece is the block.
    pub(crate) value: Option<Hash>,
    pub(crate) outcome: io::Result<()>,
}

impl Piece {
    fn read(&mut self, file: &File) -> io::Result<()> {
        let Range { start, end } = self.range;
        let index = start / BLOCK;
        let mut digest = (self.range == digest::block_range(index, self.size))
            .then(|| BlockDigest::new(index, self.size));
        self.bytes
            .fit(usize::try_from(end - start).unwrap_or_default());
        let mut at = start;
        for part in self.bytes.chunks_mut(STEP) {
            read_at(file, part, at)?;
            if let Some(digest) = &mut digest {
                digest.update(part);
            }
            at += part.len() as u64;
        }
        self.value = digest.map(|d| d.value());
        Ok(())
    }
}

/// Jobs of the sender's workers.
#[derive(Debug)]
pub(crate) enum ReadJob {
    /// Reads consecutive small files end to end into `bytes`.
    Pack {
        id: u64,
        files: Vec<PackFile>,
        bytes: Pages,
    },
    /// Reads bytes of a large file, and hashes them in passing if they are a whole block.
    Piece { piece: Piece, file: Arc<File> },
    /// Hashes one block; one of zeros counts as a hole if `zeros`.
    Block {
        number: u64,
        index: u64,
        size: u64,
        file: Arc<File>,
        zeros: bool,
    },
    /// Finds the extents that are stored.
    Extents(Arc<Origin>),
}

/// Results of the jobs.
#[derive(Debug)]
pub(crate) enum ReadDone {
    Pack {
        id: u64,
        bytes: Pages,
        results: Vec<(u64, io::Result<Hash>)>,
    },
    Piece(Piece),
    Block {
        number: u64,
        index: u64,
        value: io::Result<Hash>,
    },
    Extents {
        number: u64,
        data: Vec<Range<u64>>,
    },
}

impl Job for ReadJob {
    type Done = ReadDone;

    fn task(&self) -> Task {
        match self {
            Self::Pack { files, .. } => Task::new(
                "reading small files from",
                files.first().map(|f| f.origin.number),
            ),
            Self::Piece { piece, .. } => Task::new("reading", Some(piece.number)),
            Self::Block { number, .. } => Task::new("hashing", Some(*number)),
            Self::Extents(origin) => Task::new("looking for holes in", Some(origin.number)),
        }
    }

    fn run(self, scratch: &mut Pages, stop: &Stop) -> ReadDone {
        match self {
            Self::Pack { id, files, bytes } => read_pack(id, &files, bytes),
            Self::Piece { mut piece, file } => {
                piece.outcome = piece.read(&file);
                ReadDone::Piece(piece)
            }
            Self::Block {
                number,
                index,
                size,
                file,
                zeros,
            } => {
                let value = if zeros {
                    hash_content(&file, index, size, scratch)
                } else {
                    hash_block(&file, index, size, scratch)
                };
                ReadDone::Block {
                    number,
                    index,
                    value,
                }
            }
            Self::Extents(origin) => {
                // What cannot be distinguished is data.
                let (number, size) = (origin.number, origin.size());
                let file = origin.open();
                let data = file.and_then(|file| extents(&file, size, stop));
                let data = data.unwrap_or_else(|_| std::iter::once(0..size).collect());
                ReadDone::Extents { number, data }
            }
        }
    }
}

/// The value of one block of an open file.
pub(crate) fn hash_block(
    file: &File,
    index: u64,
    size: u64,
    scratch: &mut Pages,
) -> io::Result<Hash> {
    let mut digest = BlockDigest::new(index, size);
    read_block(file, index, size, scratch, |bytes| digest.update(bytes))?;
    Ok(digest.value())
}

/// Hashes content; [`digest::HOLE`] if the block is nothing but zeros, however it is stored.
pub(crate) fn hash_content(
    file: &File,
    index: u64,
    size: u64,
    scratch: &mut Pages,
) -> io::Result<Hash> {
    let mut digest = BlockDigest::new(index, size);
    let mut zeros = true;
    read_block(file, index, size, scratch, |bytes| {
        zeros = zeros && bytes.iter().all(|b| *b == 0);
        digest.update(bytes);
    })?;
    Ok(if zeros { digest::HOLE } else { digest.value() })
}

/// Reads one block and shows it to `see`, step by step.
fn read_block(
    file: &File,
    index: u64,
    size: u64,
    scratch: &mut Pages,
    mut see: impl FnMut(&[u8]),
) -> io::Result<()> {
    let range = digest::block_range(index, size);
    let mut at = range.start;
    while at < range.end {
        let len = usize::try_from(range.end - at).unwrap_or(STEP).min(STEP);
        scratch.fit(len);
        read_at(file, scratch, at)?;
        see(scratch);
        at += len as u64;
    }
    Ok(())
}

/// Fills `into`, trying again after errors that may pass.
fn read_at(file: &File, into: &mut [u8], offset: u64) -> io::Result<()> {
    let mut tries = 0;
    loop {
        match file.read_exact_at(into, offset) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                let why = "shorter than before, or than its size";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
            }
            Err(_) if tries + 1 < TRIES => tries += 1,
            other => return other,
        }
    }
}

fn read_pack(id: u64, files: &[PackFile], mut bytes: Pages) -> ReadDone {
    let len: u64 = files.iter().map(|f| f.stamp.size()).sum();
    bytes.fit(usize::try_from(len).unwrap_or_default());
    let mut rest = &mut bytes[..];
    let mut results = Vec::with_capacity(files.len());
    for file in files {
        let (own, after) =
            rest.split_at_mut(usize::try_from(file.stamp.size()).unwrap_or_default());
        results.push((file.origin.number, read_small(file, own)));
        rest = after;
    }
    ReadDone::Pack { id, bytes, results }
}

fn read_small(file: &PackFile, into: &mut [u8]) -> io::Result<Hash> {
    let open = file.origin.open()?;
    read_at(&open, into, 0)?;
    if file.stamp.since(&Stamp::now(&open)?) == Since::Same {
        Ok(blake3::hash(into).into())
    } else {
        Err(changed())
    }
}

/// Error for a file that is not as it was listed.
pub(crate) fn changed() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "changed while it was read")
}

/// The stored ranges of a file, in order.
pub(crate) fn extents(file: &File, size: u64, stop: &Stop) -> io::Result<Vec<Range<u64>>> {
    let mut all = Vec::new();
    let mut at = 0;
    while at < size {
        stop.check()?;
        let start = match file.seek_data(at) {
            Ok(start) => start,
            Err(rustix::io::Errno::NXIO) => break,
            Err(e) => return Err(e.into()),
        };
        let end = file.seek_hole(start)?;
        if start >= size || end <= start {
            break;
        }
        all.push(start..end.min(size));
        at = end;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Write, os::unix::fs::FileExt as _};

    use super::*;
    use crate::{
        confine, disk,
        wire::{Entry, Kind},
    };

    #[test]
    fn times_are_compared_as_far_as_the_file_system_can_store_them() {
        let tmp = tempfile::tempdir().unwrap();
        let mut stat = confine::open_root(tmp.path()).unwrap().stat().unwrap();
        let mut is_same = |ours: (i64, u32), there: (i64, u64), changed: (i64, u64)| {
            (stat.st_mtime, stat.st_mtime_nsec) = there;
            (stat.st_ctime, stat.st_ctime_nsec) = changed;
            let id = Identity {
                size: stat.st_size.cast_unsigned(),
                mtime: ours.0,
                mtime_nanos: ours.1,
            };
            id.is_of(&stat)
        };
        let (ours, fine, last) = ((1_001, 123_456_789), (2_000, 1), (2_000, 0));
        for there in [
            (1_001, 123_456_700),
            (1_001, 123_000_000),
            (1_001, 0),
            (1_000, 0),
        ] {
            assert!(is_same(ours, there, last), "{there:?}");
            assert!(
                !is_same(ours, there, fine),
                "{there:?}: its file system has all of a time"
            );
        }
        for there in [(1_002, 0), (1_001, 123_456_788), (999, 0)] {
            assert!(!is_same(ours, there, last), "{there:?}");
        }
        // Before 1970, and after the last time of 32 bits.
        assert!(is_same((-1, 999_999_999), (-1, 0), last));
        assert!(is_same((1 << 33, 5), (i64::from(i32::MAX), 0), last));
        assert!(!is_same((5, 5), (i64::from(i32::MAX), 0), last));
    }

    #[test]
    fn holes_are_found_and_content_is_kept() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[1; 5000]).unwrap();
        let size = 8 << 20;
        file.set_len(size).unwrap();
        file.write_all_at(&[2; 10], size - 10).unwrap();
        let file = disk::File::from(file);
        let found = extents(&file, size, &Stop::default()).unwrap();
        assert!(found.first().unwrap().contains(&4999));
        assert!(found.last().unwrap().contains(&(size - 1)));
        let stored: u64 = found.iter().map(|r| r.end - r.start).sum();
        assert!(
            stored < size || found.len() == 1,
            "either holes are known or all is data"
        );
    }

    /// File systems keep times to some milliseconds.
    fn wait_for_another_tick(dir: &std::path::Path, stat: &Stat) {
        loop {
            let other = File::create(dir.join("other")).unwrap();
            let now = rustix::fs::fstat(&other).unwrap();
            if (now.st_ctime, now.st_ctime_nsec) != (stat.st_ctime, stat.st_ctime_nsec) {
                return;
            }
        }
    }

    #[test]
    fn a_changed_file_is_noticed() {
        let tmp = tempfile::tempdir().unwrap();
        std::fs::write(tmp.path().join("f"), "four").unwrap();
        let root = confine::open_root(tmp.path()).unwrap();
        let stat = confine::stat(&root, b"f").unwrap().unwrap();
        let entry = Entry::of(Kind::File, "f", 4);
        let mut file = PackFile {
            origin: Origin::of(&entry, (root, b"f".to_vec()), 0, 0),
            stamp: Stamp::of(&stat),
        };
        let mut into = [0; 4];
        assert_eq!(
            read_small(&file, &mut into).unwrap(),
            *blake3::hash(b"four").as_bytes()
        );
        // Another four bytes, and the time put back.
        wait_for_another_tick(tmp.path(), &stat);
        let open = File::options().write(true).open(tmp.path().join("f"));
        let open = open.unwrap();
        let time = open.metadata().unwrap().modified().unwrap();
        open.write_all_at(b"five", 0).unwrap();
        open.set_modified(time).unwrap();
        let now = Stamp::now(&disk::File::from(open)).unwrap();
        assert_eq!(file.stamp.since(&now), Since::Touched);
        assert!(read_small(&file, &mut into).is_err());
        file.stamp = now;
        assert!(read_small(&file, &mut into).is_ok());
        std::fs::write(tmp.path().join("f"), "fourteen").unwrap();
        assert!(read_small(&file, &mut into).is_err());
        std::fs::write(tmp.path().join("f"), "for").unwrap();
        assert!(read_small(&file, &mut into).is_err());
    }
}
