//! Reads the facts of an entry besides its content, permissions and time from the disk, and looks up
//! owners.
//!
//! - Names of users are names of other machines' users: the receiver looks them up among its own.

use std::{collections::HashMap, io};

use rustix::fs::Stat;

use crate::{
    disk::File,
    wire::{ATTRIBUTE_NAME, ATTRIBUTES, Attribute, MOST_ATTRIBUTES, Owner, Preserve},
};

/// Users and groups whose names are remembered.
const KNOWN: usize = 1024;

/// True if this process may give files to others.
pub(crate) fn is_privileged() -> bool {
    rustix::process::geteuid().is_root()
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
        let full = found.all.len() == MOST_ATTRIBUTES;
        if full || bytes + name.len() + value.len() > ATTRIBUTES || name.len() > ATTRIBUTE_NAME {
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
        let short = |name: Vec<u8>| {
            if name.len() > ATTRIBUTE_NAME {
                Vec::new()
            } else {
                name
            }
        };
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
