//! Queue of a machine's control messages still to be sent. They leave as space permits, in parts if
//! need be; new ones are composed only once all have been sent.

/// Send buffer of control messages.
#[derive(Clone, Debug, Default)]
pub struct Messages {
    bytes: Vec<u8>,
    /// Bytes of the messages that have left.
    left: usize,
}

impl Messages {
    /// True if everything has been sent.
    pub fn is_empty(&self) -> bool {
        self.left == self.bytes.len()
    }

    /// The buffer to append messages to.
    pub fn more(&mut self) -> &mut Vec<u8> {
        if self.is_empty() {
            self.bytes.clear();
            self.left = 0;
        }
        &mut self.bytes
    }

    /// Moves up to `room` bytes to `into`.
    pub fn leave(&mut self, room: usize, into: &mut Vec<u8>) {
        let rest = &self.bytes[self.left..];
        let rest = &rest[..rest.len().min(room)];
        into.extend(rest);
        self.left += rest.len();
    }

    /// Like [`Self::leave`]; calls `compose` first if the buffer is empty.
    pub fn poll(&mut self, room: usize, into: &mut Vec<u8>, compose: impl FnOnce(&mut Vec<u8>)) {
        if self.is_empty() {
            compose(self.more());
        }
        self.leave(room, into);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_leave_in_parts_and_the_next_are_composed_when_all_have() {
        let (mut messages, mut out, mut composed) = (Messages::default(), Vec::new(), 0);
        for room in [2, 0, 2, 2, 9] {
            messages.poll(room, &mut out, |bytes| {
                composed += 1;
                bytes.extend([composed; 5]);
            });
        }
        assert_eq!(out, [1, 1, 1, 1, 1, 2, 2, 2, 2, 2]);
        messages.more().extend(b"hello");
        messages.leave(3, &mut out);
        messages.more().extend(b" you");
        messages.leave(0, &mut out);
        assert!(!messages.is_empty());
        messages.leave(99, &mut out);
        assert!(messages.is_empty() && out.ends_with(b"hello you"));
    }
}
