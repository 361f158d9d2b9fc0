//! A record: object (four bytes), offset (eight bytes), data. The last object number is the ordered
//! stream of what was written, which is put together here.

use farhaul_core::{
    codec::{NoRoom, Reader, Writer},
    send::STREAM,
    store::{Extent, ObjectId},
    stream::Incoming,
};

use super::{BadPayload, Taken};
use crate::udt::outflow::STREAM_WINDOW;

/// Bytes before a record's data.
pub(in crate::udt) const RECORD: usize = 12;
/// Bytes of the stream that may wait for those before them or for the reader.
const LIMIT: u64 = 4 * STREAM_WINDOW;

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
    stream: Incoming,
}

impl Records {
    pub(super) fn new(window: u64) -> Self {
        Self {
            window,
            stream: Incoming::new(LIMIT),
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
        if offset < self.stream.read_to() {
            return Err(BadPayload("a piece of the stream once more"));
        }
        let taken = self.stream.insert(offset, data);
        taken.ok_or(BadPayload("more of the stream than was asked for"))
    }

    pub(super) fn read(&mut self, into: &mut Vec<u8>) {
        self.stream.read(into);
    }

    /// The whole window, but for a reader who does not read.
    pub(super) fn room(&self) -> u64 {
        if self.stream.kept() > LIMIT / 2 {
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
