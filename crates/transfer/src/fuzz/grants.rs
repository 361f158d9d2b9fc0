//! Fuzzes a server whose peer was granted one place of a share. The grant is a ticket for a file,
//! or for a folder that takes new names. Or the peer is the sending host of a copy between two that
//! somebody else ordered. The peer wants other names: derived ones, `..`, links.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{Bytes, Ground, Talk, ended, existing, in_virtual_time, mirror};
use crate::{
    TransferError,
    server::{Allow, Policy, Right, Server, Share, Tickets},
    wire::{Access, Direction, Message, OLDEST, Place, RequestOptions, Suffix, path::is_state},
};

/// Names that a copy could derive from others.
const SUFFIXES: [&[u8]; 5] = [
    b"~",
    b"-run.sh",
    b"0123456789abcdef",
    b".farhaul-part",
    b".bad",
];
/// Longer files are compared by their length.
const LONG: u64 = 1 << 20;

/// Rights of the peer.
#[derive(Clone, Debug)]
struct Grant {
    path: &'static str,
    access: Access,
    by_ticket: bool,
}

const GRANTS: [Grant; 5] = [
    Grant {
        path: "a",
        access: Access::Delete,
        by_ticket: true,
    },
    Grant {
        path: "d",
        access: Access::Create,
        by_ticket: true,
    },
    Grant {
        path: "a",
        access: Access::ReadWrite,
        by_ticket: false,
    },
    Grant {
        path: "d",
        access: Access::ReadWrite,
        by_ticket: false,
    },
    Grant {
        path: "d",
        access: Access::Delete,
        by_ticket: true,
    },
];

impl Tickets for Grant {
    fn knows(&self, _: &[u8]) -> bool {
        true
    }

    fn right(&self, _: &[u8]) -> Result<Option<Right>, TransferError> {
        Ok(Some(Right {
            share: "rw".into(),
            path: self.path.into(),
            access: self.access,
            max_rate: None,
        }))
    }

    fn begin(&self, _: &[u8], _: [u8; 8]) -> Result<(), TransferError> {
        Ok(())
    }

    fn end(&self, _: &[u8], _: [u8; 8]) -> Result<(), TransferError> {
        Ok(())
    }
}

/// Entries by name: permissions, length, and content or target.
type There = BTreeMap<PathBuf, (u32, u64, Vec<u8>)>;

/// A server, and a client that was granted one place and asks for what it likes.
///
/// # Panics
/// If a name outside the grant is made, changed or removed, or any of what holds for every server does not.
pub fn fuzz_grants(data: &[u8], dir: &Path) -> io::Result<()> {
    let ground = Ground::new(dir)?;
    let root = ground.inside.join("rw");
    fs::create_dir_all(root.join("d/e"))?;
    for name in ["a", "b", "notes", "d/kept", "d/e/f"] {
        fs::write(root.join(name), "mine")?;
    }
    let mut bytes = Bytes(data);
    let which = bytes.u8();
    let grant = &GRANTS[usize::from(which) % GRANTS.len()];
    let before = there(&root)?;
    let (simulated, time) = in_virtual_time();
    let server = Server::new(Arc::new(grant.policy(&root)?), None).simulated(simulated);
    let handle = server.handle();
    let mut talk = Talk::new(server, time);
    talk.send(&grant.request(which >> 2, &mut bytes));
    talk.run(&mut bytes);
    ended(&handle);
    if let Some(what) = grant.violated(&before, &there(&root)?) {
        panic!("{grant:?}: {what}");
    }
    ground.check()
}

impl Grant {
    fn policy(&self, root: &Path) -> io::Result<Policy> {
        let share = Share::open("rw", root, Access::Delete).map_err(io::Error::other)?;
        if self.by_ticket {
            let policy = Policy::new(vec![share.for_tickets(true)], Allow::None, false);
            return Ok(policy.with_tickets(Arc::new(self.clone())));
        }
        let policy = Policy::new(vec![share], Allow::Any, false);
        let order = RequestOptions {
            one_file: self.path == "a",
            ..RequestOptions::default()
        };
        Ok(policy.deliveries_to(self.path.into(), Some(order.ordered())))
    }

    /// A request, mostly of a delivery to the place or below it.
    fn request(&self, below: u8, bytes: &mut Bytes<'_>) -> Message {
        const BELOW: [&str; 8] = ["", "", "", "", "/", "/x", "/e", "/../b"];
        let suffix = bytes.u8();
        match suffix {
            0..200 => {}
            200..230 => return bytes.request(),
            _ => return Message::WantReads,
        }
        let flags = bytes.u8();
        let below = BELOW[usize::from(below) % BELOW.len()];
        let place = Place {
            share: "rw".into(),
            path: [self.path, below].concat().into(),
        };
        let mut mirror = mirror(flags & 3);
        mirror.backup = SUFFIXES
            .get(usize::from(suffix) % 8)
            .and_then(|suffix| Suffix::new(suffix));
        Message::Request {
            version: OLDEST,
            direction: Direction::Put,
            tag: [flags; 8],
            places: vec![place],
            options: Box::new(RequestOptions {
                one_file: flags & 4 != 0,
                pipe: flags & 8 != 0,
                mirror,
                existing: existing(flags >> 4),
                ..RequestOptions::default()
            }),
        }
    }

    fn covers(&self, path: &Path) -> bool {
        path.starts_with(self.path)
    }

    /// Names an entry that changed although that was not granted.
    fn violated(&self, before: &There, after: &There) -> Option<String> {
        let fixed = |path: &Path| !self.covers(path) || self.access == Access::Create;
        for (path, was) in before {
            if fixed(path) && after.get(path) != Some(was) {
                return Some(format!("{} was changed", path.display()));
            }
        }
        for (path, (mode, ..)) in after {
            // What a copy under way keeps for itself is beside what it receives, and nobody else's to read or run.
            let name = path.file_name().unwrap_or_default().as_bytes();
            let own = is_state(name) && mode & 0o777 == 0o600;
            if !before.contains_key(path) && !self.covers(path) && !own {
                return Some(format!("{} was made", path.display()));
            }
        }
        None
    }
}

fn there(root: &Path) -> io::Result<There> {
    let (mut all, mut open) = (There::new(), vec![root.to_owned()]);
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let stat = fs::symlink_metadata(&path)?;
            let what = if stat.is_dir() {
                // Its owner may have been denied it.
                fs::read_dir(&path).map(|_| open.push(path.clone())).ok();
                Vec::new()
            } else if stat.is_symlink() {
                fs::read_link(&path)?.as_os_str().as_bytes().to_vec()
            } else if stat.len() > LONG {
                Vec::new()
            } else {
                fs::read(&path)?
            };
            let len = if stat.is_dir() { 0 } else { stat.len() };
            let name = path.strip_prefix(root).unwrap_or(&path).to_owned();
            all.insert(name, (stat.permissions().mode(), len, what));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::{super::tests::HONEST, *};

    #[test]
    fn a_name_beside_the_grant_is_noticed() {
        let tmp = tempfile::tempdir().unwrap();
        let make = |name: &str, mode| {
            fs::write(tmp.path().join(name), "x").unwrap();
            fs::set_permissions(tmp.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        make("a", 0o644);
        make("b", 0o644);
        let before = there(tmp.path()).unwrap();
        let found = || GRANTS[0].violated(&before, &there(tmp.path()).unwrap());
        make(".a.0123456789abcdef.farhaul-part", 0o600);
        assert_eq!(found(), None);
        make("a-run.sh", 0o755);
        assert_eq!(found().unwrap(), "a-run.sh was made");
        fs::rename(tmp.path().join("a-run.sh"), tmp.path().join("a")).unwrap();
        assert_eq!(found(), None, "its own");
        fs::remove_file(tmp.path().join("b")).unwrap();
        assert_eq!(found().unwrap(), "b was changed");
    }

    #[test]
    fn an_honest_peer_is_among_them() {
        let tmp = tempfile::tempdir().unwrap();
        for (which, flags, name) in [(0, 4, "a"), (1, 0, "d/a"), (2, 4, "a"), (3, 0, "d/a")] {
            // Without a suffix.
            let said = [&[which, 7, flags][..], &HONEST].concat();
            fuzz_grants(&said, tmp.path()).unwrap();
            let there = fs::read(tmp.path().join("inside/rw").join(name)).unwrap();
            assert_eq!(there.len(), 100, "{which}");
            for suffix in 0..7 {
                let said = [&[which, suffix, flags][..], &HONEST].concat();
                fuzz_grants(&said, tmp.path()).unwrap();
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn a_server_keeps_a_peer_that_changes_within_its_grant(data in vec(any::<u8>(), 0..600)) {
            let tmp = tempfile::tempdir().unwrap();
            fuzz_grants(&[&[4, 255][..], &data].concat(), tmp.path()).unwrap();
        }

        #[test]
        fn a_server_keeps_a_peer_within_its_grant(data in vec(any::<u8>(), 0..600)) {
            let tmp = tempfile::tempdir().unwrap();
            fuzz_grants(&data, tmp.path()).unwrap();
        }
    }
}
