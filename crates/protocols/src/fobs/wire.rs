//! Wire format of FOBS: packets with a header of six bytes, which leaves 1,466 bytes of data of
//! 1,472, and messages on a TCP stream. The original's formats are not known: fields and their
//! order are farhaul's. Numbers are big-endian.
//!
//! Decoding never panics; whatever decodes is bounded.

// spec: fobs §2

use farhaul_core::{
    codec::{DecodeError, NoRoom, Reader, Writer, whole},
    layout::Layout,
    loss::Bitmap,
    rounds::{
        MAX_PACKETS, NUMBERS,
        wire::{decode_layout, encode_layout},
    },
};

/// Bytes before a packet's data.
pub const HEADER: usize = 6;

const BAD: DecodeError = DecodeError::Malformed("message");

/// Header before a packet's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The packet's number, below [`NUMBERS`].
    pub number: u32,
    /// Segment in which the packet leaves, or how often it left before; modulo 2^16.
    pub round: u16,
}

impl Header {
    /// Reads the header.
    pub fn decode(datagram: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(datagram);
        let header = Self {
            number: r.u32()?,
            round: r.u16()?,
        };
        if header.number < NUMBERS {
            Ok(header)
        } else {
            Err(DecodeError::Malformed("number of a packet"))
        }
    }

    /// Writes the header.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), NoRoom> {
        w.u32(self.number)?;
        w.u16(self.round)
    }
}

/// Control messages over TCP, with the number of the chunk's first packet.
#[derive(Clone, Debug)]
pub enum Message {
    /// A chunk is on its way; reports are made after this many new packets, or when one is asked
    /// for.
    Chunk(u32, Option<u32>, Layout),
    /// End of a segment of the chunk: packets sent in it.
    EndOfSegment {
        /// The chunk's first number.
        first: u32,
        /// The segment, from 0.
        segment: u32,
        /// Packets.
        sent: u64,
    },
    /// Packets of the chunk that have arrived, through this segment.
    Feedback(u32, u32, Bitmap),
    /// Packets of the chunk that have arrived.
    Ack(u32, Bitmap),
    /// All of the chunk has arrived.
    Completed(u32),
    /// The chunk was truncated: the rest will not be sent.
    Cut(u32),
    /// The receiver waits for the chunk's packets.
    Ready(u32),
}

const CHUNK: u8 = 1;
const END_OF_SEGMENT: u8 = 2;
const FEEDBACK: u8 = 3;
const ACK: u8 = 4;
const COMPLETED: u8 = 5;
const CUT: u8 = 6;
const READY: u8 = 7;

fn head(kind: u8, first: u32, into: &mut Vec<u8>) {
    into.push(kind);
    into.extend(first.to_be_bytes());
}

impl Message {
    /// The first message in `bytes` and its length; none if it is not all there.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, DecodeError> {
        whole(bytes, Self::read)
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let kind = r.u8()?;
        if !(CHUNK..=READY).contains(&kind) {
            return Err(BAD);
        }
        let first = r.u32()?;
        if first >= NUMBERS {
            return Err(BAD);
        }
        Ok(match kind {
            CHUNK => {
                let every = r.u32()?;
                Self::Chunk(first, (every > 0).then_some(every), decode_layout(r)?)
            }
            END_OF_SEGMENT => {
                let (segment, sent) = (r.u32()?, u64::from(r.u32()?));
                if sent > MAX_PACKETS {
                    return Err(BAD);
                }
                Self::EndOfSegment {
                    first,
                    segment,
                    sent,
                }
            }
            FEEDBACK => Self::Feedback(first, r.u32()?, read_bits(r)?),
            ACK => Self::Ack(first, read_bits(r)?),
            COMPLETED => Self::Completed(first),
            CUT => Self::Cut(first),
            _ => Self::Ready(first),
        })
    }

    /// Appends the message; feedback in full.
    pub fn encode(&self, into: &mut Vec<u8>) {
        match self {
            Self::Chunk(first, every, layout) => {
                head(CHUNK, *first, into);
                into.extend(every.unwrap_or(0).to_be_bytes());
                encode_layout(layout, into);
            }
            Self::EndOfSegment {
                first,
                segment,
                sent,
            } => {
                head(END_OF_SEGMENT, *first, into);
                into.extend(segment.to_be_bytes());
                into.extend(u32::try_from(*sent).unwrap_or(u32::MAX).to_be_bytes());
            }
            Self::Feedback(first, segment, have) => feedback(*first, *segment, have, into),
            Self::Ack(first, have) => ack(*first, have, have.end(), into),
            Self::Completed(first) => head(COMPLETED, *first, into),
            Self::Cut(first) => head(CUT, *first, into),
            Self::Ready(first) => head(READY, *first, into),
        }
    }
}

/// Appends feedback: a bit for each packet from the first that is missing to the last that is there.
pub fn feedback(first: u32, segment: u32, have: &Bitmap, into: &mut Vec<u8>) {
    head(FEEDBACK, first, into);
    into.extend(segment.to_be_bytes());
    let missing = have.missing(0..have.end()).next();
    let missing = missing.map_or(have.end(), |range| range.start);
    write_bits(have, missing / 64 * 64..have.end(), into);
}

/// Appends an ACK: a bit for each of `packets`.
pub fn ack(first: u32, have: &Bitmap, packets: u64, into: &mut Vec<u8>) {
    head(ACK, first, into);
    write_bits(have, 0..packets, into);
}

/// Number of the first bit, number of bits, and the bits, least significant first.
fn write_bits(have: &Bitmap, bits: std::ops::Range<u64>, into: &mut Vec<u8>) {
    let count = bits.end.saturating_sub(bits.start);
    for n in [bits.start, count] {
        into.extend(u32::try_from(n).unwrap_or(u32::MAX).to_be_bytes());
    }
    let at = into.len();
    into.resize(at + usize::try_from(count.div_ceil(8)).unwrap_or(0), 0);
    have.write(bits.start, &mut into[at..]);
}

/// Reads the bits; all packets before the first bit are there.
fn read_bits(r: &mut Reader<'_>) -> Result<Bitmap, DecodeError> {
    let (from, count) = (u64::from(r.u32()?), u64::from(r.u32()?));
    if from % 64 != 0 || from + count > MAX_PACKETS {
        return Err(BAD);
    }
    let len = usize::try_from(count.div_ceil(8)).map_err(|_| BAD)?;
    Ok(Bitmap::from_bytes(r.take(len)?, count).above(from))
}

#[cfg(test)]
mod tests;
