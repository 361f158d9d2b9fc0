//! Wire format of MTP's messages, behind type and id. Formats are farhaul's: of the original's only
//! bounds are known of how many bytes its requests take. A unit's number comes before its bytes; a
//! request is a datagram; offers and ends go on the control channel. Numbers are big-endian.
//!
//! Decoding never panics; whatever decodes is bounded.

// spec: mtp §2

use std::ops::Range;

use farhaul_core::{
    codec::{DecodeError, NoRoom, Reader, Writer},
    pull::{self, Extension},
};

/// Type of a request.
pub const REQUEST: u8 = pull::REQUEST;
/// Bytes of a request: with type, id and the headers of UDP, IP and Ethernet 94. Chosen, between
/// the 80 and the 156 that can be derived from the measurements.
pub const REQUEST_LEN: usize = 47;
/// Units that a sender answers a request with, at most.
pub const MOST_ANSWERED: u16 = 64;

/// A request for units in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Sequence number; not evaluated.
    pub number: u32,
    /// Units requested, at least one and at most [`MOST_ANSWERED`].
    pub units: Range<u64>,
}

impl Request {
    /// Reads the request.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        const BAD: DecodeError = DecodeError::Malformed("request");
        let mut r = Reader::new(bytes);
        let (number, first, count) = (r.u32()?, r.u64()?, r.u16()?);
        let end = first.checked_add(count.into()).ok_or(BAD)?;
        if bytes.len() != REQUEST_LEN || !(1..=MOST_ANSWERED).contains(&count) {
            return Err(BAD);
        }
        Ok(Self {
            number,
            units: first..end,
        })
    }

    /// Writes the request.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), NoRoom> {
        let count = self.units.end.saturating_sub(self.units.start);
        w.u32(self.number)?;
        w.u64(self.units.start)?;
        w.u16(u16::try_from(count).unwrap_or(u16::MAX))?;
        w.put(&[0; REQUEST_LEN - 14])
    }
}

/// One message on the control channel.
pub type Message = pull::Message<NoExtension>;

/// No messages beyond those common to pull protocols.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoExtension {}

impl Extension for NoExtension {
    const KINDS: [u8; 3] = [1, 2, 3];
}

#[cfg(test)]
mod tests {
    use farhaul_core::{
        layout::{Layout, Run},
        pull::Offer,
        units::Rate,
    };
    use proptest::prelude::*;

    use super::*;

    /// 5 bytes are the shell's, 42 those of UDP, IP and Ethernet.
    #[test]
    fn golden_vectors_of_units_and_requests() {
        let request = Request {
            number: 0x0102_0304,
            units: 5..37,
        };
        let mut bytes = [9; REQUEST_LEN];
        let mut w = Writer::new(&mut bytes);
        request.encode(&mut w).unwrap();
        assert_eq!(w.len() + 5 + 42, 94);
        let head = [1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 5, 0, 32];
        assert_eq!(bytes[..14], head);
        assert!(bytes[14..].iter().all(|b| *b == 0));
        assert_eq!(Request::decode(&bytes), Ok(request));
        assert!(Request::decode(&bytes[..REQUEST_LEN - 1]).is_err());
        for (at, byte) in [(13, 0), (13, 65), (12, 1)] {
            let mut bad = bytes;
            bad[at] = byte;
            assert!(Request::decode(&bad).is_err());
        }
        bytes[4..12].fill(0xff);
        assert!(Request::decode(&bytes).is_err(), "no unit has this number");
        let mut layout = Layout::new(100);
        assert!(layout.push(Run {
            object: 7,
            offset: 3,
            len: 250
        }));
        let (mut bytes, offer) = (Vec::new(), Offer { first: 0, layout });
        let offer = Message::Offer(Rate::UNLIMITED, offer);
        let messages = [offer, Message::Done(1), Message::Cut(2)];
        for message in &messages {
            message.encode(&mut bytes);
        }
        assert_eq!(bytes[..2], [1, 0]);
        assert_eq!(
            bytes[37..],
            [2, 0, 0, 0, 0, 0, 0, 0, 1, 3, 0, 0, 0, 0, 0, 0, 0, 2]
        );
        let mut rest = &bytes[..];
        for message in messages {
            assert_eq!(Message::decode(&rest[..1]), Ok(None));
            let (decoded, len) = Message::decode(rest).unwrap().unwrap();
            assert_eq!(decoded, message);
            rest = &rest[len..];
        }
        assert!(rest.is_empty() && Message::decode(&[9]).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _no_panic = (Request::decode(&bytes), Message::decode(&bytes));
            if let Ok(request) = Request::decode(&bytes) {
                let mut out = [0; REQUEST_LEN];
                request.encode(&mut Writer::new(&mut out)).unwrap();
                prop_assert_eq!(&out[..14], &bytes[..14]);
            }
        }
    }
}
