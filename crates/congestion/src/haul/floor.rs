//! How long has the queue been at least lately? The least of the last reports: jitter delays one packet and not the
//! next, a queue all of them.

use std::time::Duration;

/// Reports of which the least is kept; between once and twice as many count.
const REPORTS: u32 = 4;

/// The shortest queue of the last reports.
#[derive(Clone, Debug, Default)]
pub(super) struct Floor {
    reports: u32,
    present: Duration,
    before: Duration,
}

impl Floor {
    /// Takes a report's queue.
    pub(super) fn take(&mut self, queue: Duration) {
        self.present = if self.reports == 0 {
            queue
        } else {
            self.present.min(queue)
        };
        self.reports += 1;
        if self.reports == REPORTS {
            self.reports = 0;
            self.before = self.present;
        }
    }

    /// The queue was no shorter.
    pub(super) fn least(&self) -> Duration {
        self.present.min(self.before)
    }
}
