//! Wire format of RUDP: segments with flags, length of the header, number, acknowledged number, and
//! the fields of the kind of segment. Then come the checksum, and after the header data. Numbers
//! are big-endian.
//!
//! Decoding never panics and allocates nothing.
//!
//! Farhaul's own: the [record](farhaul_core::shell::Record) before a segment's data. Its number is
//! the segment's modulo 2^32, whose low byte the header has.

// spec: rudp §2

use farhaul_core::codec::{DecodeError, NoRoom, Reader, Writer, internet_checksum};

/// Part of a segment's number that a header has.
#[expect(clippy::cast_possible_truncation, reason = "the low byte is meant")]
pub const fn low(number: u64) -> u8 {
    number as u8
}

/// A segment synchronises numbers: the first of a connection.
pub const SYN: u8 = 0x80;
/// The acknowledgement number is valid.
pub const ACK: u8 = 0x40;
/// Lists segments received out of order.
pub const EAK: u8 = 0x20;
/// Reset: the connection is closed.
pub const RST: u8 = 0x10;
/// A segment without data that has a number.
pub const NUL: u8 = 0x08;
/// The checksum covers the data, too.
pub const CHK: u8 = 0x04;
/// A connection is handed over.
pub const TCS: u8 = 0x02;

/// Bytes of a header that has nothing more.
pub const HEAD: usize = 6;
/// Bytes of a SYN's, in full and without the transfer-state timeout and the connection's id.
pub const SYN_LEN: usize = 28;
const SHORT_SYN_LEN: usize = 22;
/// Numbers in an EAK at most.
pub const MOST_NAMED: usize = 255 - HEAD;
/// The only version.
pub const VERSION: u8 = 1;

/// Parameters carried by a SYN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Syn {
    /// [`VERSION`].
    pub version: u8,
    /// Segments that may be sent to this end without an acknowledgement.
    pub outstanding: u8,
    /// Flags, which nothing here depends on.
    pub options: u8,
    /// Bytes of the longest segment that this end takes, header included.
    pub segment: u16,
    /// The retransmission timeout, ms.
    pub retransmit: u16,
    /// Longest time that an acknowledgement may wait, ms.
    pub ack_delay: u16,
    /// Silence after which a null segment leaves, ms.
    pub null: u16,
    /// Time for which a handed over connection is waited for, ms; 0 where none is given.
    pub transfer: u16,
    /// Retransmissions after which the connection is broken; 0: no end.
    pub retries: u8,
    /// Segments that one acknowledgement is for.
    pub ack_every: u8,
    /// Segments out of order after which they are named.
    pub eak_after: u8,
    /// Resets before the connection ends.
    pub resets: u8,
    /// The connection's id; 0 where it is not said.
    pub connection: u32,
}

/// Kind of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind<'a> {
    /// The first of a connection.
    Syn(Syn),
    /// An acknowledgement, and no more.
    Ack,
    /// The numbers of segments that came out of order.
    Eak(&'a [u8]),
    /// The end.
    Rst,
    /// A number without data.
    Nul,
    /// Data follow the header.
    Data,
}

/// A segment without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// Number of the segment; of one that has none the next one's.
    pub number: u8,
    /// The last number that came in order.
    pub acked: Option<u8>,
    /// Kind of the segment.
    pub kind: Kind<'a>,
}

const BAD: DecodeError = DecodeError::Malformed("segment");

/// The checksum of a segment whose header has `header` bytes, its own place taken for zeros.
fn sum(segment: &[u8], header: usize) -> u16 {
    let mut copy = [0; 256];
    let head = &mut copy[..header];
    head.copy_from_slice(&segment[..header]);
    head[header - 2..].fill(0);
    let data = &segment[header..];
    if data.is_empty() {
        return internet_checksum(head);
    }
    // A header of odd length is followed by the other half of its last word.
    let half = header % 2;
    copy[header..header + half].copy_from_slice(&data[..half]);
    let sums = [&copy[..header + half], &data[half..]].map(|part| !internet_checksum(part));
    let sum = u32::from(sums[0]) + u32::from(sums[1]);
    !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap_or(u16::MAX)
}

impl<'a> Segment<'a> {
    /// Reads the header of a datagram; data begin after [`HEAD`] bytes.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let (flags, len, number, acked) = (r.u8()?, usize::from(r.u8()?), r.u8()?, r.u8()?);
        let header = bytes.get(..len).filter(|h| h.len() >= HEAD).ok_or(BAD)?;
        let covered = if flags & CHK == 0 { header } else { bytes };
        let stated = header.last_chunk().copied().unwrap_or_default();
        if sum(covered, len) != u16::from_be_bytes(stated) {
            return Err(DecodeError::Malformed("checksum"));
        }
        let (extra, data) = (&header[4..len - 2], &bytes[len..]);
        let kind = match flags & !(ACK | CHK) {
            SYN => Kind::Syn(Syn::decode(extra)?),
            EAK if data.is_empty() && !extra.is_empty() => Kind::Eak(extra),
            RST => Kind::Rst,
            NUL => Kind::Nul,
            0 if data.is_empty() => Kind::Ack,
            0 => Kind::Data,
            _ => return Err(BAD),
        };
        let plain = matches!(kind, Kind::Syn(_) | Kind::Eak(_)) || len == HEAD;
        let silent = matches!(kind, Kind::Data) || data.is_empty();
        let acked = (flags & ACK != 0).then_some(acked);
        // Only the first segment of all acknowledges nothing.
        let answers = acked.is_some() || matches!(kind, Kind::Syn(_) | Kind::Rst);
        if !(plain && silent && answers) {
            return Err(BAD);
        }
        Ok(Self {
            number,
            acked,
            kind,
        })
    }

    /// Writes the header, with a checksum of itself.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), NoRoom> {
        let mut header = [0; 255];
        let (kind, extra) = match &self.kind {
            Kind::Syn(syn) => {
                syn.encode(&mut Writer::new(&mut header[4..SYN_LEN - 2]))?;
                (SYN, SYN_LEN - HEAD)
            }
            Kind::Eak(numbers) => {
                header
                    .get_mut(4..4 + numbers.len())
                    .ok_or(NoRoom)?
                    .copy_from_slice(numbers);
                (EAK, numbers.len())
            }
            Kind::Ack | Kind::Data => (0, 0),
            Kind::Rst => (RST, 0),
            Kind::Nul => (NUL, 0),
        };
        let len = HEAD + extra;
        let flags = kind | if self.acked.is_some() { ACK } else { 0 };
        let stated = u8::try_from(len).map_err(|_| NoRoom)?;
        let acked = self.acked.unwrap_or_default();
        header[..4].copy_from_slice(&[flags, stated, self.number, acked]);
        let sum = sum(&header[..len], len);
        header[len - 2..len].copy_from_slice(&sum.to_be_bytes());
        w.put(&header[..len])
    }
}

impl Syn {
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let short = bytes.len() == SHORT_SYN_LEN - HEAD;
        if !short && bytes.len() != SYN_LEN - HEAD {
            return Err(BAD);
        }
        let mut r = Reader::new(bytes);
        let (version, outstanding, options, _) = (r.u8()? >> 4, r.u8()?, r.u8()?, r.u8()?);
        Ok(Self {
            version,
            outstanding,
            options,
            segment: r.u16()?,
            retransmit: r.u16()?,
            ack_delay: r.u16()?,
            null: r.u16()?,
            transfer: if short { 0 } else { r.u16()? },
            retries: r.u8()?,
            ack_every: r.u8()?,
            eak_after: r.u8()?,
            resets: r.u8()?,
            connection: if short { 0 } else { r.u32()? },
        })
    }

    fn encode(&self, w: &mut Writer<'_>) -> Result<(), NoRoom> {
        w.put(&[self.version << 4, self.outstanding, self.options, 0])?;
        for word in [
            self.segment,
            self.retransmit,
            self.ack_delay,
            self.null,
            self.transfer,
        ] {
            w.u16(word)?;
        }
        w.put(&[self.retries, self.ack_every, self.eak_after, self.resets])?;
        w.u32(self.connection)
    }
}

#[cfg(test)]
mod tests;
