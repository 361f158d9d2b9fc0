//! Tickets. The holder proves by a key, which only the ticket gives, that it may use one path of
//! one share. The ticket says in which way and how many times. A keeper of tickets implements
//! [`Tickets`].

use std::fmt;

use farhaul_core::units::Rate;

use super::Access;
use crate::{error::TransferError, wire::path};

/// Right of the holder of a ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// Share that the right is for.
    pub share: String,
    /// Path that the right is for, with all below it.
    pub path: Vec<u8>,
    /// Access, as far as the share itself permits it.
    pub access: Access,
    /// Highest rate of its files in either direction.
    pub max_rate: Option<Rate>,
}

impl Right {
    /// True if the right is for this place.
    pub(super) fn covers(&self, share: &[u8], at: &[u8]) -> bool {
        self.share.as_bytes() == share && is_below(&self.path, at)
    }

    /// True if `at`, which the right covers, is its own path, not one below.
    pub(super) fn is_at(&self, at: &[u8]) -> bool {
        is_below(at, &self.path)
    }
}

/// True if `at` is the path `own` or below it.
pub(super) fn is_below(own: &[u8], at: &[u8]) -> bool {
    let own = own.strip_suffix(b"/").unwrap_or(own);
    let at = at.strip_suffix(b"/").unwrap_or(at);
    let below = match at.strip_prefix(own) {
        Some(rest) => own.is_empty() || rest.is_empty() || rest.starts_with(b"/"),
        None => false,
    };
    below && (at.is_empty() || path::refusal(at).is_none())
}

/// Keeps tickets. A peer has proved that it has a key before anything is asked about it, so that
/// answers disclose nothing to others.
pub trait Tickets: fmt::Debug + Send + Sync {
    /// True if a ticket has this key, valid or not. Called in handshakes.
    fn knows(&self, key: &[u8]) -> bool;

    /// The right of the ticket with this key, if there is one; why it is over, if it is.
    fn right(&self, key: &[u8]) -> Result<Option<Right>, TransferError>;

    /// Counts a use, unless `tag` is one that was counted and has not ended well: an interrupted copy continues. An
    /// error if there is no use left, or if it cannot be recorded for good.
    fn begin(&self, key: &[u8], tag: [u8; 8]) -> Result<(), TransferError>;

    /// The copy that began a use has ended well: the same again is another use.
    fn end(&self, key: &[u8], tag: [u8; 8]) -> Result<(), TransferError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_is_for_a_path_and_what_is_below_it() {
        let right = |path: &str| Right {
            share: "s".into(),
            path: path.into(),
            access: Access::Read,
            max_rate: None,
        };
        for (own, at, covered) in [
            ("", "", true),
            ("", "a/b", true),
            ("a", "a", true),
            ("a/", "a", true),
            ("a", "a/", true),
            ("a/b", "a/b/c", true),
            ("a", "ab", false),
            ("a/b", "a", false),
            ("a", "", false),
            ("a", "a/../b", false),
            ("a", "a/../../b", false),
            ("", "../x", false),
            ("a", "b", false),
        ] {
            let only = own.trim_end_matches('/') == at.trim_end_matches('/');
            assert_eq!(
                covered && right(own).is_at(at.as_bytes()),
                only,
                "{own} {at}"
            );
            assert_eq!(
                right(own).covers(b"s", at.as_bytes()),
                covered,
                "{own} {at}"
            );
        }
        assert!(!right("").covers(b"t", b""));
    }
}
