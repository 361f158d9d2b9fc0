//! A client and a listener of haul without a network, in virtual time.
#![allow(unreachable_pub, reason = "a module of several test binaries")]
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "only tests use it")]

use std::{net::SocketAddr, time::Duration};

use farhaul_haul::{Haul, HaulConfig};
use farhaul_testkit::Pair;

pub fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

pub fn config(seed: u8) -> HaulConfig {
    HaulConfig {
        // A law whose behaviour is no subject here.
        law: "fixed:rate=100Mbit".into(),
        ..HaulConfig::new([seed; 32])
    }
}

pub fn pair(client: HaulConfig, server: HaulConfig, delay: Duration) -> Pair {
    with_mtu(client, server, delay, 1_500)
}

pub fn with_mtu(client: HaulConfig, server: HaulConfig, delay: Duration, mtu: u32) -> Pair {
    let (client, server) = (Haul::client(client).unwrap(), Haul::server(server).unwrap());
    of(client, server, delay, mtu)
}

/// Between endpoints made outside; the client has a session, and has said nothing yet.
pub fn of(client: Haul, server: Haul, delay: Duration, mtu: u32) -> Pair {
    let mut pair = Pair::new(Box::new(client), Box::new(server), delay, 1);
    pair.largest = usize::try_from(mtu).unwrap() - 28;
    pair.coalesces = false;
    let to = pair.server.address;
    pair.client.connect(pair.now, to, Some(mtu));
    pair
}
