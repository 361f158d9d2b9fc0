//! How is one file sent by several nodes? Each sends a stripe of it, and the receivers, which may be several processes,
//! write all of them to one file beside the target.
//!
//! - That file has the content and, behind it, a table with a mark for each stripe that is complete, and a word by which it
//!   is known. A mark is written when the stripe is verified and on the disk.
//! - Whoever finds all marks cuts the table off and gives the file its name, with the file locked.
//! - Its name contains the id of the partition: stripes of another state of the file, or divided in another way, never meet.

use std::io;

use farhaul_core::codec::{DecodeError, Reader};
use rustix::fs::Stat;

use crate::{
    confine::{self, Dir},
    digest::BLOCK,
    disk::File,
    message::Out,
    path::{self, Tag},
    scan::Shard,
};

/// Ends a file of stripes that is not complete.
const WORD: &[u8; 16] = b"farhaul stripes\n";
/// Bytes of a mark.
const MARK: u64 = 8;

/// Bytes of a file that one of several nodes sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stripe {
    /// Where it begins in the file.
    pub(crate) offset: u64,
    /// Bytes of the whole file.
    pub(crate) whole: u64,
    /// Its number among the stripes of the file, from 0 on.
    pub(crate) index: u32,
    /// How many there are.
    pub(crate) count: u32,
    /// Of the file's state and of how it is divided.
    pub(crate) id: Tag,
}

impl Stripe {
    /// Appends it to an entry.
    pub(crate) fn encode(&self, out: &mut Out<'_>) {
        out.varint(self.offset);
        out.varint(self.whole);
        out.varint(self.index.into());
        out.varint(self.count.into());
        out.0.extend_from_slice(&self.id);
    }

    /// The same back, of a stripe of `size` bytes.
    pub(crate) fn decode(r: &mut Reader<'_>, size: u64) -> Result<Self, DecodeError> {
        let (offset, whole) = (r.varint()?, r.varint()?);
        let number = |n| u32::try_from(n).map_err(|_| DecodeError::Malformed("stripe number"));
        let (index, count) = (number(r.varint()?)?, number(r.varint()?)?);
        let id = r.take(8)?.try_into().map_err(|_| DecodeError::Truncated)?;
        let end = offset.checked_add(size).filter(|end| *end <= whole);
        let blocks = offset.is_multiple_of(BLOCK)
            && end.is_some_and(|end| end == whole || end.is_multiple_of(BLOCK));
        let numbered = (2..=Shard::MOST).contains(&count) && index < count;
        if !blocks || !numbered || size <= BLOCK || size == whole {
            return Err(DecodeError::Malformed("stripe"));
        }
        Ok(Self {
            offset,
            whole,
            index,
            count,
            id,
        })
    }

    /// Bytes of the file in which the stripes are collected.
    pub(crate) fn collected(&self) -> u64 {
        self.whole + u64::from(self.count) * MARK + WORD.len() as u64
    }

    /// Counted from where the stripe begins.
    fn mark_at(&self, index: u32) -> u64 {
        self.whole - self.offset + u64::from(index) * MARK
    }

    fn mark(&self, index: u32) -> Tag {
        path::tag(WORD, [&self.id[..], &index.to_be_bytes()])
    }

    /// Opens the file in which the stripes are collected, or makes it, where this one begins; `check` says whether it is
    /// ours. What another node has written there stays.
    pub(crate) fn open(
        &self,
        dir: &Dir,
        name: &[u8],
        check: impl Fn(&Stat) -> io::Result<()>,
    ) -> io::Result<File> {
        loop {
            let file = match confine::open_own(dir, name, &check) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => confine::create(dir, name),
                opened => opened,
            };
            let file = match file {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
                file => file?.at_offset(self.offset),
            };
            let size = size_of(&file)?;
            if size == self.collected() {
                return Ok(file);
            }
            // It was just made, or a stripe of a complete one has to be written again: then no mark holds. Whoever makes
            // it has the lock for a moment only, whoever names it does not share it.
            if size == 0 {
                file.lock()?;
            } else if size != self.whole || !file.try_lock()? {
                let text =
                    "stripes of it are just being put together, or were left by another copy";
                return Err(io::Error::other(text));
            }
            if confine::is_called(&file, dir, name)? && size_of(&file)? == size {
                file.set_len(self.collected())?;
                file.write_all_at(WORD, self.mark_at(self.count))?;
            }
            file.unlock()?;
        }
    }

    /// True if this stripe, where it begins in what was collected, is complete by its mark, or all are.
    pub(crate) fn is_marked(&self, file: &File) -> io::Result<bool> {
        let size = size_of(file)?;
        Ok(size == self.whole || size == self.collected() && self.has_mark(file, self.index)?)
    }

    fn has_mark(&self, file: &File, index: u32) -> io::Result<bool> {
        let mut there = Tag::default();
        file.read_exact_at(&mut there, self.mark_at(index))?;
        Ok(there == self.mark(index))
    }

    /// Marks it as complete; if all are now, cuts the table off, and `name` gives the file its name. Nobody else does the
    /// same meanwhile. False if some are not.
    pub(crate) fn complete(
        &self,
        file: &File,
        name: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<bool> {
        file.lock()?;
        let completed = self.complete_locked(file, name);
        file.unlock()?;
        completed
    }

    fn complete_locked(
        &self,
        file: &File,
        name: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<bool> {
        if size_of(file)? != self.whole {
            file.write_all_at(&self.mark(self.index), self.mark_at(self.index))?;
            for index in 0..self.count {
                if !self.has_mark(file, index)? {
                    return Ok(false);
                }
            }
            file.set_len(self.whole)?;
        }
        name()?;
        Ok(true)
    }
}

fn size_of(file: &File) -> io::Result<u64> {
    Ok(file.stat()?.st_size.cast_unsigned())
}

/// True for a file in which stripes are collected, by its last bytes.
pub(crate) fn is_collected(file: &File) -> bool {
    let mut last = [0; WORD.len()];
    let at = size_of(file).unwrap_or(0).checked_sub(last.len() as u64);
    at.is_some_and(|at| file.read_exact_at(&mut last, at).is_ok()) && last == *WORD
}
