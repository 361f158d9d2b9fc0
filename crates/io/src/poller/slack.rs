//! Timer slack of a thread, which Linux lets it choose.

use std::num::NonZeroU64;

use rustix::thread::{current_timer_slack, set_current_timer_slack};

/// Guard; while it lives, deadlines of the thread are met to the nanosecond. The default slack of
/// 50 us is a whole batch at 10 Gbit/s.
#[derive(Debug)]
pub(crate) struct Punctual {
    slack_before: Option<NonZeroU64>,
}

impl Punctual {
    pub(crate) fn new() -> Self {
        let slack_before = current_timer_slack().ok().and_then(NonZeroU64::new);
        // Refused, it costs smoothness, not correctness.
        let _refused = set_current_timer_slack(Some(NonZeroU64::MIN));
        Self { slack_before }
    }
}

impl Drop for Punctual {
    fn drop(&mut self) {
        // The thread may be the caller's; refused, it stays more punctual than it was.
        let _refused = set_current_timer_slack(self.slack_before);
    }
}
