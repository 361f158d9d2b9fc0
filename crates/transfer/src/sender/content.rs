//! Finds a byte of the object for the sender: in what was read ahead, or, for a repair, in the file
//! again.
//!
//! - Consecutive extents in one file are one `preadv`.
//! - Bytes that cannot be read are sent as zeros and their file is reported: a fault in one file does
//!   not end the session.

use std::{
    io::{self, IoSliceMut},
    sync::Arc,
};

use farhaul_core::store::{Extent, StoreError};

use super::{Body, Sender};
use crate::{disk::File, table::CONTENT};

/// Large files kept open.
const OPEN: usize = 128;
/// Buffers of one system call.
const VECTOR: usize = 64;

impl Sender {
    /// Fills a batch.
    pub(super) fn fill_batch(
        &mut self,
        extents: &[Extent],
        batch: &mut [u8],
    ) -> Result<(), StoreError> {
        let mut rest = batch;
        let mut base = 0;
        let mut run = Run::default();
        for extent in extents {
            // The batch is cut into disjoint slices from front to back.
            let skip = (extent.at as usize).checked_sub(base);
            let tail = std::mem::take(&mut rest);
            let cut = skip
                .and_then(|n| tail.split_at_mut_checked(n))
                .map(|(_, t)| t);
            let cut = cut.and_then(|t| t.split_at_mut_checked(extent.len as usize));
            let Some((mut own, after)) = cut.filter(|_| extent.object == CONTENT) else {
                return Err(StoreError(
                    "internal: batch out of order or of no known object".into(),
                ));
            };
            base = extent.at as usize + extent.len as usize;
            rest = after;
            let mut offset = extent.offset;
            while !own.is_empty() {
                let (n, large) = self.fill_some(offset, own);
                let (part, left) = own.split_at_mut(n);
                if let Some((number, at)) = large
                    && let Some(part) = run.add(number, at, part)
                {
                    self.read_run(std::mem::take(&mut run));
                    run.add(number, at, part);
                }
                own = left;
                offset += n as u64;
            }
        }
        self.read_run(run);
        Ok(())
    }

    /// Fills the front of `own` if it is of a small file; for a large one returns which and where.
    fn fill_some(&mut self, offset: u64, own: &mut [u8]) -> (usize, Option<(u64, u64)>) {
        let n = self.loaded.copy(offset, own);
        if n > 0 {
            return (n, None);
        }
        let Some(number) = self.table.find(offset) else {
            // Over already; the receiver has what it needs.
            own.fill(0);
            return (own.len(), None);
        };
        let slot = self.table.get(number).expect("found above");
        let at = offset - slot.range.start;
        let left = usize::try_from(slot.range.end - offset).unwrap_or(usize::MAX);
        let n = left.min(own.len());
        if let Body::Large(_) = slot.item.body {
            (n, Some((number, at)))
        } else {
            self.read_small_again(number, at, &mut own[..n]);
            (n, None)
        }
    }

    fn read_small_again(&mut self, number: u64, at: u64, into: &mut [u8]) {
        let item = &self.table.get(number).expect("found by the caller").item;
        let read = item.origin.open();
        let read = read.and_then(|file| file.read_exact_at(into, at));
        if let Err(e) = read {
            into.fill(0);
            self.fail_read(number, &e);
        }
    }

    /// Reads consecutive pieces of one large file.
    fn read_run(&mut self, mut run: Run<'_>) {
        if run.len == 0 {
            return;
        }
        let number = run.number;
        let outcome = self.file(number).and_then(|file| run.read(&file));
        if let Err(e) = outcome {
            run.zero();
            self.fail_read(number, &e);
        }
        if let Some(Body::Large(large)) = self.table.get_mut(number).map(|s| &mut s.item.body) {
            large.unread.remove(run.at..run.at + run.bytes);
        }
    }

    /// The open file of a large entry.
    pub(super) fn file(&mut self, number: u64) -> io::Result<Arc<File>> {
        let slot = self.table.get_mut(number).ok_or(io::ErrorKind::NotFound)?;
        let item = &mut slot.item;
        let Body::Large(large) = &mut item.body else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        if let Some(file) = &large.file {
            return Ok(Arc::clone(file));
        }
        let file = item.origin.open_again()?;
        // Reading ahead of the workers; without it reading is only slower.
        let _hint = file.advise(rustix::fs::Advice::Sequential);
        large.file = Some(Arc::clone(&file));
        self.open.push_back(number);
        let more = self.open.len().saturating_sub(file.kept(OPEN));
        for oldest in self.open.drain(..more) {
            if let Some(Body::Large(large)) = self.table.get_mut(oldest).map(|s| &mut s.item.body) {
                large.file = None;
            }
        }
        Ok(file)
    }
}

/// Consecutive pieces of one large file.
struct Run<'a> {
    number: u64,
    at: u64,
    bytes: u64,
    parts: [IoSliceMut<'a>; VECTOR],
    len: usize,
}

impl Default for Run<'_> {
    fn default() -> Self {
        Self {
            number: 0,
            at: 0,
            bytes: 0,
            parts: std::array::from_fn(|_| IoSliceMut::new(&mut [])),
            len: 0,
        }
    }
}

impl<'a> Run<'a> {
    /// Appends a piece, or gives it back if it does not follow.
    fn add(&mut self, number: u64, at: u64, part: &'a mut [u8]) -> Option<&'a mut [u8]> {
        if self.len == 0 {
            (self.number, self.at) = (number, at);
        } else if self.len == VECTOR || number != self.number || at != self.at + self.bytes {
            return Some(part);
        }
        self.bytes += part.len() as u64;
        self.parts[self.len] = IoSliceMut::new(part);
        self.len += 1;
        None
    }

    fn read(&mut self, file: &File) -> io::Result<()> {
        let mut parts = &mut self.parts[..self.len];
        let mut at = self.at;
        let end = self.at + self.bytes;
        while at < end {
            match file.read_vectored_at(parts, at) {
                Ok(0) => return Err(super::job::changed()),
                Ok(n) => {
                    at += n as u64;
                    if at < end {
                        IoSliceMut::advance_slices(&mut parts, n);
                    }
                }
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    fn zero(&mut self) {
        for part in &mut self.parts[..self.len] {
            part.fill(0);
        }
    }
}
