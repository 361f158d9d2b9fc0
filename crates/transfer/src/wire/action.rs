//! Action that a copy would take on one entry.

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
