//! Helpers that the tests share.

use std::time::Duration;

use farhaul_core::protocol::{Event, Protocol};
use farhaul_protocols::sabul::{Config, client, server};
use farhaul_testkit::{Pair, Side};

pub(crate) use crate::shared::ms;

pub(crate) fn config(law: &str) -> Config {
    Config {
        law: law.into(),
        ..Config::default()
    }
}

pub(crate) fn ends(config: &Config) -> (Box<dyn Protocol>, Box<dyn Protocol>) {
    (
        Box::new(client(config).expect("a valid configuration")),
        Box::new(server(config).expect("a valid configuration")),
    )
}

pub(crate) fn pair(config: &Config, delay: Duration) -> Pair {
    let (client, server) = ends(config);
    Pair::new(client, server, delay, 7)
}

/// Opens a pair.
pub(crate) fn open(pair: &mut Pair) {
    pair.connect(Some(9_000));
    let both = |p: &mut Pair| !p.client.events.is_empty() && !p.server.events.is_empty();
    assert!(pair.run(Duration::from_secs(4), both), "{pair:#?}");
    for side in [Side::Client, Side::Server] {
        let first = &pair.node(side).events[0];
        assert_eq!(*first, Event::Connected { peer_key: None });
    }
}
