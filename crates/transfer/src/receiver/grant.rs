//! What may a sender's facts change here? Owners only where this process may give files away and the
//! sender is no stranger; attributes that grant more than permissions do, likewise. What is not done is
//! said once.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, PoisonError},
};

use rustix::{fs::Mode, io::Errno};

use super::Rules;
use crate::{
    confine::Dir,
    disk::File,
    facts::{self, Attribute, People, Preserve, is_acl},
    message::{Entry, Kind},
};

const OWNERS: &str = "owner and group are not preserved: that needs root at the destination";
const OWNER: &str = "owner and group cannot be set";
const GUARDED: &str =
    "attributes of security.* and trusted.* are not preserved: that needs root at the destination";
const STRANGERS: &str =
    "owners and attributes of security.* and trusted.* are not preserved in shares of a server";
const SHARE: &str = "owners, attributes and ACLs are not preserved in this share: that needs :rw";
const ATTRIBUTES: &str = "attributes or ACLs cannot be set on this file system";

/// What was not done, how often, and why in the first case.
type Refused = Mutex<BTreeMap<&'static str, (u64, String)>>;

/// What a sender's facts may change.
#[derive(Debug)]
pub(super) struct Grants {
    preserve: Preserve,
    /// Owners, and attributes with more power.
    privileged: bool,
    people: People,
    refused: Arc<Refused>,
}

impl Grants {
    pub(super) fn new(rules: &Rules) -> Self {
        let asked = rules.mirror.preserve;
        let mut grants = Self {
            preserve: asked,
            privileged: facts::is_privileged() && !rules.strangers,
            people: People::default(),
            refused: Arc::default(),
        };
        if !rules.reach.is_all() {
            if asked.ownership || asked.attributes() {
                note(&grants.refused, SHARE, String::new());
            }
            grants.preserve = Preserve {
                links: asked.links,
                ..Preserve::default()
            };
        } else if asked.ownership && !grants.privileged {
            let why = if rules.strangers { STRANGERS } else { OWNERS };
            note(&grants.refused, why, String::new());
            grants.preserve.ownership = false;
        }
        grants
    }

    /// What of the entry's facts is set, if anything is.
    pub(super) fn grant(&mut self, entry: &Entry) -> Option<Arc<Granted>> {
        let (preserve, facts) = (self.preserve, entry.facts.as_ref()?);
        if !preserve.ownership && !preserve.attributes() || entry.kind == Kind::HardLink {
            return None;
        }
        let owner = facts.owner.as_ref().filter(|_| preserve.ownership);
        let owner = owner.map(|owner| self.people.ids(owner, preserve.numeric_ids));
        let all = facts.attributes.iter();
        let taken = all.filter(|(name, _)| preserve.takes(name, self.privileged));
        let attributes: Vec<Attribute> = taken.cloned().collect();
        let guarded = |(name, _): &Attribute| {
            preserve.takes(name, true) && !preserve.takes(name, self.privileged)
        };
        if let Some((name, _)) = facts.attributes.iter().find(|a| guarded(a)) {
            note(&self.refused, GUARDED, String::from_utf8_lossy(name).into());
        }
        Some(Arc::new(Granted {
            owner,
            attributes,
            preserve,
            privileged: self.privileged,
            refused: Arc::clone(&self.refused),
        }))
    }

    /// What was not done, for people.
    pub(super) fn refused(&self) -> Vec<String> {
        let all = std::mem::take(&mut *lock(&self.refused));
        let text = |(what, (times, first)): (&str, (u64, String))| match (times, &first[..]) {
            (_, "") => what.to_owned(),
            (1, first) => format!("{what} ({first})"),
            (n, first) => format!("{what} ({first}; {n} files)"),
        };
        all.into_iter().map(text).collect()
    }
}

fn lock(refused: &Refused) -> std::sync::MutexGuard<'_, BTreeMap<&'static str, (u64, String)>> {
    refused.lock().unwrap_or_else(PoisonError::into_inner)
}

fn note(refused: &Refused, what: &'static str, why: String) {
    lock(refused).entry(what).or_insert((0, why)).0 += 1;
}

/// What is set of the facts of one entry.
#[derive(Debug)]
pub(crate) struct Granted {
    owner: Option<(u32, u32)>,
    /// What it has of the kinds that are preserved; others of these kinds are removed.
    attributes: Vec<Attribute>,
    preserve: Preserve,
    privileged: bool,
    refused: Arc<Refused>,
}

impl Granted {
    /// Bytes that it takes, about.
    pub(super) fn len(&self) -> usize {
        facts::attributes_len(&self.attributes) + size_of::<Self>()
    }

    /// Gives an open file or folder its owner, permissions and attributes. Set-uid and the like only where
    /// the owner is the source's: who owns the file here decides about them otherwise.
    pub(super) fn apply(
        &self,
        file: &File,
        set_mode: impl FnOnce(Mode) -> io::Result<()>,
        mode: u16,
    ) -> io::Result<()> {
        let owned = match self.owner {
            Some(owner) => {
                let stat = file.stat()?;
                (stat.st_uid, stat.st_gid) == owner || self.tried(OWNER, file.set_owner(owner))?
            }
            None => false,
        };
        self.set_attributes(file, |name| !is_acl(name))?;
        let bits = if owned { 0o7777 } else { 0o777 };
        let mode = Mode::from_raw_mode(u32::from(mode & bits));
        set_mode(mode)?;
        if owned && mode.as_raw_mode() & 0o7000 != 0 {
            // To change the owner has cleared them.
            file.set_mode(mode)?;
        }
        self.set_attributes(file, is_acl)
    }

    /// Gives the link `name` its owner.
    pub(super) fn apply_to_link(&self, dir: &Dir, name: &[u8]) -> io::Result<()> {
        if let Some(owner) = self.owner {
            self.tried(OWNER, dir.set_owner_at(name, owner))?;
        }
        Ok(())
    }

    fn set_attributes(&self, file: &File, kind: impl Fn(&[u8]) -> bool) -> io::Result<()> {
        if !self.preserve.attributes() {
            return Ok(());
        }
        for name in facts::names(file)? {
            let kept = self.attributes.iter().any(|(n, _)| *n == name);
            if kind(&name) && !kept && self.preserve.takes(&name, self.privileged) {
                match file.remove_attribute(&name) {
                    Err(e) if facts::is_absent(e) => {}
                    done => drop(self.tried(ATTRIBUTES, done)?),
                }
            }
        }
        for (name, value) in self.attributes.iter().filter(|(name, _)| kind(name)) {
            if file.attribute(name).ok().as_ref() != Some(value) {
                self.tried(ATTRIBUTES, file.set_attribute(name, value))?;
            }
        }
        Ok(())
    }

    /// Whether it was done; not where it cannot be, which is said at the end.
    fn tried(&self, what: &'static str, done: rustix::io::Result<()>) -> io::Result<bool> {
        match done {
            Ok(()) => Ok(true),
            Err(e @ (Errno::PERM | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS)) => {
                note(&self.refused, what, io::Error::from(e).to_string());
                Ok(false)
            }
            Err(e) => Err(e.into()),
        }
    }
}
