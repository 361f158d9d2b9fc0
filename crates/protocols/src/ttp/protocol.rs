//! The endpoint, and its configuration.

use std::time::Duration;

use farhaul_core::{
    protocol::{Descriptor, Provenance},
    shell::{Endpoint, Limits},
    units::Rate,
};

use super::{
    machine::TtpMachine,
    wire::{HEADER, Parameters, WHOLE},
};

/// Descriptor of the protocol.
pub static DESCRIPTOR: Descriptor = Descriptor {
    name: "ttp",
    summary: "the Tsunami UDP protocol 1.1: a set rate, the receiver asks for what is missing over TCP",
    provenance: Provenance::Source,
    citation: "Meiss, Tsunami: A High-Speed Rate-Controlled Protocol for File Transfer, 2002; \
               Tsunami UDP Protocol v1.1",
    sealed: false,
    control_lane: true,
    multiplexed: false,
};

/// Bits per second for each byte of a packet. At thrice the least gap fifty blocks then take 6 s,
/// and twice as long if half of them are lost. A sender waits 15 s for a report of them.
pub(super) const LEAST_RATE: u32 = 200;

/// Action of a receiver on missing blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Missing blocks are requested until they arrive.
    Repaired,
    /// Requests blocks that are not older than this at the target rate, and none if it is zero.
    Borne(Duration),
}

/// Behaviour of an endpoint.
#[derive(Clone, Debug)]
pub struct Config {
    /// Parameters by which this end wants to be sent to; of the block size, no more than fits a
    /// datagram is used.
    pub wanted: Parameters,
    /// Action on loss.
    pub loss: Loss,
    /// Maximum sending rate, whatever the peer requests.
    pub max_rate: Option<Rate>,
    /// Largest packet, bytes, IP and UDP included, 128 to 65,535.
    pub mtu: u32,
    /// A client gives up if the opening is not done in this time.
    pub answer: Duration,
    /// A sender without feedback for so long gives up.
    pub heartbeat: Duration,
}

impl Default for Config {
    /// Blocks that fill a datagram; else as the original.
    fn default() -> Self {
        Self {
            wanted: Parameters {
                block_size: 65_501,
                ..Parameters::default()
            },
            loss: Loss::Repaired,
            max_rate: None,
            mtu: 1_500,
            answer: Duration::from_secs(5),
            heartbeat: Duration::from_secs(15),
        }
    }
}

/// Reason why an endpoint could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A number out of its range.
    #[error("{0}")]
    Range(&'static str),
}

/// A Tsunami endpoint.
pub type Ttp = Endpoint<TtpMachine>;

/// An endpoint that opens sessions.
pub fn client(config: &Config) -> Result<Ttp, ConfigError> {
    Ok(server(config)?.client_only())
}

/// An endpoint that also accepts them.
pub fn server(config: &Config) -> Result<Ttp, ConfigError> {
    let (mtu, wanted) = (config.mtu, config.wanted);
    if !(128..=65_535).contains(&mtu) {
        return Err(ConfigError::Range("mtu is from 128 to 65,535 bytes"));
    }
    if !(64..=65_501).contains(&wanted.block_size) {
        return Err(ConfigError::Range("a block has from 64 to 65,501 bytes"));
    }
    let mut bytes = Vec::new();
    wanted.encode(&mut bytes);
    if wanted.error_rate >= WHOLE || Parameters::decode(&bytes).is_err() {
        return Err(ConfigError::Range(
            "the rate is at least 1 bit/s, errors are below 100 %, slower is at least 1, faster at most 1",
        ));
    }
    // Datagrams are as long as a block needs: none is shorter than agreed.
    let datagram = wanted.block_size + HEADER;
    let rate = config.max_rate.map_or(u64::from(wanted.rate), Rate::bps);
    let least = u64::from(LEAST_RATE) * u64::from(datagram.min(mtu));
    if rate.min(wanted.rate.into()) < least {
        return Err(ConfigError::Range(
            "so slow a rate takes longer for the fifty blocks between reports than a sender waits for \
             one: at least 300 kbit/s, more for larger packets",
        ));
    }
    let (loss, max_rate, heartbeat) = (config.loss, config.max_rate, config.heartbeat);
    let make = move || TtpMachine::new(wanted, loss, max_rate, heartbeat);
    let limits = Limits {
        answer: config.answer,
        blocked: heartbeat,
        datagram,
        ..Limits::default()
    };
    Ok(Endpoint::new(&DESCRIPTOR, mtu, make).with_limits(limits))
}
