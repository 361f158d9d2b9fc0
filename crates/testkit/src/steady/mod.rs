//! What is the cheapest session that still delivers? One fixed rate, a 25-byte header, a report of
//! what is missing every 10 ms. For measuring the worlds that run it and for testing their tests;
//! it shares a path with nobody and has no ordered stream.
//!
//! Everything queued is laid out one after the other on a line of positions; packets, reports and
//! repairs speak of spans of that line.

mod engine;
mod receiver;
mod sender;
mod wire;

use std::net::SocketAddr;

use farhaul_core::{
    protocol::{Accepted, Descriptor, Protocol, Provenance, Route, Session},
    rng::Rng,
    time::Instant,
    units::Rate,
};

use engine::SteadyEngine;
use farhaul_core::plain::{HELLO, PlainSession, head, route};

/// The protocol; the rate is of UDP payload.
#[derive(Clone, Copy, Debug)]
pub struct Steady {
    /// What a sender sends at.
    pub rate: Rate,
    /// UDP payload bytes of a full datagram.
    pub datagram: u16,
    /// Re-send what was lost. Without it the session is not live, as a harness must find.
    pub repair: bool,
}

impl Steady {
    /// At `rate`, in datagrams for a path of `mtu` bytes.
    pub const fn new(rate: Rate, mtu: u16) -> Self {
        Self {
            rate,
            datagram: mtu - 28,
            repair: true,
        }
    }
}

static DESCRIPTOR: Descriptor = Descriptor {
    name: "steady",
    summary: "a fixed rate and plain repair, for measuring what runs it",
    provenance: Provenance::Specification,
    citation: "this module",
    sealed: false,
    control_lane: false,
    multiplexed: false,
};

impl Protocol for Steady {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }

    fn route(&self, datagram: &[u8]) -> Route {
        route(datagram)
    }

    fn connect(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        to: SocketAddr,
        _interface_mtu: Option<u32>,
    ) -> (u64, Box<dyn Session>) {
        let id = rng.below(1 << 32);
        (
            id,
            Box::new(PlainSession::new(
                SteadyEngine::new(*self, now),
                now,
                id,
                to,
                true,
            )),
        )
    }

    fn accept(
        &mut self,
        now: Instant,
        _rng: &mut Rng,
        from: SocketAddr,
        datagram: &[u8],
        _reply: &mut Vec<u8>,
    ) -> Accepted {
        match head(datagram) {
            Some((HELLO, id)) => {
                let session =
                    PlainSession::new(SteadyEngine::new(*self, now), now, id, from, false);
                Accepted::Session(id, Box::new(session))
            }
            _ => Accepted::Drop,
        }
    }
}
