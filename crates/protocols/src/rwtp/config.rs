//! Configuration of an endpoint.

use std::time::Duration;

use farhaul_core::{
    protocol::{Descriptor, Provenance},
    shell::Endpoint,
    units::Rate,
};

use super::RwtpMachine;

/// The model.
pub static RWTP: Descriptor = Descriptor {
    name: "rwtp",
    summary: "a model of RWTP: a preset rate, every missing packet told of every 10 ms; not the vendor's protocol",
    provenance: Provenance::Model,
    citation: "Kachan, Siemens, Comparison of contemporary solutions for high speed data transport, 2014",
    sealed: false,
    control_lane: false,
    multiplexed: false,
};

/// Behaviour of an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Fixed rate of UDP payload.
    pub rate: Rate,
    /// Highest rate at which to send.
    pub max_rate: Option<Rate>,
    /// Bytes of data from the first missing one to the last sent, at most; both ends have it.
    pub buffer: u64,
    /// Largest packet, bytes, IP and UDP included.
    pub mtu: u32,
    /// Sending pauses this long per loss report: the cost measured on the original's hosts of 2014.
    pub blocked: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            rate: Rate::gbit(9),
            max_rate: None,
            buffer: 1 << 30,
            mtu: 8_828,
            blocked: Duration::from_micros(48),
        }
    }
}

/// An RWTP endpoint.
pub type Rwtp = Endpoint<RwtpMachine>;

/// An endpoint that opens sessions.
pub fn client(config: &Config) -> Rwtp {
    server(config).client_only()
}

/// An endpoint that also accepts them.
pub fn server(config: &Config) -> Rwtp {
    let config = *config;
    Endpoint::new(&RWTP, config.mtu, move || RwtpMachine::new(&config))
}
