//! Shortest entries and requests that a peer may send, for tests and fuzzers.

use farhaul_testkit::FakeSession;

use crate::wire::{
    BLOCK, Direction, Entry, Inbox, Kind, Message, OLDEST, Place, RequestOptions, Stripe, Token,
};

impl Entry {
    /// One without facts, which its owner may write.
    pub(crate) fn of(kind: Kind, path: &str, size: u64) -> Self {
        Self {
            mode: 0o644,
            mtime: 1_000_000_000,
            size,
            allocated: size,
            ..Self::named(kind, path.into())
        }
    }

    /// Makes the entry one of the stripes of a file, if it is long enough: `blocks` of the file are
    /// before this one.
    pub(crate) fn striped(mut self, index: u32, blocks: u64) -> Self {
        let offset = blocks * BLOCK;
        let more = if self.size.is_multiple_of(BLOCK) {
            BLOCK
        } else {
            0
        };
        let file_size = offset + self.size + more;
        let is_part = self.size > BLOCK && file_size > self.size;
        self.stripe = is_part.then(|| {
            let (count, id) = (index + 2, [9; 8]);
            let stripe = Stripe {
                offset,
                file_size,
                index,
                count,
                id,
            };
            Box::new(stripe)
        });
        self
    }
}

impl Message {
    /// A request for one place.
    pub(crate) fn request(direction: Direction, share: &str, path: &str) -> Self {
        Self::request_with(direction, share, path, RequestOptions::default())
    }

    /// Makes a request with `ask`.
    pub(crate) fn request_with(
        direction: Direction,
        share: &str,
        path: &str,
        options: RequestOptions,
    ) -> Self {
        let place = Place {
            share: share.into(),
            path: path.into(),
        };
        Self::Request {
            version: OLDEST,
            direction,
            tag: [1; 8],
            places: vec![place],
            options: Box::new(options),
        }
    }

    /// The token of further parallel sessions, if it is the answer that has one.
    pub(crate) const fn lanes_token(&self) -> Option<Token> {
        match self {
            Self::Lanes { token, .. } => Some(*token),
            _ => None,
        }
    }
}

/// Messages that were sent on `session` and not taken from it.
///
/// # Panics
/// If that is no message.
pub(crate) fn said(session: &FakeSession) -> Vec<Message> {
    let mut inbox = Inbox::default();
    inbox.tail().extend_from_slice(&session.written);
    let next = || inbox.next().expect("only messages are said");
    std::iter::from_fn(next).collect()
}
