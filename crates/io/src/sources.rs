//! Counts how much of a listener one source, a [client's prefix](client_prefix), uses.
//!
//! Invariant: there are no more entries than sessions.

use std::{collections::BTreeMap, net::IpAddr};

use farhaul_core::prefix::client_prefix;

/// Sessions of one source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// Sessions whose handshake is not finished.
    pub(crate) half_open: usize,
    pub(crate) admitted: usize,
}

/// Sessions by source.
#[derive(Debug, Default)]
pub(crate) struct Sources(BTreeMap<IpAddr, Count>);

impl Sources {
    pub(crate) fn of(&self, ip: IpAddr) -> Count {
        self.0.get(&client_prefix(ip)).copied().unwrap_or_default()
    }

    pub(crate) fn begin(&mut self, ip: IpAddr) {
        self.0.entry(client_prefix(ip)).or_default().half_open += 1;
    }

    /// Admits a session that had begun.
    pub(crate) fn admit(&mut self, ip: IpAddr) {
        self.change(ip, |count| {
            count.half_open -= 1;
            count.admitted += 1;
        });
    }

    /// One is gone that was admitted, or not.
    pub(crate) fn end(&mut self, ip: IpAddr, admitted: bool) {
        self.change(ip, |count| {
            if admitted {
                count.admitted -= 1;
            } else {
                count.half_open -= 1;
            }
        });
    }

    fn change(&mut self, ip: IpAddr, change: impl FnOnce(&mut Count)) {
        let source = client_prefix(ip);
        if let Some(count) = self.0.get_mut(&source) {
            change(count);
            if *count == Count::default() {
                self.0.remove(&source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_an_address_or_a_network_of_one_host() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let mut sources = Sources::default();
        for text in [
            "192.0.2.1",
            "::ffff:192.0.2.1",
            "2001:db8::1",
            "2001:db8::2",
            "2001:db8:0:1::",
        ] {
            sources.begin(ip(text));
        }
        sources.admit(ip("192.0.2.1"));
        let count = |half_open, admitted| Count {
            half_open,
            admitted,
        };
        assert_eq!(sources.of(ip("192.0.2.1")), count(1, 1));
        assert_eq!(sources.of(ip("192.0.2.2")), count(0, 0));
        assert_eq!(sources.of(ip("2001:db8::3")), count(2, 0));
        sources.end(ip("192.0.2.1"), true);
        sources.end(ip("192.0.2.1"), false);
        for text in ["2001:db8::9", "2001:db8::8", "2001:db8:0:1::7"] {
            sources.end(ip(text), false);
        }
        assert!(sources.0.is_empty());
    }
}
