//! Bounds the clients for which a server begins a session before they have proven that they receive
//! at their addresses. The bound is so high that nobody waits for a token on a server that is not
//! loaded. It is so low that spoofed addresses cost the server little. Beyond the bound the answer
//! is a token, for which the server keeps nothing.
//!
//! Invariants: there are never more than `most` entries, a quarter of them of one source. An entry ends when the address is
//! validated or its time is over, not with the session: what it bounds is how many are begun.

use std::{
    collections::VecDeque,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use farhaul_core::{prefix::client_prefix, time::Instant};

/// The session's end of an entry.
pub(crate) struct Entry(Arc<AtomicBool>);

impl Entry {
    /// The client has proven that it receives at its address.
    pub(crate) fn validated(self) {
        self.0.store(true, Relaxed);
    }
}

struct Begun {
    at: Instant,
    source: IpAddr,
    validated: Arc<AtomicBool>,
}

/// Sessions begun for addresses that are not validated, oldest first.
pub(crate) struct Unvalidated {
    most: usize,
    /// Time for which each entry counts.
    time: Duration,
    begun: VecDeque<Begun>,
}

impl Unvalidated {
    pub(crate) const fn new(most: usize, time: Duration) -> Self {
        Self {
            most,
            time,
            begun: VecDeque::new(),
        }
    }

    /// True if a session may be begun for `from` now.
    pub(crate) fn has_room(&mut self, now: Instant, from: IpAddr) -> bool {
        let counts =
            |begun: &Begun| now.since(begun.at) < self.time && !begun.validated.load(Relaxed);
        self.begun.retain(counts);
        let from = client_prefix(from);
        let of_source = self.begun.iter().filter(|begun| begun.source == from);
        self.begun.len() < self.most && of_source.count() < self.most.div_ceil(4)
    }

    /// One is begun for `from`.
    pub(crate) fn enter(&mut self, now: Instant, from: IpAddr) -> Entry {
        let validated = Arc::new(AtomicBool::new(false));
        self.begun.push_back(Begun {
            at: now,
            source: client_prefix(from),
            validated: Arc::clone(&validated),
        });
        Entry(validated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    const TIME: Duration = Duration::from_secs(15);

    #[test]
    fn so_many_in_all_and_a_quarter_of_one_source() {
        let now = Instant::from_nanos(1 << 40);
        let mut unvalidated = Unvalidated::new(8, TIME);
        for host in ["2001:db8::1", "2001:db8::2"] {
            assert!(unvalidated.has_room(now, ip(host)));
            unvalidated.enter(now, ip(host));
        }
        assert!(
            !unvalidated.has_room(now, ip("2001:db8::3")),
            "the same /64"
        );
        for host in 1..=6 {
            let host = ip(&format!("192.0.2.{host}"));
            assert!(unvalidated.has_room(now, host));
            unvalidated.enter(now, host);
        }
        assert!(!unvalidated.has_room(now, ip("198.51.100.1")));
        assert!(!Unvalidated::new(0, TIME).has_room(now, ip("192.0.2.1")));
    }

    #[test]
    fn those_that_are_validated_or_old_no_longer_count() {
        let now = Instant::from_nanos(1 << 40);
        let mut unvalidated = Unvalidated::new(2, TIME);
        let (first, second) = (ip("192.0.2.1"), ip("192.0.2.2"));
        let entry = unvalidated.enter(now, first);
        // That the session is gone changes nothing.
        drop(unvalidated.enter(now + TIME / 2, second));
        assert!(!unvalidated.has_room(now + TIME / 2, ip("192.0.2.3")));
        entry.validated();
        assert!(unvalidated.has_room(now + TIME / 2, first));
        assert!(!unvalidated.has_room(now + TIME / 2, second));
        assert!(!unvalidated.has_room(now + TIME, second));
        assert!(unvalidated.has_room(now + TIME + TIME / 2, second));
    }
}
