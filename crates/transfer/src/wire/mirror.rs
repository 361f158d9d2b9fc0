//! Likeness of a destination to its source: owners and attributes, symbolic links, absent files, and
//! the fate of those that are replaced or deleted.

use farhaul_core::codec::{DecodeError, Reader, VARINT_MAX};

use crate::wire::{Out, Preserve, fields::bit, path::Own};

/// Extent to which a destination is made equal to the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mirror {
    /// Facts that are preserved besides content, permissions and times.
    pub preserve: Preserve,
    /// Files that the source lacks are deleted.
    pub delete: Option<Delete>,
    /// Files keep this name when they are replaced or deleted.
    pub backup: Option<Suffix>,
    /// True if a file that has changed is sent whole, not only its blocks that differ.
    pub whole_file: bool,
    /// Treatment of symbolic links.
    pub symlinks: Symlinks,
}

/// Treatment of symbolic links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Symlinks {
    /// Links within the tree are copied as they are; the others are named and skipped. Peers
    /// without the feature know no other way.
    #[default]
    Within,
    /// Each is copied as it is.
    Keep,
    /// The target of each is copied in its place.
    Follow,
    /// None is copied.
    Skip,
}

impl Symlinks {
    /// All values in the order of their two bits on the wire.
    pub(crate) const ALL: [Self; 4] = [Self::Within, Self::Keep, Self::Follow, Self::Skip];
}

/// Deletion of files that the source lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delete {
    /// Highest number of deletions; if there are more, nothing is deleted.
    pub most: Option<u64>,
    /// True if files that the filter excludes are deleted, too.
    pub excluded: bool,
}

/// The end of the name of a file that was replaced or deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suffix {
    bytes: [u8; Self::MOST],
    len: usize,
}

impl Suffix {
    /// The longest, in bytes.
    pub const MOST: usize = 32;

    /// A suffix, if names can end so.
    pub fn new(text: &[u8]) -> Option<Self> {
        let own = [&b".x.0123456789abcdef"[..], text].concat();
        let name = text.is_empty() || text.contains(&b'/') || text.contains(&0);
        if name || text.len() > Self::MOST || Own::of(&own).is_some() {
            return None;
        }
        let mut bytes = [0; Self::MOST];
        bytes[..text.len()].copy_from_slice(text);
        let len = text.len();
        Some(Self { bytes, len })
    }

    /// Bytes of the suffix, as it was given.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

const DELETE: u8 = 1;
const EXCLUDED: u8 = 2;
const WHOLE: u8 = 4;
/// Place of the two bits of symbolic links in the flags.
const SYMLINKS: u32 = 3;
/// Mask of all flags.
const FLAGS: u8 = 31;

impl Mirror {
    /// Mirrors nothing more than files, their permissions and times.
    pub const PLAIN: Self = Self {
        preserve: Preserve::NONE,
        delete: None,
        backup: None,
        whole_file: false,
        symlinks: Symlinks::Within,
    };

    pub(crate) fn encode(&self, out: &mut Out<'_>) {
        out.u8(self.preserve.bits());
        let delete = self.delete.unwrap_or_default();
        out.u8(bit(self.delete.is_some(), DELETE)
            | bit(delete.excluded, EXCLUDED)
            | bit(self.whole_file, WHOLE)
            | (self.symlinks as u8) << SYMLINKS);
        out.varint(delete.most.map_or(0, |most| most.saturating_add(1)));
        out.prefixed(self.backup.as_ref().map_or(b"", Suffix::bytes));
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let preserve = Preserve::from_bits(r.u8()?);
        let preserve = preserve.ok_or(DecodeError::Malformed("what is preserved"))?;
        let (flags, most) = (r.u8()?, r.varint()?);
        let delete = (flags & DELETE != 0).then_some(Delete {
            most: most.checked_sub(1).filter(|n| *n < VARINT_MAX - 1),
            excluded: flags & EXCLUDED != 0,
        });
        if flags > FLAGS || delete.is_none() && (most > 0 || flags & EXCLUDED != 0) {
            return Err(DecodeError::Malformed("flags"));
        }
        let backup = match r.prefixed()? {
            b"" => None,
            text => Some(Suffix::new(text).ok_or(DecodeError::Malformed("suffix"))?),
        };
        Ok(Self {
            preserve,
            delete,
            backup,
            whole_file: flags & WHOLE != 0,
            symlinks: Symlinks::ALL[usize::from(flags >> SYMLINKS)],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back() {
        for most in [None, Some(0), Some(7), Some(1 << 40)] {
            for excluded in [false, true] {
                let mirror = Mirror {
                    preserve: Preserve::from_bits(21).unwrap(),
                    delete: Some(Delete { most, excluded }),
                    backup: Some(Suffix::new(b".old").unwrap()),
                    whole_file: excluded,
                    symlinks: Symlinks::Follow,
                };
                let mut bytes = Vec::new();
                mirror.encode(&mut Out(&mut bytes));
                assert_eq!(Mirror::decode(&mut Reader::new(&bytes)), Ok(mirror));
            }
        }
        let mut plain = Vec::new();
        Mirror::PLAIN.encode(&mut Out(&mut plain));
        assert_eq!(plain, [0; 4]);
        for bad in [[32, 0, 0, 0], [0, 32, 0, 0], [0, 2, 0, 0], [0, 0, 1, 0]] {
            assert!(Mirror::decode(&mut Reader::new(&bad)).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_suffix_ends_a_name() {
        for bad in [&b""[..], b"/", b"a/b", b"\0", &[b'x'; 33], b".farhaul-part"] {
            assert!(Suffix::new(bad).is_none(), "{bad:?}");
        }
        assert_eq!(Suffix::new(b"~").unwrap().bytes(), b"~");
    }
}
