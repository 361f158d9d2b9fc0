//! Policies for the share of a link that a sender claims beside others.

use std::{fmt, str::FromStr};

/// Share of a contended link to claim. An uncontended link is used in full with any of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// Claims only capacity that no other flow uses (scavenger, like LEDBAT).
    Low,
    /// Claims as much as each of the others.
    #[default]
    Fair,
    /// Claims as much as two of the others.
    High,
}

impl Sharing {
    /// All claims, the least first.
    pub const ALL: [Self; 3] = [Self::Low, Self::Fair, Self::High];

    /// The word used on command lines and in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Fair => "fair",
            Self::High => "high",
        }
    }
}

impl fmt::Display for Sharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Error: the name of a claim is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write low, fair or high")]
pub struct NotASharing;

impl FromStr for Sharing {
    type Err = NotASharing;

    fn from_str(text: &str) -> Result<Self, NotASharing> {
        Self::ALL
            .into_iter()
            .find(|s| s.name() == text)
            .ok_or(NotASharing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        for sharing in Sharing::ALL {
            assert_eq!(sharing.to_string().parse(), Ok(sharing));
        }
        assert_eq!("fixed".parse::<Sharing>(), Err(NotASharing));
    }
}
