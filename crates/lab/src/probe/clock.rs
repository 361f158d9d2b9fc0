//! Clocks of the probe. The kernel stamps arrivals by the wall clock, so departures are stamped by
//! it, too. Pacing goes by the monotonic clock, and the distance between both shows whether the
//! wall clock was set meanwhile.

use std::{
    num::NonZeroU64,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// Time by which the kernel may wake a thread late; the thread spins for it.
const SPIN: Duration = Duration::from_micros(100);

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    wall: u64,
    monotonic: Instant,
}

impl Clock {
    /// Both at once.
    pub(super) fn start() -> Self {
        // Between these two readings the thread may lose its core: the narrowest of a few counts.
        let reading = || {
            let before = now();
            let wall = wall();
            (now() - before, wall, before)
        };
        let narrowest = (0..8).map(|_| reading()).min_by_key(|r| r.0);
        let (_, wall, monotonic) = narrowest.unwrap_or_else(reading);
        Self { wall, monotonic }
    }

    /// Time by which the wall clock was set, forward or back, since the start, ns.
    pub(super) fn stepped(&self) -> u64 {
        let later = Self::start();
        let monotonic = later.monotonic.duration_since(self.monotonic);
        let passed = u64::try_from(monotonic.as_nanos()).unwrap_or(u64::MAX);
        later.wall.abs_diff(self.wall.saturating_add(passed))
    }
}

/// ns since 1970, by the clock of the kernel's stamps.
#[expect(
    clippy::disallowed_methods,
    reason = "compared with the kernel's times of arrival"
)]
pub(super) fn wall() -> u64 {
    ns(SystemTime::now())
}

/// A stamp of the kernel in ns since 1970.
pub(super) fn ns(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// The monotonic clock.
#[expect(
    clippy::disallowed_methods,
    reason = "the probe paces real packets in real time"
)]
pub(super) fn now() -> Instant {
    Instant::now()
}

/// Returns at `due`, or at once if that has passed; awake for the last 100 us.
pub(super) fn wait_until(due: Instant) {
    rest_until(due.checked_sub(SPIN).unwrap_or(due));
    while now() < due {
        std::hint::spin_loop();
    }
}

/// Returns at `due` or a little later, asleep meanwhile.
#[expect(clippy::disallowed_methods, reason = "the pace of a stream of packets")]
pub(super) fn rest_until(due: Instant) {
    let left = due.saturating_duration_since(now());
    if !left.is_zero() {
        thread::sleep(left);
    }
}

/// Lets the kernel wake this thread when requested instead of up to 50 us later.
pub(super) fn wake_precisely() {
    // Where it is refused, the report shows how late packets were sent.
    let _refused = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
}
