//! Reads the clock, at the only place in farhaul that does so (besides the emulator's). All shards
//! of a process share one epoch, so their instants can be compared.

use std::{sync::OnceLock, time};

use farhaul_core::time::Instant;

/// Now, on the monotonic clock; the epoch is the first call in the process.
#[expect(
    clippy::disallowed_methods,
    reason = "the one clock from which every turn gets the time"
)]
pub fn now() -> Instant {
    static EPOCH: OnceLock<time::Instant> = OnceLock::new();
    let now = time::Instant::now();
    let epoch = *EPOCH.get_or_init(|| now);
    Instant::EPOCH + now.saturating_duration_since(epoch)
}

/// Now, on the clock by which the kernel stamps what arrives.
#[expect(
    clippy::disallowed_methods,
    reason = "for the distance to a time of arrival, and for dates"
)]
pub(crate) fn stamp() -> time::SystemTime {
    time::SystemTime::now()
}

/// Time since 1970, on the clock of the wall, which may be set at any time.
pub fn since_1970() -> time::Duration {
    let since = stamp().duration_since(time::UNIX_EPOCH);
    since.unwrap_or_default()
}

/// Time since 1970 in whole seconds.
pub fn unix_seconds() -> u64 {
    since_1970().as_secs()
}

/// Time from `at` to `now`; zero if that cannot be, as when the clock was set meanwhile.
pub(crate) fn waited(now: time::SystemTime, at: time::SystemTime) -> time::Duration {
    const LONGEST: time::Duration = time::Duration::from_secs(1);
    let since = now.duration_since(at);
    since.ok().filter(|d| *d < LONGEST).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_no_wait() {
        let second = time::Duration::from_secs(1);
        let wait = time::Duration::from_millis(3);
        let now = stamp();
        assert_eq!(waited(now, now - wait), wait);
        assert_eq!(waited(now, now + wait), time::Duration::ZERO);
        assert_eq!(waited(now, now - second), time::Duration::ZERO);
    }

    #[test]
    fn never_goes_back() {
        let times: Vec<_> = (0..1_000).map(|_| now()).collect();
        assert!(times.is_sorted());
    }
}
