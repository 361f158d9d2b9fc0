//! What is on the wire? A unit's number before its bytes, and rates, in datagrams; offers, requests and the end on
//! the control channel, as messages of one byte of type and what follows. The formats are farhaul's: those of the
//! original were not published.
//!
//! Decoding never panics; whatever decodes is bounded.

use std::ops::Range;

use farhaul_core::{
    codec::{DecodeError, NoRoom, Reader, Writer, whole},
    pull::{Offer, decode_ranges, decode_rate, encode_ranges},
    units::Rate,
};

/// Bytes before a unit's data.
pub const HEADER: usize = farhaul_core::pull::NUMBER;
/// Type of the datagram with a rate.
pub const COMMAND: u8 = 0x49;

/// A rate that the receiver wants, of packets with their IP and UDP headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// Rises with each.
    pub number: u64,
    /// The rate.
    pub rate: Rate,
}

impl Command {
    /// Writes what follows the type of the datagram.
    pub fn put(self, w: &mut Writer<'_>) -> Result<(), NoRoom> {
        w.u64(self.number)?;
        w.u64(self.rate.bps())
    }

    /// Reads it.
    pub fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            number: r.u64()?,
            rate: decode_rate(r)?,
        })
    }
}

/// One message on the control channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A file.
    Offer(Offer),
    /// Units that are to come, at this rate.
    Request(Command, Vec<Range<u64>>),
    /// All of the file that begins there is here.
    Close(u64),
    /// The file ends before this number.
    Cut(u64),
}

const OFFER: u8 = 1;
const REQUEST: u8 = 2;
const CLOSE: u8 = 3;
const CUT: u8 = 4;

impl Message {
    /// The first message in `bytes` and its length; none if it is not all there.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, DecodeError> {
        whole(bytes, Self::read)
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match r.u8()? {
            OFFER => Self::Offer(Offer::decode(r)?),
            REQUEST => Self::Request(Command::take(r)?, decode_ranges(r)?),
            CLOSE => Self::Close(r.u64()?),
            CUT => Self::Cut(r.u64()?),
            _ => return Err(DecodeError::Malformed("type of a message")),
        })
    }

    /// Appends it.
    pub fn encode(&self, into: &mut Vec<u8>) {
        let mut put = |kind, words: &[u64]| {
            into.push(kind);
            into.extend(words.iter().flat_map(|w| w.to_be_bytes()));
        };
        match self {
            Self::Offer(offer) => {
                put(OFFER, &[]);
                offer.encode(into);
            }
            Self::Request(command, ranges) => {
                put(REQUEST, &[command.number, command.rate.bps()]);
                encode_ranges(ranges, into);
            }
            Self::Close(first) => put(CLOSE, &[*first]),
            Self::Cut(end) => put(CUT, &[*end]),
        }
    }
}

#[cfg(test)]
mod tests;
