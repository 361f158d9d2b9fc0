//! A listener with any input: its answers are bounded and it never panics.

use std::{cell::RefCell, thread_local};

use farhaul_core::{protocol::Protocol, rng::Rng, time::Instant};
use farhaul_haul::{Haul, HaulConfig};

thread_local! {
    static HAUL: RefCell<Haul> = RefCell::new(
        Haul::server(HaulConfig {
            plain: true,
            ..HaulConfig::new([7; 32])
        })
        .expect("a valid configuration"),
    );
}

pub(crate) fn run(data: &[u8]) {
    HAUL.with_borrow_mut(|haul| {
        let mut reply = Vec::new();
        let _ = haul.route(data);
        let from = "192.0.2.1:1".parse().expect("an address");
        let now = Instant::from_nanos(1 << 40);
        haul.accept(now, &mut Rng::new(1), from, data, &mut reply);
        assert!(reply.len() <= 3 * data.len());
    });
}
