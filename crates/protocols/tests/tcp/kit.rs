//! What do the tests share? Endpoints and pairs by their settings.

use std::time::Duration;

use farhaul_congestion::{Values, lookup};
use farhaul_core::{
    protocol::{Event, Protocol},
    stats::Stats,
};
use farhaul_protocols::tcp::{Config, PARAMETERS, Tcp, wire::Header};
use farhaul_testkit::{Pair, Side};

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(crate) fn config(law: &str, settings: &str) -> Config {
    let values = Values::parse("tcp", PARAMETERS, settings).expect("valid settings");
    Config::new(lookup(law).expect("a law"), &values)
}

pub(crate) fn ends(settings: &str) -> (Box<dyn Protocol>, Box<dyn Protocol>) {
    let config = config("reno:slow_start=classic", settings);
    (
        Box::new(Tcp::client(config.clone())),
        Box::new(Tcp::server(config)),
    )
}

/// A pair one `delay` apart.
pub(crate) fn pair(settings: &str, delay: Duration) -> Pair {
    let (client, server) = ends(settings);
    Pair::new(client, server, delay, 7)
}

/// Opens a pair over interfaces of 1,500 bytes.
pub(crate) fn open(pair: &mut Pair) {
    pair.connect(Some(1_500));
    let both = |p: &mut Pair| !p.client.events.is_empty() && !p.server.events.is_empty();
    assert!(pair.run(Duration::from_secs(20), both), "{pair:?}");
    assert!(matches!(pair.client.events[0], Event::Connected { .. }));
}

/// The client sends `len` bytes of object 1.
pub(crate) fn offer(pair: &mut Pair, len: u64) {
    pair.client.session().expect("open").send(1, 0, len);
    pair.settle(Side::Client);
}

/// Runs until the client has been told that all was delivered.
pub(crate) fn deliver(pair: &mut Pair, limit: Duration) {
    let done = |p: &mut Pair| p.client.events.contains(&Event::Delivered);
    assert!(pair.run(limit, done), "{pair:#?}");
}

pub(crate) fn stats(pair: &mut Pair, side: Side) -> Stats {
    pair.node(side).session().expect("open").stats()
}

/// Payload bytes of a datagram.
pub(crate) fn payload(bytes: &[u8]) -> usize {
    let (_, len) = Header::decode(bytes).expect("sessions send what they can read");
    bytes.len() - len
}
