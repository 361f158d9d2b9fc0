//! Helpers that the tests share.

use std::time::Duration;

use farhaul_core::{protocol::Protocol, units::Rate};
use farhaul_protocols::rbudp::{Config, RBUDP, client, server};
use farhaul_testkit::Pair;

pub(crate) use crate::shared::ms;

/// Blocks of 100 packets.
pub(crate) fn config() -> Config {
    Config {
        rate: Rate::mbit(80),
        payload: Some(1_000),
        block: 100_000,
        ..Config::default()
    }
}

/// Three blocks at once.
pub(crate) fn overlap() -> Config {
    Config {
        window: 3,
        ..config()
    }
}

pub(crate) fn ends(config: &Config) -> (Box<dyn Protocol>, Box<dyn Protocol>) {
    (
        Box::new(client(&RBUDP, config)),
        Box::new(server(&RBUDP, config)),
    )
}

/// A pair that is open.
pub(crate) fn open(config: &Config, delay: Duration) -> Pair {
    let (client, server) = ends(config);
    let mut pair = Pair::new(client, server, delay, 7);
    pair.connect(Some(9_000));
    let both = |p: &mut Pair| !p.client.events.is_empty() && !p.server.events.is_empty();
    assert!(pair.run(Duration::from_secs(4), both), "{pair:#?}");
    pair
}
