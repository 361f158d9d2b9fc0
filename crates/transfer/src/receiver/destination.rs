//! Knows where entries go: the tree beneath which all is written, its folders, the space there, and the rules
//! for what may be changed.

use std::{io, sync::Arc};

use rustix::fs::Stat;

use super::{
    disks::Disks,
    folders::Folders,
    grant::Grants,
    item::Incoming,
    lock::Lock,
    mirror::Mirror,
    space::Space,
    target::{Meta, Target},
};
use crate::{
    confine::{self, Dir, Tree},
    decide::{Rules, named},
    error::TransferError,
    lacks,
    role::RoleCore,
    state_names,
    wire::{
        Entry, Stripe,
        path::{self, Tag},
    },
};

/// Destination of a copy.
pub(super) struct Destination {
    pub(super) tree: Tree,
    /// Name of a single file.
    rename: Option<Vec<u8>>,
    pub(super) tag: Tag,
    pub(super) rules: Rules,
    pub(super) lock: Arc<Lock>,
    /// File systems to sync, if any.
    pub(super) disks: Option<Arc<Disks>>,
    pub(super) folders: Folders,
    pub(super) space: Space,
    /// Limits on what the sender's facts may change here.
    grants: Grants,
    pub(super) mirror: Mirror,
}

impl Destination {
    /// Beneath `dir`, which `lock` keeps from other copies.
    pub(super) fn new(
        (dir, rename): (Dir, Option<Vec<u8>>),
        tag: Tag,
        rules: Rules,
        (lock, disks): (Arc<Lock>, Option<Arc<Disks>>),
    ) -> Self {
        Self {
            disks,
            grants: Grants::new(&rules, dir.lacks().clone()),
            mirror: Mirror::new(&rules, lock.folds_case()),
            tree: Tree::new(dir),
            rename,
            tag,
            rules,
            lock,
            folders: Folders::default(),
            space: Space::default(),
        }
    }

    /// The entry as it is to be here, and the reason that it is not received, if there is one.
    pub(super) fn expect(
        &mut self,
        entry: &Entry,
    ) -> Result<(Incoming, Option<&'static str>), TransferError> {
        let meta = Meta {
            mode: self.rules.reach.permissions(entry.mode),
            mtime: entry.mtime,
            mtime_nanos: entry.mtime_nanos,
            granted: self.grants.grant(entry),
        };
        let path = named(entry, self.rename.as_deref())?;
        // It is not deleted, whatever becomes of it.
        self.mirror.listed.add(&path, entry.kind);
        let backups = &mut self.mirror.backups;
        let reserved = backups.refuse(&path, self.tag, self.rules.strangers);
        let item = Incoming {
            repaired: self.rules.pipe,
            ..Incoming::new(path, entry, meta)
        };
        Ok((item, reserved))
    }

    /// The name in its directory under which a file is collected.
    pub(super) fn part_name(&self, name: &[u8], stripe: Option<&Stripe>) -> Vec<u8> {
        match stripe {
            None => state_names::part_name(name, self.tag),
            Some(stripe) => {
                let scope = self.rules.stripe_scope.unwrap_or_default();
                state_names::stripes_name(name, path::tag(&scope, [stripe.id]))
            }
        }
    }

    /// The name under which the journal has a file: of a stripe, where it is collected, which depends on how its file was
    /// divided.
    pub(super) fn name_in_journal(&self, item: &Incoming) -> Vec<u8> {
        let (parent, name) = path::split(&item.path);
        match &item.stripe {
            None => item.path.clone(),
            Some(stripe) => path::join(parent, &self.part_name(name, Some(stripe))),
        }
    }

    /// A handle on the directory of an entry, and its name there.
    pub(super) fn target(&mut self, item: &Incoming) -> io::Result<Target> {
        let (parent, name) = path::split(&item.path);
        let dir = self.folders.within(&mut self.tree, parent)?;
        if let Some(disks) = &self.disks {
            disks.hold(&dir, parent)?;
        }
        Ok(Target {
            closed: self.folders.is_closed(parent),
            dir,
            name: name.to_vec(),
            part: self.part_name(name, item.stripe.as_deref()),
            meta: item.meta.clone(),
            replaces: item.replaces,
            waits: self.mirror.listed.waits(&item.path),
            backup: self.rules.mirror.backup,
            set_aside: !self.rules.alone,
            stripe: item.stripe.as_deref().copied(),
        })
    }

    /// The entry waits, beside the folder that has its name, until that is deleted.
    pub(super) fn wait_for_folder(&mut self, item: &Incoming) -> io::Result<()> {
        let target = self.target(item)?;
        let listed = &mut self.mirror.listed;
        listed.wait(&item.path, Some(target), item.is_file)
    }

    /// Fails for a file whose owner is not that of the journal.
    pub(super) fn is_ours(&self, stat: &Stat) -> io::Result<()> {
        let ours = Some(stat.st_uid) == self.lock.owner();
        ours.then_some(()).ok_or_else(confine::swapped)
    }

    /// Sets permissions and facts of a file whose content is the same, and its time if `times`.
    pub(super) fn set_facts(&mut self, item: &Incoming, times: bool) -> io::Result<()> {
        if !self.rules.reach.is_all() {
            return Ok(());
        }
        let (there, target) = (item.mode_there, self.target(item)?);
        let wanted = target.meta.permissions();
        if there.is_some_and(|there| there != wanted.as_raw_mode()) {
            let file = confine::open_to_read(&target.dir, &target.name)?;
            confine::set_permissions(&file, wanted)?;
        }
        if let Some(granted) = &target.meta.granted {
            let file = confine::open_to_read(&target.dir, &target.name)?;
            granted.apply(&file, |_| Ok(()), target.meta.mode)?;
        }
        if times {
            let times = target.meta.times();
            let dir = &target.dir;
            dir.set_times_at(lacks::TIMES, &target.name, &times)?;
        }
        Ok(())
    }

    /// Removes `part` beside `path`; neither the part nor its folder need exist. True if the part
    /// is gone.
    pub(super) fn remove_beside(&mut self, core: &mut RoleCore, path: &[u8], part: &[u8]) -> bool {
        let parent = path::split(path).0;
        let closed = self.folders.is_closed(parent);
        let dir = self.folders.within(&mut self.tree, parent);
        let removed =
            dir.and_then(|dir| confine::inside(&dir, closed, || confine::remove(&dir, part)));
        match removed {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                let part = path::show(&path::join(parent, part));
                core.warn(format!("{part} is left and cannot be removed: {e}"));
                false
            }
            _ => true,
        }
    }
}
