//! Helpers that the tests share.

use std::time::Duration;

use farhaul_core::{protocol::Protocol, units::Rate};
use farhaul_protocols::fobs::{Config, Mode, client, server};
use farhaul_testkit::Pair;

pub(crate) use crate::shared::ms;

/// Chunks of 100 packets of 1,466 bytes, one each 146.6 us; segments of 20.
pub(crate) fn segments() -> Config {
    Config {
        mode: Mode::Segments {
            packets: 20,
            tolerance: 0.01,
        },
        rate: Rate::mbit(80),
        chunk: 146_600,
        ..Config::default()
    }
}

/// A configuration with the same chunks as [`segments`], and a report for each ten new packets.
pub(crate) fn greedy() -> Config {
    Config {
        mode: Mode::Greedy { every: 10 },
        ..segments()
    }
}

pub(crate) fn ends(config: &Config) -> (Box<dyn Protocol>, Box<dyn Protocol>) {
    (Box::new(client(config)), Box::new(server(config)))
}

/// A pair that is open.
pub(crate) fn open(config: &Config, delay: Duration) -> Pair {
    let (client, server) = ends(config);
    let mut pair = Pair::new(client, server, delay, 7);
    pair.connect(Some(1_500));
    let both = |p: &mut Pair| !p.client.events.is_empty() && !p.server.events.is_empty();
    assert!(pair.run(Duration::from_secs(4), both), "{pair:#?}");
    pair
}
