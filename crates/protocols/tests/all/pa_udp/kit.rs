//! Helpers that the tests share.

use farhaul_core::{protocol::Protocol, shell::frame::Frame, units::Rate};
use farhaul_protocols::pa_udp::{Config, client, server, wire::Message};
use farhaul_testkit::{LaneEvent, Pair, Side};

pub(crate) use crate::shared::ms;

pub(crate) fn config() -> Config {
    Config {
        link: Rate::mbit(80),
        ..Config::default()
    }
}

pub(crate) fn ends() -> (Box<dyn Protocol>, Box<dyn Protocol>) {
    (Box::new(client(&config())), Box::new(server(&config())))
}

/// A pair that is open, 20 ms there and back.
pub(crate) fn open() -> Pair {
    let (client, server) = ends();
    let mut pair = Pair::new(client, server, ms(10), 7);
    pair.connect(None);
    pair.open();
    pair
}

/// `to` hears a message.
pub(crate) fn say(pair: &mut Pair, to: Side, message: &Message) {
    let (mut words, mut bytes) = (Vec::new(), Vec::new());
    message.encode(&mut words);
    Frame::Control(&words).encode(&mut bytes);
    let now = pair.now;
    pair.inject_event(now, to, LaneEvent::Bytes(bytes));
}
