//! Stripes of one file that several nodes send. Each sends a stripe, and the receivers, which may
//! be several processes, write all of them to one file beside the target.
//!
//! - A stripe is one contiguous range of blocks.
//! - That file has the content and, behind it, a table. The table has a mark for each stripe that
//!   is complete, a random generation, and a word by which it is known. A mark is written when the
//!   stripe is verified and on the disk. The mark is removed before anything is written to the
//!   stripe again.
//! - The receiver that finds all marks cuts the table off and gives the file its name, with the
//!   table locked.
//! - Each mark is locked as long as its stripe is open to be written: one run delivers it at a time. Both are locks of open
//!   files on ranges of bytes: a network file system that makes such of flock(2), too, would lock the whole file.
//! - Its name contains the id of the partition: stripes of another state of the file, or divided in another way, never meet.

use std::io;

use rustix::fs::{Mode, Stat};
use serde::{Deserialize, Serialize};

use crate::{
    confine::{self, Dir},
    disk::File,
    wire::{
        Generation, Stripe,
        path::{self, Tag},
    },
};

/// Ends a file of stripes that is not complete.
const MAGIC: &[u8; 16] = b"farhaul stripes\n";
/// Bytes of a mark, and of the generation.
const MARK: u64 = 8;

/// A stripe that was complete at the receiver, as it is reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Striped {
    /// Path of the file in the manifest, for people.
    pub path: String,
    /// Generation of the files that were made for the stripes of that file, in hexadecimal.
    pub generation: String,
    /// True if all stripes were complete, and the file got its name.
    pub whole: bool,
}

impl Stripe {
    /// Bytes of the file in which the stripes are collected.
    pub(crate) fn collected(&self) -> u64 {
        self.file_size + self.table_size()
    }

    fn table_size(&self) -> u64 {
        (u64::from(self.count) + 1) * MARK + MAGIC.len() as u64
    }

    /// Offset of a mark, counted from where the stripe begins; the generation is behind the marks.
    fn mark_at(&self, index: u32) -> u64 {
        self.file_size - self.offset + u64::from(index) * MARK
    }

    fn mark(&self, index: u32) -> Tag {
        path::tag(MAGIC, [&self.id[..], &index.to_be_bytes()])
    }

    /// Writes the table, which has no or all marks.
    fn write_table(&self, file: &File, all: bool, generation: Generation) -> io::Result<()> {
        let marks = (0..self.count).map(|index| {
            if all {
                self.mark(index)
            } else {
                Tag::default()
            }
        });
        let mut table = marks.flatten().collect::<Vec<u8>>();
        table.extend_from_slice(&generation);
        table.extend_from_slice(MAGIC);
        file.write_all_at(&table, self.mark_at(0))
    }

    /// Opens the file in which the stripes are collected, or makes it, where this one begins, to write it; `check` says
    /// whether it is ours. What another node has written there stays.
    pub(crate) fn open(
        &self,
        dir: &Dir,
        name: &[u8],
        check: impl Fn(&Stat) -> io::Result<()>,
        hold: impl Fn(&File) -> io::Result<()>,
    ) -> io::Result<File> {
        loop {
            let file = match confine::open_own_anyway(dir, name, &check) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => confine::create(dir, name),
                opened => opened,
            };
            let file = match file {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
                file => file?.at_offset(self.offset),
            };
            hold(&file)?;
            let opened = self.with_table(&file, || {
                let is_there = confine::is_called(&file, dir, name)?;
                is_there.then(|| self.reopen(&file)).transpose()
            })?;
            if opened.is_some() {
                return Ok(file);
            }
        }
    }

    /// Keeps others from delivering this stripe to what was collected, as long as it is open.
    pub(crate) fn hold(&self, file: &File) -> io::Result<()> {
        let mark = self.file_size + u64::from(self.index) * MARK;
        if file.lock_range(&(mark..mark + MARK), false)? {
            return Ok(());
        }
        let text = "another run delivers the same part of it";
        Err(io::Error::new(io::ErrorKind::ResourceBusy, text))
    }

    /// Acts with the table locked, so that nobody else does the same meanwhile: it takes a moment.
    fn with_table<T>(&self, file: &File, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let magic = self.collected() - MAGIC.len() as u64..self.collected();
        file.lock_range(&magic, true)?;
        let done = act();
        file.unlock_range(&magic)?;
        done
    }

    /// Lets this stripe be written: while it has no mark, nobody takes the file for complete.
    fn reopen(&self, file: &File) -> io::Result<()> {
        let size = size_of(file)?;
        if size == self.collected() {
            if self.has_mark(file, self.index)? {
                file.write_all_at(&Tag::default(), self.mark_at(self.index))?;
                file.sync_data()?;
            }
        } else if size == 0 || size == self.file_size {
            // It was just made, or all of it was complete and never got its name: then no mark holds.
            let mut generation = Generation::default();
            farhaul_io::system_rng().fill(&mut generation);
            self.write_table(file, false, generation)?;
        } else {
            let text = "something else has the name under which its parts are collected";
            return Err(io::Error::other(text));
        }
        Ok(())
    }

    /// True if this stripe, where it begins in what was collected, is complete by its mark, or all are.
    pub(crate) fn is_marked(&self, file: &File) -> io::Result<bool> {
        let size = size_of(file)?;
        Ok(
            size == self.file_size
                || size == self.collected() && self.has_mark(file, self.index)?,
        )
    }

    fn has_mark(&self, file: &File, index: u32) -> io::Result<bool> {
        Ok(read_8(file, self.mark_at(index))? == self.mark(index))
    }

    /// Marks the stripe as complete in the file called `part` in `dir`. If all stripes are now,
    /// cuts the table off, and `name` gives the file its name. Nobody else does the same meanwhile.
    /// Returns the generation, and whether all are complete.
    pub(crate) fn complete(
        &self,
        file: &File,
        (dir, part): (&Dir, &[u8]),
        name: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<(Generation, bool)> {
        self.with_table(file, || self.complete_locked(file, (dir, part), name))
    }

    fn complete_locked(
        &self,
        file: &File,
        (dir, part): (&Dir, &[u8]),
        name: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<(Generation, bool)> {
        if size_of(file)? == self.file_size {
            // The process that has cut the table off ended before the file had its name, or has
            // named it.
            name()?;
            return Ok((Generation::default(), true));
        }
        file.write_all_at(&self.mark(self.index), self.mark_at(self.index))?;
        let generation = read_8(file, self.mark_at(self.count))?;
        for index in 0..self.count {
            if !self.has_mark(file, index)? {
                return Ok((generation, false));
            }
        }
        file.set_len(self.file_size)?;
        match name() {
            Ok(()) => Ok((generation, true)),
            Err(e) => {
                if confine::is_called(file, dir, part)? {
                    file.set_mode(Mode::RUSR | Mode::WUSR)?;
                    self.write_table(file, true, generation)?;
                }
                Err(e)
            }
        }
    }
}

fn read_8(file: &File, at: u64) -> io::Result<[u8; 8]> {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}

fn size_of(file: &File) -> io::Result<u64> {
    Ok(file.stat()?.st_size.cast_unsigned())
}

/// True for a file in which stripes are collected, by its last bytes; from its beginning.
pub(crate) fn is_collected(file: &File) -> bool {
    let mut last = [0; MAGIC.len()];
    let at = size_of(file).unwrap_or(0).checked_sub(last.len() as u64);
    at.is_some_and(|at| file.read_exact_at(&mut last, at).is_ok()) && last == *MAGIC
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{BLOCK, Entry, Kind};

    /// A folder, and two stripes of a file.
    fn two() -> (tempfile::TempDir, Dir, [Stripe; 2]) {
        let tmp = tempfile::tempdir().unwrap();
        let dir = confine::open_root(tmp.path()).unwrap();
        let stripe = |index, blocks| {
            let entry = Entry::of(Kind::File, "f", 2 * BLOCK + 5 * u64::from(index));
            let entry = entry.striped(index, blocks);
            *entry.stripe.unwrap()
        };
        let (mut first, mut second) = (stripe(0, 0), stripe(1, 2));
        first.file_size = second.file_size;
        (first.count, second.count) = (2, 2);
        (tmp, dir, [first, second])
    }

    const PART: &[u8] = b"part";

    fn open(stripe: Stripe, dir: &Dir) -> File {
        stripe.open(dir, PART, |_| Ok(()), |_| Ok(())).unwrap()
    }

    fn complete(stripe: Stripe, dir: &Dir, file: &File) -> bool {
        let name = || confine::give_name(file, dir, PART, b"f", false);
        stripe.complete(file, (dir, PART), name).unwrap().1
    }

    #[test]
    fn what_is_written_again_is_not_complete_meanwhile() {
        let (tmp, dir, [first, second]) = two();
        let one = open(first, &dir);
        assert!(!complete(first, &dir, &one));
        assert!(first.is_marked(&one).unwrap());
        assert!(!second.is_marked(&open(second, &dir)).unwrap());
        // It turned out to be wrong.
        let again = open(first, &dir);
        assert!(!first.is_marked(&again).unwrap());
        let two = open(second, &dir);
        assert!(!complete(second, &dir, &two));
        assert!(complete(first, &dir, &again));
        let named = std::fs::metadata(tmp.path().join("f")).unwrap();
        assert_eq!(named.len(), first.file_size);
        assert_eq!(std::fs::read_dir(tmp.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_cannot_have_its_name_stays_what_it_was() {
        let (tmp, dir, [first, second]) = two();
        let (one, two) = (open(first, &dir), open(second, &dir));
        assert!(!complete(first, &dir, &one));
        let generation = read_8(&one, first.mark_at(2)).unwrap();
        let refused = || Err(io::ErrorKind::AlreadyExists.into());
        assert!(second.complete(&two, (&dir, PART), refused).is_err());
        let there = confine::open_to_read(&dir, PART).unwrap();
        assert!(is_collected(&there) && first.is_marked(&one).unwrap());
        assert_eq!(read_8(&one, first.mark_at(2)).unwrap(), generation);
        // Killed between: all are complete, and nothing more is known.
        two.set_len(second.file_size).unwrap();
        assert!(first.is_marked(&one).unwrap());
        assert!(complete(second, &dir, &two));
        assert!(tmp.path().join("f").exists());
    }

    #[test]
    fn no_stripe_of_a_complete_file_is_written_and_the_others_kept() {
        let (_tmp, dir, [first, second]) = two();
        let (one, two) = (open(first, &dir), open(second, &dir));
        assert!(!complete(first, &dir, &one));
        two.set_len(second.file_size).unwrap();
        let again = open(second, &dir);
        assert!(!first.is_marked(&one).unwrap());
        again.set_len(7).unwrap();
        assert!(second.open(&dir, PART, |_| Ok(()), |_| Ok(())).is_err());
    }
}
