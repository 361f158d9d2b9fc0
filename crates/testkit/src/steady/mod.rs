//! The cheapest session that still delivers: one fixed rate, a 25-byte header, a report of the
//! missing spans every 10 ms. For measuring the worlds that run it and for testing their tests; it
//! must not share a path.
//!
//! Everything queued is laid out one after the other on a line of positions; packets, reports and
//! repairs speak of spans of that line.

mod machine;
mod receiver;
mod sender;
mod wire;

use farhaul_core::{
    protocol::{Descriptor, Provenance},
    shell::Endpoint,
    units::Rate,
};

pub use self::machine::SteadyMachine;

/// The protocol; the rate is of UDP payload.
#[derive(Clone, Copy, Debug)]
pub struct Steady {
    /// Rate of the sender.
    pub rate: Rate,
    /// UDP payload bytes of a full datagram.
    pub datagram: u16,
    /// True to re-send lost data. Without it the session is not live, as a harness must find.
    pub repair: bool,
}

impl Steady {
    /// The protocol at `rate`, in datagrams for a path of `mtu` bytes.
    pub const fn new(rate: Rate, mtu: u16) -> Self {
        Self {
            rate,
            datagram: mtu - 28,
            repair: true,
        }
    }

    /// A protocol with these settings.
    pub fn endpoint(self) -> Endpoint<SteadyMachine> {
        let mtu = u32::from(self.datagram) + 28;
        Endpoint::new(&DESCRIPTOR, mtu, move || SteadyMachine::new(self))
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
