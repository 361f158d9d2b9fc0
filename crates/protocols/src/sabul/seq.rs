//! How do sequence numbers modulo 100,000,000 become numbers that never wrap? A number from the wire is
//! the nearest one to what is known.
//!
//! Invariant: [`expand`] undoes [`wrap`] for every number less than 50,000,000 away from `near`.
//!
//! Source: SABUL 2.x as read, 2003.

/// One more than the highest sequence number on the wire.
pub const MODULUS: u32 = 100_000_000;
/// Numbers farther away than this are on the other side.
pub const HALF: u32 = MODULUS / 2;
/// The 64-bit number of the first packet, 0 on the wire; older ones are not negative.
pub const FIRST: u64 = MODULUS as u64;

/// What crosses the wire.
#[expect(clippy::cast_possible_truncation, reason = "less than the modulus")]
pub const fn wrap(number: u64) -> u32 {
    (number % MODULUS as u64) as u32
}

/// The number nearest to `near` that is `wire` on the wire; `wire` is below [`MODULUS`].
pub const fn expand(wire: u32, near: u64) -> u64 {
    let ahead = (wire + MODULUS - wrap(near)) % MODULUS;
    if ahead < HALF {
        near + ahead as u64
    } else {
        near.saturating_sub((MODULUS - ahead) as u64)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_wrap_at_a_hundred_million() {
        assert_eq!(wrap(FIRST), 0);
        assert_eq!(wrap(2 * FIRST - 1), MODULUS - 1);
        assert_eq!(expand(0, 2 * FIRST - 1), 2 * FIRST);
        assert_eq!(expand(MODULUS - 1, 2 * FIRST), 2 * FIRST - 1);
    }

    proptest! {
        #[test]
        fn what_was_wrapped_is_found_again(near in FIRST..1 << 40, off in 0..u64::from(HALF), back in any::<bool>()) {
            let number = if back { near - off.min(u64::from(HALF) - 1) } else { near + off };
            prop_assert_eq!(expand(wrap(number), near), number);
        }
    }
}
