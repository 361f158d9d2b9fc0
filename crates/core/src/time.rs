//! Instants of the engine, which never asks a clock: every turn is given the time. An [`Instant`]
//! is a count of nanoseconds since the driver's own epoch. Unlike `std::time::Instant`, it can be
//! made from a number, printed and compared between runs.

use std::{
    fmt,
    num::NonZeroU64,
    ops::{Add, AddAssign, Sub},
    time::Duration,
};

/// A point in time, ns since the driver's epoch. `Option<Instant>` is eight bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(NonZeroU64);

impl Default for Instant {
    fn default() -> Self {
        Self::EPOCH
    }
}

impl Instant {
    /// The driver's epoch.
    pub const EPOCH: Self = Self(NonZeroU64::MIN);
    /// Later than any deadline.
    pub const FAR_FUTURE: Self = Self(NonZeroU64::MAX);

    /// The instant `nanos` ns after the epoch; saturates at [`Self::FAR_FUTURE`].
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(nanos))
    }

    /// ns since the epoch.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0.get() - 1
    }

    /// Time passed since `earlier`; zero if `earlier` is later.
    #[inline]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.get().saturating_sub(earlier.0.get()))
    }

    /// `self` moved back by `d`, not before the epoch.
    #[must_use]
    #[inline]
    pub const fn earlier_by(self, d: Duration) -> Self {
        Self::from_nanos(self.as_nanos().saturating_sub(nanos(d)))
    }
}

/// A duration as whole ns in 64 bits (584 years), saturating.
#[inline]
pub const fn nanos(d: Duration) -> u64 {
    match d.as_secs().checked_mul(1_000_000_000) {
        Some(whole) => whole.saturating_add(d.subsec_nanos() as u64),
        None => u64::MAX,
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    #[inline]
    fn add(self, d: Duration) -> Self {
        Self(self.0.saturating_add(nanos(d)))
    }
}

impl AddAssign<Duration> for Instant {
    #[inline]
    fn add_assign(&mut self, d: Duration) {
        *self = *self + d;
    }
}

impl Sub for Instant {
    type Output = Duration;
    #[inline]
    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.as_nanos();
        write!(f, "{}.{:09}", n / 1_000_000_000, n % 1_000_000_000)
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn option_costs_nothing_and_arithmetic_saturates() {
        assert_eq!(size_of::<Option<Instant>>(), 8);
        let t = Instant::from_nanos(12_000_345_678);
        assert_eq!(t.to_string(), "12.000345678");
        assert_eq!(t + Duration::MAX, Instant::FAR_FUTURE);
        assert_eq!(Instant::EPOCH - t, Duration::ZERO);
        assert_eq!(t.earlier_by(Duration::from_secs(99)), Instant::EPOCH);
        assert_eq!(t - Instant::EPOCH, Duration::from_nanos(12_000_345_678));
    }
}
