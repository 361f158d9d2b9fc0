//! Cuts complete messages out of the ordered stream, which arrives in pieces of any size.

use farhaul_core::codec::{DecodeError, Reader};

use crate::wire::{Message, limits::MAX_FRAME};

/// Cuts frames out of the ordered stream.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    at: usize,
}

impl Inbox {
    /// Buffer to which newly arrived bytes are appended.
    pub(crate) fn tail(&mut self) -> &mut Vec<u8> {
        if self.at > 0 {
            self.bytes.drain(..self.at);
            self.at = 0;
        }
        &mut self.bytes
    }

    /// Bytes that were not cut yet.
    pub(crate) const fn len(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The next message, if it has arrived whole.
    pub(crate) fn next(&mut self) -> Result<Option<Message>, DecodeError> {
        let mut r = Reader::new(&self.bytes[self.at..]);
        let before = r.rest().len();
        let len = match r.varint() {
            Ok(len) => len,
            Err(DecodeError::Truncated) => return Ok(None),
            Err(e) => return Err(e),
        };
        let len = usize::try_from(len)
            .ok()
            .filter(|n| (1..=MAX_FRAME).contains(n));
        let len = len.ok_or(DecodeError::Malformed("frame length"))?;
        let Ok(frame) = r.take(len) else {
            return Ok(None);
        };
        let message = Message::decode(frame)?;
        self.at += before - r.rest().len();
        Ok(Some(message))
    }
}

/// Feeds arbitrary bytes to the decoder, as a hostile peer would; what decodes must encode to a frame
/// that decodes to the same. For fuzzing.
#[doc(hidden)]
pub fn fuzz_messages(bytes: &[u8]) {
    let mut inbox = Inbox::default();
    inbox.tail().extend_from_slice(bytes);
    let (mut scratch, mut again) = (Vec::new(), Vec::new());
    while let Ok(Some(message)) = inbox.next() {
        again.clear();
        message.encode(&mut scratch, &mut again);
        let mut twin = Inbox::default();
        twin.tail().extend_from_slice(&again);
        assert_eq!(twin.next(), Ok(Some(message)));
    }
}
