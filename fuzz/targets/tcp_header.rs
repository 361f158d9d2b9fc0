//! Headers of TCP segments, and a listener with any input.

use std::{cell::RefCell, thread_local};

use farhaul_congestion::{Values, lookup};
use farhaul_core::{codec::Writer, protocol::Protocol, rng::Rng, time::Instant};
use farhaul_protocols::tcp::{
    Config, PARAMETERS, Tcp,
    wire::{Header, MAX_HEADER, destination},
};

thread_local! {
    static TCP: RefCell<Tcp> = RefCell::new({
        let values = Values::parse("tcp", PARAMETERS, "ecn=on").expect("valid settings");
        Tcp::server(Config::new(lookup("cubic").expect("a law"), &values))
    });
}

pub(crate) fn run(data: &[u8]) {
    if let Ok((header, len)) = Header::decode(data) {
        assert!(len <= data.len());
        assert_eq!(destination(data), Some(header.to));
        let mut bytes = [0; MAX_HEADER];
        let mut w = Writer::new(&mut bytes);
        header.encode(&mut w).expect("what was read can be written");
        let len = w.len();
        assert_eq!(Header::decode(&bytes[..len]), Ok((header, len)));
    }
    TCP.with_borrow_mut(|tcp| {
        let mut reply = Vec::new();
        let _ = tcp.route(data);
        let from = "192.0.2.1:1".parse().expect("an address");
        let now = Instant::from_nanos(1 << 40);
        tcp.accept(now, &mut Rng::new(1), from, data, &mut reply);
        assert!(reply.len() <= 3 * data.len());
    });
}
