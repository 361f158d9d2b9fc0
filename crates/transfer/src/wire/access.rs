//! Direction of a copy, and the access of peers to shares.

/// Direction in which the files go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Put,
    Get,
}

/// Access of peers to a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Fetch.
    Read,
    /// Deliver: existing files keep their permissions, links and write-protected files stay.
    Write,
    /// Deliver under new names only: existing entries stay.
    Create,
    /// Deliver and fetch.
    ReadWrite,
    /// Deliver, fetch, delete and move.
    Delete,
}

impl Access {
    /// The forms of [`Self::parse`], for people.
    pub const WORDS: &str = "ro, wo, create, rw or rw,delete";

    /// `ro`, `wo`, `create`, `rw` or `rw,delete`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Read => "ro",
            Self::Write => "wo",
            Self::Create => "create",
            Self::ReadWrite => "rw",
            Self::Delete => "rw,delete",
        }
    }

    /// Parses a [`Self::word`].
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "ro" => Some(Self::Read),
            "wo" => Some(Self::Write),
            "create" => Some(Self::Create),
            "rw" => Some(Self::ReadWrite),
            "rw,delete" => Some(Self::Delete),
            _ => None,
        }
    }

    /// Access that both permit, if that is anything.
    pub const fn and(self, other: Self) -> Option<Self> {
        let get = self.permits(Direction::Get) && other.permits(Direction::Get);
        let put = self.permits(Direction::Put) && other.permits(Direction::Put);
        match (get, put, self, other) {
            (_, _, Self::Delete, Self::Delete) => Some(Self::Delete),
            (true, true, ..) => Some(Self::ReadWrite),
            (true, false, ..) => Some(Self::Read),
            (false, true, Self::Create, _) | (false, true, _, Self::Create) => Some(Self::Create),
            (false, true, ..) => Some(Self::Write),
            (false, false, ..) => None,
        }
    }

    /// True if peers with this access may copy so.
    pub(crate) const fn permits(self, direction: Direction) -> bool {
        match self {
            Self::Read => matches!(direction, Direction::Get),
            Self::Write | Self::Create => matches!(direction, Direction::Put),
            Self::ReadWrite | Self::Delete => true,
        }
    }
}

/// A share that a peer may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    /// Name of the share.
    pub name: Vec<u8>,
    /// Access that the peer has.
    pub access: Access,
}
