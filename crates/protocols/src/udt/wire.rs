//! Wire format of a UDT packet: sixteen bytes of header, then payload or a body of 32-bit words,
//! all big-endian. Control packets carry timestamp 0 and, where there is nothing to say, one zero
//! word.
//!
//! Invariants: decoding never panics and allocates nothing; encoded packets decode to the same;
//! loss lists are checked whole before anything in them is believed. A datagram shorter than a
//! header is not parsed. Source: UDT 4.11 `packet.cpp`, draft-gg-udt-03 §3.

mod handshake;
mod loss;
#[cfg(test)]
mod tests;

use farhaul_core::codec::{DecodeError, NoRoom, Reader, Writer};

pub use self::{
    handshake::{Handshake, Request, SocketType, VERSION},
    loss::{LossList, put_run},
};

/// Bytes of a header.
pub const HEADER: usize = 16;
/// Bytes of IPv4 and UDP headers, which the negotiated packet size (MSS) includes, for IPv6 too.
pub const OVERHEAD: u32 = 28;
/// The bit that marks control packets.
const CONTROL: u32 = 1 << 31;
/// Type of user-defined control packets.
const USER: u32 = 0x7fff;

/// The header of a data packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHeader {
    /// Sequence number, 31 bits; counts packets.
    pub seq: u32,
    /// True if the packet begins its message.
    pub first: bool,
    /// True if the packet ends its message.
    pub last: bool,
    /// True if the message waits for those before it.
    pub in_order: bool,
    /// Message number, 29 bits.
    pub message: u32,
    /// µs since the sender's socket was opened; informational.
    pub timestamp: u32,
    /// Socket id of the receiver.
    pub to: u32,
}

impl DataHeader {
    /// Writes the 16 bytes.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), NoRoom> {
        let flags = [self.first, self.last, self.in_order];
        let flags = flags
            .into_iter()
            .fold(0, |bits, flag| bits << 1 | u32::from(flag));
        let message = flags << 29 | self.message & super::seq::MAX_MESSAGE;
        w.words(&[self.seq & super::seq::MAX, message, self.timestamp, self.to])
    }
}

/// Fields of a full acknowledgement besides its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckState {
    /// The receiver's smoothed round-trip time, µs.
    pub rtt_us: u32,
    /// Variation of the rtt, µs.
    pub var_us: u32,
    /// Free receive buffer, packets.
    pub window: u32,
    /// Speeds that the receiver measures; only at most every 10 ms.
    pub speed: Option<AckSpeed>,
}

/// Speeds that the receiver measures, packets/s; 0 is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckSpeed {
    /// Speed at which packets arrive.
    pub arrival: u32,
    /// Capacity of the link by packet pairs.
    pub capacity: u32,
}

/// A control packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control<'a> {
    /// Opens a connection.
    Handshake(Handshake),
    /// A sign of life.
    KeepAlive,
    /// Acknowledges data.
    Ack {
        /// Number of this acknowledgement; 0 for a light one.
        number: u32,
        /// The first sequence number not received.
        next: u32,
        /// Absent in a light acknowledgement.
        state: Option<AckState>,
    },
    /// Names missing packets.
    Nak(LossList<'a>),
    /// Ends a connection. The body means nothing to libudt.
    Shutdown(&'a [u8]),
    /// Confirms an acknowledgement.
    Ack2 {
        /// Number of the acknowledgement.
        number: u32,
    },
    /// A message will not be completed.
    Drop {
        /// Message number.
        message: u32,
        /// First sequence number that is given up.
        first: u32,
        /// Last one; libudt names one too many.
        last: u32,
    },
    /// The peer's application failed.
    PeerError {
        /// Code of the error.
        code: u32,
    },
    /// A warning of delays (4), which libudt never sends, or a congestion control's own: of this type.
    Ignored(u32),
}

/// A datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// Payload behind its header.
    Data(DataHeader, &'a [u8]),
    /// Everything else, with the receiver's socket id.
    Control(u32, Control<'a>),
}

/// The receiver's socket id, if `datagram` has a header.
pub fn destination(datagram: &[u8]) -> Option<u32> {
    let (_, id) = datagram.get(..HEADER)?.split_last_chunk()?;
    Some(u32::from_be_bytes(*id))
}

/// True for a data packet.
pub fn is_data(datagram: &[u8]) -> bool {
    datagram.len() >= HEADER && datagram[0] & 0x80 == 0
}

/// Reads a datagram.
pub fn decode(datagram: &[u8]) -> Result<Packet<'_>, DecodeError> {
    let mut r = Reader::new(datagram);
    let [first, info, timestamp, to] = r.words()?;
    if first & CONTROL != 0 {
        return Ok(Packet::Control(to, control(first & !CONTROL, info, r)?));
    }
    let header = DataHeader {
        seq: first,
        first: info >> 31 == 1,
        last: info >> 30 & 1 == 1,
        in_order: info >> 29 & 1 == 1,
        message: info & super::seq::MAX_MESSAGE,
        timestamp,
        to,
    };
    Ok(Packet::Data(header, r.rest()))
}

fn control(kind: u32, info: u32, mut r: Reader<'_>) -> Result<Control<'_>, DecodeError> {
    Ok(match kind >> 16 {
        0 => Control::Handshake(Handshake::decode(&mut r)?),
        1 => Control::KeepAlive,
        2 => ack(info, r)?,
        3 => Control::Nak(LossList::new(r.rest())?),
        5 => Control::Shutdown(r.rest()),
        6 => Control::Ack2 { number: info },
        7 => {
            let [first, last] = r.words()?;
            if (first | last) & CONTROL != 0 || super::seq::Number::distance(first, last) < 0 {
                return Err(DecodeError::Malformed("drop range"));
            }
            let message = info & super::seq::MAX_MESSAGE;
            Control::Drop {
                message,
                first,
                last,
            }
        }
        8 => Control::PeerError { code: info },
        kind @ (4 | USER) => Control::Ignored(kind),
        _ => return Err(DecodeError::Malformed("control type")),
    })
}

/// Bodies of 1, 4 and 6 words are known, and longer ones are what later versions may say; 2 and 3 are
/// never sent.
fn ack(number: u32, mut r: Reader<'_>) -> Result<Control<'static>, DecodeError> {
    let words = r.rest().len() / 4;
    let next = r.u32()?;
    if next & CONTROL != 0 || (2..4).contains(&words) {
        return Err(DecodeError::Malformed("acknowledgement"));
    }
    let mut state = None;
    if words >= 4 {
        let [rtt_us, var_us, window] = r.words()?;
        let speed = (words >= 6).then(|| r.words()).transpose()?;
        state = Some(AckState {
            rtt_us,
            var_us,
            window,
            speed: speed.map(|[arrival, capacity]| AckSpeed { arrival, capacity }),
        });
    }
    Ok(Control::Ack {
        number,
        next,
        state,
    })
}

impl Control<'_> {
    const fn kind(&self) -> (u32, u32) {
        match *self {
            Self::Handshake(_) => (0, 0),
            Self::KeepAlive => (1, 0),
            Self::Ack { number, .. } => (2, number),
            Self::Nak(_) => (3, 0),
            Self::Shutdown(_) => (5, 0),
            Self::Ack2 { number } => (6, number),
            Self::Drop { message, .. } => (7, message),
            Self::PeerError { code } => (8, code),
            Self::Ignored(kind) => (kind, 0),
        }
    }

    /// Writes the packet for socket `to`. An empty body is written as one zero word.
    pub fn encode(&self, to: u32, w: &mut Writer<'_>) -> Result<(), NoRoom> {
        let (kind, info) = self.kind();
        w.words(&[CONTROL | kind << 16, info, 0, to])?;
        match self {
            Self::Handshake(handshake) => handshake.encode(w),
            Self::Ack { next, state, .. } => put_ack(w, *next, state.as_ref()),
            Self::Nak(losses) => w.put(losses.bytes()),
            Self::Drop { first, last, .. } => w.words(&[*first, *last]),
            Self::Shutdown(body) if !body.is_empty() => w.put(body),
            _ => w.u32(0),
        }
    }
}

fn put_ack(w: &mut Writer<'_>, next: u32, state: Option<&AckState>) -> Result<(), NoRoom> {
    w.u32(next)?;
    if let Some(state) = state {
        w.words(&[state.rtt_us, state.var_us, state.window])?;
        if let Some(speed) = state.speed {
            w.words(&[speed.arrival, speed.capacity])?;
        }
    }
    Ok(())
}
