//! One line of a plan: an entry, and what would become of it.

use crate::wire::Action;

/// One entry and what would become of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Action on the entry.
    pub action: Action,
    /// Relative to the destination, as bytes; that of the source if it is left out; empty if `why` names what could
    /// not even be listed.
    pub path: Vec<u8>,
    /// Bytes of a file.
    pub bytes: u64,
    /// Reason that the action is impossible.
    pub why: String,
    /// Permissions and time of modification, of an entry whose source reported them.
    pub stamp: Option<ListedStamp>,
}

impl Planned {
    /// An entry without content of which nothing more is known.
    pub(super) const fn new(action: Action, path: Vec<u8>, why: String) -> Self {
        Self {
            action,
            path,
            bytes: 0,
            why,
            stamp: None,
        }
    }
}

/// Permissions and time of modification of a listed entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedStamp {
    /// The twelve bits of `chmod`.
    pub mode: u16,
    /// Seconds since 1970, and nanoseconds.
    pub modified: (i64, u32),
}
