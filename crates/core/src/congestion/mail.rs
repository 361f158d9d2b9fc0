//! Carries messages between the halves of a law. A few messages wait until a datagram takes them;
//! if none does, the oldest are forgotten.

use std::collections::VecDeque;

use super::MAX_MESSAGE;

/// Messages kept until they are sent.
const KEPT: usize = 8;

/// Messages waiting to be sent.
#[derive(Clone, Debug, Default)]
pub struct Mail {
    waiting: VecDeque<Vec<u8>>,
    /// Being written; its allocation is kept while nothing is said.
    draft: Vec<u8>,
}

impl Mail {
    /// Lets `write` append a message; none if it appends nothing. False if it was too long and
    /// dropped.
    pub fn ask(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        write(&mut self.draft);
        if self.draft.is_empty() {
            return true;
        }
        let message = std::mem::take(&mut self.draft);
        if message.len() > MAX_MESSAGE {
            return false;
        }
        if self.waiting.len() == KEPT {
            self.waiting.pop_front();
        }
        self.waiting.push_back(message);
        true
    }

    /// The next message.
    pub fn take(&mut self) -> Option<Vec<u8>> {
        self.waiting.pop_front()
    }

    /// True if nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_few_are_kept_in_order() {
        let mut mail = Mail::default();
        for n in 0..20 {
            assert!(mail.ask(|m| m.push(n)));
        }
        assert!(mail.ask(|_| {}));
        assert!(!mail.ask(|m| m.resize(MAX_MESSAGE + 1, 0)));
        let got: Vec<_> = std::iter::from_fn(|| mail.take()).flatten().collect();
        assert_eq!(got, (12..20).collect::<Vec<u8>>());
        assert!(mail.is_empty());
    }
}
