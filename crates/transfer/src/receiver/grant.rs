//! Decides which of a sender's facts may change something here. Owners change only where this
//! process may give files away and the sender is no stranger. The same holds for attributes that
//! grant more than permissions do. Facts that are left out are reported once.

use std::{io, sync::Arc};

use rustix::fs::Mode;

use super::Rules;
use crate::{
    confine::Dir,
    disk::File,
    facts::{self, People},
    lacks::Lacks,
    wire::{Attribute, Entry, Kind, Preserve, attributes_len, is_acl},
};

const OWNERS: &str = "owner and group are not preserved: that needs root at the destination";
const GUARDED: &str =
    "attributes of security.* and trusted.* are not preserved: that needs root at the destination";
const STRANGERS: &str =
    "owners and attributes of security.* and trusted.* are not preserved in shares of a server";
const SHARE: &str = "owners, attributes and ACLs are not preserved in this share: that needs :rw";

/// Limits on what a sender's facts may change.
#[derive(Debug)]
pub(super) struct Grants {
    preserve: Preserve,
    /// True if owners, and attributes with more power, may be set.
    privileged: bool,
    people: People,
    lacks: Lacks,
}

impl Grants {
    pub(super) fn new(rules: &Rules, lacks: Lacks) -> Self {
        let asked = rules.mirror.preserve;
        let mut grants = Self {
            preserve: asked,
            privileged: facts::is_privileged() && !rules.strangers,
            people: People::default(),
            lacks,
        };
        if !rules.reach.is_all() {
            if asked.ownership || asked.attributes() {
                grants.lacks.note(SHARE, String::new());
            }
            grants.preserve = Preserve {
                links: asked.links,
                ..Preserve::default()
            };
        } else if asked.ownership && !grants.privileged {
            let why = if rules.strangers { STRANGERS } else { OWNERS };
            grants.lacks.note(why, String::new());
            grants.preserve.ownership = false;
        }
        grants
    }

    /// The part of the entry's facts that is set, if any is.
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
            let name = String::from_utf8_lossy(name);
            self.lacks.note(GUARDED, name.into());
        }
        Some(Arc::new(Granted {
            owner,
            attributes,
            preserve,
            privileged: self.privileged,
        }))
    }
}

/// Facts of one entry that are set.
#[derive(Debug)]
pub(crate) struct Granted {
    owner: Option<(u32, u32)>,
    /// Attributes of the kinds that are preserved; others of these kinds are removed.
    attributes: Vec<Attribute>,
    preserve: Preserve,
    privileged: bool,
}

impl Granted {
    /// Bytes that it takes, about.
    pub(super) fn len(&self) -> usize {
        attributes_len(&self.attributes) + size_of::<Self>()
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
                (stat.st_uid, stat.st_gid) == owner || file.set_owner(owner)?
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
            dir.set_owner_at(name, owner)?;
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
                file.remove_attribute(&name)?;
            }
        }
        for (name, value) in self.attributes.iter().filter(|(name, _)| kind(name)) {
            if file.attribute(name).ok().as_ref() != Some(value) {
                file.set_attribute(name, value)?;
            }
        }
        Ok(())
    }
}
