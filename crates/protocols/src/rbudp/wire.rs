//! Wire format of RBUDP: a packet's number and its data in datagrams, the rest on a TCP stream. The
//! original's messages are here as the original has them; those that a session of farhaul adds are
//! in [`Message`].
//!
//! Decoding never panics; whatever decodes is bounded.
//!
//! Source: RBUDP 1.0 of `QUANTA` as read. Numbers in datagrams and in DONE are in the byte order of the
//! sender's machine, in practice little-endian; lengths are big-endian.

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
pub const HEADER: usize = 4;
/// Bytes of DONE.
pub const DONE: usize = 8;
/// Bytes of a request for a file.
pub const REQUEST: usize = 256;
/// Missing ranges in one report at most.
const MAX_RANGES: usize = 30_000;

/// The number before a packet's data.
pub fn decode_number(datagram: &[u8]) -> Result<u32, DecodeError> {
    let bytes = datagram.first_chunk().ok_or(DecodeError::Truncated)?;
    let number = u32::from_le_bytes(*bytes);
    if number < NUMBERS {
        Ok(number)
    } else {
        Err(DecodeError::Malformed("number of a packet"))
    }
}

/// Writes the number.
pub fn encode_number(w: &mut Writer<'_>, number: u32) -> Result<(), NoRoom> {
    w.put(&number.to_le_bytes())
}

/// Message of a sender when round `round` of a block has left. The original leaves the last byte as
/// it was, and reads none of them.
pub fn done(round: u32) -> [u8; DONE] {
    let mut bytes = [0; DONE];
    bytes[..4].copy_from_slice(&round.to_le_bytes());
    bytes[4..7].copy_from_slice(b"EEE");
    bytes
}

/// Bytes of the report of a block of `packets`.
pub fn report_len(packets: u64) -> usize {
    usize::try_from(packets / 8)
        .unwrap_or(usize::MAX)
        .saturating_add(2)
}

/// Appends the report of a block of `packets`, with `have` there. The report says whether these are
/// all, then has a bit for each packet, least significant first. Bits beyond the last packet are
/// set.
pub fn encode_report(have: &Bitmap, packets: u64, all: bool, into: &mut Vec<u8>) {
    let at = into.len();
    into.resize(at + report_len(packets), 0);
    into[at] = all.into();
    have.write(0, &mut into[at + 1..]);
    if let Some(last) = into.last_mut() {
        *last |= 0xff << (packets % 8);
    }
}

/// Reads the report.
pub fn decode_report(bytes: &[u8], packets: u64) -> Result<Bitmap, DecodeError> {
    let (all, bits) = bytes.split_first().ok_or(DecodeError::Truncated)?;
    let have = Bitmap::from_bytes(bits, packets);
    // What it says in one byte and bit by bit must be the same.
    let complete = packets > 0 && have.missing(0..packets).next().is_none();
    match (*all, complete) {
        (0, false) | (1, true) => Ok(have),
        _ => Err(DecodeError::Malformed("report")),
    }
}

/// Messages between farhaul ends: the original's, with the block they refer to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A block is on its way, its packets numbered from the first number on.
    Block(u32, Layout),
    /// The receiver waits for the block's packets.
    Ready(u32),
    /// End of a round of the block: packets sent in it.
    Done {
        /// The block's first number.
        first: u32,
        /// The round, from 0.
        round: u32,
        /// Packets.
        sent: u64,
    },
    /// A report of what of the block has arrived follows, in the original's form.
    Report(u32),
    /// The packets of the block that have not arrived.
    Missing(u32, Vec<(u32, u32)>),
    /// The block was truncated: the rest will not be sent.
    Cut(u32),
}

const BLOCK: u8 = 1;
const ROUND: u8 = 2;
const REPORT: u8 = 3;
const MISSING: u8 = 4;
const CUT: u8 = 5;
const READY: u8 = 6;

impl Message {
    /// The first message in `bytes` and its length without a report's bits; none if it is not all there.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, DecodeError> {
        whole(bytes, Self::read)
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const BAD: DecodeError = DecodeError::Malformed("message");
        let kind = r.u8()?;
        if !(BLOCK..=READY).contains(&kind) {
            return Err(BAD);
        }
        let first = r.u32()?;
        if first >= NUMBERS {
            return Err(BAD);
        }
        Ok(match kind {
            BLOCK => Self::Block(first, decode_layout(r)?),
            ROUND => {
                let said: [u8; DONE] = r.take(DONE)?.try_into().map_err(|_| BAD)?;
                let (round, _) = said.split_first_chunk().ok_or(BAD)?;
                let (round, sent) = (u32::from_le_bytes(*round), u64::from(r.u32()?));
                if said != done(round) || sent > MAX_PACKETS {
                    return Err(BAD);
                }
                Self::Done { first, round, sent }
            }
            REPORT => Self::Report(first),
            MISSING => {
                let count = usize::try_from(r.u32()?).map_err(|_| BAD)?;
                if count > MAX_RANGES {
                    return Err(BAD);
                }
                let ranges = Reader::new(r.take(8 * count)?).rest().chunks_exact(8);
                let word = |bytes: &[u8]| Reader::new(bytes).u32().map_err(|_| BAD);
                let ranges = ranges.map(|b| Ok((word(b)?, word(&b[4..])?)));
                Self::Missing(first, ranges.collect::<Result<_, DecodeError>>()?)
            }
            CUT => Self::Cut(first),
            _ => Self::Ready(first),
        })
    }

    /// Appends the message.
    pub fn encode(&self, into: &mut Vec<u8>) {
        let mut head = |kind, first: &u32| {
            into.push(kind);
            into.extend(first.to_be_bytes());
        };
        match self {
            Self::Block(first, layout) => {
                head(BLOCK, first);
                encode_layout(layout, into);
            }
            Self::Done { first, round, sent } => {
                head(ROUND, first);
                into.extend(done(*round));
                into.extend(u32::try_from(*sent).unwrap_or(u32::MAX).to_be_bytes());
            }
            Self::Report(first) => head(REPORT, first),
            Self::Missing(first, ranges) => {
                head(MISSING, first);
                into.extend(
                    u32::try_from(ranges.len())
                        .unwrap_or(u32::MAX)
                        .to_be_bytes(),
                );
                for (start, len) in ranges {
                    into.extend(start.to_be_bytes());
                    into.extend(len.to_be_bytes());
                }
            }
            Self::Cut(first) => head(CUT, first),
            Self::Ready(first) => head(READY, first),
        }
    }
}

/// Missing ones of `packets`, where these are shorter than a bit for each packet.
pub fn missing_ranges(have: &Bitmap, packets: u64) -> Option<Vec<(u32, u32)>> {
    let most = (report_len(packets) / 8).min(MAX_RANGES);
    let word = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    let missing = have.missing(0..packets).take(most + 1);
    let ranges: Vec<_> = missing
        .map(|r| (word(r.start), word(r.end - r.start)))
        .collect();
    (ranges.len() <= most).then_some(ranges)
}

/// Packets of `packets` that have arrived if `ranges`, in rising order, have not.
pub fn without(ranges: &[(u32, u32)], packets: u64) -> Result<Bitmap, DecodeError> {
    const BAD: DecodeError = DecodeError::Malformed("missing packets");
    let mut bytes = vec![0xff; report_len(packets)];
    let mut from = 0;
    for (start, len) in ranges.iter().map(|r| (u64::from(r.0), u64::from(r.1))) {
        if start < from || len == 0 || start + len > packets {
            return Err(BAD);
        }
        for n in start..start + len {
            let byte = usize::try_from(n / 8).ok().and_then(|i| bytes.get_mut(i));
            *byte.ok_or(BAD)? &= !(1 << (n % 8));
        }
        from = start + len;
    }
    Ok(Bitmap::from_bytes(&bytes, packets))
}

#[cfg(test)]
mod tests;
