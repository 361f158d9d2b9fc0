//! Names that have been listed. No two files are collected under one name, nor under two names that
//! the destination takes for one. A file that is to be listed again is waited for.

use std::collections::{HashMap, HashSet};

use crate::{bounds, wire::path};

pub(super) const SAME_NAME: &str = "another file was listed by this name";

/// Names that were listed, and those that are to be.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Files under way by path: no two of them may be collected in one place.
    under_way: HashMap<Vec<u8>, u64>,
    /// Files that wait for a name, by path.
    waiting: HashMap<Vec<u8>, u64>,
    /// Digests of the paths that the sender gave up and is to list again.
    again: HashSet<[u8; 8]>,
    /// Digests of the lower case of every path listed, and of the path that had it first. Kept if
    /// names that differ only in case are one here.
    pub(super) folded: Option<HashMap<[u8; 8], [u8; 8]>>,
}

impl Names {
    /// `fold`: names that differ only in case are one.
    pub(super) fn new(fold: bool) -> Self {
        Self {
            folded: fold.then(HashMap::new),
            ..Self::default()
        }
    }

    /// Notes that the path is listed, perhaps again.
    pub(super) fn note_listed(&mut self, path: &[u8]) {
        self.again.remove(&path::digest(path));
    }

    /// True if it was given up and is to be listed again.
    pub(super) fn is_to_come(&self, path: &[u8]) -> bool {
        !self.again.is_empty() && self.again.contains(&path::digest(path))
    }

    /// Takes the name for this file, unless another has it: which file has it now.
    pub(super) fn take(&mut self, path: &[u8], file: u64) -> u64 {
        *self.under_way.entry(path.to_vec()).or_insert(file)
    }

    /// Lets this file wait for its name; returns the one that did before.
    pub(super) fn wait(&mut self, path: &[u8], file: u64) -> Option<u64> {
        self.waiting.insert(path.to_vec(), file)
    }

    /// Takes the file that waits for this name.
    pub(super) fn waiting(&mut self, path: &[u8]) -> Option<u64> {
        self.waiting.remove(path)
    }

    /// Ends the collection for this file: another may have its name.
    pub(super) fn release(&mut self, path: &[u8], file: u64) {
        if self.under_way.get(path) == Some(&file) {
            self.under_way.remove(path);
        }
    }

    /// Reason that the path may be the same here as one that was listed before. Folders may become
    /// one.
    pub(super) fn refuse_other_case(&mut self, path: &[u8]) -> Option<&'static str> {
        let folded = self.folded.as_mut()?;
        let own = path::digest(path);
        let lower = path::folded_digest(path, true);
        if folded.len() >= bounds::FOLDED && !folded.contains_key(&lower) {
            return Some(
                "the destination ignores case, and the limit of names of one copy is reached: copy in parts",
            );
        }
        (*folded.entry(lower).or_insert(own) != own).then_some(
            "a name that differs only in case was listed before, and the destination ignores case: copy one of them to another folder",
        )
    }

    /// Notes that the path is to be listed again. Of too many that is not believed.
    pub(super) fn promise(&mut self, path: &[u8]) -> bool {
        let room = self.again.len() < bounds::AGAIN;
        if room {
            self.again.insert(path::digest(path));
        }
        room
    }

    /// Takes the number of paths that were to be listed again and were not.
    pub(super) fn take_promises(&mut self) -> u64 {
        std::mem::take(&mut self.again).len() as u64
    }
}
