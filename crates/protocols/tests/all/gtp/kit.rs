//! Helpers that the tests share.

use farhaul_core::{protocol::Protocol, units::Rate};
use farhaul_protocols::gtp::{Config, Group, client, server};
use farhaul_testkit::Pair;

pub(crate) use crate::shared::ms;

pub(crate) fn ends(group: &Group) -> (Box<dyn Protocol>, Box<dyn Protocol>) {
    let config = Config {
        capacity: Rate::mbit(80),
        ..Config::default()
    };
    (Box::new(client(&config)), Box::new(server(&config, group)))
}

/// A pair that is open, 20 ms there and back, and receives in `group`.
pub(crate) fn member(group: &Group, seed: u64) -> Pair {
    let (client, server) = ends(group);
    let mut pair = Pair::new(client, server, ms(10), seed);
    pair.connect(None);
    pair.open();
    pair
}

/// A pair that is open, with a group of its own.
pub(crate) fn open() -> Pair {
    member(&Group::default(), 7)
}
