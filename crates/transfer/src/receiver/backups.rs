//! Decides whether a file that is replaced may keep its backup's name. That name may not be one
//! that the sender lists, before or after: neither file takes the place of the other.

use std::{collections::HashSet, io};

use crate::{
    bounds::BACKUPS,
    wire::{
        Suffix,
        path::{self, Tag},
    },
};

/// The error of a file whose backup would have the name of another.
pub(super) const LISTED: &str = "not replaced: its backup would have the name of another file of this copy; choose another --backup=SUFFIX";
const GIVEN: &str =
    "this is the name of a backup that this copy made; choose another --backup=SUFFIX";
const MANY: &str = "not replaced: the limit of backups of one copy is reached: copy in parts";

/// Names that backups have, or cannot have.
#[derive(Debug)]
pub(crate) struct Backups {
    suffix: Option<Suffix>,
    /// True if names that differ only in case are one.
    folds: bool,
    /// Listed names that may be backups' names, as digests.
    listed: HashSet<[u8; 8]>,
    /// Names given to backups, as digests.
    made: HashSet<[u8; 8]>,
    /// True if some listed names are not remembered.
    full: bool,
}

impl Backups {
    pub(crate) fn new(suffix: Option<Suffix>, folds: bool) -> Self {
        Self {
            suffix,
            folds,
            listed: HashSet::new(),
            made: HashSet::new(),
            full: false,
        }
    }

    /// Notes that an entry of this path was listed. The reason that it is not received, if a backup has
    /// its name, or a transfer keeps its state under one in the path: that of `tag`, or another if there
    /// are `strangers`.
    pub(crate) fn refuse(
        &mut self,
        path: &[u8],
        tag: Tag,
        strangers: bool,
    ) -> Option<&'static str> {
        let is_own = |name: &[u8]| {
            let own = path::reserved(name, self.folds);
            own.is_some_and(|own| strangers || own.tag() == tag)
        };
        if path.split(|b| *b == b'/').any(is_own) {
            return Some(path::RESERVED);
        }
        self.list(path).err()
    }

    /// Notes that an entry of this path was listed; an error if a backup has its name.
    pub(super) fn list(&mut self, path: &[u8]) -> Result<(), &'static str> {
        // Where case is ignored another one may end so too.
        let ends = |suffix: &Suffix| self.folds || path.ends_with(suffix.bytes());
        if !self.suffix.as_ref().is_some_and(ends) {
            return Ok(());
        }
        self.list_key(self.key(path))
    }

    /// Notes that the file with this path is about to be replaced; an error if its backup would
    /// have another's name.
    pub(crate) fn make(&mut self, path: &[u8]) -> io::Result<()> {
        let Some(suffix) = &self.suffix else {
            return Ok(());
        };
        let key = self.key(&[path, suffix.bytes()].concat());
        self.make_key(key).map_err(io::Error::other)
    }

    fn key(&self, path: &[u8]) -> [u8; 8] {
        path::folded_digest(path, self.folds)
    }

    fn is_full(&self) -> bool {
        self.listed.len() + self.made.len() >= BACKUPS
    }

    fn list_key(&mut self, key: [u8; 8]) -> Result<(), &'static str> {
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

    fn make_key(&mut self, key: [u8; 8]) -> Result<(), &'static str> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_no_longer_be_remembered_is_not_replaced() {
        let mut backups = Backups::new(None, false);
        let key = |n: usize| (n as u64).to_be_bytes();
        for n in 0..BACKUPS {
            backups.list_key(key(n)).unwrap();
        }
        assert_eq!(backups.make_key(key(0)), Err(LISTED));
        assert_eq!(backups.make_key(key(BACKUPS)), Err(MANY));
        let mut backups = Backups::new(None, false);
        for n in 0..BACKUPS {
            backups.make_key(key(n)).unwrap();
        }
        backups.make_key(key(0)).unwrap();
        assert_eq!(backups.list_key(key(0)), Err(GIVEN));
        backups.list_key(key(BACKUPS)).unwrap();
        assert_eq!(backups.make_key(key(0)), Err(MANY));
    }
}
