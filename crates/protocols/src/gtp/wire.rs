//! Wire format of GTP: a unit's number before its bytes, and rates, in datagrams. Offers, requests
//! and the end go on the control channel, as messages of one byte of type and a body. The formats
//! are farhaul's: those of the original were not published.
//!
//! Decoding never panics; whatever decodes is bounded.

use std::ops::Range;

use farhaul_core::{
    codec::{DecodeError, NoRoom, Reader, Writer},
    pull::{self, Extension, decode_ranges, decode_rate, encode_ranges, put},
    units::Rate,
};

/// Type of the datagram with a rate.
pub const COMMAND: u8 = pull::REQUEST;
/// Type of a request.
const REQUEST: u8 = 2;

/// Rate requested by the receiver, IP and UDP headers included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// Sequence number of the command.
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

    /// Reads the command.
    pub fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            number: r.u64()?,
            rate: decode_rate(r)?,
        })
    }
}

/// One message on the control channel.
pub type Message = pull::Message<Request>;

/// A request for units, at a rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The rate.
    pub command: Command,
    /// Units requested.
    pub ranges: Vec<Range<u64>>,
}

impl Extension for Request {
    const KINDS: [u8; 3] = [1, 3, 4];

    fn read(kind: u8, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        if kind != REQUEST {
            return Err(DecodeError::Malformed("type of a message"));
        }
        Ok(Self {
            command: Command::take(r)?,
            ranges: decode_ranges(r)?,
        })
    }

    fn encode(&self, into: &mut Vec<u8>) {
        let Command { number, rate } = self.command;
        put(REQUEST, &[number, rate.bps()], into);
        encode_ranges(&self.ranges, into);
    }
}

#[cfg(test)]
mod tests;
