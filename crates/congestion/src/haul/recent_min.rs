//! Least queue lately. Jitter delays one packet and not the next, a queue all of them. The minimum
//! is over reports, not time: in a short queue that is shared the least comes and goes within a
//! round trip.

use std::time::Duration;

/// Reports whose least is kept; between once and twice as many count.
const REPORTS: u32 = 4;

/// The shortest queue of the last reports.
#[derive(Clone, Debug, Default)]
pub(super) struct RecentMin {
    reports: u32,
    present: Duration,
    before: Duration,
}

impl RecentMin {
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
    pub(super) fn get(&self) -> Duration {
        self.present.min(self.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_delays_every_report_and_jitter_some() {
        let ms = Duration::from_millis;
        let mut queued = RecentMin::default();
        let mut jitter = RecentMin::default();
        assert_eq!(queued.get(), Duration::ZERO);
        for i in 0..20 {
            queued.take(ms(8 + i % 3));
            jitter.take(ms(5 * (i % 4)));
        }
        assert_eq!((queued.get(), jitter.get()), (ms(8), ms(0)));
        // What was is forgotten after twice as many reports.
        for _ in 0..2 * REPORTS {
            jitter.take(ms(9));
        }
        assert_eq!(jitter.get(), ms(9));
    }
}
