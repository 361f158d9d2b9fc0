//! The file that further parallel sessions read again from what was lost.

use std::{io, ops::Range, sync::Arc};

use super::job::changed;
use crate::{
    confine::{self, Dir},
    disk::File,
};

/// Source of the bytes of a large file.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(super) number: u64,
    /// Range within the object.
    pub(super) range: Range<u64>,
    pub(super) root: Dir,
    pub(super) rel: Vec<u8>,
    /// Offset in the file at which it begins.
    pub(super) offset: u64,
    /// Device and inode of the file as it was opened first.
    pub(super) inode: Option<(u64, u64)>,
}

impl Origin {
    pub(super) fn open(&self) -> io::Result<Arc<File>> {
        let file = confine::open_to_read(&self.root, &self.rel)?;
        let about = file.stat()?;
        if self
            .inode
            .is_some_and(|inode| inode != (about.st_dev, about.st_ino))
        {
            return Err(changed());
        }
        Ok(Arc::new(file.at_offset(self.offset)))
    }
}
