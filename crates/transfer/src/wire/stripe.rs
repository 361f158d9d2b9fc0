//! Place of a stripe in its file, as an entry carries it.

use farhaul_core::codec::{DecodeError, Reader};

use crate::wire::{BLOCK, Out, fields::array, limits::MOST_SHARDS, path::Tag};

/// Generation of the files that were made for the same stripes, one after the other; zeros if that
/// is not known any more.
pub(crate) type Generation = [u8; 8];

/// Bytes of a file that one of several nodes sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stripe {
    /// Offset of the stripe in the file, bytes.
    pub(crate) offset: u64,
    /// Bytes of the whole file.
    pub(crate) file_size: u64,
    /// Number of the stripe among those of the file, from 0 on.
    pub(crate) index: u32,
    /// Number of stripes of the file.
    pub(crate) count: u32,
    /// Tag of the file's state and of how the file is divided.
    pub(crate) id: Tag,
}

impl Stripe {
    /// Appends it to an entry.
    pub(crate) fn encode(&self, out: &mut Out<'_>) {
        out.varint(self.offset);
        out.varint(self.file_size);
        out.varint(self.index.into());
        out.varint(self.count.into());
        out.0.extend_from_slice(&self.id);
    }

    /// Decodes a stripe of `size` bytes.
    pub(crate) fn decode(r: &mut Reader<'_>, size: u64) -> Result<Self, DecodeError> {
        let (offset, file_size) = (r.varint()?, r.varint()?);
        let number = |n| u32::try_from(n).map_err(|_| DecodeError::Malformed("stripe number"));
        let (index, count) = (number(r.varint()?)?, number(r.varint()?)?);
        let id = array(r)?;
        let end = offset.checked_add(size).filter(|end| *end <= file_size);
        let blocks = offset.is_multiple_of(BLOCK)
            && end.is_some_and(|end| end == file_size || end.is_multiple_of(BLOCK));
        let numbered = (2..=MOST_SHARDS).contains(&count) && index < count;
        if !blocks || !numbered || size <= BLOCK || size == file_size {
            return Err(DecodeError::Malformed("stripe"));
        }
        Ok(Self {
            offset,
            file_size,
            index,
            count,
            id,
        })
    }
}
