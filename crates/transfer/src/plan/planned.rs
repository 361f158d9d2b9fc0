//! One line of a plan: an entry, and what would become of it.

use std::sync::Arc;

use crate::{
    error::TransferError,
    wire::{Action, Entry, Exit, Kind},
};

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
    const fn new(action: Action, path: Vec<u8>, why: String) -> Self {
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

/// Called with what would be done, entry by entry.
pub(crate) type Sink = Arc<dyn Fn(Planned) + Send + Sync>;

/// True if a copy counts the entry among the files that arrived.
pub(crate) fn arrives(action: Action, entry: &Entry) -> bool {
    action.sends() || action == Action::Link && entry.kind == Kind::HardLink
}

/// Reports what would become of an entry.
pub(crate) fn report(sink: Option<&Sink>, action: Action, entry: &Entry, why: String) {
    let (bytes, modified) = (entry.size, (entry.mtime, entry.mtime_nanos));
    let mode = entry.mode;
    if let Some(sink) = sink.filter(|_| !entry.path.is_empty()) {
        sink(Planned {
            bytes,
            stamp: Some(ListedStamp { mode, modified }),
            ..Planned::new(action, entry.path.clone(), why)
        });
    }
}

/// Reports a failure about an entry that is not listed.
pub(crate) fn report_failure(sink: Option<&Sink>, code: Exit, text: &str) {
    if let Some(sink) = sink.filter(|_| code != Exit::Ok) {
        sink(Planned::new(Action::Fail, Vec::new(), text.into()));
    }
}

/// Reports what would become of what is not listed.
pub(crate) fn report_path(sink: Option<&Sink>, action: Action, path: Vec<u8>) {
    if let Some(sink) = sink {
        sink(Planned::new(action, path, String::new()));
    }
}

/// Error for a message that has no place in a plan.
pub(crate) fn out_of_place() -> TransferError {
    TransferError::protocol("the peer sent a message that is not allowed in a plan")
}
