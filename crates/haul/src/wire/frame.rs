//! Frames, the content of an opened datagram: a type byte, then its fields. Small frames come
//! first; a data frame has no length and ends the datagram. Type bytes with the top bits set carry
//! the sizes of their own fields, so that the usual data frame costs seven bytes.

use farhaul_core::{
    codec::{DecodeError, NoRoom, Reader, VARINT_MAX, Writer, varint_len},
    congestion::MAX_MESSAGE,
};

pub use farhaul_core::closing::Cause;

use super::feedback::Feedback;

/// Type bytes.
pub mod kind {
    /// Type of padding, which means nothing; one byte.
    pub const PADDING: u8 = 0x00;
    /// [`super::Frame::Ping`].
    pub const PING: u8 = 0x01;
    /// [`super::Frame::Ready`].
    pub const READY: u8 = 0x02;
    /// [`super::Frame::State`].
    pub const STATE: u8 = 0x03;
    /// [`super::Frame::Want`].
    pub const WANT: u8 = 0x04;
    /// [`super::Frame::Feedback`].
    pub const FEEDBACK: u8 = 0x05;
    /// [`super::Frame::Challenge`].
    pub const CHALLENGE: u8 = 0x06;
    /// [`super::Frame::Response`].
    pub const RESPONSE: u8 = 0x07;
    /// [`super::Frame::Close`].
    pub const CLOSE: u8 = 0x08;
    /// [`super::Frame::Credit`].
    pub const CREDIT: u8 = 0x09;
    /// [`super::Frame::AckFrequency`].
    pub const ACK_FREQUENCY: u8 = 0x0a;
    /// [`super::Frame::Message`] to the receiving half.
    pub const MESSAGE_DOWN: u8 = 0x0e;
    /// [`super::Frame::Message`] to the sending half.
    pub const MESSAGE_UP: u8 = 0x0f;
    /// [`super::Frame::Crypto`].
    pub const CRYPTO: u8 = 0x0c;
    /// [`super::Frame::Stream`]; three low bits: bytes of the offset less one.
    pub const STREAM: u8 = 0x40;
    /// [`super::Frame::Data`]; bits 3-4: bytes of the object less one, bits 0-2: of the offset.
    pub const DATA: u8 = 0x80;
}

/// The most bytes of text in a close frame.
pub const MAX_TEXT: usize = 512;

/// The causes, by their codes.
const CAUSES: [Cause; 4] = [
    Cause::Application,
    Cause::Auth,
    Cause::Protocol,
    Cause::Store,
];

/// Prefix of `text` that fits a [`Frame::Close`].
pub fn close_text(text: &str) -> &[u8] {
    &text.as_bytes()[..text.floor_char_boundary(MAX_TEXT)]
}

/// One frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Wants an acknowledgement, nothing else.
    Ping,
    /// Server: the handshake is done; wants an acknowledgement.
    Ready,
    /// The sender's books: packets more than `behind` below this one are decided.
    State {
        /// Number of the packet less the first undecided one.
        behind: u64,
        /// Requested time between reports, µs.
        interval_us: u64,
    },
    /// Report request: packets from `behind` below this one on.
    Want {
        /// Number of the packet less the first unknown one.
        behind: u64,
    },
    /// A report.
    Feedback(Feedback<'a>),
    /// A question whether the peer is there, to be answered with the same value.
    Challenge(u64),
    /// Answer to a challenge.
    Response(u64),
    /// The session is over.
    Close {
        /// Cause of the close.
        cause: Cause,
        /// Application code.
        code: u32,
        /// Text for people, UTF-8.
        text: &'a [u8],
    },
    /// The ordered stream has been read up to here.
    Credit {
        /// Bytes.
        read: u64,
    },
    /// Reports are requested after this many packets, too; 0: by time alone.
    AckFrequency {
        /// Packets.
        packets: u32,
    },
    /// A message from one half of a congestion law to the other.
    Message {
        /// True if the message goes from the receiving half to the sending one.
        up: bool,
        /// Bytes of the message, at most [`MAX_MESSAGE`].
        bytes: &'a [u8],
    },
    /// Handshake messages; only in long datagrams.
    Crypto {
        /// Place of the first byte in this level's messages.
        offset: u64,
        /// The bytes.
        data: &'a [u8],
    },
    /// A piece of the ordered stream; ends the datagram.
    Stream {
        /// Place of the first byte.
        offset: u64,
        /// The bytes.
        data: &'a [u8],
    },
    /// A piece of an object; ends the datagram.
    Data {
        /// The object that the data belong to.
        object: u32,
        /// Place of the first byte.
        offset: u64,
        /// The bytes.
        data: &'a [u8],
    },
}

impl Frame<'_> {
    /// True if the frame is ack-eliciting.
    pub const fn is_eliciting(&self) -> bool {
        !matches!(
            self,
            Self::State { .. }
                | Self::Want { .. }
                | Self::AckFrequency { .. }
                | Self::Message { .. }
                | Self::Feedback(_)
                | Self::Close { .. }
        )
    }
}

/// Takes the next frame off `r`; `None` at the end. Padding is skipped.
pub fn next<'a>(r: &mut Reader<'a>) -> Result<Option<Frame<'a>>, DecodeError> {
    loop {
        if r.is_empty() {
            return Ok(None);
        }
        let first = r.u8()?;
        if first != kind::PADDING {
            return decode(first, r).map(Some);
        }
        let zeros = r.rest().iter().take_while(|b| **b == 0).count();
        r.take(zeros)?;
    }
}

fn decode<'a>(first: u8, r: &mut Reader<'a>) -> Result<Frame<'a>, DecodeError> {
    Ok(match first {
        kind::PING => Frame::Ping,
        kind::READY => Frame::Ready,
        kind::STATE => Frame::State {
            behind: r.varint()?,
            interval_us: r.varint()?,
        },
        kind::WANT => Frame::Want {
            behind: r.varint()?,
        },
        kind::FEEDBACK => Frame::Feedback(Feedback::decode(r)?),
        kind::CHALLENGE => Frame::Challenge(r.u64()?),
        kind::RESPONSE => Frame::Response(r.u64()?),
        kind::CLOSE => decode_close(r)?,
        kind::CREDIT => Frame::Credit { read: r.varint()? },
        kind::ACK_FREQUENCY => Frame::AckFrequency {
            packets: u32::try_from(r.varint()?)
                .map_err(|_| DecodeError::Malformed("ack-frequency request"))?,
        },
        kind::MESSAGE_DOWN | kind::MESSAGE_UP => Frame::Message {
            up: first == kind::MESSAGE_UP,
            bytes: Some(r.prefixed()?)
                .filter(|bytes| bytes.len() <= MAX_MESSAGE)
                .ok_or(DecodeError::Malformed("message"))?,
        },
        kind::CRYPTO => Frame::Crypto {
            offset: r.varint()?,
            data: r.prefixed()?,
        },
        0x40..=0x47 => Frame::Stream {
            offset: number(r, usize::from(first & 7) + 1)?,
            data: rest(r)?,
        },
        0x80..=0x9f => {
            let object = number(r, usize::from(first >> 3 & 3) + 1)?;
            Frame::Data {
                object: u32::try_from(object).map_err(|_| DecodeError::Malformed("object"))?,
                offset: number(r, usize::from(first & 7) + 1)?,
                data: rest(r)?,
            }
        }
        _ => return Err(DecodeError::Malformed("frame type")),
    })
}

fn decode_close<'a>(r: &mut Reader<'a>) -> Result<Frame<'a>, DecodeError> {
    let cause = CAUSES.get(usize::from(r.u8()?));
    let cause = *cause.ok_or(DecodeError::Malformed("cause"))?;
    let code = r.u32()?;
    let text = r.prefixed()?;
    if text.len() > MAX_TEXT {
        return Err(DecodeError::Malformed("text"));
    }
    Ok(Frame::Close { cause, code, text })
}

fn number(r: &mut Reader<'_>, bytes: usize) -> Result<u64, DecodeError> {
    let value = r
        .take(bytes)?
        .iter()
        .fold(0, |value, b| value << 8 | u64::from(*b));
    // Keeps every end of a piece below 2^63.
    if value > VARINT_MAX {
        return Err(DecodeError::Malformed("offset"));
    }
    Ok(value)
}

fn rest<'a>(r: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
    r.take(r.rest().len())
}

/// A frame with one number.
fn counted(w: &mut Writer<'_>, kind: u8, value: u64) -> Result<(), NoRoom> {
    w.u8(kind)?;
    w.varint(value)
}

/// Appends a frame; a data frame must be the last.
pub fn encode(w: &mut Writer<'_>, frame: &Frame<'_>) -> Result<(), NoRoom> {
    match *frame {
        Frame::Ping => w.u8(kind::PING),
        Frame::Ready => w.u8(kind::READY),
        Frame::State {
            behind,
            interval_us,
        } => {
            w.u8(kind::STATE)?;
            w.varint(behind)?;
            w.varint(interval_us)
        }
        Frame::Want { behind } => counted(w, kind::WANT, behind),
        Frame::Feedback(f) => {
            w.u8(kind::FEEDBACK)?;
            w.u32(f.largest)?;
            w.varint(f.delay_us)?;
            w.u32(f.arrived_us)?;
            w.put(&f.bytes.to_be_bytes()[2..])?;
            w.varint(f.ce)?;
            w.varint(f.room)?;
            w.varint(f.count)?;
            w.u8(f.rice)?;
            w.prefixed(f.code)
        }
        Frame::Challenge(value) => {
            w.u8(kind::CHALLENGE)?;
            w.u64(value)
        }
        Frame::Response(value) => {
            w.u8(kind::RESPONSE)?;
            w.u64(value)
        }
        Frame::Close { cause, code, text } => {
            w.u8(kind::CLOSE)?;
            w.u8(cause as u8)?;
            w.u32(code)?;
            w.prefixed(&text[..text.len().min(MAX_TEXT)])
        }
        Frame::Credit { read } => counted(w, kind::CREDIT, read),
        Frame::AckFrequency { packets } => counted(w, kind::ACK_FREQUENCY, packets.into()),
        Frame::Message { up, bytes } => {
            w.u8(if up {
                kind::MESSAGE_UP
            } else {
                kind::MESSAGE_DOWN
            })?;
            w.prefixed(&bytes[..bytes.len().min(MAX_MESSAGE)])
        }
        Frame::Crypto { offset, data } => {
            w.u8(kind::CRYPTO)?;
            w.varint(offset)?;
            w.prefixed(data)
        }
        Frame::Stream { offset, data } => {
            PieceHead::new(None, offset).encode(w)?;
            w.put(data)
        }
        Frame::Data {
            object,
            offset,
            data,
        } => {
            PieceHead::new(Some(object), offset).encode(w)?;
            w.put(data)
        }
    }
}

/// Head that precedes the bytes of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceHead {
    object: Option<u32>,
    offset: u64,
    sizes: (u8, u8),
}

impl PieceHead {
    /// The head for a piece of `object`, or of the stream.
    pub const fn new(object: Option<u32>, offset: u64) -> Self {
        let object_bytes = match object {
            Some(object) => bytes_of(object as u64),
            None => 0,
        };
        Self {
            object,
            offset,
            sizes: (object_bytes, bytes_of(offset)),
        }
    }

    /// Encoded bytes.
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub const fn len(&self) -> usize {
        1 + self.sizes.0 as usize + self.sizes.1 as usize
    }

    /// Appends the head.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), NoRoom> {
        let (object_bytes, offset_bytes) = self.sizes;
        match self.object {
            Some(object) => {
                w.u8(kind::DATA | (object_bytes - 1) << 3 | (offset_bytes - 1))?;
                w.put(&object.to_be_bytes()[4 - usize::from(object_bytes)..])?;
            }
            None => w.u8(kind::STREAM | (offset_bytes - 1))?,
        }
        w.put(&self.offset.to_be_bytes()[8 - usize::from(offset_bytes)..])
    }
}

const fn bytes_of(value: u64) -> u8 {
    let bits = u64::BITS - value.leading_zeros();
    match bits {
        0..=8 => 1,
        9..=16 => 2,
        17..=24 => 3,
        25..=32 => 4,
        33..=40 => 5,
        41..=48 => 6,
        49..=56 => 7,
        _ => 8,
    }
}

/// Bytes of a crypto frame's own fields for up to `len` bytes of messages.
pub const fn crypto_overhead(offset: u64, len: usize) -> usize {
    1 + varint_len(offset) + varint_len(len as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frames() -> impl Strategy<Value = Frame<'static>> {
        let data: &'static [u8] = b"\x01\x02\x03";
        prop_oneof![
            Just(Frame::Ping),
            Just(Frame::Ready),
            (0..VARINT_MAX, 0..VARINT_MAX).prop_map(|(behind, interval_us)| Frame::State {
                behind,
                interval_us
            }),
            (0..VARINT_MAX).prop_map(|behind| Frame::Want { behind }),
            any::<u64>().prop_map(Frame::Challenge),
            any::<u64>().prop_map(Frame::Response),
            any::<u32>().prop_map(move |code| Frame::Close {
                cause: Cause::Store,
                code,
                text: data
            }),
            (0..VARINT_MAX).prop_map(|read| Frame::Credit { read }),
            any::<u32>().prop_map(|packets| Frame::AckFrequency { packets }),
            any::<bool>().prop_map(move |up| Frame::Message { up, bytes: data }),
            (0..VARINT_MAX).prop_map(move |offset| Frame::Crypto { offset, data }),
        ]
    }

    proptest! {
        #[test]
        fn frames_survive(
            small in proptest::collection::vec(frames(), 0..6),
            object: Option<u32>, offset in 0..VARINT_MAX, shift in 0_u32..62, pad in 0_usize..4,
        ) {
            let offset = offset >> shift;
            let data: &[u8] = b"payload";
            let last = match object {
                Some(object) => Frame::Data { object: object >> (shift % 32), offset, data },
                None => Frame::Stream { offset, data },
            };
            let mut bytes = [0; 400];
            let mut w = Writer::new(&mut bytes);
            for frame in &small {
                encode(&mut w, frame).unwrap();
            }
            w.put(&[0; 4][..pad]).unwrap();
            encode(&mut w, &last).unwrap();
            let n = w.len();
            let mut r = Reader::new(&bytes[..n]);
            for frame in small.iter().chain([&last]) {
                prop_assert_eq!(next(&mut r), Ok(Some(*frame)));
            }
            prop_assert_eq!(next(&mut r), Ok(None));
        }

        #[test]
        fn any_bytes_never_panic(data in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut r = Reader::new(&data);
            while let Ok(Some(_)) = next(&mut r) {}
        }
    }

    #[test]
    fn the_usual_data_datagram_fits_the_budget() {
        let head = PieceHead::new(Some(200), 900 << 30);
        assert!(super::super::short::LEN + head.len() + super::super::TAG <= 34);
    }
}
