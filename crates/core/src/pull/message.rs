//! Messages of the control channel: an offer of a file, its confirmation and its truncation; the
//! rest is a protocol's. A message is one byte of type, which the protocol chooses, and a body,
//! big-endian. Everything that decodes is bounded.

use super::offer::{Offer, decode_rate};
use crate::{
    codec::{DecodeError, Reader, whole},
    units::Rate,
};

/// A protocol's own control messages.
pub trait Extension: Sized {
    /// Type bytes of `Offer`, `Done` and `Cut`.
    const KINDS: [u8; 3];
    /// True if an offer carries the sender's maximum rate.
    const RATED: bool = false;

    /// Reads what follows the type.
    fn read(_kind: u8, _r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Err(DecodeError::Malformed("type of a message"))
    }

    /// Appends the message, with its type.
    fn encode(&self, _into: &mut Vec<u8>) {}
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<W> {
    /// A file, and the sender's maximum rate if the format carries it.
    Offer(Rate, Offer),
    /// The file whose first unit has this number is complete.
    Done(u64),
    /// The file is truncated before this number.
    Cut(u64),
    /// One of the protocol's own.
    Own(W),
}

impl<W: Extension> Message<W> {
    /// The first message in `bytes` and its length; none if it is not all there.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, DecodeError> {
        whole(bytes, Self::read)
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let kind = r.u8()?;
        Ok(match W::KINDS.iter().position(|known| *known == kind) {
            Some(0) if W::RATED => Self::Offer(decode_rate(r)?, Offer::decode(r)?),
            Some(0) => Self::Offer(Rate::UNLIMITED, Offer::decode(r)?),
            Some(1) => Self::Done(r.u64()?),
            Some(_) => Self::Cut(r.u64()?),
            None => Self::Own(W::read(kind, r)?),
        })
    }

    /// Appends the encoded message.
    pub fn encode(&self, into: &mut Vec<u8>) {
        let [offered, done, cut] = W::KINDS;
        match self {
            Self::Offer(most, offer) => {
                let most = [most.bps()];
                put(offered, if W::RATED { &most } else { &[] }, into);
                offer.encode(into);
            }
            Self::Done(first) => put(done, &[*first], into),
            Self::Cut(end) => put(cut, &[*end], into),
            Self::Own(own) => own.encode(into),
        }
    }
}

/// Appends a type and numbers, 8 bytes each.
pub fn put(kind: u8, numbers: &[u64], into: &mut Vec<u8>) {
    into.push(kind);
    into.extend(numbers.iter().flat_map(|n| n.to_be_bytes()));
}
