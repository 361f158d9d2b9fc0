//! Turns sequence numbers that wrap into numbers that never do. A number from the wire stands for
//! the nearest number to what is known.
//!
//! Invariant: [`Wrap::expand`] undoes [`Wrap::wrap`] for every number less than half the modulus away
//! from `near`.

/// Numbers modulo `MODULUS` on the wire, at most 2^32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrap<const MODULUS: u64>;

impl<const MODULUS: u64> Wrap<MODULUS> {
    /// Number that crosses the wire.
    #[expect(clippy::cast_possible_truncation, reason = "less than the modulus")]
    pub const fn wrap(number: u64) -> u32 {
        const { assert!(MODULUS > 1 && MODULUS <= 1 << 32) };
        (number % MODULUS) as u32
    }

    /// Distance from `from` to `to`, the short way round; negative if `to` lies before `from`.
    #[expect(clippy::cast_possible_wrap, reason = "at most 2^32")]
    pub const fn distance(from: u32, to: u32) -> i64 {
        let ahead = (to as u64 + MODULUS - from as u64 % MODULUS) % MODULUS;
        if ahead < MODULUS.div_ceil(2) {
            ahead as i64
        } else {
            ahead as i64 - MODULUS as i64
        }
    }

    /// The number nearest to `near` that is `wire` on the wire; not below 0.
    pub const fn expand(wire: u32, near: u64) -> u64 {
        let number = near.saturating_add_signed(Self::distance(Self::wrap(near), wire));
        let low = wire as u64 % MODULUS;
        // Where the nearest one would be negative, the next is meant.
        if number == 0 { low } else { number }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found<const M: u64>(near: u64, off: i64) {
        let half = i64::try_from(M / 2).unwrap();
        let number = near.saturating_add_signed(off % half);
        assert_eq!(Wrap::<M>::expand(Wrap::<M>::wrap(number), near), number);
    }

    #[test]
    fn numbers_wrap_at_their_modulus() {
        type Bytes = Wrap<256>;
        assert_eq!(Bytes::wrap(256), 0);
        assert_eq!((Bytes::distance(254, 1), Bytes::distance(1, 254)), (3, -3));
        assert_eq!(Bytes::expand(0, 255), 256);
        assert_eq!(Bytes::expand(255, 256), 255);
        assert_eq!(Bytes::expand(255, 0), 255, "never negative");
        assert_eq!(
            Wrap::<{ 1 << 32 }>::expand(u32::MAX, 1 << 32),
            (1 << 32) - 1
        );
    }

    proptest! {
        #[test]
        fn what_was_wrapped_is_found_again(near in 1_u64 << 33..1 << 60, off: i64) {
            found::<256>(near, off);
            found::<100_000_000>(near, off);
            found::<{ 1 << 31 }>(near, off);
            found::<{ 1 << 32 }>(near, off);
        }

        #[test]
        fn nothing_overflows(near: u64, wire: u32) {
            let number = Wrap::<{ 1 << 32 }>::expand(wire, near);
            prop_assert!(number.abs_diff(near) <= 1 << 32);
        }
    }
}
