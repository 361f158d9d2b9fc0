//! Collects messages until the session takes them.

use farhaul_core::protocol::Session;

use crate::wire::{Message, limits::TEXT};

/// Messages on their way into the stream.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    scratch: Vec<u8>,
    bytes: Vec<u8>,
}

impl Outbox {
    pub(crate) fn push(&mut self, message: &Message) {
        message.encode(&mut self.scratch, &mut self.bytes);
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Hands everything to the session.
    pub(crate) fn flush(&mut self, session: &mut dyn Session) {
        if !self.bytes.is_empty() {
            session.write(&self.bytes);
            self.bytes.clear();
        }
    }
}

/// Cuts `text` to what fits a message.
pub(crate) fn short(text: &str) -> Vec<u8> {
    let mut end = text.len().min(TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.as_bytes()[..end].to_vec()
}
