//! Configuration of an endpoint.

use farhaul_core::{
    protocol::{Descriptor, Provenance},
    pull::LEAST_RATE,
    shell::Endpoint,
    units::Rate,
};

use super::{PaUdpMachine, PaUdpStyle};

/// Descriptor of the protocol.
pub static DESCRIPTOR: Descriptor = Descriptor {
    name: "pa-udp",
    summary: "Performance-Adaptive UDP: the rate follows the receiver's disk and free memory, told over TCP",
    provenance: Provenance::Paper,
    citation: "Eckart, He, Wu, Xie, A Dynamic Performance-Based Flow Control Method for High-Speed Data \
               Transfer, IEEE Transactions on Parallel and Distributed Systems 21(1), 2010",
    sealed: false,
    control_lane: true,
    multiplexed: false,
};

/// Behaviour of an endpoint.
#[derive(Clone, Debug)]
pub struct Config {
    /// Payload rate of the link: the sending rate while the receiver's disk is not the limit.
    pub link: Rate,
    /// Highest rate at which to send.
    pub max_rate: Option<Rate>,
    /// Largest packet, bytes, IP and UDP included.
    pub mtu: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            link: Rate::mbit(900),
            max_rate: None,
            mtu: 1_500,
        }
    }
}

/// A PA-UDP endpoint.
pub type PaUdp = Endpoint<PaUdpMachine>;

/// An endpoint that opens sessions.
pub fn client(config: &Config) -> PaUdp {
    server(config).client_only()
}

/// An endpoint that also accepts them.
pub fn server(config: &Config) -> PaUdp {
    let link = config.link.max(LEAST_RATE);
    let most = config.max_rate.unwrap_or(Rate::UNLIMITED).min(link);
    let most = most.max(LEAST_RATE);
    Endpoint::new(&DESCRIPTOR, config.mtu, move || {
        PaUdpMachine::new(PaUdpStyle::new(link, most))
    })
}
