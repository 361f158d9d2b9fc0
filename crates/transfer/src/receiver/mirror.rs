//! Keeps what a copy knows of names that it must not take, delete or link to: the listed entries, those that
//! stay, the names of backups, and the files that others may be links to.

use std::io;

use super::{
    backups::Backups,
    delete::{Deleted, Listed, Waiting, Walk, refusal},
    links::Paths,
};
use crate::{confine::Dir, decide::Rules, failure_log::FailureLog, filter::Filter};

/// Names at the destination, beside those that are written now.
pub(super) struct Mirror {
    /// Listed paths, of a copy that deletes.
    pub(super) listed: Listed,
    /// Filter of entries that stay although they were not listed.
    pub(super) excludes: Filter,
    /// Names that backups have, or cannot have.
    pub(super) backups: Backups,
    /// Files that others may be links to.
    pub(super) links: Paths,
}

impl Mirror {
    /// `folds`: names that differ only in case are one.
    pub(super) fn new(rules: &Rules, folds: bool) -> Self {
        Self {
            listed: Listed::new(rules.mirror.delete.is_some(), folds),
            excludes: Filter::default(),
            backups: Backups::new(rules.mirror.backup, folds),
            links: Paths::default(),
        }
    }

    /// The walk that deletes beneath `root` what the source lacks, and what gets its name then; or, if nothing
    /// is deleted, why.
    pub(super) fn walk(
        &mut self,
        root: Dir,
        rules: &Rules,
        log: &FailureLog,
    ) -> Result<(io::Result<Walk>, Vec<Waiting>), Deleted> {
        let mut listed = std::mem::take(&mut self.listed);
        let waiting = listed.take_waiting();
        if let Some(why) = refusal(&listed, log) {
            return Err(Deleted::nothing(why, &waiting));
        }
        let walk = Walk::new(root, listed, &rules.mirror, self.excludes.clone(), true);
        Ok((walk, waiting))
    }
}
