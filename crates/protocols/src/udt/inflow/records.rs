//! A record: object (four bytes), offset (eight bytes), data. The last object number is the ordered
//! stream of what was written, which is put together here.

use std::collections::VecDeque;

use farhaul_core::{
    codec::{NoRoom, Reader, Writer},
    loss::Ranges,
    send::STREAM,
    store::{Extent, ObjectId},
};

use super::{BadPayload, Taken};
use crate::udt::outflow::STREAM_WINDOW;

/// Bytes before a record's data.
pub(in crate::udt) const RECORD: usize = 12;
/// Bytes of the stream that may wait for those before them or for the reader.
const LIMIT: u64 = 4 * STREAM_WINDOW;
/// Separate runs that may wait.
const MAX_RUNS: usize = 8_192;

/// Writes the head of a record.
pub(in crate::udt) fn put_record(
    w: &mut Writer<'_>,
    object: ObjectId,
    offset: u64,
) -> Result<(), NoRoom> {
    w.u32(object)?;
    w.u64(offset)
}

/// Takes records.
#[derive(Debug)]
pub(in crate::udt) struct Records {
    window: u64,
    /// Bytes of the stream from `read` on, holes included.
    bytes: VecDeque<u8>,
    read: u64,
    have: Ranges,
}

impl Records {
    pub(super) fn new(window: u64) -> Self {
        Self {
            window,
            bytes: VecDeque::new(),
            read: 0,
            have: Ranges::default(),
        }
    }

    pub(super) fn take(&mut self, payload: &[u8]) -> Result<Taken, BadPayload> {
        let mut r = Reader::new(payload);
        let (Ok(object), Ok(offset)) = (r.u32(), r.u64()) else {
            return Err(BadPayload("a packet that is no record"));
        };
        let len = r.rest().len() as u64;
        if offset.checked_add(len).is_none() {
            return Err(BadPayload("a record beyond any object"));
        }
        let mut taken = Taken {
            data: len,
            ..Taken::default()
        };
        if object == STREAM {
            taken.readable = self.insert(offset, r.rest())?;
        } else {
            taken.extent = Some(Extent {
                object,
                offset,
                len: u32::try_from(len).unwrap_or(u32::MAX),
                at: u32::try_from(RECORD).unwrap_or(u32::MAX),
            });
        }
        Ok(taken)
    }

    /// Takes a piece of the stream; true if there is more to read.
    fn insert(&mut self, offset: u64, data: &[u8]) -> Result<bool, BadPayload> {
        let end = offset + data.len() as u64;
        if end > self.read + LIMIT || self.have.len() > MAX_RUNS {
            return Err(BadPayload("more of the stream than was asked for"));
        }
        if offset < self.read {
            return Err(BadPayload("a piece of the stream once more"));
        }
        let before = self.have.prefix();
        let at = usize::try_from(offset - self.read).unwrap_or(usize::MAX);
        if self.bytes.len() < at + data.len() {
            self.bytes.resize(at + data.len(), 0);
        }
        let (a, b) = self.bytes.as_mut_slices();
        let split = data.len().min(a.len().saturating_sub(at));
        let (head, tail) = data.split_at(split);
        if !head.is_empty() {
            a[at..at + split].copy_from_slice(head);
        }
        let at = (at + split).saturating_sub(a.len());
        b[at..at + tail.len()].copy_from_slice(tail);
        self.have.insert(offset..end);
        Ok(self.have.prefix() > before)
    }

    pub(super) fn read(&mut self, into: &mut Vec<u8>) {
        let n = usize::try_from(self.have.prefix().saturating_sub(self.read)).unwrap_or_default();
        into.extend(self.bytes.drain(..n));
        self.read += n as u64;
    }

    /// The whole window, but for a reader who does not read.
    pub(super) fn room(&self) -> u64 {
        if self.bytes.len() as u64 > LIMIT / 2 {
            2
        } else {
            self.window
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(object: ObjectId, offset: u64, data: &[u8]) -> Vec<u8> {
        let mut out = vec![0; RECORD];
        put_record(&mut Writer::new(&mut out), object, offset).unwrap();
        out.extend(data);
        out
    }

    #[test]
    fn objects_are_placed_and_the_stream_is_put_in_order() {
        let mut records = Records::new(100);
        let taken = records.take(&record(7, 1 << 40, b"data")).unwrap();
        let extent = taken.extent.unwrap();
        assert_eq!(
            (extent.object, extent.offset, extent.len, extent.at),
            (7, 1 << 40, 4, 12)
        );
        assert!(!records.take(&record(STREAM, 3, b"def")).unwrap().readable);
        assert!(records.take(&record(STREAM, 0, b"abc")).unwrap().readable);
        let mut read = Vec::new();
        records.read(&mut read);
        assert_eq!(read, b"abcdef");
        assert_eq!(records.room(), 100);
    }

    #[test]
    fn what_is_never_sent_is_refused() {
        let mut records = Records::new(100);
        assert!(records.take(&[0; 11]).is_err());
        assert!(records.take(&record(7, u64::MAX, b"x")).is_err());
        assert!(records.take(&record(STREAM, LIMIT, b"x")).is_err());
        assert!(records.take(&record(STREAM, LIMIT - 1, b"x")).is_ok());
        assert_eq!(records.room(), 2, "nobody reads");
    }
}
