//! Wire format of a segment: TCP's fields and options over UDP. Numbers of 32 bits wrap here and
//! nowhere else, and options have kind and length. Three options of our own hold what a datagram
//! has and a TCP segment has not (see `docs/protocols/tcp.md`).
//!
//! Invariants: decoding never panics and never allocates; an encoded header is decoded to the same
//! header; a header's length is a multiple of four.

use farhaul_core::{
    closing::Cause,
    codec::{DecodeError, NoRoom, Reader, Writer},
    seq::Wrap,
};

/// First byte of every segment: this format, version 1.
pub const MARK: u8 = 0xd1;
/// Fixed fields.
pub const FIXED: usize = 18;
/// The longest header that is written.
pub const MAX_HEADER: usize = 128;
/// A header with timestamps only.
pub const ACK_HEADER: usize = 28;
/// A header with timestamps and a place.
pub const DATA_HEADER: usize = 44;
/// Most bytes that [`Open`] adds to a header.
pub const OPEN_LEN: usize = 28;
/// Most SACK blocks in a segment (RFC 2018 §3).
pub const MAX_SACKS: usize = 4;
/// No datagram is shorter than a path must carry (RFC 9293 §3.7.1).
pub const LEAST_DATAGRAM: u32 = 548;
/// Longest text of a [`Close`].
pub const MAX_TEXT: usize = 256;
/// The largest window shift (RFC 7323 §2.3).
pub const MAX_SHIFT: u8 = 14;

/// Flags, as in TCP's header (RFC 9293 §3.1, RFC 3168 §6.1).
pub mod flag {
    /// The sender is going away.
    pub const FIN: u8 = 0x01;
    /// Sequence numbers begin here.
    pub const SYN: u8 = 0x02;
    /// The `ack` field means something.
    pub const ACK: u8 = 0x10;
    /// Congestion experienced, echoed.
    pub const ECE: u8 = 0x40;
    /// The window was reduced for it.
    pub const CWR: u8 = 0x80;
    /// All flags.
    pub(super) const KNOWN: u8 = FIN | SYN | ACK | ECE | CWR;
}

mod kind {
    pub(super) const END: u8 = 0;
    pub(super) const NOTHING: u8 = 1;
    pub(super) const MSS: u8 = 2;
    pub(super) const SHIFT: u8 = 3;
    pub(super) const SACK_PERMITTED: u8 = 4;
    pub(super) const SACK: u8 = 5;
    pub(super) const STAMPS: u8 = 8;
    pub(super) const FROM: u8 = 0xf1;
    pub(super) const OPEN: u8 = 0xf2;
    pub(super) const PLACE: u8 = 0xf3;
    pub(super) const CLOSE: u8 = 0xf4;
}

/// Timestamps (RFC 7323 §3), µs modulo 2^32 on each end's own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamps {
    /// Time at which this segment was sent.
    pub value: u32,
    /// Timestamp echo reply (RFC 7323); 0 if none.
    pub echo: u32,
}

/// Place of the payload: all of it belongs to one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The object; `u32::MAX` is the ordered stream.
    pub object: u32,
    /// Offset of the first byte in the object.
    pub offset: u64,
}

/// Parameters that an end announces in its SYN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Hello {
    /// Connection id to be used as its destination; not 0.
    pub from: u32,
    /// Longest datagram that the end takes, UDP payload bytes.
    pub mss: u16,
    /// Shift of the windows that the end announces.
    pub shift: u8,
    /// True if the end understands SACK blocks (RFC 2018).
    pub sack: bool,
}

impl Hello {
    /// True if the end has an id, and takes what any path must carry.
    pub fn is_sane(&self) -> bool {
        self.from != 0 && u32::from(self.mss) >= LEAST_DATAGRAM
    }
}

/// Part of the handshake that a client repeats until the server has spoken, so that the server need
/// not have remembered it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Open {
    /// The client's hello.
    pub hello: Hello,
    /// True if the client supports ECN (RFC 3168).
    pub ecn: bool,
    /// The client's initial sequence number.
    pub iss: u32,
    /// Time at which the server answered, ms on its own clock.
    pub issued: u32,
    /// The server's proof that it sent all this to this address.
    pub tag: u64,
}

/// Reasons why an end goes away, by code.
const CAUSES: [Cause; 3] = [Cause::Application, Cause::Protocol, Cause::Store];

/// The reason in a FIN; the text is the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Close {
    /// Party that wanted the close.
    pub cause: Cause,
    /// Application code.
    pub code: u32,
}

/// Selective acknowledgements: half-open spans of sequence numbers, the newest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sacks {
    blocks: [(u32, u32); MAX_SACKS],
    count: u8,
}

impl Sacks {
    /// Adds a block; ignored when full.
    pub fn push(&mut self, left: u32, right: u32) {
        if let Some(slot) = self.blocks.get_mut(usize::from(self.count)) {
            *slot = (left, right);
            self.count += 1;
        }
    }

    /// The blocks.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        self.blocks[..usize::from(self.count)].iter().copied()
    }

    /// Count of blocks.
    pub const fn len(&self) -> usize {
        self.count as usize
    }

    /// True if there are none.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// A segment's header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// [`flag`]s.
    pub flags: u8,
    /// Connection id of the receiver; 0 if it has none yet.
    pub to: u32,
    /// Sequence number of the first payload byte (of the SYN itself in a SYN).
    pub seq: u32,
    /// The next sequence number expected.
    pub ack: u32,
    /// Bytes that may be sent beyond `ack`, shifted right as agreed; unshifted in a SYN.
    pub window: u16,
    /// Timestamps.
    pub stamps: Option<Stamps>,
    /// Place of the payload.
    pub place: Option<Place>,
    /// Selective acknowledgements.
    pub sacks: Sacks,
    /// Parameters of a SYN.
    pub hello: Option<Hello>,
    /// A server's proof in its SYN; a client's repetition in its first segments.
    pub open: Option<Open>,
    /// Reason of a FIN.
    pub close: Option<Close>,
}

impl Header {
    /// True if all of `flags` are set.
    pub const fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// Bytes that the header takes.
    pub fn encoded_len(&self) -> usize {
        let option = |there: bool, len: usize| if there { len } else { 0 };
        let mut len = FIXED;
        len += option(self.stamps.is_some(), 10);
        len += option(self.place.is_some(), 14);
        len += option(!self.sacks.is_empty(), 2 + 8 * self.sacks.len());
        len += option(self.hello.is_some(), 6 + 4 + 3);
        len += option(self.hello.is_some_and(|h| h.sack), 2);
        len += option(self.open.is_some(), OPEN_LEN);
        len += option(self.close.is_some(), 7);
        len.next_multiple_of(4)
    }

    /// Writes the header.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), NoRoom> {
        let start = w.len();
        let len = self.encoded_len();
        let words = u8::try_from(len / 4).map_err(|_| NoRoom)?;
        w.put(&[MARK, self.flags, words, 0])?;
        w.u32(self.to)?;
        w.u32(self.seq)?;
        w.u32(self.ack)?;
        w.u16(self.window)?;
        self.encode_options(w)?;
        let padding = start + len - w.len();
        w.reserve(padding)?.fill(kind::END);
        Ok(())
    }

    fn encode_options(&self, w: &mut Writer<'_>) -> Result<(), NoRoom> {
        if let Some(stamps) = self.stamps {
            w.put(&[kind::STAMPS, 10])?;
            w.u32(stamps.value)?;
            w.u32(stamps.echo)?;
        }
        if let Some(place) = self.place {
            w.put(&[kind::PLACE, 14])?;
            w.u32(place.object)?;
            w.u64(place.offset)?;
        }
        if !self.sacks.is_empty() {
            w.put(&[kind::SACK, 2 + 8 * self.sacks.count])?;
            for (left, right) in self.sacks.iter() {
                w.u32(left)?;
                w.u32(right)?;
            }
        }
        if let Some(hello) = self.hello {
            encode_hello(hello, w)?;
        }
        if let Some(open) = self.open {
            encode_open(&open, w)?;
        }
        if let Some(close) = self.close {
            let cause = CAUSES.iter().position(|c| *c == close.cause);
            w.put(&[kind::CLOSE, 7])?;
            w.u8(cause.and_then(|c| u8::try_from(c).ok()).ok_or(NoRoom)?)?;
            w.u32(close.code)?;
        }
        Ok(())
    }

    /// Reads the header of `segment`; the payload follows the returned number of bytes.
    pub fn decode(segment: &[u8]) -> Result<(Self, usize), DecodeError> {
        let mut r = Reader::new(segment);
        if r.u8()? != MARK {
            return Err(DecodeError::Malformed("mark"));
        }
        let flags = r.u8()?;
        let len = usize::from(r.u8()?) * 4;
        if flags & !flag::KNOWN != 0 || r.u8()? != 0 {
            return Err(DecodeError::Malformed("flags"));
        }
        let options = segment.get(FIXED..len).ok_or(DecodeError::Truncated)?;
        let mut header = Self {
            flags,
            to: r.u32()?,
            seq: r.u32()?,
            ack: r.u32()?,
            window: r.u16()?,
            ..Self::default()
        };
        header.decode_options(options)?;
        Ok((header, len))
    }

    fn decode_options(&mut self, options: &[u8]) -> Result<(), DecodeError> {
        let mut hello = Hello::default();
        let mut r = Reader::new(options);
        while !r.is_empty() {
            let kind = r.u8()?;
            match kind {
                kind::END => break,
                kind::NOTHING => continue,
                _ => {}
            }
            let len = usize::from(r.u8()?)
                .checked_sub(2)
                .ok_or(DecodeError::Malformed("option length"))?;
            let mut body = Reader::new(r.take(len)?);
            match kind {
                kind::STAMPS => {
                    self.stamps = Some(Stamps {
                        value: body.u32()?,
                        echo: body.u32()?,
                    });
                }
                kind::PLACE => {
                    self.place = Some(Place {
                        object: body.u32()?,
                        offset: body.u64()?,
                    });
                }
                kind::SACK => self.sacks = decode_sacks(&mut body)?,
                kind::OPEN => self.open = Some(decode_open(&mut body)?),
                kind::CLOSE => self.close = Some(decode_close(&mut body)?),
                // What is not known is skipped there (RFC 9293 §3.2, MUST-6).
                _ => decode_hello(kind, &mut body, &mut hello)?,
            }
            if !body.is_empty() {
                return Err(DecodeError::Malformed("option length"));
            }
        }
        self.hello = Some(hello).filter(|h| h.from != 0 && h.mss != 0);
        Ok(())
    }
}

/// One option of a [`Hello`], or one that is not known.
fn decode_hello(kind: u8, body: &mut Reader<'_>, hello: &mut Hello) -> Result<(), DecodeError> {
    match kind {
        kind::FROM => hello.from = body.u32()?,
        kind::MSS => hello.mss = body.u16()?,
        // RFC 7323 §2.3: a larger shift is taken for 14.
        kind::SHIFT => hello.shift = body.u8()?.min(MAX_SHIFT),
        kind::SACK_PERMITTED => hello.sack = true,
        _ => {
            body.take(body.rest().len())?;
        }
    }
    Ok(())
}

fn encode_hello(hello: Hello, w: &mut Writer<'_>) -> Result<(), NoRoom> {
    w.put(&[kind::FROM, 6])?;
    w.u32(hello.from)?;
    w.put(&[kind::MSS, 4])?;
    w.u16(hello.mss)?;
    w.put(&[kind::SHIFT, 3, hello.shift])?;
    if hello.sack {
        w.put(&[kind::SACK_PERMITTED, 2])?;
    }
    Ok(())
}

const OPEN_SACK: u8 = 1;
const OPEN_ECN: u8 = 2;

fn encode_open(open: &Open, w: &mut Writer<'_>) -> Result<(), NoRoom> {
    let sack = if open.hello.sack { OPEN_SACK } else { 0 };
    let ecn = if open.ecn { OPEN_ECN } else { 0 };
    w.put(&[kind::OPEN, 28])?;
    w.u32(open.hello.from)?;
    w.u16(open.hello.mss)?;
    w.u8(open.hello.shift)?;
    w.u8(sack | ecn)?;
    w.u32(open.iss)?;
    w.u32(open.issued)?;
    w.u64(open.tag)?;
    w.u16(0)
}

fn decode_open(r: &mut Reader<'_>) -> Result<Open, DecodeError> {
    let (from, mss, shift, bits) = (r.u32()?, r.u16()?, r.u8()?, r.u8()?);
    let (iss, issued, tag) = (r.u32()?, r.u32()?, r.u64()?);
    if bits & !(OPEN_SACK | OPEN_ECN) != 0 || shift > MAX_SHIFT || r.u16()? != 0 {
        return Err(DecodeError::Malformed("open option"));
    }
    Ok(Open {
        hello: Hello {
            from,
            mss,
            shift,
            sack: bits & OPEN_SACK != 0,
        },
        ecn: bits & OPEN_ECN != 0,
        iss,
        issued,
        tag,
    })
}

fn decode_close(r: &mut Reader<'_>) -> Result<Close, DecodeError> {
    let cause = CAUSES.get(usize::from(r.u8()?));
    Ok(Close {
        cause: *cause.ok_or(DecodeError::Malformed("close cause"))?,
        code: r.u32()?,
    })
}

fn decode_sacks(r: &mut Reader<'_>) -> Result<Sacks, DecodeError> {
    let mut sacks = Sacks::default();
    while !r.is_empty() {
        if sacks.len() == MAX_SACKS {
            return Err(DecodeError::Malformed("SACK option"));
        }
        sacks.push(r.u32()?, r.u32()?);
    }
    Ok(sacks)
}

/// The connection id a segment is for, from its first bytes; `None` if it is not of this format.
pub fn destination(segment: &[u8]) -> Option<u32> {
    let mut r = Reader::new(segment);
    if segment.len() < FIXED || r.u8() != Ok(MARK) {
        return None;
    }
    r.take(3).ok()?;
    r.u32().ok()
}

/// Sequence numbers of one direction: counted from 0 at the first byte inside, modulo 2^32 from the
/// initial sequence number outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// First number, so far from 0 that no number near it is negative.
    first: u64,
}

/// Numbers of 32 bits.
pub(super) type Wrapped = Wrap<{ 1 << 32 }>;

impl Sequence {
    /// Numbers that start after a SYN with sequence number `iss`.
    pub const fn new(iss: u32) -> Self {
        Self {
            first: (1 << 32) + 1 + iss as u64,
        }
    }

    /// The number on the wire.
    pub const fn wrap(self, number: u64) -> u32 {
        Wrapped::wrap(self.first.wrapping_add(number))
    }

    /// The number nearest to `near` that looks like `wire`; `None` if it would be below 0.
    pub const fn unwrap(self, wire: u32, near: u64) -> Option<u64> {
        Wrapped::expand(wire, self.first.saturating_add(near)).checked_sub(self.first)
    }
}

#[cfg(test)]
mod tests;
