//! Configuration of an endpoint: its choices, and the group that its sessions belong to.

use farhaul_core::{
    protocol::{Descriptor, Provenance},
    pull::LEAST_RATE,
    shell::Endpoint,
    units::Rate,
};

use super::{Group, GtpMachine, GtpStyle};

/// Descriptor of the protocol.
pub static DESCRIPTOR: Descriptor = Descriptor {
    name: "gtp",
    summary: "the Group Transport Protocol: the receiver asks, and shares its link among all who send to it",
    provenance: Provenance::Paper,
    citation: "Wu, Chien, GTP: Group Transport Protocol for Lambda-Grids, CCGrid, 2004",
    sealed: false,
    control_lane: false,
    multiplexed: false,
};

/// Behaviour of an endpoint.
#[derive(Clone, Debug)]
pub struct Config {
    /// Capacity of the receiving host, IP and UDP headers included.
    pub capacity: Rate,
    /// Highest rate at which to send.
    pub max_rate: Option<Rate>,
    /// Largest packet, bytes, IP and UDP included.
    pub mtu: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            capacity: Rate::gbit(1),
            max_rate: None,
            mtu: 1_500,
        }
    }
}

/// A GTP endpoint.
pub type Gtp = Endpoint<GtpMachine>;

/// A client; its sessions share one receiving group.
pub fn client(config: &Config) -> Gtp {
    server(config, &Group::default()).client_only()
}

/// A server. Endpoints given the same `group` share the capacity of one host.
pub fn server(config: &Config, group: &Group) -> Gtp {
    let most = config.max_rate.unwrap_or(Rate::UNLIMITED).max(LEAST_RATE);
    group.set_capacity(config.capacity.max(LEAST_RATE));
    let group = group.clone();
    Endpoint::new(&DESCRIPTOR, config.mtu, move || {
        GtpMachine::new(GtpStyle::new(&group, most))
    })
}
