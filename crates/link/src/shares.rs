//! Draws whether a packet belongs to the unlucky share. A probability is held as a 64-bit
//! threshold, so that a draw is one comparison of integers and 100 % is exactly always.

use farhaul_core::rng::Rng;

/// A probability. Never draws when it is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share(u64);

impl Share {
    /// The share of a fraction; outside 0..=1 is clamped.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float-to-int `as` saturates, which is the clamp"
    )]
    pub(crate) fn new(fraction: f64) -> Self {
        Self((fraction * 18_446_744_073_709_551_616.0) as u64)
    }

    /// True for this share of the calls.
    pub(crate) fn hit(self, rng: &mut Rng) -> bool {
        match self.0 {
            0 => false,
            u64::MAX => true,
            threshold => rng.next_u64() < threshold,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_are_exact_and_a_share_is_fair() {
        let mut rng = Rng::new(3);
        let count =
            |p: f64, rng: &mut Rng| (0..1_000_000).filter(|_| Share::new(p).hit(rng)).count();
        assert_eq!(count(0.0, &mut rng), 0);
        assert_eq!(count(-1.0, &mut rng), 0);
        assert_eq!(count(1.0, &mut rng), 1_000_000);
        assert!((19_300..20_700).contains(&count(0.02, &mut rng)));
    }
}
