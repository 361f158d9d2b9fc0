//! What of a machine's control messages has not left? They leave as far as there is room, a message in pieces if
//! need be; what is said next waits until all of it has.

/// Control messages on their way.
#[derive(Clone, Debug, Default)]
pub struct Words {
    bytes: Vec<u8>,
    /// So many of them have left.
    said: usize,
}

impl Words {
    /// Everything has left.
    pub fn is_empty(&self) -> bool {
        self.said == self.bytes.len()
    }

    /// Where messages are appended.
    pub fn more(&mut self) -> &mut Vec<u8> {
        if self.is_empty() {
            self.bytes.clear();
            self.said = 0;
        }
        &mut self.bytes
    }

    /// Lets up to `room` bytes leave.
    pub fn leave(&mut self, room: usize, into: &mut Vec<u8>) {
        let rest = self.bytes.get(self.said..).unwrap_or_default();
        let rest = &rest[..rest.len().min(room)];
        into.extend(rest);
        self.said += rest.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_leaves_in_order_as_far_as_there_is_room() {
        let (mut words, mut said) = (Words::default(), Vec::new());
        assert!(words.is_empty());
        words.more().extend(b"hello");
        words.leave(3, &mut said);
        words.more().extend(b" you");
        words.leave(0, &mut said);
        assert!(!words.is_empty());
        words.leave(99, &mut said);
        assert!(words.is_empty());
        words.more().push(b'!');
        words.leave(1, &mut said);
        assert_eq!(said, b"hello you!");
    }
}
