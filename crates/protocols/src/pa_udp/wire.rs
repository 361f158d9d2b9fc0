//! What is on the wire? A unit's number before its bytes in datagrams, the rest on a TCP stream, as messages of
//! one byte of type and what follows. The formats are farhaul's: those of the papers were not published.
//!
//! Decoding never panics; whatever decodes is bounded.

use std::ops::Range;

use farhaul_core::{
    codec::{DecodeError, Reader, whole},
    pull::{Offer, decode_ranges, decode_rate, encode_ranges},
    units::Rate,
};

/// Bytes before a unit's data.
pub const HEADER: usize = farhaul_core::pull::NUMBER;

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A file, and the rate that its sender is able to send at.
    Offer(Rate, Offer),
    /// The receiver of the file that begins at the first number is ready for this rate; so many bytes are free.
    Start(u64, Rate, u64),
    /// It comes, at this rate.
    Go(u64, Rate),
    /// The rate from now on, and how many units have come.
    Rate(Rate, u64),
    /// Units that are missing.
    Missing(Vec<Range<u64>>),
    /// All of the file that begins there is written.
    Done(u64),
    /// The file ends before this number.
    Cut(u64),
}

const OFFER: u8 = 1;
const START: u8 = 2;
const GO: u8 = 3;
const RATE: u8 = 4;
const MISSING: u8 = 5;
const DONE: u8 = 6;
const CUT: u8 = 7;

impl Message {
    /// The first message in `bytes` and its length; none if it is not all there.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, DecodeError> {
        whole(bytes, Self::read)
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match r.u8()? {
            OFFER => Self::Offer(decode_rate(r)?, Offer::decode(r)?),
            START => Self::Start(r.u64()?, decode_rate(r)?, r.u64()?),
            GO => Self::Go(r.u64()?, decode_rate(r)?),
            RATE => Self::Rate(decode_rate(r)?, r.u64()?),
            MISSING => Self::Missing(decode_ranges(r)?),
            DONE => Self::Done(r.u64()?),
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
            Self::Offer(rate, offer) => {
                put(OFFER, &[rate.bps()]);
                offer.encode(into);
            }
            Self::Start(first, rate, free) => put(START, &[*first, rate.bps(), *free]),
            Self::Go(first, rate) => put(GO, &[*first, rate.bps()]),
            Self::Rate(rate, came) => put(RATE, &[rate.bps(), *came]),
            Self::Missing(ranges) => {
                put(MISSING, &[]);
                encode_ranges(ranges, into);
            }
            Self::Done(first) => put(DONE, &[*first]),
            Self::Cut(end) => put(CUT, &[*end]),
        }
    }
}

#[cfg(test)]
mod tests;
