//! Handshakes that failed: one line for the first of a source in a minute, and one with the number of the rest.

use std::{collections::BTreeMap, net::IpAddr, sync::Mutex, time::Duration};

use farhaul_core::time::Instant;

/// Time over which failures of one source are summed up.
const WINDOW: Duration = Duration::from_mins(1);
/// Sources that are kept apart; failures of more are summed up together.
const SOURCES: usize = 64;

/// Failures that were not written out yet.
#[derive(Debug, Default)]
pub(super) struct Rejected(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    began: Option<Instant>,
    /// Failures behind the first, by source.
    sources: BTreeMap<IpAddr, u64>,
    /// Failures of further sources.
    others: u64,
}

/// Failures of one source, or of several, that were not written one by one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct More {
    /// `None` for all sources beyond [`SOURCES`].
    pub(super) from: Option<IpAddr>,
    pub(super) failures: u64,
}

impl Rejected {
    /// Counts a failure; true if it is to be written, with the lines for a minute that is over.
    pub(super) fn add(&self, now: Instant, from: IpAddr) -> (bool, Vec<More>) {
        let over = self.over(now);
        let mut window = self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        window.began.get_or_insert(now);
        let from = network(from);
        if let Some(more) = window.sources.get_mut(&from) {
            *more += 1;
            return (false, over);
        }
        if window.sources.len() < SOURCES {
            window.sources.insert(from, 0);
            return (true, over);
        }
        window.others += 1;
        (false, over)
    }

    /// Failures of a minute that is over.
    pub(super) fn over(&self, now: Instant) -> Vec<More> {
        let mut window = self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if window.began.is_none_or(|began| now.since(began) < WINDOW) {
            return Vec::new();
        }
        window.take()
    }

    /// Failures that were not written yet.
    pub(super) fn rest(&self) -> Vec<More> {
        let mut window = self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        window.take()
    }
}

impl Window {
    fn take(&mut self) -> Vec<More> {
        let Self {
            sources, others, ..
        } = std::mem::take(self);
        let of_source = |(from, failures)| More {
            from: Some(from),
            failures,
        };
        let others = More {
            from: None,
            failures: others,
        };
        let all = sources.into_iter().map(of_source).chain([others]);
        all.filter(|more| more.failures > 0).collect()
    }
}

/// An IPv4 address, or the /64 of an IPv6 address: what one host has.
fn network(from: IpAddr) -> IpAddr {
    match from.to_canonical() {
        IpAddr::V6(v6) => {
            let bits = v6.to_bits() >> 64 << 64;
            IpAddr::V6(bits.into())
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_a_minute_is_written_and_the_rest_are_summed_up() {
        let (rejected, mut now) = (Rejected::default(), Instant::EPOCH);
        let (one, two) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        assert_eq!(rejected.add(now, one), (true, vec![]));
        for _ in 0..999 {
            now += Duration::from_millis(10);
            assert_eq!(rejected.add(now, one), (false, vec![]));
        }
        assert_eq!(rejected.add(now, two), (true, vec![]));
        now += WINDOW;
        let more = More {
            from: Some(one),
            failures: 999,
        };
        assert_eq!(rejected.add(now, two), (true, vec![more]));
        assert_eq!(rejected.over(now), []);
    }

    #[test]
    fn any_number_of_sources_takes_a_bounded_memory_and_few_lines() {
        let (rejected, now) = (Rejected::default(), Instant::EPOCH);
        let written = (0..100_000_u32).filter(|i| rejected.add(now, IpAddr::V4((*i).into())).0);
        assert_eq!(written.count(), SOURCES);
        let mut over = rejected.over(now + WINDOW);
        assert_eq!(over.pop().map(|more| more.failures), Some(100_000 - 64));
        assert_eq!(over, []);
    }

    #[test]
    fn addresses_of_one_host_are_one_source() {
        let all = ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"];
        let all = all.map(|text| network(text.parse().expect("an address")));
        assert!(all[0] == all[1] && all[0] != all[2]);
        let mapped: IpAddr = "::ffff:10.0.0.1".parse().expect("an address");
        assert_eq!(network(mapped), IpAddr::from([10, 0, 0, 1]));
    }
}
