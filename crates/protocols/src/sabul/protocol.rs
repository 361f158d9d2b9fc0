//! The endpoint, and its configuration.

use std::time::Duration;

use farhaul_core::{
    protocol::{Descriptor, Provenance},
    shell::{Endpoint, Limits},
    units::Rate,
};

use super::{machine::SabulMachine, seq::HALF, wire::Options};
use crate::config::{ConfigError, sending_law};

/// Descriptor of the protocol.
pub static DESCRIPTOR: Descriptor = Descriptor {
    name: "sabul",
    summary: "SABUL 2.x: data in datagrams, losses one by one over TCP",
    provenance: Provenance::Source,
    citation: "Gu, Hong, Mazzucco, Grossman, SABUL, IEEE Communications Letters, 2003; SABUL 2.x",
    sealed: false,
    control_lane: true,
    multiplexed: false,
};

/// Behaviour of an endpoint.
#[derive(Clone, Debug)]
pub struct Config {
    /// Congestion law and its parameters.
    pub law: String,
    /// Highest rate at which to send.
    pub max_rate: Option<Rate>,
    /// Largest packet, bytes, IP and UDP included, 128 to 65,535; by default what the original has,
    /// 1,500.
    pub mss: u32,
    /// Packets that may be unacknowledged, 1 to 25,000,000.
    pub window: u32,
    /// A client gives up if the opening is not done in this time.
    pub answer: Duration,
    /// A sender gives up if none of its packets arrives for so long although the peer answers.
    pub blocked: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            law: "sabul".into(),
            max_rate: None,
            mss: 1_500,
            window: 25_600,
            answer: Duration::from_secs(5),
            blocked: Duration::from_secs(30),
        }
    }
}

/// An endpoint that speaks SABUL.
pub type Sabul = Endpoint<SabulMachine>;

/// An endpoint that opens sessions.
pub fn client(config: &Config) -> Result<Sabul, ConfigError> {
    Ok(server(config)?.client_only())
}

/// An endpoint that also accepts them.
pub fn server(config: &Config) -> Result<Sabul, ConfigError> {
    if !(128..=65_535).contains(&config.mss) {
        return Err(ConfigError::Range("mss is from 128 to 65,535 bytes"));
    }
    if !(1..=HALF / 2).contains(&config.window) {
        return Err(ConfigError::Range("window is from 1 to 25,000,000 packets"));
    }
    let law = sending_law(&config.law, "SABUL")?;
    let options = Options::new(config.mss - 28, config.window);
    let max_rate = config.max_rate;
    let make = move || SabulMachine::new(law.make(), max_rate, options);
    let limits = Limits {
        answer: config.answer,
        blocked: config.blocked,
        ..Limits::default()
    };
    Ok(Endpoint::new(&DESCRIPTOR, config.mss, make).with_limits(limits))
}
