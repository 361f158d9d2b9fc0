//! Tracks sessions that have not finished their handshake. They have a budget of their own, so that
//! an attacker that only begins handshakes takes no place from sessions that have finished theirs.
//!
//! When the budget is spent the oldest of the most crowded network (/24 of IPv4, /48 of IPv6) makes
//! room. So one network of an attacker's does not displace the handshakes of others.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, VecDeque},
    net::{IpAddr, Ipv6Addr},
};

/// The network of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Network([u8; 6]);

impl Network {
    fn of(ip: IpAddr) -> Self {
        let v6 = match ip.to_canonical() {
            IpAddr::V4(v4) => {
                let [a, b, c, _] = v4.octets();
                // No IPv6 network begins so: it would be all of the IPv4-compatible ones.
                return Self([0, 0, 0, a, b, c]);
            }
            IpAddr::V6(v6) => v6,
        };
        let mut network = [0; 6];
        network.copy_from_slice(&Ipv6Addr::octets(&v6)[..6]);
        Self(network)
    }
}

/// Sessions by network, oldest first.
#[derive(Debug, Default)]
pub(crate) struct HalfOpen {
    /// Number of earlier ones, and the id.
    networks: BTreeMap<Network, VecDeque<(u64, u64)>>,
    len: usize,
    /// Count of sessions that began.
    came: u64,
}

impl HalfOpen {
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn insert(&mut self, from: IpAddr, id: u64) {
        self.networks
            .entry(Network::of(from))
            .or_default()
            .push_back((self.came, id));
        self.came += 1;
        self.len += 1;
    }

    /// The session finished its handshake or is gone.
    pub(crate) fn remove(&mut self, from: IpAddr, id: u64) {
        let network = Network::of(from);
        let Some(ids) = self.networks.get_mut(&network) else {
            return;
        };
        let before = ids.len();
        ids.retain(|(_, other)| *other != id);
        self.len -= before - ids.len();
        if ids.is_empty() {
            self.networks.remove(&network);
        }
    }

    /// The session to evict for the next one. Among equally crowded networks the one whose oldest arrived
    /// first.
    pub(crate) fn to_evict(&self) -> Option<u64> {
        let oldest = self
            .networks
            .values()
            .filter_map(|ids| ids.front().map(|oldest| (ids.len(), *oldest)));
        let crowded = oldest.max_by_key(|(len, (came, _))| (*len, Reverse(*came)));
        crowded.map(|(_, (_, id))| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_the_most_crowded_network_makes_room() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let mut half_open = HalfOpen::default();
        assert_eq!(half_open.to_evict(), None);
        half_open.insert(ip("198.51.100.7"), 1);
        for (i, host) in ["192.0.2.1", "::ffff:192.0.2.9", "192.0.2.200"]
            .into_iter()
            .enumerate()
        {
            half_open.insert(ip(host), 10 + i as u64);
        }
        half_open.insert(ip("2001:db8:1:2::3"), 20);
        half_open.insert(ip("2001:db8:1:ffff::"), 21);
        half_open.insert(ip("2001:db8:2::"), 22);
        assert_eq!((half_open.len(), half_open.to_evict()), (7, Some(10)));
        half_open.remove(ip("192.0.2.77"), 10);
        half_open.remove(ip("192.0.2.1"), 99);
        half_open.remove(ip("192.0.2.1"), 11);
        assert_eq!((half_open.len(), half_open.to_evict()), (5, Some(20)));
        // Among equals the oldest, wherever it is.
        half_open.remove(ip("2001:db8:1::"), 20);
        half_open.insert(ip("203.0.113.9"), 30);
        assert_eq!(half_open.to_evict(), Some(1));
        half_open.remove(ip("203.0.113.9"), 30);
        half_open.remove(ip("2001:db8:1::"), 21);
        half_open.remove(ip("2001:db8:2::"), 22);
        half_open.remove(ip("192.0.2.1"), 12);
        half_open.remove(ip("198.51.100.7"), 1);
        assert_eq!((half_open.len(), half_open.to_evict()), (0, None));
        assert!(half_open.networks.is_empty());
    }
}
