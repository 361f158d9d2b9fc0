//! Questions of a client that reads, and their answers.

use farhaul_core::codec::VARINT_MAX;

use super::Remote;
use crate::{
    error::TransferError,
    wire::{Change, Entry, Exit, Kind, Place, path::NAME_MAX},
};

/// The most bytes of one read.
pub const MOST_READ: u64 = 64 << 20;

/// Questions to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Lists this folder.
    List(Remote),
    /// Describes this entry.
    Stat(Remote),
    /// The bytes of a file from an offset on: so many, or as many as there are.
    Read(Remote, u64, u64),
    /// Changes this entry.
    Change(Remote, Change),
}

/// An entry of a share, or a share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Name of the entry; none of a share's own folder.
    pub name: Vec<u8>,
    /// `file`, `directory` or `link`.
    pub kind: &'static str,
    /// Bytes of a file.
    pub size: u64,
    /// Permissions.
    pub mode: u16,
    /// Time at which the entry was modified, seconds and nanoseconds since 1970.
    pub modified: (i64, u32),
    /// Target of a link.
    pub target: Vec<u8>,
}

/// Answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Entries of a folder, or the one that was asked about.
    Entries(Vec<Listed>),
    /// Bytes of a file, and the version of the file that they are of.
    Content(Vec<u8>, u64),
    /// The change is done.
    Changed,
}

impl Question {
    /// Refuses here what no server takes: it would end the session of all.
    pub(super) fn check(&self) -> Result<(), TransferError> {
        let refused = |text: String, fix: &str| {
            let e = TransferError::new(Exit::Usage, text);
            Err(e.fix(fix))
        };
        let (Self::List(at) | Self::Stat(at) | Self::Read(at, ..) | Self::Change(at, _)) = self;
        let to = match self {
            Self::Change(_, change) => change.to().unwrap_or_default(),
            _ => b"",
        };
        if let Some(why) = [&at.path[..], to]
            .into_iter()
            .find_map(crate::wire::path::refusal)
        {
            return refused(format!("not a path in a share: {why}"), "correct the name");
        }
        if at.share.len() > NAME_MAX || at.share.contains('/') {
            return refused("not the name of a share".into(), "correct the name");
        }
        let Self::Read(_, offset, len) = self else {
            return Ok(());
        };
        if *len > MOST_READ {
            let text = format!("{len} bytes are more than the {MOST_READ} of one read");
            return refused(text, "read them in parts");
        }
        if offset.checked_add(*len).is_none_or(|end| end > VARINT_MAX) {
            let text = format!("no file has bytes at {offset}");
            return refused(text, "correct the range");
        }
        Ok(())
    }
}

pub(super) fn place(at: Remote) -> Place {
    Place {
        share: at.share.into_bytes(),
        path: at.path,
    }
}

pub(super) fn listed(entry: Entry) -> Result<Listed, TransferError> {
    let kind = match entry.kind {
        Kind::File => "file",
        Kind::Dir => "directory",
        Kind::Symlink => "link",
        Kind::HardLink => return Err(TransferError::protocol("a hard link in a folder")),
    };
    Ok(Listed {
        name: entry.path,
        kind,
        size: entry.size,
        mode: entry.mode,
        modified: (entry.mtime, entry.mtime_nanos),
        target: entry.target,
    })
}
