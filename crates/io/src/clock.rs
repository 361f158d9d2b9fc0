//! What time is it? The only place in farhaul that asks. All shards of a process share one epoch, so
//! their instants can be compared.

use std::{sync::OnceLock, time};

use farhaul_core::time::Instant;

/// Now, on the monotonic clock; the epoch is the first call in the process.
#[expect(
    clippy::disallowed_methods,
    reason = "the one clock from which every turn is told the time"
)]
pub fn now() -> Instant {
    static EPOCH: OnceLock<time::Instant> = OnceLock::new();
    let now = time::Instant::now();
    let epoch = *EPOCH.get_or_init(|| now);
    Instant::EPOCH + now.saturating_duration_since(epoch)
}

/// How long ago it was `at` by the system's clock; zero if that cannot be, as when it was set meanwhile.
#[expect(
    clippy::disallowed_methods,
    reason = "the kernel stamps what arrives by this clock"
)]
pub(crate) fn since(at: time::SystemTime) -> time::Duration {
    const LONGEST: time::Duration = time::Duration::from_secs(1);
    let since = time::SystemTime::now().duration_since(at);
    since.ok().filter(|d| *d < LONGEST).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_goes_back() {
        let times: Vec<_> = (0..1_000).map(|_| now()).collect();
        assert!(times.is_sorted());
    }
}
