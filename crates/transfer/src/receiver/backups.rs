//! Decides whether a file that is replaced may keep its backup's name. That name may not be one
//! that the sender lists, before or after: neither file takes the place of the other.

use std::{collections::HashSet, io};

use super::Receiver;
use crate::{
    bounds::BACKUPS,
    wire::{Suffix, path},
};

/// The error of a file whose backup would have the name of another.
pub(super) const LISTED: &str = "not replaced: its backup would have the name of another file of this copy; choose another --backup=SUFFIX";
const GIVEN: &str =
    "this is the name of a backup that this copy made; choose another --backup=SUFFIX";
const MANY: &str = "not replaced: the limit of backups of one copy is reached: copy in parts";

/// Digests of paths.
#[derive(Debug, Default)]
pub(super) struct Backups {
    /// Listed names that may be backups' names, as digests.
    listed: HashSet<[u8; 8]>,
    /// Names given to backups, as digests.
    made: HashSet<[u8; 8]>,
    /// True if some listed names are not remembered.
    full: bool,
}

impl Backups {
    fn is_full(&self) -> bool {
        self.listed.len() + self.made.len() >= BACKUPS
    }

    fn list(&mut self, key: [u8; 8]) -> Result<(), &'static str> {
        if self.is_full() && !self.listed.contains(&key) {
            self.full = true;
        } else {
            self.listed.insert(key);
        }
        if self.made.contains(&key) {
            Err(GIVEN)
        } else {
            Ok(())
        }
    }

    fn make(&mut self, key: [u8; 8]) -> Result<(), &'static str> {
        if self.listed.contains(&key) {
            return Err(LISTED);
        }
        if self.full || self.is_full() && !self.made.contains(&key) {
            return Err(MANY);
        }
        self.made.insert(key);
        Ok(())
    }
}

impl Receiver {
    fn backup_key(&self, path: &[u8]) -> [u8; 8] {
        if !self.names.are_folded() {
            return path::digest(path);
        }
        path::digest(String::from_utf8_lossy(path).to_lowercase().as_bytes())
    }

    /// An entry of this path was listed; why it must fail, if a backup has its name.
    pub(super) fn note_possible_backup(&mut self, path: &[u8]) -> Result<(), &'static str> {
        let ends = |suffix: &Suffix| {
            // Where case is ignored another one may end so too.
            self.names.are_folded() || path.ends_with(suffix.bytes())
        };
        if !self.rules.mirror.backup.as_ref().is_some_and(ends) {
            return Ok(());
        }
        let key = self.backup_key(path);
        self.backups.list(key)
    }

    /// Notes that the file with this path is about to be replaced; an error if its backup would
    /// have another's name.
    pub(super) fn note_backup(&mut self, path: &[u8]) -> io::Result<()> {
        let Some(suffix) = &self.rules.mirror.backup else {
            return Ok(());
        };
        let key = self.backup_key(&[path, suffix.bytes()].concat());
        self.backups.make(key).map_err(io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_no_longer_be_remembered_is_not_replaced() {
        let mut backups = Backups::default();
        let key = |n: usize| (n as u64).to_be_bytes();
        for n in 0..BACKUPS {
            backups.list(key(n)).unwrap();
        }
        assert_eq!(backups.make(key(0)), Err(LISTED));
        assert_eq!(backups.make(key(BACKUPS)), Err(MANY));
        let mut backups = Backups::default();
        for n in 0..BACKUPS {
            backups.make(key(n)).unwrap();
        }
        backups.make(key(0)).unwrap();
        assert_eq!(backups.list(key(0)), Err(GIVEN));
        backups.list(key(BACKUPS)).unwrap();
        assert_eq!(backups.make(key(0)), Err(MANY));
    }
}
