//! Entries that are not copied. A walk skips pipes, sockets and devices with one warning for all; a named one is an error.

use rustix::fs::{FileType, Stat};

use super::{Gone, Scanner};
use crate::wire::{Exit, Symlinks};

/// Pipes, sockets and devices, which are not copied.
#[derive(Default)]
pub(super) struct Special {
    first: Vec<u8>,
    count: u64,
}

impl Scanner<'_> {
    /// Warns once about all entries that are neither files, directories nor links.
    pub(super) fn tell_of_special(&mut self) -> Result<(), Gone> {
        let Special { first, count } = std::mem::take(&mut self.special);
        let what = match count {
            0 => return Ok(()),
            1 => "a pipe, socket or device: skipped".to_owned(),
            _ => format!("{count} pipes, sockets or devices, of which this is the first: skipped"),
        };
        self.say(&first, Exit::Ok, &what)
    }

    /// True of a folder on another file system than the source, where that one is not to be left.
    pub(super) fn is_elsewhere(&mut self, stat: &Stat) -> bool {
        self.selection.one_file_system && *self.device.get_or_insert(stat.st_dev) != stat.st_dev
    }

    /// Some for an entry that is not copied because of its kind; true if the entry of its name at
    /// the destination stays.
    pub(super) fn leaves_out(&mut self, stat: &Stat, name: &[u8]) -> Option<bool> {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile | FileType::Directory => return None,
            FileType::Symlink if self.selection.symlinks != Symlinks::Skip => return None,
            FileType::Symlink => {}
            _ => {
                if self.special.count == 0 {
                    self.special.first = name.to_vec();
                }
                self.special.count += 1;
            }
        }
        Some(self.selection.keep)
    }
}

/// The error for what was asked for by its name, and is skipped elsewhere.
pub(super) const SPECIAL: &str = "a pipe, socket or device, which is not copied";

pub(super) fn is_special(stat: &Stat) -> bool {
    let plain = [
        FileType::RegularFile,
        FileType::Directory,
        FileType::Symlink,
    ];
    !plain.contains(&FileType::from_raw_mode(stat.st_mode))
}
