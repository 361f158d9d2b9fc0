//! What of a machine's control messages has left? They are composed when those before them have.

/// Control messages on their way out.
#[derive(Clone, Debug, Default)]
pub struct Messages {
    bytes: Vec<u8>,
    /// So many bytes of them have left.
    left: usize,
}

impl Messages {
    /// Appends what waits to `into`, at most `room` bytes; when nothing waits, what `compose` writes.
    pub fn poll(&mut self, room: usize, into: &mut Vec<u8>, compose: impl FnOnce(&mut Vec<u8>)) {
        if self.left == self.bytes.len() {
            self.bytes.clear();
            self.left = 0;
            compose(&mut self.bytes);
        }
        let rest = &self.bytes[self.left..];
        let rest = &rest[..rest.len().min(room)];
        into.extend(rest);
        self.left += rest.len();
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
    }
}
