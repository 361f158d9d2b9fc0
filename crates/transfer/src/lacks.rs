//! Record of what a destination's file system refuses: permissions, times, owners, attributes, links, locks. The content is
//! copied without them, and one warning at the end names each kind.
//!
//! - A refusal says that the thing is not there, or is not ours to change. Errors of the disk are none.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rustix::io::{Errno, Result};

pub(crate) const MODES: &str = "permissions cannot be set at the destination: files have those that its file system gives them";
pub(crate) const TIMES: &str = "times cannot be set at the destination: give --checksum, or the next copy sends every file again";
pub(crate) const LINK_TIMES: &str = "times of links cannot be set at the destination";
pub(crate) const CLAMPED: &str =
    "some times are outside what the destination can store: it stores the nearest that it can";
pub(crate) const OWNER: &str = "owner and group cannot be set";
pub(crate) const ATTRIBUTES: &str = "attributes or ACLs cannot be set on this file system";
pub(crate) const LINKS: &str =
    "the destination has no symbolic links: they were left out; pack them with tar to keep them";
pub(crate) const HARD_LINKS: &str =
    "the destination cannot have these hard links: their content was copied instead";
pub(crate) const SYNCS: &str = "the destination cannot tell whether all was written (it has no syncfs): give --verify-disk to read it again";
pub(crate) const LOCKS: &str =
    "the destination has no file locks: do not run two copies to it at the same time";
pub(crate) const ANOTHERS: &str =
    "permissions and times of what belongs to another user at the destination stay as they are";

/// Kinds that were refused, each with its count and the first reason.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lacks(Arc<Mutex<BTreeMap<&'static str, (u64, String)>>>);

impl Lacks {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, (u64, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that `what` was not done once more.
    pub(crate) fn note(&self, what: &'static str, why: String) {
        self.lock().entry(what).or_insert((0, why)).0 += 1;
    }

    /// True if the act was done; notes a refusal, of something that is `anothers` perhaps. Other
    /// errors stay errors.
    pub(crate) fn tried(
        &self,
        what: &'static str,
        anothers: impl FnOnce() -> bool,
        done: Result<()>,
    ) -> Result<bool> {
        match done {
            Ok(()) => Ok(true),
            Err(e) if is_refusal(e) => {
                let denied = matches!(e, Errno::PERM | Errno::ACCESS);
                let what = if denied && anothers() { ANOTHERS } else { what };
                self.note(what, io::Error::from(e).to_string());
                Ok(false)
            }
            Err(e) => Err(e),
        }
    }

    /// Takes what was not done, for people.
    pub(crate) fn take(&self) -> Vec<String> {
        let text = |(what, (times, first)): (&str, (u64, String))| match (times, &first[..]) {
            (_, "") => what.to_owned(),
            (1, first) => format!("{what} ({first})"),
            (n, first) => format!("{what} ({first}; {n} times)"),
        };
        let all = std::mem::take(&mut *self.lock());
        all.into_iter().map(text).collect()
    }
}

/// True for the answers of file systems and mounts that do not have something, or do not let this user change it.
pub(crate) const fn is_refusal(e: Errno) -> bool {
    matches!(
        e,
        Errno::PERM
            | Errno::ACCESS
            | Errno::INVAL
            | Errno::OPNOTSUPP
            | Errno::NOSYS
            | Errno::NOTTY
            | Errno::NOLCK
    )
}
