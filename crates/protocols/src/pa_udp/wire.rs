//! What is on the wire? A unit's number before its bytes in datagrams, the rest on a TCP stream, as messages of
//! one byte of type and what follows. The formats are farhaul's: those of the papers were not published.
//!
//! Decoding never panics; whatever decodes is bounded.

use std::ops::Range;

use farhaul_core::{
    codec::{DecodeError, Reader},
    pull::{Offer, decode_ranges, encode_ranges},
    units::Rate,
};

/// Bytes before a unit's data.
pub const HEADER: usize = farhaul_core::pull::NUMBER;
/// Nobody asks to be sent to more slowly.
pub const LEAST_RATE: Rate = Rate::from_bps(64_000);
/// Ranges in a message at most.
pub const MAX_RANGES: usize = 4_096;

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
        let mut r = Reader::new(bytes);
        match Self::read(&mut r) {
            Ok(message) => Ok(Some((message, bytes.len() - r.rest().len()))),
            Err(DecodeError::Truncated) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let rate = |r: &mut Reader<'_>| {
            let rate = Rate::from_bps(r.u64()?);
            let good = rate >= LEAST_RATE;
            good.then_some(rate).ok_or(DecodeError::Malformed("rate"))
        };
        Ok(match r.u8()? {
            OFFER => Self::Offer(rate(r)?, Offer::decode(r)?),
            START => Self::Start(r.u64()?, rate(r)?, r.u64()?),
            GO => Self::Go(r.u64()?, rate(r)?),
            RATE => Self::Rate(rate(r)?, r.u64()?),
            MISSING => Self::Missing(decode_ranges(r, MAX_RANGES)?),
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
