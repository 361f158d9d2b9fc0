//! Wire format of SABUL. Data go in datagrams: a sequence number and bytes. Everything else goes in
//! words of four bytes, big-endian, on a TCP stream. A block of options goes first, then messages
//! of type, attribute and the fields of the type; all of it in the shell's
//! [frames](farhaul_core::shell::frame).
//!
//! Decoding never panics and allocates nothing; whatever decodes is bounded.
//!
//! Source: SABUL 2.x as read, 2003. Farhaul's own: the record before a packet's bytes, and the frames;
//! `docs/protocols/sabul.md` §2.

use farhaul_core::{
    codec::{DecodeError, Reader},
    shell::Record,
};

use super::seq::{HALF, MODULUS};

/// Bytes before a packet's data: sequence number, object, offset.
pub const HEADER: usize = Record::LEN;
/// Numbers in one report of losses at most.
pub const MAX_LOSSES: usize = 366;
/// Bytes of the options.
pub const OPTIONS: usize = 40;
/// The longest message.
pub const MAX_MESSAGE: usize = 8 + 4 * MAX_LOSSES;

/// A packet's sequence number, below [`MODULUS`].
pub const fn sequence(number: u32) -> Result<u32, DecodeError> {
    if number < MODULUS {
        Ok(number)
    } else {
        Err(DecodeError::Malformed("sequence number"))
    }
}

/// Connection parameters exchanged first, ten words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// UDP port of the receiver; 0: where its datagrams come from.
    pub data_port: u32,
    /// TCP port; 0: this connection's.
    pub control_port: u32,
    /// UDP payload bytes of a full packet, 64 to 65,507.
    pub packet: u32,
    /// Data bytes of these, behind the sequence number.
    pub payload: u32,
    /// Numbers in a report of losses.
    pub max_losses: u32,
    /// Calls may block.
    pub blockable: u32,
    /// Bytes.
    pub send_buffer: u32,
    /// Bytes.
    pub receive_buffer: u32,
    /// Packets that may be unacknowledged, 1 to 25,000,000.
    pub window: u32,
    /// Nonzero for verbose output.
    pub verbose: u32,
}

impl Options {
    /// The original's defaults, with packets of `packet` bytes and `window` of them.
    pub const fn new(packet: u32, window: u32) -> Self {
        Self {
            data_port: 0,
            control_port: 0,
            packet,
            payload: packet.saturating_sub(4),
            max_losses: 366,
            blockable: 1,
            send_buffer: 40_960_000,
            receive_buffer: 40_960_000,
            window,
            verbose: 0,
        }
    }

    const fn words(&self) -> [u32; 10] {
        [
            self.data_port,
            self.control_port,
            self.packet,
            self.payload,
            self.max_losses,
            self.blockable,
            self.send_buffer,
            self.receive_buffer,
            self.window,
            self.verbose,
        ]
    }

    /// Appends the options.
    pub fn encode(&self, into: &mut Vec<u8>) {
        for word in self.words() {
            into.extend(word.to_be_bytes());
        }
    }

    /// Reads the options; packets or windows that nobody can have are refused.
    pub fn decode(bytes: &[u8; OPTIONS]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let options = Self {
            data_port: r.u32()?,
            control_port: r.u32()?,
            packet: r.u32()?,
            payload: r.u32()?,
            max_losses: r.u32()?,
            blockable: r.u32()?,
            send_buffer: r.u32()?,
            receive_buffer: r.u32()?,
            window: r.u32()?,
            verbose: r.u32()?,
        };
        if !(64..=65_507).contains(&options.packet) {
            return Err(DecodeError::Malformed("packet size"));
        }
        if !(1..=HALF / 2).contains(&options.window) {
            return Err(DecodeError::Malformed("window"));
        }
        Ok(options)
    }
}

/// A message on the control lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// 1, ACK: everything before this number has arrived.
    Ack(u32),
    /// 2, ERR: these are missing.
    Err(Losses<'a>),
    /// 4, SYN: packets that arrived since the last one.
    Syn(u32),
}

/// Missing numbers, all below [`MODULUS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Losses<'a>(&'a [u8]);

impl<'a> Losses<'a> {
    /// The numbers, in the order reported.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<'a> {
        let words = self.0.as_chunks::<4>().0.iter();
        words.map(|word| u32::from_be_bytes(*word))
    }
}

/// Appends a report of the missing `numbers`, at most [`MAX_LOSSES`].
pub fn put_losses(into: &mut Vec<u8>, numbers: impl Iterator<Item = u32>) {
    let at = into.len();
    put_words(into, &[2, 0]);
    let mut count = 0_u32;
    for number in numbers.take(MAX_LOSSES) {
        into.extend(number.to_be_bytes());
        count += 1;
    }
    into[at + 4..at + 8].copy_from_slice(&count.to_be_bytes());
}

fn put_words(into: &mut Vec<u8>, words: &[u32]) {
    for word in words {
        into.extend(word.to_be_bytes());
    }
}

impl<'a> Message<'a> {
    /// Appends the message.
    pub fn encode(&self, into: &mut Vec<u8>) {
        match self {
            Self::Ack(next) => put_words(into, &[1, *next]),
            Self::Err(losses) => put_losses(into, losses.iter()),
            Self::Syn(received) => put_words(into, &[4, *received]),
        }
    }

    /// The first message in `bytes` and its length; none if it is not all there. Never asks for more
    /// than [`MAX_MESSAGE`] bytes.
    pub fn decode(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, DecodeError> {
        let mut r = Reader::new(bytes);
        let (Ok(kind), Ok(attribute)) = (r.u32(), r.u32()) else {
            return Ok(None);
        };
        let message = match kind {
            1 if attribute < MODULUS => Self::Ack(attribute),
            1 => return Err(DecodeError::Malformed("acknowledgement")),
            2 => {
                let n = usize::try_from(attribute).unwrap_or(usize::MAX);
                if n > MAX_LOSSES {
                    return Err(DecodeError::Malformed("length of a loss list"));
                }
                let Ok(list) = r.take(4 * n) else {
                    return Ok(None);
                };
                let losses = Losses(list);
                if list.is_empty() || losses.iter().any(|number| number >= MODULUS) {
                    return Err(DecodeError::Malformed("loss list"));
                }
                Self::Err(losses)
            }
            4 => Self::Syn(attribute),
            _ => return Err(DecodeError::Malformed("type of a control message")),
        };
        Ok(Some((message, bytes.len() - r.rest().len())))
    }
}

#[cfg(test)]
mod tests;
