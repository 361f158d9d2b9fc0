//! Versions of the messages, and features. Each end declares in the handshake of its session what it
//! has ([`Offer`]).
//!
//! - A new ability is a feature: a bit in [`Features`], used only where both ends have it. Without it every message
//!   is as it was before the feature existed.
//! - [`NEWEST`] is raised only for what cannot be said so. [`OLDEST`] follows when a layout is given up.
//! - An end that declares nothing has [`OLDEST`], without features. A server of benches declares nothing, too.

use std::{
    fmt,
    ops::{BitOr, RangeInclusive},
};

use farhaul_core::codec::{DecodeError, Reader};

use crate::wire::{Out, fields::version};

/// The oldest version that this end has.
pub(crate) const OLDEST: u16 = 6;
/// Newest version.
pub(crate) const NEWEST: u16 = 6;

/// Abilities that came after the oldest version, each a bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Features(u64);

/// Every feature of this end with its name. Documented in docs/protocols/transfer.md, where bits are assigned; a bit is
/// never used again for something else.
const NAMED: [(Features, &str); 9] = [
    (Features::PIPES, "pipes"),
    (Features::LANES, "lanes"),
    (Features::PROBES, "probes"),
    (Features::SHARES, "shares"),
    (Features::READS, "reads"),
    (Features::STRIPES, "stripes"),
    (Features::SYMLINKS, "symlinks"),
    (Features::PATTERNS, "patterns"),
    (Features::CHANGES, "changes"),
];

impl Features {
    pub(crate) const NONE: Self = Self(0);
    /// The client's end may be a pipe.
    pub(crate) const PIPES: Self = Self(1);
    /// Copies of several sessions.
    pub(crate) const LANES: Self = Self(1 << 1);
    /// Sessions that measure the path.
    pub(crate) const PROBES: Self = Self(1 << 2);
    /// Lists of shares.
    pub(crate) const SHARES: Self = Self(1 << 3);
    /// Sessions that read ranges of files.
    pub(crate) const READS: Self = Self(1 << 4);
    /// Files that several nodes send.
    pub(crate) const STRIPES: Self = Self(1 << 5);
    /// Symbolic links that lead out of the tree, or are followed.
    pub(crate) const SYMLINKS: Self = Self(1 << 6);
    /// Patterns that match exactly what they match in git.
    pub(crate) const PATTERNS: Self = Self(1 << 7);
    /// Removals, moves and copies within a share, in a session that reads.
    pub(crate) const CHANGES: Self = Self(1 << 8);

    /// All features of this end.
    fn ours() -> Self {
        NAMED.iter().fold(Self::NONE, |all, (one, _)| all | *one)
    }

    /// True if all of `other` are among them.
    pub(crate) const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Features that both have.
    pub(crate) const fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitOr for Features {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = NAMED.iter().filter(|(one, _)| self.has(*one));
        let named: Vec<&str> = named.map(|(_, name)| *name).collect();
        f.write_str(&named.join(", "))
    }
}

/// Versions and features that one end has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) oldest: u16,
    pub(crate) newest: u16,
    pub(crate) features: Features,
}

impl Offer {
    /// Offer of this end.
    pub(crate) fn ours() -> Self {
        Self {
            oldest: OLDEST,
            newest: NEWEST,
            features: Features::ours(),
        }
    }

    pub(crate) fn versions(self) -> RangeInclusive<u16> {
        self.oldest..=self.newest
    }

    /// Declaration of a peer, for people.
    pub(crate) fn describe(bytes: &[u8]) -> String {
        match Self::decode(bytes) {
            Ok(offer) if offer.features.common(Features::ours()) == Features::NONE => {
                format!(
                    "transfer protocol {}, no features",
                    shown_range(&offer.versions())
                )
            }
            Ok(offer) => {
                let versions = shown_range(&offer.versions());
                format!("transfer protocol {versions}, features: {}", offer.features)
            }
            Err(e) => format!("it declares nonsense: {e}"),
        }
    }

    fn encode(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut out = Out(&mut bytes);
        out.varint(self.oldest.into());
        out.varint(self.newest.into());
        out.varint(self.features.0);
        bytes
    }

    /// Decodes the declaration of a peer; later versions may append to it.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        if bytes.is_empty() {
            return Ok(Self {
                oldest: OLDEST,
                newest: OLDEST,
                features: Features::NONE,
            });
        }
        let mut r = Reader::new(bytes);
        let (oldest, newest) = (version(&mut r)?, version(&mut r)?);
        let features = Features(r.varint()?);
        if oldest > newest {
            return Err(DecodeError::Malformed("versions"));
        }
        Ok(Self {
            oldest,
            newest,
            features,
        })
    }
}

/// Versions as people read them.
pub(crate) fn shown_range(versions: &RangeInclusive<u16>) -> String {
    if versions.start() == versions.end() {
        format!("version {}", versions.start())
    } else {
        format!("versions {} to {}", versions.start(), versions.end())
    }
}

/// Declaration of an end of a transfer in the handshake of its session.
pub fn offer() -> Vec<u8> {
    Offer::ours().encode()
}

/// Declaration of an end that has only these features; of tests.
#[cfg(test)]
pub(crate) fn offer_of(features: Features) -> Vec<u8> {
    let offer = Offer {
        features,
        ..Offer::ours()
    };
    offer.encode()
}

/// The oldest and the newest version of the transfer protocol, and the names of the features.
pub fn levels() -> (u16, u16, Vec<&'static str>) {
    (
        OLDEST,
        NEWEST,
        NAMED.iter().map(|(_, name)| *name).collect(),
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn no_two_features_share_a_bit_or_a_name() {
        let mut all = Features::NONE;
        for (i, (one, name)) in NAMED.iter().enumerate() {
            assert_eq!(
                (one.0.count_ones(), all.common(*one)),
                (1, Features::NONE),
                "{name}"
            );
            assert!(NAMED[..i].iter().all(|(_, other)| other != name));
            all = all | *one;
        }
    }

    proptest! {
        #[test]
        fn any_declaration_is_read_the_same_again_or_refused(
            oldest: u16, newest: u16, features in 0_u64..1 << 62,
            more in prop::collection::vec(any::<u8>(), 0..9),
        ) {
            let one = Offer {
                oldest,
                newest,
                features: Features(features),
            };
            let mut wire = one.encode();
            wire.extend(more);
            let read = Offer::decode(&wire);
            prop_assert_eq!(read.is_ok(), oldest <= newest);
            prop_assert!(read.is_err() || read == Ok(one));
        }
    }
}
