//! One line of a plan: an entry, and what would become of it.

/// Action that a copy would take on an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Action {
    /// A file that is not there would be sent.
    Send = 0,
    /// A file would be sent and replace another.
    Replace = 1,
    /// Size and time are the same; the content would be compared, and sent only if it differs.
    Compare = 2,
    /// The existing entry would stay.
    Keep = 3,
    /// A folder would be made.
    Make = 4,
    /// A link would be made.
    Link = 5,
    /// The entry could not be copied.
    Fail = 6,
    /// The filter leaves it out.
    Exclude = 7,
    /// The entry would be deleted, since the source lacks it.
    Delete = 8,
}

impl Action {
    /// All actions.
    pub const ALL: [Self; 9] = [
        Self::Send,
        Self::Replace,
        Self::Compare,
        Self::Keep,
        Self::Make,
        Self::Link,
        Self::Fail,
        Self::Exclude,
        Self::Delete,
    ];

    pub(crate) fn from_number(n: u8) -> Option<Self> {
        Self::ALL.get(usize::from(n)).copied()
    }

    /// True if a file would be sent.
    pub const fn sends(self) -> bool {
        matches!(self, Self::Send | Self::Replace)
    }

    /// The name used in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Replace => "replace",
            Self::Compare => "compare",
            Self::Keep => "keep",
            Self::Make => "make",
            Self::Link => "link",
            Self::Fail => "fail",
            Self::Exclude => "exclude",
            Self::Delete => "delete",
        }
    }
}

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

/// Permissions and time of modification of a listed entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedStamp {
    /// The twelve bits of `chmod`.
    pub mode: u16,
    /// Seconds since 1970, and nanoseconds.
    pub modified: (i64, u32),
}
