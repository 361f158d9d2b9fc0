//! Format of the control channel: frames of a type (1 byte), the length of the body (3 bytes,
//! big-endian), and the body. Numbers are big-endian.
//!
//! Decoding never panics and allocates nothing; no frame is longer than [`MAX_FRAME`].

use crate::codec::{DecodeError, Reader};

/// Bytes of type and length.
pub const HEADER: usize = 4;
/// The longest body.
pub const MAX_FRAME: usize = 16 << 10;
/// Bytes of a close frame's text at most.
pub const MAX_TEXT: usize = 400;
/// The most bytes of a machine's greeting.
pub const MAX_GREETING: usize = 1_024;

/// One frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// 1: UDP payload of a full datagram; the machine's greeting.
    Hello(u16, &'a [u8]),
    /// 2: a client has the listener's hello, and datagrams pass both ways.
    Ready,
    /// 3: the machine's messages, cut anywhere.
    Control(&'a [u8]),
    /// 4: the ordered stream.
    Stream(&'a [u8]),
    /// 5: bytes of the ordered stream read so far, modulo 2^32.
    Credit(u32),
    /// 6: "are you still there?"
    Ping,
    /// 7: the answer.
    Pong,
    /// 8: the end, with a code and text.
    Close(u32, &'a [u8]),
}

impl<'a> Frame<'a> {
    /// Appends the frame; a longer text is cut.
    ///
    /// # Panics
    /// If a body is longer than [`MAX_FRAME`].
    pub fn encode(&self, into: &mut Vec<u8>) {
        let (kind, word, bytes): (u8, Option<u32>, &[u8]) = match self {
            Self::Hello(_, greeting) => (1, None, greeting),
            Self::Ready => (2, None, &[]),
            Self::Control(bytes) => (3, None, bytes),
            Self::Stream(bytes) => (4, None, bytes),
            Self::Credit(read) => (5, Some(*read), &[]),
            Self::Ping => (6, None, &[]),
            Self::Pong => (7, None, &[]),
            Self::Close(code, text) => (8, Some(*code), &text[..text.len().min(MAX_TEXT)]),
        };
        let datagram = match self {
            Self::Hello(datagram, _) => Some(*datagram),
            _ => None,
        };
        let body = bytes.len()
            + if word.is_some() { 4 } else { 0 }
            + if datagram.is_some() { 2 } else { 0 };
        assert!(body <= MAX_FRAME, "a body is cut before");
        let head = u32::try_from(body).unwrap_or(0) | u32::from(kind) << 24;
        into.extend(head.to_be_bytes());
        into.extend(word.iter().flat_map(|word| word.to_be_bytes()));
        into.extend(datagram.iter().flat_map(|d| d.to_be_bytes()));
        into.extend(bytes);
    }

    /// The first frame in `bytes` and its length; none if it is not all there.
    pub fn decode(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, DecodeError> {
        let Some((head, rest)) = bytes.split_first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let [kind, a, b, c] = *head;
        let len = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        if len > MAX_FRAME {
            return Err(DecodeError::Malformed("length of a frame"));
        }
        let Some(body) = rest.get(..len) else {
            return Ok(None);
        };
        Ok(Some((Self::body(kind, body)?, HEADER + len)))
    }

    fn body(kind: u8, body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(body);
        let frame = match kind {
            1 => {
                let datagram = r.u16()?;
                let greeting = r.rest();
                if greeting.len() > MAX_GREETING {
                    return Err(DecodeError::Malformed("length of a greeting"));
                }
                return Ok(Self::Hello(datagram, greeting));
            }
            2 => Self::Ready,
            3 => return Ok(Self::Control(body)),
            4 => return Ok(Self::Stream(body)),
            5 => Self::Credit(r.u32()?),
            6 => Self::Ping,
            7 => Self::Pong,
            8 => {
                let code = r.u32()?;
                let text = r.rest();
                if text.len() > MAX_TEXT {
                    return Err(DecodeError::Malformed("length of a close"));
                }
                return Ok(Self::Close(code, text));
            }
            _ => return Err(DecodeError::Malformed("type of a frame")),
        };
        if r.is_empty() {
            Ok(frame)
        } else {
            Err(DecodeError::Malformed("length of a frame"))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn frames_survive_the_wire() {
        let frames = [
            Frame::Hello(8_972, b"greeting"),
            Frame::Ready,
            Frame::Control(b"control"),
            Frame::Stream(b"stream"),
            Frame::Credit(77),
            Frame::Ping,
            Frame::Pong,
            Frame::Close(3, b"text"),
        ];
        let mut bytes = Vec::new();
        for frame in &frames {
            frame.encode(&mut bytes);
        }
        assert_eq!(
            bytes[..14],
            [
                1, 0, 0, 10, 0x23, 0x0c, b'g', b'r', b'e', b'e', b't', b'i', b'n', b'g'
            ]
        );
        let mut rest = &bytes[..];
        for frame in frames {
            for cut in 0..HEADER {
                assert_eq!(Frame::decode(&rest[..cut]), Ok(None));
            }
            let (decoded, len) = Frame::decode(rest).unwrap().unwrap();
            assert_eq!(decoded, frame);
            rest = &rest[len..];
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn what_no_end_writes_is_refused() {
        for bytes in [
            &[0, 0, 0, 0][..],
            &[2, 0, 0, 1, 9],
            &[3, 0, 0x40, 1],
            &[5, 0, 0, 3, 0, 0, 0],
            &[1, 0, 0, 1, 9],
            &[9, 0, 0, 0],
        ] {
            assert!(Frame::decode(bytes).is_err(), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn anything_may_arrive(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(Some((frame, len))) = Frame::decode(&bytes) {
                let mut again = Vec::new();
                frame.encode(&mut again);
                prop_assert_eq!(&again[..], &bytes[..len]);
            }
        }
    }
}
