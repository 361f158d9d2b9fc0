//! Configuration of an endpoint.

use std::time::Duration;

use farhaul_core::{
    protocol::{Descriptor, Provenance},
    shell::Endpoint,
    units::Rate,
};

use super::{MtpMachine, MtpStyle};

/// The model, by the preferred reading of the measurements.
pub static FIRST: Descriptor = Descriptor {
    name: "mtp",
    summary: "a model of MTP/IP: the receiver asks for each piece and owns the window; not the vendor's protocol",
    provenance: Provenance::Model,
    citation: "US patents 7158479, 7404003, 7630315, 7313627; Kachan, Siemens, 2014",
    sealed: false,
    control_lane: false,
    multiplexed: false,
};

/// The model by the other reading.
pub static SECOND: Descriptor = Descriptor {
    name: "mtp-b",
    summary: "the model of MTP/IP by another reading of the same figures: half the window, dearer requests",
    ..FIRST
};

/// Behaviour of an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Units in transit at most.
    pub window: u64,
    /// Loss up to this share is no sign of congestion.
    pub tolerated: f64,
    /// Time that an arriving unit takes of the receiving host: a cost of the hosts of 2014.
    pub unit_cost: Duration,
    /// Time that a request takes of the receiving host.
    pub request_cost: Duration,
    /// Highest rate at which to send.
    pub max_rate: Option<Rate>,
    /// Largest packet, bytes, IP and UDP included.
    pub mtu: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            window: 1_024,
            tolerated: 0.007_5,
            unit_cost: Duration::from_nanos(8_200),
            request_cost: Duration::from_nanos(4_200),
            max_rate: None,
            mtu: 8_233,
        }
    }
}

/// An MTP endpoint.
pub type Mtp = Endpoint<MtpMachine>;

/// An endpoint that opens sessions.
pub fn client(descriptor: &'static Descriptor, config: &Config) -> Mtp {
    server(descriptor, config).client_only()
}

/// An endpoint that also accepts them.
pub fn server(descriptor: &'static Descriptor, config: &Config) -> Mtp {
    let config = *config;
    Endpoint::new(descriptor, config.mtu, move || {
        MtpMachine::new(MtpStyle::new(&config))
    })
}
