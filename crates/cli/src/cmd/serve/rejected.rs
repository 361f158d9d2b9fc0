//! Handshakes that failed: a line for each reason of a source in a minute, and one with the number of the rest.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    net::IpAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Time over which failures of one source are summed up.
pub(super) const WINDOW: Duration = Duration::from_mins(1);
/// Sources that are kept apart; failures of more are summed up together.
const SOURCES: usize = 64;
/// Reasons, refused keys among them, of which a line is written for one source.
const REASONS: usize = 8;

/// Failures that were not written out yet.
#[derive(Debug, Default)]
pub(super) struct Rejected(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    sources: BTreeMap<IpAddr, Failures>,
    /// Failures of further sources.
    others: u64,
}

/// Failures of one source.
#[derive(Debug, Default)]
struct Failures {
    /// Digests of the reasons that were written.
    written: Vec<u64>,
    more: u64,
}

/// Failures of one source, or of several, that were not written one by one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct More {
    /// Address or network; `None` for all sources beyond [`SOURCES`].
    pub(super) from: Option<String>,
    pub(super) failures: u64,
}

impl Rejected {
    /// Counts a failure for a reason; true if it is to be written.
    pub(super) fn add(&self, from: IpAddr, reason: &str) -> bool {
        let mut window = self.window();
        let from = network(from);
        let is_new = !window.sources.contains_key(&from);
        if is_new && window.sources.len() == SOURCES {
            window.others += 1;
            return false;
        }
        let source = window.sources.entry(from).or_default();
        let mut digest = DefaultHasher::new();
        reason.hash(&mut digest);
        let digest = digest.finish();
        if source.written.len() < REASONS && !source.written.contains(&digest) {
            source.written.push(digest);
            return true;
        }
        source.more += 1;
        false
    }

    /// Failures that were not written since the last call; another minute begins.
    pub(super) fn rest(&self) -> Vec<More> {
        self.window().take()
    }

    fn window(&self) -> MutexGuard<'_, Window> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Window {
    fn take(&mut self) -> Vec<More> {
        let Self {
            sources, others, ..
        } = std::mem::take(self);
        let of_source = |(from, failures): (IpAddr, Failures)| More {
            from: Some(match from {
                IpAddr::V4(v4) => v4.to_string(),
                IpAddr::V6(v6) => format!("{v6}/64"),
            }),
            failures: failures.more,
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
    fn each_reason_of_a_minute_is_written_once_and_the_rest_are_summed_up() {
        let rejected = Rejected::default();
        let (one, two) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        assert!(rejected.add(one, "key a"));
        assert!(rejected.add(one, "key b"));
        for _ in 0..999 {
            assert!(!rejected.add(one, "key a"));
        }
        assert!(rejected.add(two, "key a"));
        let more = More {
            from: Some("10.0.0.1".into()),
            failures: 999,
        };
        assert_eq!(rejected.rest(), [more]);
        assert!(rejected.add(one, "key a"));
        assert_eq!(rejected.rest(), []);
    }

    #[test]
    fn any_number_of_sources_and_keys_takes_a_bounded_memory_and_few_lines() {
        let rejected = Rejected::default();
        let written = (0..100_000_u32).filter(|i| {
            let from = IpAddr::V4((*i % 1_000).into());
            rejected.add(from, &i.to_string())
        });
        assert_eq!(written.count(), SOURCES * REASONS);
        let more: u64 = rejected.rest().iter().map(|more| more.failures).sum();
        assert_eq!(more, 100_000 - (SOURCES * REASONS) as u64);
    }

    #[test]
    fn addresses_of_one_host_are_one_source() {
        let rejected = Rejected::default();
        let add = |text: &str| {
            let from = text.parse().expect("an address");
            rejected.add(from, "the same")
        };
        assert!(add("2001:db8::1") && !add("2001:db8::2") && add("2001:db8:0:1::1"));
        assert!(add("::ffff:10.0.0.1") && !add("10.0.0.1"));
        let from: Vec<_> = rejected
            .rest()
            .into_iter()
            .filter_map(|more| more.from)
            .collect();
        assert_eq!(from, ["10.0.0.1", "2001:db8::/64"]);
    }
}
