//! Endpoints and pairs by their settings, which the tests share.

use std::time::Duration;

use farhaul_congestion::{Values, lookup};
use farhaul_core::{protocol::Protocol, stats::Stats};
use farhaul_protocols::tcp::{Config, PARAMETERS, Tcp, wire::Header};
use farhaul_testkit::{Pair, Side};

pub(crate) use crate::shared::ms;

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
    pair.open();
}

/// The client sends `len` bytes of object 1.
pub(crate) fn offer(pair: &mut Pair, len: u64) {
    pair.client.session().send(1, 0, len);
    pair.settle(Side::Client);
}

/// Runs until the client has the event that all was delivered.
pub(crate) fn deliver(pair: &mut Pair, limit: Duration) {
    pair.until(limit, |p| p.client.delivered());
}

pub(crate) fn stats(pair: &mut Pair, side: Side) -> Stats {
    pair.node(side).session().stats()
}

/// Payload bytes of a datagram.
pub(crate) fn payload(bytes: &[u8]) -> usize {
    let (_, len) = Header::decode(bytes).expect("sessions send what they can read");
    bytes.len() - len
}
