//! Header of a self-describing data packet: a sequence number (4 bytes), the object (4) and the
//! offset (8) of its first byte; big-endian.

use super::{Incoming, Packet};
use crate::{
    codec::{DecodeError, NoRoom, Reader, Writer},
    send::Piece,
    store::{Extent, ObjectId},
};

/// Header of a self-describing data packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Packet number on the wire.
    pub number: u32,
    /// Object that the data belongs to.
    pub object: ObjectId,
    /// Offset of its first byte in the object.
    pub offset: u64,
}

impl Record {
    /// Length in bytes.
    pub const LEN: usize = 16;

    /// Reads the header.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        Ok(Self {
            number: r.u32()?,
            object: r.u32()?,
            offset: r.u64()?,
        })
    }

    /// Writes the header.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), NoRoom> {
        w.u32(self.number)?;
        w.u32(self.object)?;
        w.u64(self.offset)
    }
}

impl Incoming<'_> {
    /// Decodes a packet with a [`Record`] header: its number, and its data, which is not empty.
    pub fn record(&self) -> Result<(u32, Extent), DecodeError> {
        let record = Record::decode(self.bytes)?;
        let extent = self.extent(Record::LEN, record.object, record.offset)?;
        if extent.len == 0 {
            return Err(DecodeError::Malformed("data"));
        }
        Ok((record.number, extent))
    }
}

impl Packet<'_> {
    /// Writes a [`Record`] header and the data of `piece`.
    ///
    /// # Panics
    /// If the machine's header is shorter than [`Record::LEN`].
    pub fn record(&mut self, number: u32, piece: Piece) {
        let record = Record {
            number,
            object: piece.object,
            offset: piece.offset,
        };
        let header = self.header();
        record.encode(header).expect("a packet holds its header");
        self.data(piece.object, piece.offset, piece.len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datagram::Ecn;

    #[test]
    fn what_is_written_is_found_where_it_belongs() {
        let (mut bytes, mut extents) = ([0; Record::LEN + 3], Vec::new());
        let header = Writer::new(&mut bytes[..Record::LEN]);
        let piece = Piece {
            object: 2,
            offset: 3,
            len: 3,
            repair: false,
        };
        Packet::new(header, 0, 9, &mut extents).record(1, piece);
        assert_eq!(
            bytes[..16],
            [0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3]
        );
        let read = |bytes| {
            let datagram = Incoming {
                kind: 0,
                bytes,
                at: 0,
                wire: 0,
                ecn: Ecn::NotEct,
            };
            datagram.record()
        };
        assert_eq!(read(&bytes), Ok((1, extents[0])));
        assert_eq!(extents[0].at, 16);
        assert_eq!(read(&bytes[..16]), Err(DecodeError::Malformed("data")));
        assert_eq!(read(&bytes[..15]), Err(DecodeError::Truncated));
        let mut beyond = bytes;
        beyond[8..16].fill(0xff);
        assert!(read(&beyond).is_err());
    }
}
