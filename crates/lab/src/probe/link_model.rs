//! Predicts when a packet should arrive, by the probe's own model of a link: a queue served at a
//! rate, then a delay. The model starts from the departures that the probe stamped itself, and
//! shares no code with the emulator's.

/// Femtoseconds, so that rounding does not add up over a run.
const PER_SECOND: u128 = 1_000_000_000_000_000;
const PER_NANO: u128 = 1_000_000;

/// A first-in-first-out queue in front of a link.
#[derive(Clone, Debug)]
pub(super) struct LinkModel {
    rate: u128,
    delay: u64,
    limit: Option<u64>,
    /// Time at which the link has sent what it took so far, in fs.
    free: u128,
}

impl LinkModel {
    /// A link of `rate` bit/s and `delay` ns; at most `limit` bytes wait, those in service
    /// included.
    pub(super) fn new(rate: u64, delay: u64, limit: Option<u64>) -> Self {
        Self {
            rate: u128::from(rate.max(1)),
            delay,
            limit,
            free: 0,
        }
    }

    /// `bytes` enter at `at` ns: when they arrive at the other end, in ns; `None` if they do not fit.
    pub(super) fn offer(&mut self, at: u64, bytes: u64) -> Option<u64> {
        let now = u128::from(at) * PER_NANO;
        let from = self.free.max(now);
        let waiting = (from - now) * self.rate / (8 * PER_SECOND);
        if let Some(limit) = self.limit
            && waiting + u128::from(bytes) > u128::from(limit)
        {
            return None;
        }
        self.free = from + u128::from(bytes) * 8 * PER_SECOND / self.rate;
        let left = u64::try_from(self.free / PER_NANO).unwrap_or(u64::MAX);
        Some(left.saturating_add(self.delay))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_wait_for_those_before_them_and_for_the_delay() {
        let mut link = LinkModel::new(1_000_000_000, 5_000, None);
        assert_eq!(link.offer(0, 1_250), Some(15_000));
        assert_eq!(link.offer(0, 1_250), Some(25_000));
        // Idle again.
        assert_eq!(link.offer(100_000, 125), Some(106_000));
    }

    #[test]
    fn what_does_not_fit_is_refused_and_space_returns_with_time() {
        let mut link = LinkModel::new(8_000_000_000, 0, Some(3_000));
        let taken = (0..5).filter_map(|_| link.offer(0, 1_000)).count();
        assert_eq!(taken, 3);
        assert_eq!(link.offer(999, 1_000), None);
        assert_eq!(link.offer(1_000, 1_000), Some(4_000));
    }

    #[test]
    fn fractions_of_a_nanosecond_do_not_add_up() {
        let mut link = LinkModel::new(7_000_000_000, 0, None);
        let last = (0..700_000).map(|_| link.offer(0, 1_000)).last().flatten();
        assert_eq!(last, Some(799_999_999), "0.8 s, rounded down");
    }
}
