//! Buffers that begin at the border of a page, for reads. Where the kernel copies with one
//! instruction, a destination a few bytes further into its page than the source costs five times as
//! much. Large vectors begin 16 bytes into a page (`docs/decisions/0004-own-udp-sockets.md`).

use std::ops::{Deref, DerefMut};

const PAGE: usize = 4_096;

/// Bytes that begin at a page border.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    bytes: Vec<u8>,
    first: usize,
    len: usize,
}

impl Pages {
    /// Makes the buffer `len` bytes long; its content then is to be overwritten.
    pub(crate) fn fit(&mut self, len: usize) {
        if self.bytes.len() < len + self.first {
            // Nothing in it is worth copying.
            self.bytes = vec![0; len + PAGE];
            self.first = self.bytes.as_ptr().align_offset(PAGE).min(PAGE);
        }
        self.len = len;
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.first..][..self.len]
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.first..][..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_begins_at_a_page_border() {
        let mut pages = Pages::default();
        assert!(pages.is_empty());
        for len in [1, 70_000, 1 << 20, 5, 0, (1 << 20) + 1] {
            pages.fit(len);
            assert_eq!(pages.len(), len);
            assert!(pages.as_ptr().addr().is_multiple_of(PAGE));
            pages.fill(7);
        }
    }
}
