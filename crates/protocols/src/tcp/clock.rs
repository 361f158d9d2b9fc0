//! Clock of the timestamps option.

use std::time::Duration;

use farhaul_core::time::{Instant, nanos};

/// Our clock for timestamps: µs, never 0, which means "none".
#[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
pub(super) fn stamp(now: Instant) -> u32 {
    ((nanos(now.since(Instant::EPOCH)) / 1_000) as u32).max(1)
}

/// Time since our clock showed `stamp`.
pub(super) fn since_stamp(now: Instant, stamp_then: u32) -> Duration {
    Duration::from_micros(u64::from(stamp(now).wrapping_sub(stamp_then)))
}
