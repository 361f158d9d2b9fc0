//! Facts of an entry besides its content, permissions and time, carried if the client asks for
//! them: owner and group, extended attributes with the ACLs among them, and whether other entries
//! are links to it.
//!
//! - A peer's lists are as long as the bytes it has sent, at most [`ATTRIBUTES`] for an entry.

use farhaul_core::codec::{DecodeError, Reader};

use crate::wire::{
    Out,
    limits::{ATTRIBUTE_NAME, ATTRIBUTES, MOST_ATTRIBUTES},
};

/// The attributes in which ACLs are kept.
const ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// Facts to preserve besides content, permissions and time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent of each other")]
pub struct Preserve {
    /// True for owner and group, and with them set-uid, set-gid and sticky bits.
    pub ownership: bool,
    /// True if owners are numbers, not names.
    pub numeric_ids: bool,
    /// True if several names of one file stay names of one file.
    pub links: bool,
    /// True for extended attributes.
    pub xattrs: bool,
    /// True for POSIX access control lists.
    pub acls: bool,
}

impl Preserve {
    /// Preserves nothing.
    pub const NONE: Self = Self {
        ownership: false,
        numeric_ids: false,
        links: false,
        xattrs: false,
        acls: false,
    };

    pub(crate) fn bits(self) -> u8 {
        let flags = [
            self.ownership,
            self.numeric_ids,
            self.links,
            self.xattrs,
            self.acls,
        ];
        let bit = |(i, on): (usize, &bool)| u8::from(*on) << i;
        flags.iter().enumerate().map(bit).sum()
    }

    pub(crate) const fn from_bits(bits: u8) -> Option<Self> {
        if bits > 31 {
            return None;
        }
        Some(Self {
            ownership: bits & 1 != 0,
            numeric_ids: bits & 2 != 0,
            links: bits & 4 != 0,
            xattrs: bits & 8 != 0,
            acls: bits & 16 != 0,
        })
    }

    /// True if entries carry something more.
    pub(crate) const fn any(self) -> bool {
        self.ownership || self.links || self.attributes()
    }

    /// True if attributes are read.
    pub(crate) const fn attributes(self) -> bool {
        self.xattrs || self.acls
    }

    /// True if the attribute `name` is preserved; `privileged` processes may set any.
    pub(crate) fn takes(self, name: &[u8], privileged: bool) -> bool {
        if is_acl(name) {
            return self.acls;
        }
        let guarded = name.starts_with(b"security.") || name.starts_with(b"trusted.");
        self.xattrs && (name.starts_with(b"user.") || guarded && privileged)
    }
}

/// True for an ACL: it also sets permissions.
pub(crate) fn is_acl(name: &[u8]) -> bool {
    ACLS.contains(&name)
}

/// Owner of a file at the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Empty if it has none, or if names do not count.
    pub(crate) user: Vec<u8>,
    pub(crate) group: Vec<u8>,
}

/// A name and a value.
pub(crate) type Attribute = (Vec<u8>, Vec<u8>);

/// Bytes that these take, about.
pub(crate) fn attributes_len(attributes: &[Attribute]) -> usize {
    let each = |(name, value): &Attribute| name.len() + value.len() + 64;
    attributes.iter().map(each).sum()
}

/// Facts of an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) owner: Option<Owner>,
    pub(crate) attributes: Vec<Attribute>,
    /// True if later entries may be links to it.
    pub(crate) linked: bool,
}

impl Facts {
    /// Bytes that it adds to what an entry costs.
    pub(crate) fn len(&self) -> usize {
        let owner = self
            .owner
            .as_ref()
            .map_or(0, |o| o.user.len() + o.group.len());
        owner + attributes_len(&self.attributes) + 64
    }

    pub(crate) fn encode(&self, out: &mut Out<'_>) {
        out.u8(u8::from(self.owner.is_some()) | u8::from(self.linked) << 1);
        if let Some(owner) = &self.owner {
            out.varint(u64::from(owner.uid));
            out.varint(u64::from(owner.gid));
            out.prefixed(&owner.user);
            out.prefixed(&owner.group);
        }
        out.varint(self.attributes.len() as u64);
        for (name, value) in &self.attributes {
            out.prefixed(name);
            out.prefixed(value);
        }
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let flags = r.u8()?;
        if flags > 3 {
            return Err(DecodeError::Malformed("facts"));
        }
        let owner = (flags & 1 != 0).then(|| decode_owner(r)).transpose()?;
        let count = r.varint()?;
        if count > MOST_ATTRIBUTES as u64 {
            return Err(DecodeError::Malformed("number of attributes"));
        }
        let (mut attributes, mut bytes) = (Vec::new(), 0);
        for _ in 0..count {
            let (name, value) = (name(r)?, r.prefixed()?);
            bytes += name.len() + value.len();
            if name.is_empty() || bytes > ATTRIBUTES {
                return Err(DecodeError::Malformed("attributes"));
            }
            attributes.push((name, value.to_vec()));
        }
        Ok(Self {
            owner,
            attributes,
            linked: flags & 2 != 0,
        })
    }
}

fn decode_owner(r: &mut Reader<'_>) -> Result<Owner, DecodeError> {
    // The last number means "unchanged" to the kernel.
    let mut id = || {
        let id = u32::try_from(r.varint()?).ok().filter(|id| *id != u32::MAX);
        id.ok_or(DecodeError::Malformed("owner"))
    };
    let (uid, gid) = (id()?, id()?);
    Ok(Owner {
        uid,
        gid,
        user: name(r)?,
        group: name(r)?,
    })
}

fn name(r: &mut Reader<'_>) -> Result<Vec<u8>, DecodeError> {
    match r.prefixed()? {
        name if name.len() <= ATTRIBUTE_NAME && !name.contains(&0) => Ok(name.to_vec()),
        _ => Err(DecodeError::Malformed("name")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_come_back() {
        for bits in 0..32 {
            assert_eq!(Preserve::from_bits(bits).unwrap().bits(), bits);
        }
        assert_eq!(Preserve::from_bits(32), None);
    }

    #[test]
    fn attributes_are_taken_by_their_kind() {
        let all = Preserve::from_bits(31).unwrap();
        let acls = Preserve {
            acls: true,
            ..Preserve::default()
        };
        for (name, by_all, by_privileged, by_acls) in [
            (&b"user.x"[..], true, true, false),
            (b"security.capability", false, true, false),
            (b"trusted.overlay.opaque", false, true, false),
            (b"system.posix_acl_access", true, true, true),
            (b"system.nfs4_acl", false, false, false),
            (b"btrfs.compression", false, false, false),
        ] {
            let of = [
                all.takes(name, false),
                all.takes(name, true),
                acls.takes(name, true),
            ];
            assert_eq!(of, [by_all, by_privileged, by_acls], "{name:?}");
        }
    }
}
