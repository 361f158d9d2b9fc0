//! Wire format of PA-UDP: a unit's number before its bytes in datagrams. The rest goes on a TCP
//! stream, as messages of one byte of type and a body. The formats are farhaul's: those of the
//! papers were not published.
//!
//! Decoding never panics; whatever decodes is bounded.

use std::ops::Range;

use farhaul_core::{
    codec::{DecodeError, Reader},
    pull::{self, Extension, decode_ranges, decode_rate, encode_ranges, put},
    units::Rate,
};

/// One message.
pub type Message = pull::Message<Signal>;

/// Messages beyond `Offer`, `Done` and `Cut`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The receiver of the file that begins at the first number is ready for this rate; the last is
    /// the bytes free.
    Start(u64, Rate, u64),
    /// The offer is accepted, at this rate.
    Go(u64, Rate),
    /// New rate, and number of units received.
    Rate(Rate, u64),
    /// Units that are missing.
    Missing(Vec<Range<u64>>),
}

const START: u8 = 2;
const GO: u8 = 3;
const RATE: u8 = 4;
const MISSING: u8 = 5;

impl Extension for Signal {
    const KINDS: [u8; 3] = [1, 6, 7];
    const RATED: bool = true;

    fn read(kind: u8, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match kind {
            START => Self::Start(r.u64()?, decode_rate(r)?, r.u64()?),
            GO => Self::Go(r.u64()?, decode_rate(r)?),
            RATE => Self::Rate(decode_rate(r)?, r.u64()?),
            MISSING => Self::Missing(decode_ranges(r)?),
            _ => return Err(DecodeError::Malformed("type of a message")),
        })
    }

    fn encode(&self, into: &mut Vec<u8>) {
        match self {
            Self::Start(first, rate, free) => put(START, &[*first, rate.bps(), *free], into),
            Self::Go(first, rate) => put(GO, &[*first, rate.bps()], into),
            Self::Rate(rate, came) => put(RATE, &[rate.bps(), *came], into),
            Self::Missing(ranges) => {
                put(MISSING, &[], into);
                encode_ranges(ranges, into);
            }
        }
    }
}

#[cfg(test)]
mod tests;
