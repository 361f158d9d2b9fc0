//! Takes payloads. Records carry where their bytes belong and are placed on arrival; those of the
//! last object number are the ordered stream of written bytes. Streams and messages are put in
//! order: a payload that arrives in order goes straight to the reader, others wait in slots.
//!
//! A record: object (four bytes), offset (eight bytes), data.
//!
//! Invariant: memory grows with what arrived, never beyond the window that was offered.

mod messages;

use std::ops::Range;

use farhaul_core::{
    codec::{DecodeError, Reader},
    send::STREAM,
    store::Extent,
    stream::{Incoming, WINDOW},
};

use self::messages::Messages;
use super::{Framing, wire::DataHeader};

/// Bytes before a record's data.
pub(super) const RECORD: usize = 12;
/// Bytes of the records' stream that may wait for those before them or for the reader.
const LIMIT: u64 = 4 * WINDOW;

/// Use of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    /// Bytes to be placed.
    pub(super) extent: Option<Extent>,
    /// True if there is more to read.
    pub(super) readable: bool,
    /// Bytes of data.
    pub(super) data: u64,
}

/// The receiving end of the data.
#[derive(Debug)]
pub(super) enum Inflow {
    /// The stream, and packets that may be under way.
    Records(Incoming, u64),
    Ordered(Messages),
}

impl Inflow {
    /// The half for packets from `first` on, of at most `payload` bytes, in at most `slots` slots.
    pub(super) fn new(framing: Framing, first: u64, payload: usize, slots: u64) -> Self {
        match framing {
            Framing::Records => Self::Records(Incoming::new(LIMIT), slots),
            Framing::Stream => Self::Ordered(Messages::new(first, payload, slots, false)),
            Framing::Messages { .. } => Self::Ordered(Messages::new(first, payload, slots, true)),
        }
    }

    /// Takes the payload, at `at` in the batch, of packet `number`, which has not been taken before.
    pub(super) fn take(
        &mut self,
        number: u64,
        header: &DataHeader,
        payload: &[u8],
        at: usize,
    ) -> Result<Taken, DecodeError> {
        match self {
            Self::Records(stream, _) => take_record(stream, payload, at),
            Self::Ordered(messages) => Ok(Taken {
                extent: None,
                readable: messages.take(number, header, payload)?,
                data: payload.len() as u64,
            }),
        }
    }

    /// Notes that the peer gave up `range`, of this message; true if there is more to read.
    pub(super) fn give_up(&mut self, range: Range<u64>, message: u32) -> bool {
        match self {
            Self::Records(..) => false,
            Self::Ordered(messages) => messages.give_up(range, message),
        }
    }

    /// Packets for which there is room from `prefix` on, before which everything arrived.
    pub(super) fn room(&self, prefix: u64) -> u64 {
        match self {
            // But for a reader who does not read.
            Self::Records(stream, _) if stream.kept() > LIMIT / 2 => 2,
            Self::Records(_, window) => *window,
            Self::Ordered(messages) => messages.room(prefix),
        }
    }

    /// Appends what can be read.
    pub(super) fn read(&mut self, into: &mut Vec<u8>) {
        match self {
            Self::Records(stream, _) => stream.read(into),
            Self::Ordered(messages) => messages.read(into),
        }
    }
}

/// Takes a record, found at `at`.
fn take_record(stream: &mut Incoming, payload: &[u8], at: usize) -> Result<Taken, DecodeError> {
    let mut r = Reader::new(payload);
    let (Ok(object), Ok(offset)) = (r.u32(), r.u64()) else {
        return Err(DecodeError::Malformed("packet that is no record"));
    };
    let extent = Extent::new(object, offset, r.rest().len(), at + RECORD)?;
    let mut taken = Taken {
        data: extent.len.into(),
        ..Taken::default()
    };
    if object != STREAM {
        taken.extent = Some(extent);
    } else if offset < stream.read_to() {
        return Err(DecodeError::Malformed("piece of the stream, once more"));
    } else {
        const MORE: DecodeError = DecodeError::Malformed("more of the stream than was asked for");
        taken.readable = stream.insert(offset, r.rest()).ok_or(MORE)?;
    }
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use farhaul_core::store::ObjectId;

    use super::*;

    fn take(inflow: &mut Inflow, payload: &[u8]) -> Result<Taken, DecodeError> {
        let header = DataHeader {
            seq: 0,
            first: true,
            last: true,
            in_order: false,
            message: 1,
            timestamp: 0,
            to: 0,
        };
        inflow.take(0, &header, payload, 0)
    }

    fn record(object: ObjectId, offset: u64, data: &[u8]) -> Vec<u8> {
        [&object.to_be_bytes(), &offset.to_be_bytes()[..], data].concat()
    }

    #[test]
    fn objects_are_placed_and_the_stream_is_put_in_order() {
        let mut records = Inflow::new(Framing::Records, 0, 100, 100);
        let taken = take(&mut records, &record(7, 1 << 40, b"data")).unwrap();
        let extent = taken.extent.unwrap();
        assert_eq!(
            (extent.object, extent.offset, extent.len, extent.at),
            (7, 1 << 40, 4, 12)
        );
        assert!(
            !take(&mut records, &record(STREAM, 3, b"def"))
                .unwrap()
                .readable
        );
        assert!(
            take(&mut records, &record(STREAM, 0, b"abc"))
                .unwrap()
                .readable
        );
        let mut read = Vec::new();
        records.read(&mut read);
        assert_eq!(read, b"abcdef");
        assert_eq!(records.room(0), 100);
    }

    #[test]
    fn what_is_never_sent_is_refused() {
        let mut records = Inflow::new(Framing::Records, 0, 100, 100);
        assert!(take(&mut records, &[0; 11]).is_err());
        assert!(take(&mut records, &record(7, u64::MAX, b"x")).is_err());
        assert!(take(&mut records, &record(STREAM, LIMIT, b"x")).is_err());
        assert!(take(&mut records, &record(STREAM, LIMIT - 1, b"x")).is_ok());
        assert_eq!(records.room(0), 2, "nobody reads");
    }
}
