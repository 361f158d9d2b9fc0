//! Gives folders their own permissions and time at the end, since new content changes a folder's
//! time and needs its permissions. If there are very many folders, those that the listing has left
//! behind get theirs as soon as everything listed up to then is over. So the memory does not grow
//! with the tree.

use std::{collections::HashSet, io};

use super::target::Folder;
use crate::{
    bounds::FOLDERS,
    confine::{self, Dir, Tree},
};

/// Memory that a folder takes besides its path and attributes, bytes.
const EACH: usize = 64;

/// Folders that were listed.
#[derive(Debug, Default)]
pub(super) struct Folders {
    listed: Vec<Folder>,
    bytes: usize,
    /// Folders that get their permissions and time once all entries below a number are over.
    closing: Option<(u64, Vec<Folder>)>,
    /// True if a worker is at it.
    busy: bool,
    /// Folders made by this transfer: nothing can be in the way in them.
    fresh: HashSet<Vec<u8>>,
    fresh_bytes: usize,
    /// Folders that their owner may not write to at the source.
    closed: HashSet<Vec<u8>>,
    closed_bytes: usize,
}

/// Memory that a folder takes while it is remembered, bytes.
fn cost(folder: &Folder) -> usize {
    let granted = folder.meta.granted.as_ref();
    folder.path.len() + granted.map_or(0, |granted| granted.len()) + EACH
}

impl Folders {
    /// Notes a folder that was made.
    pub(super) fn note_made(&mut self, path: &[u8]) {
        if self.fresh_bytes > FOLDERS {
            // If removed from the cache, they are checked like others.
            self.forget_new();
        }
        self.fresh_bytes += path.len() + EACH;
        self.fresh.insert(path.to_vec());
    }

    /// True if the folder was made by this transfer; not of all is that remembered.
    pub(super) fn is_new(&self, path: &[u8]) -> bool {
        self.fresh.contains(path)
    }

    /// Notes a folder whose permissions keep its owner from filling it.
    pub(super) fn note_closed(&mut self, path: &[u8]) {
        if self.closed_bytes > FOLDERS {
            // Those of before are filled by now, or they stay as they are.
            self.closed.clear();
            self.closed_bytes = 0;
        }
        self.closed_bytes += path.len() + EACH;
        self.closed.insert(path.to_vec());
    }

    /// True if its owner may not write to it at the source; not of all is that remembered.
    pub(super) fn is_closed(&self, path: &[u8]) -> bool {
        self.closed.contains(path)
    }

    /// Opens the folder `rel` of `tree`. If another copy has closed it, or one around it, so that
    /// nothing in it could be looked at, it is opened all the same.
    pub(super) fn within(&self, tree: &mut Tree, rel: &[u8]) -> io::Result<Dir> {
        let ends = rel.iter().enumerate().filter(|(_, b)| **b == b'/');
        let ends = ends.map(|(end, _)| end).chain([rel.len()]);
        let closed = ends.map(|end| &rel[..end]);
        let closed = closed.filter(|dir| self.is_closed(dir));
        let root = tree.root();
        confine::through(&root, &closed, || {
            let dir = tree.dir(rel)?;
            if self.is_closed(rel) {
                dir.may_be_entered()?;
            }
            Ok(dir)
        })
    }

    /// Forgets which folders are new: something may be in the way in any of them.
    pub(super) fn forget_new(&mut self) {
        self.fresh.clear();
        self.fresh_bytes = 0;
    }

    /// Remembers a folder; `next` is the number of the entry after it.
    pub(super) fn add(&mut self, folder: Folder, next: u64) {
        self.bytes += cost(&folder);
        self.listed.push(folder);
        if self.bytes <= FOLDERS || self.closing.is_some() || self.busy {
            return;
        }
        let here = self.listed.last().map_or_else(Vec::new, |f| f.path.clone());
        let around = |f: &Folder| {
            let rest = here.strip_prefix(&f.path[..]);
            rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        };
        let listed = std::mem::take(&mut self.listed);
        let (mut open, closed): (Vec<_>, Vec<_>) = listed.into_iter().partition(around);
        // One that was listed again is the same.
        open.sort_by_key(|f| f.path.len());
        open.dedup_by(|again, f| {
            let same = again.path == f.path;
            if same {
                f.meta = again.meta.clone();
                f.made |= again.made;
            }
            same
        });
        self.listed = open;
        self.bytes = self.listed.iter().map(cost).sum();
        self.closing = (!closed.is_empty()).then_some((next, closed));
    }

    /// Takes all folders that are left.
    pub(super) fn take(&mut self) -> Vec<Folder> {
        self.bytes = 0;
        std::mem::take(&mut self.listed)
    }

    /// True if some folders are to get their permissions before the end, and have not yet.
    pub(super) const fn are_closing(&self) -> bool {
        self.closing.is_some() || self.busy
    }

    /// True if there are so many folders that the worker must be waited for.
    pub(super) const fn are_too_many(&self) -> bool {
        self.busy && self.bytes > 2 * FOLDERS
    }

    /// Takes the folders that were left behind, if all entries below `first` are over.
    pub(super) fn take_closing(&mut self, first: u64) -> Option<Vec<Folder>> {
        let (_, dirs) = self.closing.take_if(|(upto, _)| *upto <= first)?;
        self.busy = true;
        Some(dirs)
    }

    /// Notes that they have their permissions.
    pub(super) const fn closed(&mut self) {
        self.busy = false;
    }
}
