//! Facts of an entry besides its content, permissions and time, carried if the client asks for
//! them. They are owner and group, extended attributes with the ACLs among them, and whether other
//! entries are links to it.
//!
//! - A peer's lists are as long as the bytes it has sent, at most [`ATTRIBUTES`] for an entry.
//! - Names of users are names of other machines' users: the receiver looks them up among its own.

use std::{collections::HashMap, io};

use farhaul_core::codec::{DecodeError, Reader};
use rustix::fs::Stat;

use crate::{disk::File, message::Out};

/// The most bytes of names and values of the attributes of one entry.
pub(crate) const ATTRIBUTES: usize = 16 << 10;
/// The most attributes of one entry.
const MOST: usize = 256;
/// Longest name of an attribute, and of a user.
const NAME: usize = 255;
/// Users and groups whose names are remembered.
const KNOWN: usize = 1024;
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

/// True if this process may give files to others.
pub(crate) fn is_privileged() -> bool {
    rustix::process::geteuid().is_root()
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

/// Attributes of a file, and what was left out.
#[derive(Debug, Default)]
pub(crate) struct Attributes {
    pub(crate) all: Vec<Attribute>,
    /// Attributes that are too long.
    pub(crate) long: usize,
    /// True if there are some that only the administrator's copies have.
    pub(crate) guarded: bool,
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
        if count > MOST as u64 {
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
        name if name.len() <= NAME && !name.contains(&0) => Ok(name.to_vec()),
        _ => Err(DecodeError::Malformed("name")),
    }
}

/// Reads the attributes of an open file or folder that are preserved. Also the number of those left
/// out because there are too many, or they are too long.
pub(crate) fn attributes(file: &File, preserve: Preserve, guarded: bool) -> io::Result<Attributes> {
    let mut found = Attributes::default();
    let mut bytes = 0;
    for name in names(file)? {
        // Whether the receiver takes it is the receiver's decision.
        if !preserve.takes(&name, guarded) {
            found.guarded |= preserve.takes(&name, true);
            continue;
        }
        let value = match file.attribute(&name) {
            Ok(value) => value,
            // Gone since, or only for the administrator.
            Err(e) if is_absent(e) || e == rustix::io::Errno::PERM => continue,
            Err(rustix::io::Errno::RANGE | rustix::io::Errno::TOOBIG) => {
                found.long += 1;
                continue;
            }
            Err(e) => return Err(e.into()),
        };
        let full = found.all.len() == MOST;
        if full || bytes + name.len() + value.len() > ATTRIBUTES || name.len() > NAME {
            found.long += 1;
            continue;
        }
        bytes += name.len() + value.len();
        found.all.push((name, value));
    }
    Ok(found)
}

/// The names of all attributes; of a file system without any, none.
pub(crate) fn names(file: &File) -> io::Result<Vec<Vec<u8>>> {
    let list = match file.attribute_names() {
        Ok(list) => list,
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Vec::new(),
        Err(e) => return Err(e.into()),
    };
    let names = list.split(|b| *b == 0).filter(|name| !name.is_empty());
    Ok(names.map(<[u8]>::to_vec).collect())
}

/// True if the error means that there is no such attribute.
pub(crate) fn is_absent(e: rustix::io::Errno) -> bool {
    e == rustix::io::Errno::NODATA
}

/// Names of users and groups, looked up once.
#[derive(Debug, Default)]
pub(crate) struct People {
    users: HashMap<u32, Vec<u8>>,
    groups: HashMap<u32, Vec<u8>>,
    uids: HashMap<Vec<u8>, Option<u32>>,
    gids: HashMap<Vec<u8>, Option<u32>>,
}

impl People {
    /// The owner of a file of this machine.
    pub(crate) fn owner(&mut self, stat: &Stat, numeric: bool) -> Owner {
        let (uid, gid) = (stat.st_uid, stat.st_gid);
        let (user, group) = if numeric {
            (Vec::new(), Vec::new())
        } else {
            let user = |uid: &u32| {
                let user = nix::unistd::User::from_uid((*uid).into()).ok().flatten();
                user.map_or_else(Vec::new, |user| user.name.into_bytes())
            };
            let group = |gid: &u32| {
                let group = nix::unistd::Group::from_gid((*gid).into()).ok().flatten();
                group.map_or_else(Vec::new, |group| group.name.into_bytes())
            };
            (
                known(&mut self.users, &uid, user),
                known(&mut self.groups, &gid, group),
            )
        };
        let short = |name: Vec<u8>| if name.len() > NAME { Vec::new() } else { name };
        Owner {
            uid,
            gid,
            user: short(user),
            group: short(group),
        }
    }

    /// User and group of `owner` on this machine: by name, or else by number.
    pub(crate) fn ids(&mut self, owner: &Owner, numeric: bool) -> (u32, u32) {
        if numeric {
            return (owner.uid, owner.gid);
        }
        let text = |name: &[u8]| std::str::from_utf8(name).ok().map(str::to_owned);
        let user = |name: &Vec<u8>| {
            let user = nix::unistd::User::from_name(&text(name)?).ok().flatten();
            user.map(|user| user.uid.as_raw())
        };
        let group = |name: &Vec<u8>| {
            let group = nix::unistd::Group::from_name(&text(name)?).ok().flatten();
            group.map(|group| group.gid.as_raw())
        };
        let uid = known(&mut self.uids, &owner.user, user);
        let gid = known(&mut self.gids, &owner.group, group);
        (uid.unwrap_or(owner.uid), gid.unwrap_or(owner.gid))
    }
}

/// Answer of `look_up` for `key`.
fn known<K: Clone + Eq + std::hash::Hash, V: Clone>(
    all: &mut HashMap<K, V>,
    key: &K,
    look_up: impl FnOnce(&K) -> V,
) -> V {
    if let Some(value) = all.get(key) {
        return value.clone();
    }
    // A peer may name as many as it likes.
    if all.len() == KNOWN {
        all.clear();
    }
    let value = look_up(key);
    all.insert(key.clone(), value.clone());
    value
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

    #[test]
    fn names_count_before_numbers() {
        let mut people = People::default();
        let owner = |user: &[u8]| Owner {
            uid: 4_000_000_001,
            gid: 4_000_000_002,
            user: user.to_vec(),
            group: user.to_vec(),
        };
        assert_eq!(people.ids(&owner(b"root"), false), (0, 0));
        let numbers = (4_000_000_001, 4_000_000_002);
        assert_eq!(people.ids(&owner(b"root"), true), numbers);
        assert_eq!(people.ids(&owner(b"nobody-of-this-name"), false), numbers);
        assert_eq!(people.ids(&owner(b"\xff"), false), numbers);
        // As many names as a peer likes are not remembered.
        for i in 0..3 * KNOWN {
            people.ids(&owner(format!("no{i}").as_bytes()), false);
        }
        assert!(people.uids.len() <= KNOWN);
    }
}
