//! Names missing packets: one word for a single one; for a run its first with the top bit set and
//! then its last. A run of two is coded as a run.

use farhaul_core::codec::{DecodeError, NoRoom, Writer};

use crate::udt::seq;

const RUN: u32 = 1 << 31;

/// A loss list that has been checked: it is not empty, every run has its end, and none is reversed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossList<'a> {
    bytes: &'a [u8],
}

impl<'a> LossList<'a> {
    /// Checks a body. Bytes behind the last whole word are ignored, as libudt does.
    pub fn new(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let list = Self {
            bytes: &bytes[..bytes.len() / 4 * 4],
        };
        let mut words = list.words();
        if list.bytes.is_empty() {
            return Err(DecodeError::Malformed("empty loss list"));
        }
        while let Some(word) = words.next() {
            if word & RUN != 0 {
                let last = words
                    .next()
                    .ok_or(DecodeError::Malformed("open loss run"))?;
                if last & RUN != 0 || seq::Number::distance(word & !RUN, last) < 0 {
                    return Err(DecodeError::Malformed("reversed loss run"));
                }
            }
        }
        Ok(list)
    }

    fn words(self) -> impl Iterator<Item = u32> + use<'a> {
        self.bytes
            .as_chunks()
            .0
            .iter()
            .map(|w| u32::from_be_bytes(*w))
    }

    /// First and last number of each run.
    pub fn runs(self) -> impl Iterator<Item = (u32, u32)> + use<'a> {
        let mut words = self.words();
        std::iter::from_fn(move || {
            let first = words.next()?;
            if first & RUN == 0 {
                return Some((first, first));
            }
            words.next().map(|last| (first & !RUN, last))
        })
    }

    /// The body.
    pub const fn bytes(self) -> &'a [u8] {
        self.bytes
    }
}

/// Appends a run to a loss list.
pub fn put_run(w: &mut Writer<'_>, first: u32, last: u32) -> Result<(), NoRoom> {
    if first == last {
        return w.u32(first);
    }
    if w.room() < 8 {
        return Err(NoRoom);
    }
    w.words(&[first | RUN, last])
}
