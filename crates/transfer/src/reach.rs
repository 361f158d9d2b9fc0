//! Restricts what a delivery may do to existing files. In a share that peers cannot read, they may
//! do less than where they could see what they replace.

use rustix::fs::{FileType, Stat};

/// Reach of a transfer: what it may change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Replaces files and links of the same name.
    #[default]
    All,
    /// Replaces the content of files that their owner may write; they keep their permissions.
    Content,
    /// Adds only.
    New,
}

/// Permissions of files that peers add where they cannot read: only the owner may write to them.
const MODEST: u16 = 0o755;

impl Reach {
    /// Permissions that a file gets for those that the sender gives.
    pub(crate) const fn permissions(self, mode: u16) -> u16 {
        match self {
            Self::All => mode,
            Self::Content | Self::New => mode & MODEST,
        }
    }

    /// True if folders and times of existing entries are changed, and links replaced.
    pub(crate) const fn is_all(self) -> bool {
        matches!(self, Self::All)
    }

    /// Reason that a file does not take the place of `there`.
    pub(crate) fn refusal(self, there: &Stat) -> Option<&'static str> {
        match (self, FileType::from_raw_mode(there.st_mode)) {
            (Self::New, _) => Some(TAKEN),
            (Self::Content, FileType::Symlink) => {
                Some("a link has this name: this share does not replace links")
            }
            (Self::Content, _) if there.st_mode & 0o200 == 0 => {
                Some("a write-protected file has this name: this share does not replace it")
            }
            (Self::All | Self::Content, _) => None,
        }
    }
}

/// The error of a `:create` share for an existing name.
pub(crate) const TAKEN: &str =
    "this name exists, and this share accepts only new ones: choose another name";

/// The error for a file that an earlier run named without syncing it, where it may not be replaced.
pub(crate) const UNSURE: &str = "the disk failed when an earlier copy stored this, and this share does not replace it: have it removed there";
