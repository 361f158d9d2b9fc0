//! Settles the version of the messages and the features that two ends use with each other, by what
//! each declares in the handshake of its session ([`Offer`]): before the first message.

use std::ops::RangeInclusive;

use crate::{
    error::TransferError,
    wire::{Exit, Features, Offer, shown_range},
};

/// Version and features that two ends use with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agreed {
    pub(crate) version: u16,
    pub(crate) features: Features,
}

impl Agreed {
    /// Agreement of this end and a peer that declared `theirs`; `peer` is what to call it.
    pub(crate) fn with(theirs: &[u8], peer: &str) -> Result<Self, TransferError> {
        let theirs = Offer::decode(theirs)
            .map_err(|e| TransferError::protocol(format!("{peer} declared nonsense: {e}")))?;
        Self::of(Offer::ours(), theirs, peer)
    }

    /// The highest common version, with the common features.
    fn of(ours: Offer, theirs: Offer, peer: &str) -> Result<Self, TransferError> {
        let version = ours.newest.min(theirs.newest);
        if version < ours.oldest.max(theirs.oldest) {
            return Err(apart(&ours.versions(), &theirs.versions(), peer));
        }
        Ok(Self {
            version,
            features: ours.features.common(theirs.features),
        })
    }

    /// An error unless `peer` has `feature` too, without which `what` cannot be done.
    pub(crate) fn needs(
        self,
        feature: Features,
        what: &str,
        peer: &str,
    ) -> Result<(), TransferError> {
        if self.features.has(feature) {
            return Ok(());
        }
        let who = if self.features == Features::NONE {
            "an older farhaul or a `farhaul bench serve`,"
        } else {
            "an older farhaul"
        };
        let text = format!("{peer} is {who} without the feature '{feature}': {what}");
        let fix = format!(
            "install farhaul {} or newer there",
            env!("CARGO_PKG_VERSION")
        );
        Err(TransferError::new(Exit::Version, text).fix(fix))
    }
}

/// Difference of an end without the feature `patterns`.
pub(crate) const OTHER_PATTERNS: &str = "it may match other paths by patterns with braces, brackets, backslashes, or ** beside other characters";

/// Error for two ends that have no version in common: names the one to renew.
pub(crate) fn apart(
    ours: &RangeInclusive<u16>,
    theirs: &RangeInclusive<u16>,
    peer: &str,
) -> TransferError {
    let text = format!(
        "no common version of the transfer protocol: this end has {}, {peer} {}",
        shown_range(ours),
        shown_range(theirs)
    );
    let here = env!("CARGO_PKG_VERSION");
    let fix = if theirs.end() < ours.start() {
        format!("{peer} is older: install there the farhaul that is here, {here}, or a newer one")
    } else {
        format!("this end, {here}, is older: install here the farhaul that {peer} has")
    };
    TransferError::new(Exit::Version, text).fix(fix)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::{NEWEST, OLDEST};

    const A: Features = Features::PIPES;
    const B: Features = Features::CHANGES;

    fn offer(oldest: u16, newest: u16, features: Features) -> Offer {
        Offer {
            oldest,
            newest,
            features,
        }
    }

    #[test]
    fn the_highest_common_version_and_the_common_features_are_used() {
        for (ours, theirs, version) in [
            ((6, 6), (6, 6), 6),
            ((6, 8), (6, 7), 7),
            ((6, 7), (7, 9), 7),
            ((8, 9), (6, 8), 8),
        ] {
            let ours = offer(ours.0, ours.1, A | B);
            let theirs = offer(theirs.0, theirs.1, B | Features::LANES);
            let here = Agreed::of(ours, theirs, "the server").unwrap();
            assert_eq!((here.version, here.features), (version, B));
            assert_eq!(Agreed::of(theirs, ours, "the client"), Ok(here));
        }
    }

    #[test]
    fn without_a_common_version_both_ranges_and_the_older_end_are_named() {
        let (old, new) = (offer(6, 7, A), offer(8, 9, A));
        let here = Agreed::of(new, old, "the server").unwrap_err();
        assert_eq!(here.code, Exit::Version);
        assert!(
            here.text
                .ends_with("this end has versions 8 to 9, the server versions 6 to 7")
        );
        assert!(
            here.fix.starts_with("the server is older: install there"),
            "{here}"
        );
        let there = Agreed::of(old, new, "the client").unwrap_err();
        assert!(there.fix.contains("is older: install here"), "{there}");
    }

    #[test]
    fn an_end_that_declares_nothing_has_the_oldest_version_without_features() {
        let agreed = Agreed::with(b"", "the server").unwrap();
        assert_eq!((agreed.version, agreed.features), (OLDEST, Features::NONE));
        let e = agreed
            .needs(A, "a pipe needs it", "the server")
            .unwrap_err();
        assert_eq!(e.code, Exit::Version);
        assert!(e.fix.starts_with("install farhaul"), "{e}");
        let own = Agreed::with(&crate::wire::offer(), "the server").unwrap();
        assert_eq!(
            (own.version, own.features),
            (NEWEST, Offer::ours().features)
        );
    }

    proptest! {
        #[test]
        fn whatever_is_declared_only_what_both_have_is_used(
            bytes in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            if let Ok(agreed) = Agreed::with(&bytes, "the peer") {
                prop_assert!((OLDEST..=NEWEST).contains(&agreed.version));
                prop_assert!(Offer::ours().features.has(agreed.features));
            }
        }
    }
}
